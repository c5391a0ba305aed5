"""Rows with columns, drawn when they come into view; what the panels list.

A row is chosen with Enter or a second click; headings are passed over. Everything is painted from strips, so nothing
in a cell is read as markup. Columns that do not fit a narrow panel are left out, least needed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ds4chat.ui.keys import key
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import fit, one_line

GAP = 2


@dataclass(frozen=True)
class Column:
    """`most` cells at most, 0 for what is left over (one column has that); `need` is the width of the list from which
    on it is shown; numbers stand at the `right`."""

    most: int = 0
    need: int = 0
    right: bool = False


@dataclass(frozen=True)
class ListRow:
    """A line. `heading` cannot be chosen; `mark` stands before it; `faint` is for what cannot be used."""

    key: str
    cells: tuple[str, ...]
    heading: bool = False
    mark: str = " "
    faint: bool = False


class RowList(ScrollView, can_focus=True):
    """Posts `Chosen` and `Moved`."""

    DEFAULT_CSS = stylesheet(__file__)
    COMPONENT_CLASSES = {
        "row-list--text",
        "row-list--faint",
        "row-list--heading",
        "row-list--mark",
        "row-list--cursor",
    }
    BINDINGS = [
        key("enter", "choose", "Choose", "rows.choose", "Choose what is under the cursor."),
        key("up,k", "move(-1)", "Up", "rows.up", "One row up."),
        key("down,j", "move(1)", "Down", "rows.down", "One row down."),
        key("pageup", "page(-1)", "Page up", "rows.pageup", "One page up."),
        key("pagedown", "page(1)", "Page down", "rows.pagedown", "One page down."),
        key("home", "edge(-1)", "First", "rows.first", "To the first row."),
        key("end", "edge(1)", "Last", "rows.last", "To the last row."),
    ]
    cursor: reactive[int] = reactive(-1)

    class Chosen(Message):
        """Enter, or a click on the row under the cursor."""

        def __init__(self, sender: RowList, key: str) -> None:
            super().__init__()
            self.row_list, self.key = sender, key

        @property
        def control(self) -> RowList:
            return self.row_list

    class Moved(Message):
        """The cursor stands on another row. `listed`: because other rows were set, not because it was moved."""

        def __init__(self, sender: RowList, key: str, listed: bool) -> None:
            super().__init__()
            self.row_list, self.key, self.listed = sender, key, listed

        @property
        def control(self) -> RowList:
            return self.row_list

    def __init__(self, columns: Sequence[Column], *, id: str | None = None, empty: str = "") -> None:
        super().__init__(id=id)
        self._columns, self.empty = tuple(columns), empty
        self._rows: list[ListRow] = []
        self._told = ""
        self._listing = False

    @property
    def rows(self) -> list[ListRow]:
        return self._rows

    @property
    def current(self) -> str:
        """Key of the row under the cursor, "" for none."""
        return self._rows[self.cursor].key if 0 <= self.cursor < len(self._rows) else ""

    def set_rows(self, rows: Sequence[ListRow], at: str | None = None) -> None:
        """Show other rows; the cursor goes to the key `at`, or stays on the key or the line where it was."""
        wanted, line = (self.current if at is None else at), max(self.cursor, 0)
        self._rows = list(rows)
        self.virtual_size = Size(0, max(len(rows), 1))
        keys = [row.key for row in rows if not row.heading]
        index = next((i for i, row in enumerate(rows) if row.key == wanted and not row.heading), None)
        if index is None:
            index = self._choosable(min(line, len(rows) - 1), 1) if keys else -1
        self._listing = True
        self.cursor = index
        self._tell()
        self._listing = False
        self.refresh()

    def _tell(self) -> None:
        if self.current != self._told:
            self._told = self.current
            self.post_message(self.Moved(self, self.current, self._listing))

    def _choosable(self, index: int, step: int) -> int:
        """The nearest row from an index on that is no heading, looking the one way and then the other."""
        for way in (step, -step):
            at = index
            while 0 <= at < len(self._rows):
                if not self._rows[at].heading:
                    return at
                at += way
        return -1

    def watch_cursor(self, _: int, cursor: int) -> None:
        if cursor >= 0:
            top = cursor
            while top > 0 and self._rows[top - 1].heading:
                top -= 1
            for line in (top, cursor):
                self.scroll_to_region(Region(0, line, 1, 1), animate=False, immediate=True, force=True)
        self._tell()
        self.refresh()

    def action_move(self, by: int) -> None:
        at = self.cursor + by
        if self._rows and 0 <= at < len(self._rows):
            self.cursor = self._choosable(at, 1 if by > 0 else -1)

    def action_page(self, by: int) -> None:
        at = self.cursor + by * max(self.size.height - 1, 1)
        if self._rows:
            self.cursor = self._choosable(min(max(at, 0), len(self._rows) - 1), 1 if by > 0 else -1)

    def action_edge(self, way: int) -> None:
        if self._rows:
            self.cursor = self._choosable(0 if way < 0 else len(self._rows) - 1, -way)

    def action_choose(self) -> None:
        if self.current:
            self.post_message(self.Chosen(self, self.current))

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if not 0 <= at < len(self._rows) or self._rows[at].heading:
            return
        if at == self.cursor:
            self.action_choose()
        else:
            self.cursor = at

    # -- painting

    def _widths(self, width: int) -> list[int]:
        """Of the columns, 0 for one that is not shown. The first two cells are the mark's."""
        shown = [column.need <= width for column in self._columns]
        used = [0] * len(self._columns)
        for index, column in enumerate(self._columns):
            if shown[index] and column.most:
                widest = max((cell_len(row.cells[index]) for row in self._rows if not row.heading), default=0)
                used[index] = min(column.most, widest)
        gaps = GAP * max(
            sum(1 for i, c in enumerate(self._columns) if shown[i] and (used[i] or not c.most)) - 1, 0
        )
        left = max(width - 2 - gaps - sum(used), 4)
        return [left if shown[i] and not column.most else used[i] for i, column in enumerate(self._columns)]

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        base = self.rich_style
        if not self._rows and y == 0 and self.empty:
            style = self.get_component_rich_style("row-list--faint")
            return Strip([Segment(fit(f"  {self.empty}", width), style)], width)
        if not 0 <= at < len(self._rows):
            return Strip.blank(width, base)
        row = self._rows[at]
        if row.heading:
            style = self.get_component_rich_style("row-list--heading")
            return Strip([Segment(fit(one_line(row.cells[0]), width), style)], width)
        under = at == self.cursor
        name = "row-list--cursor" if under else "row-list--faint" if row.faint else "row-list--text"
        style = self.get_component_rich_style(name)
        if under and not self.has_focus:
            style += Style(bold=False)
        quiet = style if under else self.get_component_rich_style("row-list--faint")
        mark = style if under else self.get_component_rich_style("row-list--mark")
        segments = [Segment(fit(("▸" if under and row.mark == " " else row.mark) + " ", 2), mark)]
        first = True
        for column, cell, size in zip(self._columns, row.cells, self._widths(width), strict=True):
            if not size:
                continue
            text = one_line(cell)
            shown = fit(text, size)
            if column.right and cell_len(text) < size:
                shown = " " * (size - cell_len(text)) + text
            segments.append(Segment(("" if first else " " * GAP) + shown, style if first else quiet))
            first = False
        return Strip(segments).adjust_cell_length(width, style if under else base)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(0, max(len(self._rows), 1))
