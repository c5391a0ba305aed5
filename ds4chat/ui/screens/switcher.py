"""Choosing a session by a few letters of its title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.fuzzy import FuzzySearch
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line
from ds4chat.ui.widgets.session_list import Row, SessionList

QUERY_LIMIT = 40
"""Letters of a filter that are looked at: fuzzy matching tries every combination."""


def find(rows: Sequence[Row], query: str) -> list[Row]:
    """The rows whose title or id has the letters of `query` in order, best match first, then as they were."""
    query = " ".join(query.split())[:QUERY_LIMIT]
    if not query:
        return list(rows)
    search = FuzzySearch()
    scored: list[tuple[float, int, Row]] = []
    for index, row in enumerate(rows):
        title = one_line(row.title)
        if row.session_id.startswith(query.lower()):
            scored.append((1000.0, index, row))
            continue
        score, offsets = search.match(query, title)
        if score > 0:
            scored.append((score, index, replace(row, title=title, matched=tuple(offsets))))
    scored.sort(key=lambda item: (-item[0], item[1]))
    return [row for _, _, row in scored]


class FilterInput(Input):
    """An input in which a number, typed first, is not text."""

    class NumberPressed(Message):
        """1 to 9 was pressed while the input was empty."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def on_key(self, event: events.Key) -> None:
        if not self.value and event.character and event.character in "123456789":
            event.stop()
            event.prevent_default()
            self.post_message(self.NumberPressed(int(event.character)))


class SwitcherScreen(ModalScreen[str | None]):
    """Ends with a session's id, "" for a new one, None when the user changed their mind."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#filter"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    BINDINGS = [
        Binding("escape", "dismiss(None)", "Close", id="switcher.close", tooltip="Stay where you are."),
        Binding("ctrl+n", "new", "New chat", id="switcher.new", tooltip="Start a new chat."),
        Binding("up", "move(-1)", "Up", id="switcher.up", priority=True, show=False, tooltip="One up."),
        Binding(
            "down", "move(1)", "Down", id="switcher.down", priority=True, show=False, tooltip="One down."
        ),
        Binding("pageup", "page(-1)", "Page up", id="switcher.pageup", show=False, tooltip="One page up."),
        Binding(
            "pagedown", "page(1)", "Page down", id="switcher.pagedown", show=False, tooltip="One page down."
        ),
    ]

    def __init__(self, rows: Sequence[Row], busy: Mapping[str, str], current: str) -> None:
        super().__init__()
        self._rows, self._busy, self._current = rows, busy, current

    def compose(self) -> ComposeResult:
        with Vertical(id="switcher") as box:
            box.border_title = "Open a chat"
            box.border_subtitle = "1–9 or Enter opens · Ctrl+N new · Esc"
            yield FilterInput(placeholder="A few letters of its title", id="filter")
            yield SessionList(always_cursor=True, id="found")
            yield Static("No chat with these letters", id="nothing", markup=False)

    def on_mount(self) -> None:
        found = self.query_one(SessionList)
        found.can_focus = False
        found.current = self._current
        self._show("")
        # Who opens the list wants another session than the one on the screen.
        if len(self._rows) > 1 and self._rows[0].session_id == self._current:
            found.cursor = 1

    def _show(self, query: str) -> None:
        found = self.query_one(SessionList)
        rows = find(self._rows, query)
        found.cursor = 0
        found.numbered = not query
        found.set_rows(rows, self._busy)
        found.styles.height = max(len(rows), 1)
        self.set_class(not rows, "-nothing")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def on_input_submitted(self) -> None:
        self.query_one(SessionList).action_choose()

    def on_filter_input_number_pressed(self, message: FilterInput.NumberPressed) -> None:
        self.query_one(SessionList).action_number(message.number)

    def on_session_chosen(self, message: SessionChosen) -> None:
        message.stop()
        self.dismiss(message.session_id)

    def action_new(self) -> None:
        self.dismiss("")

    def action_move(self, by: int) -> None:
        self.query_one(SessionList).action_move(by)

    def action_page(self, by: int) -> None:
        self.query_one(SessionList).action_page(by)
