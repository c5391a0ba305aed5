"""A list of one-line items under headings, drawn as they come into view: ten thousand cost as much as ten.

Headings cannot be chosen. Items that were not fetched yet have their room in the scroll bar; who comes near them asks
for them with `MoreWanted`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ds4chat.ui.text import clip, fit, one_line

AHEAD = 20
"""Lines before the end of what was fetched at which more is asked for."""


def marked(text: str, width: int, found: Iterable[int], base: Style, mark: Style) -> list[Segment]:
    """Text cut or padded to `width` cells, the characters at the offsets `found` in another style."""
    shown = fit(text, width)
    hits = {at for at in found if at < len(shown) and shown[at] == text[at : at + 1]}
    if not hits:
        return [Segment(shown, base)]
    segments: list[Segment] = []
    start = 0
    for at in range(1, len(shown) + 1):
        if at == len(shown) or (at in hits) != (start in hits):
            segments.append(Segment(shown[start:at], mark if start in hits else base))
            start = at
    return segments


class LineList(ScrollView, can_focus=True):
    """Subclasses paint an item and say what choosing it means."""

    BINDINGS = [
        Binding(
            "enter", "choose", "Open", id="list.open", show=False, tooltip="Open what is under the cursor."
        ),
        Binding("up,k", "move(-1)", "Up", id="list.up", show=False, tooltip="One up."),
        Binding("down,j", "move(1)", "Down", id="list.down", show=False, tooltip="One down."),
        Binding("pageup", "page(-1)", "Page up", id="list.pageup", show=False, tooltip="One page up."),
        Binding("pagedown", "page(1)", "Page down", id="list.pagedown", show=False, tooltip="One page down."),
        Binding("home", "first", "First", id="list.first", show=False, tooltip="The first."),
        Binding("end", "last", "Last", id="list.last", show=False, tooltip="The last."),
    ]

    cursor: reactive[int] = reactive(0)
    """Index of the item under the cursor, drawn while the list has the focus or `always_cursor`."""

    class MoreWanted(Message):
        """The first `count` items are wanted."""

        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

    empty_text = "none yet"
    PREFIX = "list"

    def __init__(self, *, always_cursor: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.always_cursor = always_cursor
        self.painted = 0
        """Items painted so far."""
        self._count = self._total = 0
        self._lines: Sequence[int | str] = ()
        self._line_of: Sequence[int] = ()
        self._asked = False
        self._to_last = False

    def set_items(self, count: int, headings: Mapping[int, str], total: int | None = None) -> None:
        """Show `count` items. `headings` has the text above an item by its index; `total` counts the items that are not
        fetched too."""
        lines: list[int | str] = []
        line_of: list[int] = []
        for index in range(count):
            if index in headings:
                if index:
                    lines.append("")
                lines.append(headings[index])
            line_of.append(len(lines))
            lines.append(index)
        self._lines, self._line_of = lines, line_of
        self._count, self._total = count, max(total or 0, count)
        self._asked = False
        self._resize()
        if self._to_last and count < self._total:
            self._ask(self._total)
        elif self._to_last:
            self._to_last = False
            self.cursor = count - 1
        self.cursor = min(self.cursor, max(count - 1, 0))
        self.refresh()

    @property
    def line_count(self) -> int:
        """Lines in all, those not fetched included."""
        return len(self._lines) + self._total - self._count

    def line_of(self, index: int) -> int:
        """The line of an item."""
        return self._line_of[index]

    def item_at(self, line: int) -> int | None:
        """The item on a line, None for a heading or nothing."""
        item = self._lines[line] if 0 <= line < len(self._lines) else ""
        return item if isinstance(item, int) else None

    @property
    def seen_items(self) -> int:
        """Items from the first to the last in view."""
        return bisect_right(self._line_of, self.scroll_offset.y + self.size.height)

    def _resize(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, self.line_count)

    def on_resize(self) -> None:
        self._resize()
        self.show_cursor()

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, self._count - 1))

    def watch_cursor(self, cursor: int) -> None:
        self.show_cursor()
        if cursor + AHEAD > self._count:
            self._ask(cursor + AHEAD)

    def show_cursor(self) -> None:
        """Bring the cursor into view, and the heading above it."""
        if self.cursor < self._count:
            line = self._line_of[self.cursor]
            top = line - 1 if line and isinstance(self._lines[line - 1], str) else line
            if self.size.height > 2:
                self.scroll_to_region(
                    Region(0, top, 1, line - top + 1), animate=False, force=True, immediate=True
                )
            else:
                self.scroll_to_region(Region(0, line, 1, 1), animate=False, force=True, immediate=True)

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()

    def _ask(self, count: int) -> None:
        if self._count < self._total and not self._asked:
            # Once; who still wants more when they have come asks again.
            self._asked = True
            self.post_message(self.MoreWanted(min(count, self._total)))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if index + AHEAD > len(self._lines):
            self._ask(index + AHEAD)
        if not self._lines and y == 0:
            words = Segment(clip(f"   {self.empty_text}", width), self._part("faint"))
            return Strip([words]).adjust_cell_length(width, self.rich_style)
        line = self._lines[index] if index < len(self._lines) else ""
        if isinstance(line, str):
            style = self._part("heading") if line else self.rich_style
            words = Segment(clip(f"   {one_line(line)}" if line else "", width), style)
            return Strip([words]).adjust_cell_length(width, self.rich_style)
        self.painted += 1
        over = self.style_of(line)
        if line == self.cursor and (self.has_focus or self.always_cursor):
            cursor = self._part("cursor")
            over = over + Style(bgcolor=cursor.bgcolor, reverse=cursor.reverse)
        background = Style(bgcolor=over.bgcolor, bold=over.bold, reverse=over.reverse)
        painted = [
            Segment(text, (style or Style()) + background) for text, style, _ in self.paint(line, width)
        ]
        return Strip(painted).adjust_cell_length(width, self.rich_style + background)

    def _part(self, name: str) -> Style:
        return self.get_component_rich_style(f"{self.PREFIX}--{name}")

    def style_of(self, index: int) -> Style:
        """What lies over an item besides the cursor."""
        return Style()

    def paint(self, index: int, width: int) -> list[Segment]:
        """An item on one line."""
        raise NotImplementedError

    def choose(self, index: int) -> None:
        """An item was chosen."""
        raise NotImplementedError

    def _choose(self, index: int) -> None:
        if 0 <= index < self._count:
            self.cursor = index
            self.choose(index)

    def on_click(self, event: events.Click) -> None:
        index = self.item_at(self.scroll_offset.y + event.y)
        if index is not None:
            self._choose(index)

    def action_choose(self) -> None:
        self._choose(self.cursor)

    def action_move(self, by: int) -> None:
        self.cursor += by

    def action_page(self, by: int) -> None:
        self.cursor += by * max(self.size.height - 2, 1)

    def action_first(self) -> None:
        self.cursor = 0

    def action_last(self) -> None:
        self._to_last = self._count < self._total
        if self._to_last:
            # The cursor goes there when the rest has arrived.
            self._ask(self._total)
        self.cursor = self._count - 1
