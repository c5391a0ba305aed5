"""What lines are painted for, and lines out of styled pieces."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ds4chat.ui.palette import Palette

READING_WIDTH = 100
"""Cells; text is not set wider than this, because long lines are tiring to read."""


@dataclass(frozen=True)
class Page:
    """What lines are painted for. Two equal pages give the same lines."""

    width: int
    palette: Palette

    @property
    def margin(self) -> int:
        """Empty cells on the left, at least one: on a wide screen the text stands in the middle."""
        return max(1 if self.width < 60 else 2, (self.width - READING_WIDTH) // 2)

    @property
    def measure(self) -> int:
        """Cells of a line of text."""
        return max(self.width - 2 * self.margin, 8)


def make_line(page: Page, *parts: tuple[str, Style], indent: int = 0) -> Strip:
    """A full line of the page out of styled pieces."""
    pad = Segment(" " * (page.margin + indent), page.palette.base)
    return Strip([pad, *(Segment(text, style) for text, style in parts)]).extend_cell_length(
        page.width, page.palette.base
    )


def pressable(style: Style, act: str) -> Style:
    """The style with what a mouse click there does (see `ui.messages.MessagePressed`)."""
    return style + Style(meta={"act": act})
