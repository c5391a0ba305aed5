"""Lines in two columns under headings, painted as they come into view: the help has hundreds."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ds4chat.ui.styles import stylesheet

Piece = tuple[str, str]
"""A text and what it is: "heading", "key" or "text"."""


class KeyLines(ScrollView, can_focus=False):
    """Shows lines made of pieces, which fit its width."""

    DEFAULT_CSS = stylesheet(__file__)
    COMPONENT_CLASSES = {"key-lines--heading", "key-lines--key", "key-lines--text"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Sequence[Piece]] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join("".join(text for text, _ in line) for line in self._lines)

    def set_lines(self, lines: Sequence[Sequence[Piece]]) -> None:
        self._lines = lines
        self.virtual_size = Size(self.scrollable_content_region.width, len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        pieces = self._lines[index] if index < len(self._lines) else ()
        segments = [
            Segment(text, self.get_component_rich_style(f"key-lines--{part}")) for text, part in pieces
        ]
        return Strip(segments).adjust_cell_length(width, self.rich_style)
