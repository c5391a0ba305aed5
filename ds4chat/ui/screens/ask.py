"""Asking for one value: a line with what may stand there, or a text of many lines."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Input, TextArea

from ds4chat.errors import Ds4chatError
from ds4chat.ui.keys import key
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line


class AskScreen(Panel[str | None]):
    """Ends with what was typed, "" to go back to the default, or None when nothing is to change.

    A value that cannot be is said, and the line stays as it was typed.
    """

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#value"
    BINDINGS = [
        key("enter", "save", "saves", "ask.save", "Save the value.", show=True),
        key("escape", "dismiss(None)", "cancels", "ask.cancel", "Leave it as it is.", show=True),
    ]

    def __init__(
        self, title: str, value: str, hint: str, check: Callable[[str], object], placeholder: str = ""
    ) -> None:
        super().__init__()
        self._title, self._value, self._hint, self._check = title, value, hint, check
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with self.box(self._title, "-small"):
            yield Input(one_line(self._value), placeholder=self._placeholder, id="value", compact=True)
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        self.words(self._hint)

    def on_input_changed(self) -> None:
        self.words(self._hint)

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        value = self.query_one("#value", Input).value.strip()
        if value:
            try:
                self._check(value)
            except Ds4chatError as error:
                self.tell(error)
                return
        self.dismiss(value)


class TextScreen(Panel[str | None]):
    """Ends with the text, or None when it is to stay. `cost` says what a changed text means, while it is written."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#text"
    BINDINGS = [
        key("ctrl+s", "save", "saves", "text.save", "Save the text.", show=True),
        key(
            "escape",
            "leave",
            "cancels",
            "text.cancel",
            "Leave it as it was; asked twice when it was changed.",
            show=True,
        ),
    ]

    def __init__(self, title: str, text: str, cost: Callable[[], str] = str, hint: str = "") -> None:
        super().__init__()
        self._title, self._text, self._cost, self._hint = title, text, cost, hint
        self._warned = False

    def compose(self) -> ComposeResult:
        with self.box(self._title, "-medium"):
            yield TextArea(self._text, id="text", compact=True, soft_wrap=True, tab_behavior="focus")
            yield self.foot()

    @property
    def _changed(self) -> bool:
        return self.query_one("#text", TextArea).text != self._text

    def on_mount(self) -> None:
        super().on_mount()
        self.words(self._hint)
        area = self.query_one("#text", TextArea)
        area.move_cursor(area.document.end)

    def on_text_area_changed(self) -> None:
        self._warned = False
        self.words((self._cost() if self._changed else "") or self._hint)

    def action_save(self) -> None:
        self.dismiss(self.query_one("#text", TextArea).text if self._changed else None)

    def action_leave(self) -> None:
        if self._changed and not self._warned:
            self._warned = True
            self.words(
                "This was changed and not saved. Esc again throws the change away.", severity="warning"
            )
        else:
            self.dismiss(None)
