"""Sessions as rows of one line, drawn when they come into view: hundreds cost as much as ten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, fit, one_line

RUNNING, QUEUED, CURRENT = "●", "○", "▸"
"""Marks of a session that is being answered, of one that waits, of the one on the screen."""


@dataclass(frozen=True)
class Row:
    """A line of the list. `matched` are the offsets in `title` that a filter found; `note` stands at the
    right.
    """

    session_id: str
    title: str
    note: str = ""
    matched: tuple[int, ...] = ()


class SessionList(ScrollView, can_focus=True):
    """Posts `SessionChosen` for Enter, a click, or a number."""

    DEFAULT_CSS = stylesheet(__file__)
    COMPONENT_CLASSES = {
        "session-list--title",
        "session-list--faint",
        "session-list--mark",
        "session-list--current",
        "session-list--cursor",
        "session-list--match",
    }
    BINDINGS = [
        Binding(
            "enter",
            "choose",
            "Open",
            id="list.open",
            show=False,
            tooltip="Open the session under the cursor.",
        ),
        Binding("up,k", "move(-1)", "Up", id="list.up", show=False, tooltip="One session up."),
        Binding("down,j", "move(1)", "Down", id="list.down", show=False, tooltip="One session down."),
        Binding("pageup", "page(-1)", "Page up", id="list.pageup", show=False, tooltip="One page up."),
        Binding("pagedown", "page(1)", "Page down", id="list.pagedown", show=False, tooltip="One page down."),
        Binding(
            "home", "move(-1000000)", "First", id="list.first", show=False, tooltip="The newest session."
        ),
        Binding("end", "move(1000000)", "Last", id="list.last", show=False, tooltip="The oldest session."),
        *(
            Binding(str(n), f"number({n})", f"Open number {n}", id=f"list.number{n}", show=False)
            for n in range(1, 10)
        ),
    ]

    cursor: reactive[int] = reactive(0)
    """Index of the row under the cursor, drawn while the list has the focus or `always_cursor`."""
    current: reactive[str] = reactive("")
    """Id of the session on the screen."""

    def __init__(self, *, always_cursor: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self.busy: Mapping[str, str] = {}
        self.always_cursor = always_cursor
        self.numbered = True
        """Whether the first nine rows show their number."""

    def set_rows(self, rows: Sequence[Row], busy: Mapping[str, str]) -> None:
        """Show other rows, or other marks on the same ones."""
        self.rows, self.busy = rows, busy
        self.virtual_size = Size(self.scrollable_content_region.width, len(rows))
        self.cursor = min(self.cursor, max(len(rows) - 1, 0))
        self.refresh()

    def move_to(self, session_id: str) -> None:
        """Put the cursor on a session, if it is listed."""
        for index, row in enumerate(self.rows):
            if row.session_id == session_id:
                self.cursor = index

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, len(self.rows) - 1))

    def watch_cursor(self, cursor: int) -> None:
        self.scroll_to_region(Region(0, cursor, 1, 1), animate=False, force=True, immediate=True)

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, len(self.rows))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if not self.rows and y == 0:
            words = Segment(clip("    none yet", width), self.get_component_rich_style("session-list--faint"))
            return Strip([words]).adjust_cell_length(width, self.rich_style)
        if index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[index]
        part = self.get_component_rich_style
        title_style, faint, mark = (part(f"session-list--{name}") for name in ("title", "faint", "mark"))
        is_current = row.session_id == self.current
        over = Style()
        if is_current:
            over = part("session-list--current")
        if index == self.cursor and (self.has_focus or self.always_cursor):
            over = over + Style(bgcolor=part("session-list--cursor").bgcolor)
        state = self.busy.get(row.session_id)
        right = {"running": RUNNING, "queued": QUEUED}.get(state or "", row.note)
        right = f" {right} " if right else " "
        number = f"{index + 1} " if index < 9 and self.numbered else "  "
        room = max(width - 4 - len(right), 1)
        title = one_line(row.title) or "New chat"
        segments = [
            Segment(f"{CURRENT if is_current else ' '} ", mark),
            Segment(number, faint),
            *self._title(fit(clip(title, room), room), row.matched, title_style, part("session-list--match")),
            Segment(right, mark if state else faint),
        ]
        keep = Style(color=over.color, bgcolor=over.bgcolor, bold=over.bold)
        background = Style(bgcolor=over.bgcolor, bold=over.bold)
        painted = [
            Segment(text, (style or Style()) + (keep if style is title_style else background))
            for text, style, _ in segments
        ]
        return Strip(painted).adjust_cell_length(width, self.rich_style + background)

    @staticmethod
    def _title(text: str, matched: tuple[int, ...], style: Style, found: Style) -> list[Segment]:
        if not matched:
            return [Segment(text, style)]
        hits = set(matched)
        return [Segment(char, found if i in hits and char != "…" else style) for i, char in enumerate(text)]

    def _choose(self, index: int) -> None:
        if 0 <= index < len(self.rows):
            self.cursor = index
            self.post_message(SessionChosen(self.rows[index].session_id))

    def on_click(self, event: events.Click) -> None:
        self._choose(self.scroll_offset.y + event.y)

    def action_choose(self) -> None:
        self._choose(self.cursor)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(self.size.height - 1, 1)

    def action_number(self, number: int) -> None:
        self._choose(number - 1)
