"""The box the user writes in: it grows with the text, and nothing written in it is lost."""

from __future__ import annotations

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding
from textual.widgets import TextArea

from ds4chat.ui.messages import PromptSubmitted
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import visible


class PromptBox(TextArea):
    """Posts `PromptSubmitted` at Enter. Keys that only make sense in the transcript are left to the
    screen.
    """

    DEFAULT_CSS = stylesheet(__file__)

    BINDINGS = [
        Binding(
            "enter",
            "submit",
            "Send",
            id="prompt.send",
            show=False,
            tooltip="Send the message. While a reply is being written it queues.",
        ),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "New line",
            id="prompt.newline",
            show=False,
            tooltip="Start a new line (Shift+Enter where the terminal tells it from Enter).",
        ),
        Binding(
            "up",
            "earlier",
            "Earlier message",
            id="prompt.earlier",
            show=False,
            tooltip="In the first line: take up a message sent earlier in this chat.",
        ),
        Binding(
            "down",
            "later",
            "Later message",
            id="prompt.later",
            show=False,
            tooltip="In the last line: back towards what was being written.",
        ),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
        self.history_texts: list[str] = []
        """Messages sent in this chat, oldest first."""
        self.session_id = ""
        """The session that is written in: what is sent belongs to it, whatever is shown when the message arrives."""
        self._recalled: int | None = None
        self._unsent = ""

    def put(self, text: str) -> None:
        """Replace the text; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._recalled = None

    def on_paste(self, event: events.Paste) -> None:
        """Pasted line ends become newlines, and control characters visible: the terminal must not obey
        them.
        """
        event.text = visible(event.text.replace("\r\n", "\n").replace("\r", "\n"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The page keys scroll the transcript, which is longer than anything in this box."""
        return (
            False
            if action in ("cursor_page_up", "cursor_page_down")
            else super().check_action(action, parameters)
        )

    async def on_key(self, event: events.Key) -> None:
        """Editing keys act here and now.

        Textual runs bindings only after the key went up through all parents; of keys that come fast, a letter
        would overtake the Enter or the Backspace before it.
        """
        action = EDITING.get(event.key)
        if action is not None and self.check_action(action.partition("(")[0], ()) is not False:
            event.stop()
            event.prevent_default()
            await self.run_action(action)
        elif event.key.startswith("alt+") or not event.is_printable:
            await self._run_screen_key(event)
            if event.key.startswith("alt+"):
                # Alt and a digit carries the digit as its character; it is a key of the screen, not text.
                event.prevent_default()

    async def _run_screen_key(self, event: events.Key) -> None:
        """A key of the screen acts before what was typed behind it, so that words go to the chat they were meant
        for."""
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.node is self.screen and active.enabled:
            event.stop()
            event.prevent_default()
            await self.screen.run_action(active.binding.action)

    def action_submit(self) -> None:
        """Hand the text over and empty the box; whoever cannot use it calls `give_back`."""
        text = self.text
        if text.strip() and not self.read_only:
            self.load_text("")
            self._recalled = None
            self.post_message(PromptSubmitted(text, self.session_id))

    def give_back(self, text: str) -> None:
        """Put text that could not be sent before what has been typed since."""
        self.put(f"{text}\n{self.text}" if self.text else text)

    def action_newline(self) -> None:
        if not self.read_only:
            self._replace_via_keyboard("\n", *self.selection)

    def action_copy(self) -> None:
        if not self.selected_text:
            raise SkipAction()
        super().action_copy()

    def action_earlier(self) -> None:
        """Up: one line up; in the first line, the message sent before."""
        texts = self.history_texts
        at = len(texts) if self._recalled is None else self._recalled
        if not self.cursor_at_first_line or not texts or at == 0 or (self.text and self._recalled is None):
            self.action_cursor_up()
            return
        if self._recalled is None:
            self._unsent = self.text
        self._recall(at - 1)

    def action_later(self) -> None:
        """Down: one line down; in the last line of a message taken up again, the one sent after it."""
        if self._recalled is None or not self.cursor_at_last_line:
            self.action_cursor_down()
        elif self._recalled + 1 < len(self.history_texts):
            self._recall(self._recalled + 1)
        else:
            self.put(self._unsent)

    def _recall(self, index: int) -> None:
        self.put(self.history_texts[index])
        self._recalled = index


EDITING = {
    key: binding.action
    for binding in (*TextArea.BINDINGS, *PromptBox.BINDINGS)
    if isinstance(binding, Binding) and binding.action != "copy"
    for key in binding.key.split(",")
}
"""Action by key: what `TextArea` and the box itself bind."""
