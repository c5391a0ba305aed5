"""Where imported sessions come from, so that what is here is not taken in again.

An origin goes with its session: what was deleted can be imported once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from ds4chat.sessions.rows import Rows, unknown
from ds4chat.sessions.session import Message


@dataclass(frozen=True, slots=True)
class Origin:
    """What a session was imported from.

    Attributes:
        source: the program, as "chatgpt".
        key: what the chat goes by there; its digest when it has no name of its own.
        digest: of all its messages as they came in last.
    """

    source: str
    key: str
    digest: str


class Origins(Rows):
    """The part of `Database` that remembers what was imported."""

    def imported_as(self, source: str, key: str) -> tuple[str, str] | None:
        """Id of the session that a chat came in as, and the digest it had then; None when there is none outside of the
        trash."""
        row = self._db.one(
            "SELECT o.session_id, o.digest FROM origins o JOIN sessions s ON s.id = o.session_id"
            " WHERE o.source = ? AND o.key = ? AND s.trashed = 0 ORDER BY s.rowid LIMIT 1",
            source,
            key,
        )
        return None if row is None else (str(row[0]), str(row[1]))

    def add_messages(
        self, session_id: str, messages: Sequence[Message], head_id: int | None, origin: Origin
    ) -> None:
        """Add messages of a session that was imported before, all or none, and remember how it is now.

        A parent that is not stored is one of those before it, by the negative id it has so far. Ids are written back.

        Args:
            head_id: what the session stands on from now, as messages name it; None leaves it.
        """
        ids: dict[int, int] = {}
        with self._db.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
                raise unknown(session_id)
            for message in messages:
                parent = message.parent_id
                message.created = message.created or self._clock()
                stored = self._insert(
                    db, session_id, parent if parent is None or parent > 0 else ids[parent], message
                )
                ids[message.id] = stored
            if head_id is not None:
                head = head_id if head_id > 0 else ids[head_id]
                db.execute("UPDATE sessions SET head_id = ? WHERE id = ?", (head, session_id))
            if messages:
                newest = max(message.created for message in messages)
                db.execute("UPDATE sessions SET updated = MAX(updated, ?) WHERE id = ?", (newest, session_id))
            record(db, session_id, origin)
        for message in messages:
            message.id = ids[message.id]
            message.parent_id = ids.get(message.parent_id or 0, message.parent_id)

    @staticmethod
    def _insert(db: sqlite3.Connection, session_id: str, parent_id: int | None, message: Message) -> int:
        """Store a message below its parent; its id. `Database` has it."""
        raise NotImplementedError


def record(db: sqlite3.Connection, session_id: str, origin: Origin) -> None:
    """Remember a session's origin, in the caller's transaction."""
    db.execute(
        "INSERT OR REPLACE INTO origins (session_id, source, key, digest) VALUES (?, ?, ?, ?)",
        (session_id, origin.source, origin.key, origin.digest),
    )
