"""The session database: one SQLite file with every conversation, its tree of messages and its spans.

What a method has returned from outlives a kill of the process: each change is one transaction, committed
before the method returns. `synchronous` is NORMAL: in WAL mode a commit is then handed to the operating
system and not forced onto the disk, so a power cut may take the last moments and never the file as a whole.
Forcing every commit would cost a flush of the disk twice a second while a reply streams.

All text becomes valid on entry (`session.clean_text`). Every failure is a `DatabaseError` (or a
`SessionNotFoundError`) with a sentence for the user. An object is used from one thread.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import msgspec

from ds4chat.errors import DatabaseError, SessionNotFoundError, UsageError
from ds4chat.sessions.connection import BUSY_SECONDS, Connection
from ds4chat.sessions.session import (
    Message,
    MessageState,
    Session,
    SessionInfo,
    clean_text,
    clean_title,
)

LISTED_MATCHES = 5
"""Matches that the sentence about an ambiguous name lists: more would not be read."""

_LIST = (
    "SELECT s.id, s.title, s.model, COALESCE(m.depth, 0), s.tokens, s.created, s.updated"
    " FROM sessions s LEFT JOIN messages m ON m.id = s.head_id"
)
"""Rows of `SessionInfo`."""

Params = Mapping[str, float | int | str | bool | None]
Stats = Mapping[str, float | int | str]


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


class Database:
    """Sessions on disk.

    Args:
        path: the file, made with its folder (0700) when missing and kept at 0600; ":memory:" keeps all in
            memory.
        busy_timeout: seconds a write waits for another process's.
        clock: seconds since the epoch.

    Raises:
        DatabaseError: the file cannot be opened, is damaged, of another program, or of a newer version (it is
            then left as it is).
    """

    def __init__(
        self,
        path: Path | str,
        *,
        busy_timeout: float = BUSY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._db = Connection(path, busy_timeout, clock)

    def close(self) -> None:
        """Close the file; again does nothing."""
        self._db.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- sessions

    def new_id(self) -> str:
        """8 lowercase hex characters that no session has."""
        while True:
            session_id = secrets.token_hex(4)
            if self._db.one("SELECT 1 FROM sessions WHERE id = ?", session_id) is None:
                return session_id

    def create_session(self, session: Session) -> None:
        """Store a session, and the messages it may already hold (an import, a fork).

        An empty `id` and times of 0 are filled in, text is cleaned, and the messages get new ids: all of that
        is written back to `session`.
        """
        now = self._clock()
        session.id = session.id or self.new_id()
        session.created = session.created or now
        session.updated = session.updated or session.created
        session.title, session.system = clean_title(session.title), clean_text(session.system)
        ids: dict[int | None, int | None] = {None: None}
        old = sorted(session.messages.values(), key=lambda m: m.id)
        with self._db.write() as db:
            db.execute(
                "INSERT INTO sessions (id, title, system, model, model_path, created, updated, cold_done,"
                " tokens, params) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session.id,
                    session.title,
                    session.system,
                    clean_text(session.model),
                    clean_text(session.model_path),
                    session.created,
                    session.updated,
                    session.cold_done,
                    session.tokens,
                    _json(session.params),
                ),
            )
            for message in old:
                message.created = message.created or session.created
                ids[message.id] = self._insert(db, session.id, ids[message.parent_id], message)
            head, window = ids[session.head_id], ids.get(session.window_start_id)
            db.execute(
                "UPDATE sessions SET head_id = ?, window_start_id = ? WHERE id = ?",
                (head, window, session.id),
            )
        for message in old:
            message.id, message.parent_id = cast(int, ids[message.id]), ids[message.parent_id]
        session.messages = {message.id: message for message in old}
        session.head_id, session.window_start_id = head, window

    def load_session(self, session_id: str) -> Session:
        """A session with its whole tree. Raises SessionNotFoundError."""
        row = self._db.one(
            "SELECT id, title, system, model, model_path, created, updated, head_id, window_start_id,"
            " cold_done, tokens, params FROM sessions WHERE id = ?",
            session_id,
        )
        if row is None:
            raise _unknown(session_id)
        rows = self._db.all(
            "SELECT id, parent_id, role, text, state, tokens, fingerprint, model, created, stats"
            " FROM messages WHERE session_id = ? ORDER BY id",
            session_id,
        )
        with self._db.errors():
            session = Session(*row[:9])
            session.cold_done, session.tokens, session.params = bool(row[9]), row[10], _from_json(row[11])
            for id_, parent_id, role, text, state, tokens, fingerprint, model, created, stats in rows:
                if parent_id is not None and parent_id not in session.messages:
                    raise sqlite3.DatabaseError(f"message {id_} names an unknown parent {parent_id}")
                session.messages[id_] = Message(
                    id_,
                    parent_id,
                    role,
                    text,
                    state,
                    _unpack(tokens),
                    fingerprint,
                    model,
                    created,
                    _from_json(stats),
                )
            if session.head_id is not None and session.head_id not in session.messages:
                raise sqlite3.DatabaseError(
                    f"session {session_id} stands on an unknown message {session.head_id}"
                )
        return session

    def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionInfo]:
        """The sessions, last used first; all of them when `limit` is None."""
        rows = self._db.all(
            f"{_LIST} ORDER BY s.updated DESC, s.rowid DESC LIMIT ? OFFSET ?",
            -1 if limit is None else limit,
            offset,
        )
        return [SessionInfo(*row) for row in rows]

    def info(self, session_id: str) -> SessionInfo:
        """A session's row of the list. Raises SessionNotFoundError."""
        row = self._db.one(f"{_LIST} WHERE s.id = ?", session_id)
        if row is None:
            raise _unknown(session_id)
        return SessionInfo(*row)

    def model_path(self, session_id: str) -> str:
        """Path of the model a session was last used with, "" for none. Raises SessionNotFoundError."""
        row = self._db.one("SELECT model_path FROM sessions WHERE id = ?", session_id)
        if row is None:
            raise _unknown(session_id)
        return str(row[0])

    def model_paths(self, model: str) -> list[str]:
        """Paths that sessions used a model of this name from, last used first."""
        query = "SELECT model_path FROM sessions WHERE model = ? AND model_path <> '' ORDER BY updated DESC"
        return [str(row[0]) for row in self._db.all(query, model)]

    def count(self) -> int:
        """How many sessions there are."""
        return int(self._db.all("SELECT COUNT(*) FROM sessions")[0][0])

    def latest(self) -> str | None:
        """The id of the session used last, None without any."""
        infos = self.list_sessions(limit=1)
        return infos[0].id if infos else None

    def resolve(self, name: str) -> str:
        """The id of the session that goes by `name`: its id, the start of it, or its title.

        A whole id decides at once. Else ids that start with `name` and titles equal to it count alike, and
        only when there is none, titles that are equal in lower case.

        Raises:
            SessionNotFoundError: none does, or more than one (the sentence lists them).
        """
        name = clean_text(name).strip()
        if not name:
            raise SessionNotFoundError("A session's name must not be blank: `ds4chat ls` lists them.")
        infos = {info.id: info for info in self.list_sessions()}
        prefix = name.lower() if re.fullmatch(r"[0-9a-fA-F]{1,8}", name) else ""
        if prefix in infos:
            return prefix
        found = [i for i in infos.values() if i.title == name or (prefix and i.id.startswith(prefix))]
        if not found:
            found = [i for i in infos.values() if i.title.casefold() == name.casefold()]
        if not found:
            raise _unknown(name)
        if len(found) > 1:
            listed = ", ".join(f'{i.id} "{i.title}"' for i in found[:LISTED_MATCHES])
            more = f" and {len(found) - LISTED_MATCHES} more" if len(found) > LISTED_MATCHES else ""
            raise SessionNotFoundError(
                f'"{name}" fits {len(found)} sessions, {listed}{more}: give more of the id.'
            )
        return found[0].id

    def rename(self, session_id: str, title: str) -> str:
        """Set the title and return it as stored, on one line. Raises UsageError when nothing is left of
        it."""
        title = clean_title(title)
        if not title:
            raise UsageError("A session's title must not be blank: give it at least one visible character.")
        self._set(session_id, title=title)
        return title

    def set_head(self, session_id: str, message_id: int | None) -> None:
        """Stand on another message of the session."""
        self._set(session_id, head_id=message_id)

    def set_window_start(self, session_id: str, message_id: int | None) -> None:
        """Remember the first message that still reaches the model."""
        self._set(session_id, window_start_id=message_id)

    def set_model(self, session_id: str, model: str, model_path: str) -> None:
        """Remember the model a session was last used with."""
        self._set(session_id, model=clean_text(model), model_path=clean_text(model_path))

    def set_cold_done(self, session_id: str, done: bool = True) -> None:
        """Remember that the session's cold prompt was prefilled."""
        self._set(session_id, cold_done=done)

    def set_tokens(self, session_id: str, tokens: int) -> None:
        """Remember how many tokens of context the last turn used."""
        self._set(session_id, tokens=tokens)

    def set_params(self, session_id: str, params: Params) -> None:
        """Replace the settings of this session alone."""
        self._set(session_id, params=_json(params))

    def delete(self, session_id: str) -> list[str]:
        """Delete a session for good.

        Returns:
            The spans that no other session stands on, as SHA-1 hex, deepest first.
        """
        with self._db.write() as db:
            spans = db.execute(
                "SELECT sha1 FROM spans s WHERE session_id = ? AND NOT EXISTS"
                " (SELECT 1 FROM spans o WHERE o.sha1 = s.sha1 AND o.session_id <> s.session_id)"
                ' ORDER BY "end" DESC',
                (session_id,),
            ).fetchall()
            for table in ("spans", "messages"):
                db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            if db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount == 0:
                raise _unknown(session_id)
        return [str(row[0]) for row in spans]

    # -- messages

    def add_message(self, session_id: str, message: Message) -> int:
        """Append a message below its parent and let the session stand on it; its new id.

        `id`, `text` (cleaned) and a `created` of 0 are written back to `message`. Raises
        SessionNotFoundError, and ValueError for a parent that is not in the session.
        """
        message.created = message.created or self._clock()
        with self._db.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
                raise _unknown(session_id)
            id_ = self._insert(db, session_id, message.parent_id, message)
            db.execute(
                "UPDATE sessions SET head_id = ?, updated = MAX(updated, ?) WHERE id = ?",
                (id_, message.created, session_id),
            )
        message.id = id_
        return id_

    def update_reply(
        self,
        message_id: int,
        text: str,
        tokens: Sequence[int],
        state: MessageState,
        stats: Stats | None = None,
    ) -> None:
        """Save a reply as far as it came: its whole text, all its token ids. `stats` None keeps the
        stored."""
        with self._db.write() as db:
            changed = db.execute(
                "UPDATE messages SET text = ?, tokens = ?, state = ?, stats = COALESCE(?, stats)"
                " WHERE id = ?",
                (clean_text(text), _pack(tokens), state, None if stats is None else _json(stats), message_id),
            ).rowcount
            if changed == 0:
                raise DatabaseError(
                    "The reply cannot be saved: its session was deleted elsewhere; start a new one."
                )

    def set_state(self, message_id: int, state: MessageState) -> None:
        """Set a message's state; a message that is gone is nobody's concern."""
        with self._db.write() as db:
            db.execute("UPDATE messages SET state = ? WHERE id = ?", (state, message_id))

    def set_author(self, message_id: int, fingerprint: str, model: str) -> None:
        """Remember the weights that write a reply: its token ids are valid under `fingerprint` alone."""
        with self._db.write() as db:
            db.execute(
                "UPDATE messages SET fingerprint = ?, model = ? WHERE id = ?",
                (fingerprint, clean_text(model), message_id),
            )

    def recover(self, session_id: str) -> int:
        """Put in order what a killed process left; how many messages that were. Only under the session's
        lock.

        Replies that were streaming become cut; user's messages that waited become complete, without a reply.
        """
        with self._db.write() as db:
            return db.execute(
                "UPDATE messages SET state = CASE WHEN role = 'assistant' THEN 'cut' ELSE 'complete' END"
                " WHERE session_id = ? AND state IN ('streaming', 'queued')",
                (session_id,),
            ).rowcount

    # -- spans

    def record_span(self, session_id: str, sha1: str, start: int, end: int, reason: str, size: int) -> None:
        """Remember a checkpoint of `size` bytes that the session stands on; known ones are replaced."""
        self.record_spans(session_id, [Span(sha1, start, end, reason, size)])

    def record_spans(self, session_id: str, spans: Sequence[Span]) -> None:
        """`record_span` for several, all or none; `created` becomes the present time."""
        now = self._clock()
        with self._db.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
                raise _unknown(session_id)
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

    def all_spans(self) -> list[str]:
        """SHA-1 hex of every span that some session stands on: what must stay when others are deleted."""
        return [str(row[0]) for row in self._db.all("SELECT DISTINCT sha1 FROM spans")]

    # -- helpers

    @staticmethod
    def _insert(db: sqlite3.Connection, session_id: str, parent_id: int | None, message: Message) -> int:
        depth = 1
        if parent_id is not None:
            row = db.execute(
                "SELECT depth FROM messages WHERE id = ? AND session_id = ?", (parent_id, session_id)
            ).fetchone()
            if row is None:
                raise ValueError(f"session {session_id} has no message {parent_id}")
            depth += row[0]
        message.text = clean_text(message.text)
        return cast(
            int,
            db.execute(
                "INSERT INTO messages (session_id, parent_id, depth, role, state, created, fingerprint,"
                " model, stats, text, tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session_id,
                    parent_id,
                    depth,
                    message.role,
                    message.state,
                    message.created,
                    message.fingerprint,
                    clean_text(message.model),
                    _json(message.stats),
                    message.text,
                    _pack(message.tokens),
                ),
            ).lastrowid,
        )

    def _set(self, session_id: str, **columns: object) -> None:
        assignments = ", ".join(f"{name} = ?" for name in columns)
        with self._db.write() as db:
            query = f"UPDATE sessions SET {assignments} WHERE id = ?"
            if db.execute(query, (*columns.values(), session_id)).rowcount == 0:
                raise _unknown(session_id)


def _unknown(name: str) -> SessionNotFoundError:
    return SessionNotFoundError(f'No session goes by "{clean_title(name)}": `ds4chat ls` lists them.')


def _json(value: Params | Stats) -> str:
    return msgspec.json.encode(value).decode()


def _from_json(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def _pack(tokens: Sequence[int]) -> bytes:
    """Token ids as unsigned 32-bit little-endian integers."""
    ids = array("I", tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def _unpack(blob: bytes) -> list[int]:
    if len(blob) % 4:
        raise sqlite3.DatabaseError("a reply's tokens are cut off")
    ids = array("I", blob)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()
