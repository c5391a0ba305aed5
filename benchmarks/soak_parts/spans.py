"""What the spans that were written hold: rows of what was said, rows once more, and what is not rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

Row = tuple[str, str, int, int, int]
"""Of the table `spans`: session id, SHA-1, start, end (tokens), bytes of the file."""


@dataclass(frozen=True)
class Parts:
    """Bytes.

    Attributes:
        once: rows of tokens that stand in a file for the first time.
        again: rows of tokens of a session that stand in another of its files already: an edited message, a checkpoint
            that was evicted and had to be computed anew.
        around: headers, text and token ids of the files.
        beside: what else the engine wrote: hits counted in headers, leases, its log, and spans that were evicted and
            written anew to the same end, which the database records once.
    """

    once: int
    again: int
    around: int
    beside: int


def parts(rows: Iterable[Row], row_bytes: int, engine_written: int) -> Parts:
    """Of all that the engine wrote. `row_bytes`: KV rows of a token."""
    once = again = files = 0
    seen: set[str] = set()
    for _session, spans in groupby(sorted(rows), key=lambda row: row[0]):
        reached = 0
        for _, sha1, start, end, size in sorted(spans, key=lambda row: (row[2], row[3])):
            fresh = max(0, end - max(start, reached))
            reached = max(reached, end)
            if sha1 in seen:
                # A fork stands on its source's.
                continue
            seen.add(sha1)
            once += fresh
            again += end - start - fresh
            files += size
    around = files - (once + again) * row_bytes
    return Parts(once * row_bytes, again * row_bytes, around, engine_written - files)
