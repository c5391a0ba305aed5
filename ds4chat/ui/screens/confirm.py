"""A question before something that cannot be undone."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import visible


class ConfirmScreen(ModalScreen[bool]):
    """Ends with True for y; anything else that closes it means no."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = [
        Binding("y", "dismiss(True)", "Yes", id="confirm.yes", tooltip="Do it."),
        Binding("n,escape,enter", "dismiss(False)", "No", id="confirm.no", tooltip="Leave it."),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = visible(question)

    def compose(self) -> ComposeResult:
        box = Static(self._question, id="question", markup=False)
        box.border_subtitle = "y yes · n no"
        yield box
