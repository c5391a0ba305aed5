"""The one line at the bottom: what goes on on the left, how full the session's context is on the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, one_line

LEAST_NAME = 12
"""Cells that are left of a model's name when room is short."""


class StatusLine(Widget):
    """Shows parts in the order of their importance; those that do not fit are left out from the end."""

    DEFAULT_CSS = stylesheet(__file__)
    COMPONENT_CLASSES = {"status-line--alarm"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.left: list[str] = []
        self.right = ""
        self.shorter: Sequence[str] = ()
        self.alarm = False

    def set_parts(
        self, left: list[str], right: str, *, shorter: Sequence[str] = (), alarm: bool = False
    ) -> None:
        """`left` parts are joined with dots; `shorter` are other forms of `right` for narrow terminals, each shorter
        than the one before; `alarm` paints the left in the error colour."""
        left = [one_line(part) for part in left if part]
        if (left, right, alarm) != (self.left, self.right, self.alarm):
            self.left, self.right, self.shorter, self.alarm = left, right, tuple(shorter), alarm
            self.refresh()

    @property
    def text(self) -> str:
        """All that is to be shown, whatever fits."""
        return " · ".join([*self.left, self.right] if self.right else self.left)

    def _fitting_right(self, width: int) -> str:
        """The longest form that leaves the left its first two parts, or half of the line."""
        wanted = min(cell_len(" · ".join(self.left[:2])), width // 2)
        forms = [self.right, *self.shorter]
        return next(
            (form for form in forms if cell_len(form) + 2 + wanted <= width), "" if self.left else forms[-1]
        )

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style
        right = self._fitting_right(width)
        room = width - cell_len(right) - (2 if right else 0)
        parts = list(self.left)
        while len(parts) > 2 and cell_len(" · ".join(parts)) > room:
            parts.pop()
        over = cell_len(" · ".join(parts)) - room
        if over > 0 and len(parts) > 1 and not self.alarm:
            # A model's name tells enough when cut; what is going on does not.
            parts[0] = clip(parts[0], max(cell_len(parts[0]) - over, LEAST_NAME))
        while len(parts) > 1 and cell_len(" · ".join(parts)) > room:
            parts.pop()
        left = clip(" · ".join(parts), max(room, 0))
        style = self.get_component_rich_style("status-line--alarm") if self.alarm else base
        gap = " " * max(width - cell_len(left) - cell_len(right), 0)
        return Strip([Segment(left, style), Segment(gap, base), Segment(right, base)]).adjust_cell_length(
            width, base
        )
