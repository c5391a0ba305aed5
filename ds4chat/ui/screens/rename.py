"""Giving a session another title."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from ds4chat.ui.screens.early_keys import EarlyKeys
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line
from ds4chat.ui.widgets.dialog_input import DialogInput


class RenameScreen(EarlyKeys[str | None]):
    """Ends with the title, or None when it is to stay as it is. The old title is selected: typing replaces it."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel", id="rename.cancel", tooltip="Keep the title.")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = one_line(title)

    def compose(self) -> ComposeResult:
        with Vertical(id="rename") as box:
            box.border_title = "Title of this chat"
            box.border_subtitle = "Enter renames · Esc"
            yield DialogInput(self._title, id="title-input", select_on_focus=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
