"""Reading: scrolling through the chat."""

from __future__ import annotations

from ds4chat.ui.keys import key
from ds4chat.ui.screens.viewing import ViewingScreen

KEYS = [
    key("pageup", "scroll_page(-1)", "Page up", "chat.pageup", "Scroll the chat up by a page."),
    key("pagedown", "scroll_page(1)", "Page down", "chat.pagedown", "Scroll the chat down by a page."),
    key("ctrl+up", "scroll_lines(-3)", "Scroll up", "chat.up", "Scroll the chat up a little."),
    key("ctrl+down", "scroll_lines(3)", "Scroll down", "chat.down", "Scroll the chat down a little."),
    key("ctrl+home", "scroll_to_start", "To the start", "chat.start", "Go to the first message."),
    key("ctrl+end", "scroll_to_end", "To the end", "chat.end", "Go to the end, and follow the reply."),
]


class ReadingActions(ViewingScreen):
    """The part of the chat screen that scrolls."""

    def action_scroll_page(self, by: int) -> None:
        self.transcript.scroll_relative(y=by * max(self.transcript.size.height - 2, 1), animate=False)

    def action_scroll_lines(self, by: int) -> None:
        self.transcript.scroll_relative(y=by, animate=False)

    def action_scroll_to_start(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_scroll_to_end(self) -> None:
        self.transcript.follow_end()
