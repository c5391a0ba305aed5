"""The scroll bar beside a growing text: painted again only when it looks different.

Every line that is added moves the numbers of a scroll bar, few of them move its thumb by an eighth of a cell.
"""

from __future__ import annotations

from typing import Self

from rich.console import RenderableType
from textual.geometry import Region
from textual.scrollbar import ScrollBar

EIGHTHS = 8
"""Steps of the thumb in a cell."""


class SteadyScrollBar(ScrollBar):
    """A vertical scroll bar."""

    _drawn: tuple[object, ...] | None = None

    @property
    def _look(self) -> tuple[object, ...]:
        """All that its picture depends on, but for the colours of the theme."""
        length, whole, shown = self.size.height, self.window_virtual_size, self.window_size
        thumb = (0, 0)
        if 0 < shown < whole:
            size = max(1, length * shown / whole)
            start = (length - size) * self.position / (whole - shown)
            thumb = (int(start * EIGHTHS), int(size * EIGHTHS))
        return (length, *thumb, self.mouse_over, self.grabbed is None)

    def render(self) -> RenderableType:
        self._drawn = self._look
        return super().render()

    def notify_style_update(self) -> None:
        self._drawn = None
        super().notify_style_update()

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        if not (layout or recompose) and self._drawn is not None and self._drawn == self._look:
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
