"""The question before a call of a tool runs: its name, where it is of, and all it is called with."""

from __future__ import annotations

from time import monotonic

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.ui.keys import key
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line, visible

GUARD_SECONDS = 0.6
"""So long after it appeared no key allows anything: it may be one that was meant for the message box."""


class ToolQuestion(ModalScreen[str]):
    """Ends with "once", "session" or "refuse"."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#arguments"
    BINDINGS = [
        key("a", "answer('once')", "allow once", "tool.once", "Let this call run.", show=True),
        key(
            "s",
            "answer('session')",
            "in this chat",
            "tool.session",
            "Let this tool run in this chat.",
            show=True,
        ),
        key(
            "r,escape",
            "answer('refuse')",
            "refuse",
            "tool.refuse",
            "Refuse the call; the model is told.",
            show=True,
        ),
    ]

    def __init__(self, name: str, where: str, arguments: str) -> None:
        super().__init__()
        self._name, self._where, self._arguments = one_line(name), one_line(where), visible(arguments)
        self._since = monotonic()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="call") as box:
            box.border_title = "Run a tool?"
            box.border_subtitle = "a once · s in this chat · r no"
            yield Static(f"{self._name} ({self._where}) is called with", id="name", markup=False)
            with VerticalScroll(id="arguments"):
                yield Static(self._arguments, markup=False)

    def action_answer(self, answer: str) -> None:
        if answer == "refuse" or monotonic() - self._since >= GUARD_SECONDS:
            self.dismiss(answer)
