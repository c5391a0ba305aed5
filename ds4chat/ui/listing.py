"""Sessions as rows of a list, fetched by the page and grouped by day: knows the manager, no widget.

Promises: what is asked of the manager follows what is looked at, not how many sessions there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING

from ds4chat.ui.wording import age

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionInfo, SessionManager

PAGE = 100
"""Sessions fetched at a time."""

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

PINNED, ARCHIVED, INCOGNITO = "Pinned", "Archived", "Incognito"


@dataclass(frozen=True)
class Row:
    """A session in a list.

    Attributes:
        note: its age in two or three characters.
        matched: offsets in `title` that a filter found.
        group: the heading it stands under.
        tokens: of context that its last turn used, 0 when unknown.
        restore_ms: how long its context takes to come from disk, None when nothing of it is there.
        matched_tags: those of `tags` that a filter found.
    """

    session_id: str
    title: str
    note: str = ""
    matched: tuple[int, ...] = ()
    group: str = ""
    tokens: int = 0
    restore_ms: float | None = None
    pinned: bool = False
    archived: bool = False
    tags: tuple[str, ...] = ()
    matched_tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marks:
    """What changes about sessions while they are listed.

    Attributes:
        busy: "running" or "queued" by session id.
        live: the session whose context is in the engine, "" for none.
        unread: sessions with a reply that nobody has seen yet.
    """

    busy: Mapping[str, str] = field(default_factory=dict)
    live: str = ""
    unread: frozenset[str] = frozenset()


def day_of(when: float, today: date) -> str:
    """The heading for a session that was last used at `when` (seconds since the epoch, local time)."""
    try:
        day = date.fromtimestamp(when)
    except (OverflowError, OSError, ValueError):
        # Beyond the calendar: what is to come counts as now.
        day = today if when > 0 else date.fromtimestamp(0)
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day >= today - timedelta(days=7):
        return "Previous 7 days"
    month = MONTHS[day.month - 1]
    return month if day.year == today.year else f"{month} {day.year}"


def rows_of(infos: Iterable[SessionInfo], manager: SessionManager) -> list[Row]:
    """Sessions as rows, in their order."""
    now = time.time()
    today = date.fromtimestamp(now)
    return [
        Row(
            info.id,
            info.title or "Untitled",
            age(max(now - info.updated, 0)),
            group=ARCHIVED if info.archived else PINNED if info.pinned else day_of(info.updated, today),
            tokens=info.tokens,
            restore_ms=manager.restore_ms(info),
            pinned=info.pinned,
            archived=info.archived,
            tags=info.tags,
        )
        for info in infos
    ]


class Listing:
    """The saved sessions of one kind, as far as they were fetched. Archived ones come first when they are wanted."""

    def __init__(self, manager: SessionManager, *, archived: bool = False, tag: str = "") -> None:
        self._manager = manager
        self._parts = (True, False) if archived else (False,)
        self.tag = tag
        self.infos: list[SessionInfo] = []
        self.rows: list[Row] = []
        self.total = 0
        self.fetched = 0
        """Sessions asked for so far, over the life of this object."""
        self._counts: list[int] = []

    @property
    def complete(self) -> bool:
        return len(self.infos) >= self.total

    def reload(self, count: int = PAGE) -> None:
        """Fetch the first `count` again; what lay behind them is forgotten."""
        self._counts = [self._manager.count_sessions(archived=part, tag=self.tag) for part in self._parts]
        self.total = sum(self._counts)
        self.infos, self.rows = [], []
        self.more(count)

    def more(self, upto: int) -> bool:
        """Fetch until `upto` are there, in whole pages. False when there were no others."""
        wanted = min(-(-upto // PAGE) * PAGE, self.total)
        got: list[SessionInfo] = []
        known = {info.id for info in self.infos}
        first = len(self.infos)
        base = 0
        for part, count in zip(self._parts, self._counts, strict=True):
            start, end = max(first, base), min(wanted, base + count)
            if start < end:
                got += self._manager.list_sessions(end - start, start - base, archived=part, tag=self.tag)
            base += count
        self.fetched += len(got)
        fresh = [info for info in got if info.id not in known]
        self.infos += fresh
        self.rows += rows_of(fresh, self._manager)
        if len(fresh) < wanted - first:
            # Sessions went away since they were counted.
            self.total = len(self.infos)
        return bool(fresh)


def headings(rows: Sequence[Row]) -> dict[int, str]:
    """Text of the heading by index of the row it stands above."""
    return {
        i: row.group for i, row in enumerate(rows) if row.group and (not i or rows[i - 1].group != row.group)
    }


def tokens_words(tokens: int) -> str:
    """A count in at most four characters: "980", "1.2k", "12k"."""
    if tokens < 1000:
        return str(tokens) if tokens else ""
    thousands = tokens / 1000
    if thousands < 9.95:
        return f"{thousands:.1f}k"
    return f"{thousands:.0f}k" if thousands < 999.5 else f"{thousands / 1000:.1f}M"


def restore_words(ms: float) -> str:
    """A short time as it is promised: "0.1 s", "12 s"."""
    seconds = ms / 1000
    return f"{max(seconds, 0.1):.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
