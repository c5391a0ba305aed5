"""The conversation as a scroll of painted lines.

One widget, whatever the chat's length: entries far from the view have only an estimated height, those near it
are painted and keep their lines, and a growing reply repaints its last block alone. So neither the layout nor
a frame costs more when the chat or the reply is longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from textwrap import dedent
from time import monotonic, process_time

from textual import events
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from ds4chat.ui.entries import Entry, MessageEntry, Page
from ds4chat.ui.palette import Palette
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.widgets.steady_scrollbar import SteadyScrollBar

FRAME = 1 / 10
"""Seconds between two paints of a growing reply, at least."""

DUTY = 4
"""A frame that took t seconds is followed by at least DUTY * t without one, so that keys stay quick."""

KEEP_PAINTED = 200
"""Entries that keep their painted lines; beyond that, those out of view give them back."""


class Transcript(ScrollView, can_focus=True):
    """Shows entries, follows the end while the reader is there, and stays put while they are not."""

    DEFAULT_CSS = stylesheet(__file__)

    following: reactive[bool] = reactive(True, repaint=False)
    """Whether the view moves along with the end."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: list[Entry] = []
        self._by_message: dict[int, MessageEntry] = {}
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._page: Page | None = None
        self._palette: Palette | None = None
        self._anchor: tuple[Entry, int] | None = None
        self._settling = False
        self._timer: Timer | None = None
        self._next_frame = 0.0
        self._dirty: set[int] = set()
        self.frames = 0
        """Paints of growing replies so far."""

    # -- content

    def show(self, entries: Iterable[Entry], place: tuple[int, int] | None = None) -> None:
        """Replace everything. `place` is what `place` returned for this conversation before, None for the
        end.
        """
        self._entries = list(entries)
        self._by_message = {e.message.id: e for e in self._entries if isinstance(e, MessageEntry)}
        self._heights = []
        self.following = place is None or place[0] >= len(self._entries)
        self._anchor = None if self.following or place is None else (self._entries[place[0]], place[1])
        if self._anchor is not None and self._page is not None:
            # The line is one of the painted entry: its height must not be a guess.
            self._anchor[0].paint(self._page)
        self._measure_all()
        self.settle()
        self.refresh()

    @property
    def place(self) -> tuple[int, int] | None:
        """Where the reader is: index of the entry at the top and the line in it; None at the end."""
        if self.following or self._anchor is None:
            return None
        entry, line = self._anchor
        return (self._entries.index(entry), line) if entry in self._entries else None

    def add(self, entry: Entry) -> None:
        """Put an entry at the end."""
        self.insert(len(self._entries), entry)

    def insert(self, index: int, entry: Entry) -> None:
        self._entries.insert(index, entry)
        if isinstance(entry, MessageEntry):
            self._by_message[entry.message.id] = entry
        self._heights.insert(index, entry.estimate(self._page) if self._page else 1)
        self._retop()
        self.settle()
        self.refresh()

    def take_out(self, entry: Entry) -> None:
        """Take an entry away; one that is not there is no error."""
        if entry in self._entries:
            index = self._entries.index(entry)
            del self._entries[index], self._heights[index]
            self._retop()
            self.settle()
            self.refresh()

    def index_of(self, message_id: int) -> int | None:
        entry = self._by_message.get(message_id)
        return None if entry is None else self._entries.index(entry)

    def message(self, message_id: int) -> MessageEntry | None:
        """The entry of a message."""
        return self._by_message.get(message_id)

    def messages_with_status(self) -> list[tuple[int, MessageEntry]]:
        """The messages with a line below or beside them, by id."""
        return [(id, entry) for id, entry in self._by_message.items() if entry.status]

    def touch(self, message_id: int) -> None:
        """A message has changed: paint it with the next frame. Many calls make one paint."""
        self._dirty.add(message_id)
        if self._timer is None:
            delay = max(self._next_frame - monotonic(), 0.001)
            self._timer = self.set_timer(delay, self._frame)

    def _frame(self) -> None:
        self._timer = None
        began, used = monotonic(), process_time()
        for message_id in self._dirty:
            if entry := self._by_message.get(message_id):
                entry.pull()
        self._dirty.clear()
        self.settle()
        self.frames += 1
        self._next_frame = began + max(FRAME, DUTY * (process_time() - used))

    def set_palette(self, palette: Palette) -> None:
        """Paint everything in other colours."""
        self._palette = palette
        self._turn_page()

    # -- layout

    def _turn_page(self) -> None:
        width = self.scrollable_content_region.width
        if self._palette is None or width <= 0:
            return
        page = Page(width, self._palette)
        if page != self._page:
            reflow = self._page is None or self._page.width != page.width
            self._page = page
            if reflow:
                self._measure_all()
            self.settle()
            self.refresh()

    def _measure_all(self) -> None:
        if self._page is None:
            return
        page = self._page
        self._heights = [len(e.strips) if e.is_painted(page) else e.estimate(page) for e in self._entries]
        self._retop()

    def _retop(self) -> None:
        self._tops = [0, *accumulate(self._heights)]

    def settle(self) -> None:
        """Paint what is near the view, learn its true height, and put the view where it belongs."""
        page = self._page
        if page is None or self._settling:
            return
        self._settling = True
        try:
            height = self.scrollable_content_region.height
            # Painting changes heights, which moves the view, which brings other entries near.
            for _ in range(8):
                top = self._view_top(height)
                if not self._paint_near(page, top, height):
                    break
            top = self._view_top(height)
            self._set_virtual_size(Size(page.width, self._tops[-1]), height)
            if round(self.scroll_y) != top:
                self.scroll_y = top
                self.scroll_target_y = top
            self.vertical_scrollbar.refresh()
            self._release_far(top, height)
        finally:
            self._settling = False

    def _set_virtual_size(self, size: Size, height: int) -> None:
        """Tell the scroll bar the new length. Not through the reactive: that would lay out the whole
        screen.
        """
        if size != self.virtual_size:
            self.set_reactive(Transcript.virtual_size, size)
            # It is painted once the position fits the new length.
            self.vertical_scrollbar.set_reactive(ScrollBar.window_virtual_size, size.height)
            self.vertical_scrollbar.set_reactive(ScrollBar.window_size, height)

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        if self._vertical_scrollbar is None:
            bar = SteadyScrollBar(name="vertical", thickness=self.scrollbar_size_vertical)
            self._vertical_scrollbar = bar
            bar.display = False
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    def _view_top(self, height: int) -> int:
        end = max(self._tops[-1] - height, 0)
        if self.following or self._anchor is None:
            return end
        entry, line = self._anchor
        if entry not in self._entries:
            return min(round(self.scroll_y), end)
        return min(self._tops[self._entries.index(entry)] + line, end)

    def _paint_near(self, page: Page, top: int, height: int) -> bool:
        first = max(bisect_right(self._tops, max(top - height, 0)) - 1, 0)
        last = bisect_right(self._tops, top + 2 * height)
        moved = False
        for index in range(first, min(last, len(self._entries))):
            entry = self._entries[index]
            if entry.is_painted(page):
                if self._heights[index] == len(entry.strips):
                    continue
            else:
                grew = entry.page == page
                old = entry.strips
                entry.paint(page)
                self._repaint(index, old, entry.strips)
                if self._anchor is not None and self._anchor[0] is entry and not grew:
                    line = self._anchor[1] * len(entry.strips) // max(self._heights[index], 1)
                    self._anchor = (entry, line)
            if self._heights[index] != len(entry.strips):
                self._heights[index] = len(entry.strips)
                moved = True
        if moved:
            self._retop()
        return moved

    def _repaint(self, index: int, old: list[Strip], new: list[Strip]) -> None:
        """Ask for a repaint of the lines from the first one that differs."""
        same = 0
        for a, b in zip(old, new, strict=False):
            if a is not b and a != b:
                break
            same += 1
        start = self._tops[index] + same - self.scroll_offset.y
        if len(old) != len(new):
            self.refresh()
        elif start < self.size.height and same < len(new):
            self.refresh_lines(self._tops[index] + same, len(new) - same)

    def _release_far(self, top: int, height: int) -> None:
        painted = [i for i, entry in enumerate(self._entries) if entry.strips]
        if len(painted) <= KEEP_PAINTED:
            return
        for index in painted:
            if self._tops[index + 1] < top - 3 * height or self._tops[index] > top + 4 * height:
                self._entries[index].forget()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._settling or self._page is None:
            return
        top = round(new_value)
        self.following = top >= self.max_scroll_y
        index = max(bisect_right(self._tops, top) - 1, 0)
        if index < len(self._entries):
            self._anchor = (self._entries[index], top - self._tops[index])
        self.settle()

    def on_resize(self, event: events.Resize) -> None:
        self._turn_page()
        self.settle()

    def entry_at(self, line: int) -> tuple[Entry, int] | None:
        """The entry a line belongs to, and which of its lines it is."""
        index = bisect_right(self._tops, line) - 1
        if line >= 0 and 0 <= index < len(self._entries):
            return self._entries[index], line - self._tops[index]
        return None

    def span_of(self, entry: Entry) -> tuple[int, int] | None:
        """First line and number of lines of an entry, as far as they are known."""
        if entry not in self._entries:
            return None
        index = self._entries.index(entry)
        return self._tops[index], self._heights[index]

    def bring(self, entry: Entry, lines: tuple[int, int] | None = None) -> None:
        """Move the view as little as shows the entry, or the lines of it from the first to the last given."""
        # Painting it may change the heights around it.
        for _ in range(4):
            span = self.span_of(entry)
            if span is None or self._page is None:
                return
            top, height = round(self.scroll_y), self.scrollable_content_region.height
            start, end = span[0], span[0] + span[1] - 1
            if lines is not None:
                start, end = start + lines[0], start + lines[1] + 1
            if start >= top and end <= top + height:
                return
            target = start if start < top or end - start > height else end - height
            if target == top:
                return
            self.scroll_to_line(target)

    def scroll_to_line(self, line: int) -> None:
        """Put a line at the top of the view, as far as the end allows."""
        end = max(self._tops[-1] - self.scrollable_content_region.height, 0)
        line = min(max(line, 0), end)
        self.following = line >= end
        if found := self.entry_at(line):
            self._anchor = found
        self.settle()

    def follow_end(self) -> None:
        """Go to the end and stay there."""
        self.following = True
        self.settle()

    # -- drawing

    def _strip_at(self, line: int) -> Strip | None:
        index = bisect_right(self._tops, line) - 1
        if 0 <= index < len(self._entries):
            strips = self._entries[index].strips
            offset = line - self._tops[index]
            if offset < len(strips):
                return strips[offset]
        return None

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they were painted, without Textual's second pass over each.

        That pass draws borders and backgrounds, which these lines have no use for, and makes new strips of them: what a
        strip remembers of how it was cut and coloured is lost then, and scrolling by a line costs a whole screen.
        """
        strips = [self.render_line(y) for y in crop.line_range]
        background = self.background_colors[1]
        for line_filter in self.app.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        line = self.scroll_offset.y + y
        strip = self._strip_at(line)
        if strip is None or self._page is None or self._page.width != width:
            return Strip.blank(width, self.rich_style)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(line)) is not None:
            start, end = span
            a = strip.index_to_cell_position(start)
            b = strip.cell_length if end == -1 else strip.index_to_cell_position(end)
            marked = self.screen.get_component_rich_style("screen--selection")
            parts = [strip.crop(0, a), strip.crop(a, b).apply_style(marked), strip.crop(b)]
            strip = Strip.join(parts)
        return strip.apply_offsets(0, line)

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as painted, without the margin."""
        start = selection.start.y if selection.start else 0
        end = selection.end.y if selection.end else self._tops[-1] - 1
        lines = []
        for line in range(max(start, 0), min(end, self._tops[-1] - 1) + 1):
            strip = self._strip_at(line)
            text = strip.text if strip is not None else ""
            if selection.end and line == end:
                text = text[: selection.end.x]
            if selection.start and line == start:
                text = " " * selection.start.x + text[selection.start.x :]
            lines.append(text.rstrip())
        return dedent("\n".join(lines)), "\n"
