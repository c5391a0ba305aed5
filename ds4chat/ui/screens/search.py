"""Finding what was said, in all chats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from ds4chat.errors import Ds4chatError
from ds4chat.ui.screens.early_keys import EarlyKeys
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, one_line
from ds4chat.ui.widgets.dialog_input import DialogInput
from ds4chat.ui.widgets.hit_list import HitList

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

PAGE = 50
"""Hits asked for at a time."""

TYPING_SECONDS = 0.12
"""A pause of this length in the typing starts the search."""

HINT = "What was said in any chat comes up as you type."


class SearchScreen(EarlyKeys[tuple[str, int] | None]):
    """Ends with a session's id and a message's, None when the user changed their mind."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#words"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    BINDINGS = [
        Binding("escape", "dismiss(None)", "Close", id="search.close", tooltip="Back to where you were."),
        Binding("up", "move(-1)", "Up", id="search.up", priority=True, show=False, tooltip="One hit up."),
        Binding(
            "down", "move(1)", "Down", id="search.down", priority=True, show=False, tooltip="One hit down."
        ),
        Binding("pageup", "page(-1)", "Page up", id="search.pageup", show=False, tooltip="One page up."),
        Binding(
            "pagedown", "page(1)", "Page down", id="search.pagedown", show=False, tooltip="One page down."
        ),
    ]

    def __init__(self, manager: SessionManager, words: str = "") -> None:
        super().__init__()
        self._manager = manager
        self.words = words
        """What is searched for."""
        self._timer: Timer | None = None
        self._limit = PAGE

    def compose(self) -> ComposeResult:
        with Vertical(id="search") as box:
            box.border_title = "Search in all chats"
            box.border_subtitle = "Enter goes there · Esc"
            yield DialogInput(self.words, placeholder="Words that were said", id="words")
            yield Static(HINT, id="search-state", markup=False)
            yield HitList(id="hits")

    def on_mount(self) -> None:
        self.query_one(HitList).can_focus = False
        self._search()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self.words:
            self.words = event.value
            if self._timer is not None:
                self._timer.stop()
            self._timer = self.set_timer(TYPING_SECONDS, self._search_anew)

    def _search_anew(self) -> None:
        self._timer = None
        self._limit = PAGE
        found = self.query_one(HitList)
        found.cursor = 0
        self._search()

    def _search(self) -> None:
        words = self.words.strip()
        found, state = self.query_one(HitList), self.query_one("#search-state", Static)
        try:
            hits = self._manager.search(words, self._limit) if words else []
        except Ds4chatError as error:
            hits = []
            state.update(one_line(str(error)))
        else:
            state.update(self._state_words(words, len(hits), len({hit.session_id for hit in hits})))
        found.set_hits(hits, more=len(hits) >= self._limit)

    def _state_words(self, words: str, hits: int, chats: int) -> str:
        if not words:
            return HINT
        if not hits:
            return f"Nothing found for “{clip(one_line(words), 30)}”. Fewer letters find more."
        more = " or more" if hits >= self._limit else ""
        return f"{hits:,}{more} in {chats:,} chat{'s' if chats != 1 else ''}"

    def on_line_list_more_wanted(self, message: HitList.MoreWanted) -> None:
        message.stop()
        if message.count > len(self.query_one(HitList).hits):
            self._limit += PAGE
            self._search()

    def on_input_submitted(self) -> None:
        if self._timer is not None:
            # Enter came before the pause: it is meant for what was typed, not for what is shown.
            self._timer.stop()
            self._search_anew()
        self.query_one(HitList).action_choose()

    def on_hit_list_chosen(self, message: HitList.Chosen) -> None:
        message.stop()
        self.dismiss((message.hit.session_id, message.hit.message_id))

    def action_move(self, by: int) -> None:
        self.query_one(HitList).action_move(by)

    def action_page(self, by: int) -> None:
        self.query_one(HitList).action_page(by)
