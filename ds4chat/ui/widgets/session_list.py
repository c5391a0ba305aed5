"""Sessions in a list: title, what its context costs to come back, length, age."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.reactive import reactive

from ds4chat.ui.listing import Marks, Row, headings, restore_words, tokens_words
from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, one_line
from ds4chat.ui.widgets.line_list import LineList, marked

RUNNING, QUEUED, UNREAD, CURRENT = "●", "○", "✓", "▸"
"""Marks of a session that is being answered, of one that waits, of one with a finished reply that was not looked at,
of the one on the screen."""

WARM, ON_DISK, COLD = "◆", "◇", "·"
"""Marks of a session whose context is in the engine, of one whose is on disk, of one that must be read again."""

LEGEND = (
    f"{WARM} in the engine  {ON_DISK} on disk, with the time it takes to come back  {COLD} must be read again\n"
    f"{RUNNING} being answered  {QUEUED} waits for the engine  {UNREAD} a new reply"
)

MARK_WIDTH, RESTORE_WIDTH, TOKENS_WIDTH, TAGS_WIDTH = 24, 46, 36, 56
"""Cells a row must have to show its mark, restore time, tokens, tags."""


class SessionList(LineList):
    """Posts `SessionChosen` for Enter, a click, or a number."""

    DEFAULT_CSS = stylesheet(__file__)
    PREFIX = "session-list"
    COMPONENT_CLASSES = {
        "session-list--title",
        "session-list--faint",
        "session-list--heading",
        "session-list--mark",
        "session-list--current",
        "session-list--cursor",
        "session-list--match",
    }
    BINDINGS = [
        Binding(
            str(n),
            f"number({n})",
            f"Open number {n}",
            id=f"list.number{n}",
            show=False,
            tooltip=f"Open chat number {n} of the list.",
        )
        for n in range(1, 10)
    ]

    current: reactive[str] = reactive("")
    """Id of the session on the screen."""

    def __init__(self, *, always_cursor: bool = False, id: str | None = None) -> None:
        super().__init__(always_cursor=always_cursor, id=id)
        self.rows: Sequence[Row] = ()
        self.marks = Marks()
        self.numbered = True
        """Whether the first nine rows show their number."""
        self.tooltip = LEGEND

    def set_rows(self, rows: Sequence[Row], total: int | None = None) -> None:
        """Show other rows; `total` counts those that were not fetched too."""
        self.rows = rows
        self.set_items(len(rows), headings(rows), total)

    def set_marks(self, marks: Marks) -> None:
        """Show other marks on the same rows."""
        if marks != self.marks:
            self.marks = marks
            self.refresh()

    def move_to(self, session_id: str) -> None:
        """Put the cursor on a session, if it is listed."""
        for index, row in enumerate(self.rows):
            if row.session_id == session_id:
                self.cursor = index

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def mark_of(self, row: Row) -> str:
        """The one mark of a row: what matters most about it now."""
        busy = self.marks.busy.get(row.session_id)
        if busy:
            return RUNNING if busy == "running" else QUEUED
        if row.session_id in self.marks.unread:
            return UNREAD
        if row.session_id == self.marks.live:
            return WARM
        return COLD if row.restore_ms is None else ON_DISK

    def style_of(self, index: int) -> Style:
        return self._part("current") if self.rows[index].session_id == self.current else Style()

    def paint(self, index: int, width: int) -> list[Segment]:
        row = self.rows[index]
        title_style, faint, mark_style, match = (
            self._part(name) for name in ("title", "faint", "mark", "match")
        )
        is_current = row.session_id == self.current
        if is_current:
            title_style = title_style + Style(color=self._part("current").color)
        mark = self.mark_of(row) if width >= MARK_WIDTH else ""
        columns = []
        if width >= RESTORE_WIDTH:
            columns.append(
                f"{restore_words(row.restore_ms) if mark == ON_DISK and row.restore_ms else '':<5}"
            )
        if width >= TOKENS_WIDTH:
            columns.append(f"{tokens_words(row.tokens):>4}")
        columns.append(f"{row.note:>3}")
        right = " ".join(["", *columns, ""]) if mark else f" {row.note} "
        number = f"{index + 1} " if index < 9 and self.numbered else "  "
        room = max(width - 3 - cell_len(mark) - cell_len(right) - 1, 1)
        title = one_line(row.title) or "New chat"
        words = self._tag_words(row) if width >= TAGS_WIDTH or row.archived else []
        tag_cells = sum(cell_len(word) + 1 for word, _ in words)
        if words and room - tag_cells < min(cell_len(title), room // 2):
            words, tag_cells = [], 0
        busy_mark = mark in (RUNNING, QUEUED, UNREAD, WARM)
        return [
            Segment(CURRENT if is_current else " ", mark_style),
            Segment(number, faint),
            *marked(clip(title, room - tag_cells), room - tag_cells, row.matched, title_style, match),
            *(Segment(f" {word}", match if hit else faint) for word, hit in words),
            Segment(f" {mark}", mark_style if busy_mark else faint),
            Segment(right, faint),
        ]

    @staticmethod
    def _tag_words(row: Row) -> list[tuple[str, bool]]:
        words = [("archived", False)] if row.archived and row.group == "" else []
        if row.pinned and row.group == "":
            words.append(("pinned", False))
        return words + [(f"#{clip(one_line(tag), 14)}", tag in row.matched_tags) for tag in row.tags[:3]]

    def choose(self, index: int) -> None:
        self.post_message(SessionChosen(self.rows[index].session_id))

    def action_number(self, number: int) -> None:
        self._choose(number - 1)
