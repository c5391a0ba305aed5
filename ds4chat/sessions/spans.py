"""Which checkpoints each session of the database stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4chat.sessions.rows import Rows, unknown


@dataclass(frozen=True, slots=True)
class Span:
    """A checkpoint file a session stands on: tokens `[start, end)`, named by `sha1` (hex), of `bytes` bytes.

    `created` is when it was recorded, seconds since the epoch.
    """

    sha1: str
    start: int
    end: int
    reason: str
    bytes: int
    created: float = 0.0


class Spans(Rows):
    """The part of `Database` that remembers checkpoints."""

    def record_span(self, session_id: str, sha1: str, start: int, end: int, reason: str, size: int) -> None:
        """Remember a checkpoint of `size` bytes that the session stands on; known ones are replaced."""
        self.record_spans(session_id, [Span(sha1, start, end, reason, size)])

    def record_spans(self, session_id: str, spans: Sequence[Span]) -> None:
        """`record_span` for several, all or none; `created` becomes the present time."""
        now = self._clock()
        with self._db.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
                raise unknown(session_id)
            db.executemany(
                "INSERT OR REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(session_id, s.sha1, s.start, s.end, s.reason, s.bytes, now) for s in spans],
            )

    def copy_spans(self, source_id: str, target_id: str) -> None:
        """Let a fork stand on its source's spans, so that deleting one leaves the other's past."""
        with self._db.write() as db:
            db.execute(
                'INSERT OR IGNORE INTO spans SELECT ?, sha1, start, "end", reason, bytes, created FROM spans'
                " WHERE session_id = ?",
                (target_id, source_id),
            )

    def spans_of(self, session_id: str) -> list[Span]:
        """The spans a session stands on, shallowest first."""
        rows = self._db.all(
            'SELECT sha1, start, "end", reason, bytes, created FROM spans WHERE session_id = ?'
            ' ORDER BY "end", sha1',
            session_id,
        )
        return [Span(*row) for row in rows]

    def spans_of_trash(self) -> list[str]:
        """SHA-1 hex of every span that only sessions in the trash stand on."""
        rows = self._db.all(
            "SELECT DISTINCT sha1 FROM spans WHERE session_id IN (SELECT id FROM sessions WHERE trashed > 0)"
            " AND sha1 NOT IN (SELECT o.sha1 FROM spans o JOIN sessions s ON s.id = o.session_id WHERE s.trashed = 0)"
            " ORDER BY sha1"
        )
        return [str(row[0]) for row in rows]

    def all_spans(self) -> list[str]:
        """SHA-1 hex of every span that some session stands on: what must stay when others are deleted."""
        return [str(row[0]) for row in self._db.all("SELECT DISTINCT sha1 FROM spans")]
