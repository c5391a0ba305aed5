"""Places in chats where something was said: a line each, under the title of its chat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.message import Message

from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line, visible
from ds4chat.ui.widgets.line_list import LineList, marked
from ds4chat.ui.wording import age

if TYPE_CHECKING:
    from ds4chat.sessions.search import SearchHit

SPEAKERS = {"user": "You", "assistant": "Reply", "tool": "Tool"}

LEAD = 0.6
"""How far to the right of a line its first hit may stand, as a part of the width."""


def hit_line(line: str, marks: Sequence[tuple[int, int]], width: int) -> tuple[str, list[int]]:
    """A line as it is painted, safe and cut so that its first hit is in view, and the offsets that were found."""
    text, at = "", 0
    found: list[int] = []
    for start, end in [*marks, (len(line), len(line))]:
        text += visible(line[at:start]).replace("\n", " ").replace("\t", " ")
        piece = visible(line[start:end]).replace("\n", " ").replace("\t", " ")
        found += range(len(text), len(text) + len(piece))
        text, at = text + piece, max(end, at)
    if found and cell_len(text) > width:
        cut = 0
        while cell_len(text[cut : found[0]]) > width * LEAD:
            # By words, so that the line does not begin in the middle of one.
            space = text.find(" ", cut, found[0] - 1)
            cut = space + 1 if space >= 0 else found[0]
        if cut:
            text = "…" + text[cut:]
            found = [offset - cut + 1 for offset in found]
    return text, found


class HitList(LineList):
    """Posts `Chosen` for Enter or a click."""

    DEFAULT_CSS = stylesheet(__file__)
    PREFIX = "hit-list"
    COMPONENT_CLASSES = {
        "hit-list--title",
        "hit-list--faint",
        "hit-list--heading",
        "hit-list--cursor",
        "hit-list--match",
    }
    empty_text = ""

    class Chosen(Message):
        """A place was chosen."""

        def __init__(self, hit: SearchHit) -> None:
            super().__init__()
            self.hit = hit

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(always_cursor=True, id=id)
        self.hits: list[SearchHit] = []

    def set_hits(self, hits: Sequence[SearchHit], *, more: bool) -> None:
        """Show hits, those of a chat together in the order in which the chats first come. With `more` there may be
        others behind them."""
        order: dict[str, list[SearchHit]] = {}
        for hit in hits:
            order.setdefault(hit.session_id, []).append(hit)
        self.hits = [hit for group in order.values() for hit in group]
        now, index, headings = time.time(), 0, {}
        for group in order.values():
            first = group[0]
            newest = max(hit.created for hit in group)
            words = [one_line(first.title) or "Untitled", *([age(max(now - newest, 0))] if newest else [])]
            headings[index] = " · ".join([*words, "archived"] if first.archived else words)
            index += len(group)
        self.set_items(len(self.hits), headings, len(self.hits) + more)

    def paint(self, index: int, width: int) -> list[Segment]:
        hit = self.hits[index]
        title, faint, match = (self._part(name) for name in ("title", "faint", "match"))
        speaker = f"   {SPEAKERS.get(hit.role, hit.role):<6}" if width >= 40 else "   "
        room = max(width - len(speaker) - 1, 1)
        text, found = hit_line(hit.line, hit.marks, room)
        return [Segment(speaker, faint), *marked(text, room, found, title, match)]

    def choose(self, index: int) -> None:
        self.post_message(self.Chosen(self.hits[index]))
