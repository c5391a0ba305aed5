"""The session database: one SQLite file with every conversation, its tree of messages and its spans.

What a method has returned from outlives a kill of the process: each change is one transaction, committed
before the method returns. `synchronous` is NORMAL: in WAL mode a commit is then handed to the operating
system and not forced onto the disk, so a power cut may take the last moments and never the file as a whole.
Forcing every commit would cost a flush of the disk twice a second while a reply streams.

All text becomes valid on entry (`session.clean_text`). Every failure is a `DatabaseError` (or a
`SessionNotFoundError`) with a sentence for the user. An object is used from one thread.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import cast

from ds4chat.errors import DatabaseError
from ds4chat.sessions.connection import BUSY_SECONDS, Connection
from ds4chat.sessions.organizing import Organizing
from ds4chat.sessions.origins import Origin, Origins, record
from ds4chat.sessions.rows import (
    Params,
    Stats,
    from_json,
    from_lines,
    pack,
    to_json,
    to_lines,
    unknown,
    unpack,
)
from ds4chat.sessions.session import (
    Message,
    MessageState,
    Session,
    clean_tags,
    clean_text,
    clean_title,
)
from ds4chat.sessions.spans import Span, Spans

__all__ = ["Database", "Span"]


LATER_SECONDS = 0.001
"""What a time lies behind another that it must come after."""


class Database(Organizing, Spans, Origins):
    """Sessions on disk: one of them here, many in `Organizing`, what they stand on in `Spans`, where they are from in
    `Origins`.

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

    @property
    def patience(self) -> float | None:
        """Seconds a write waits for another process's, None for `busy_timeout`."""
        return self._db.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._db.patience = seconds

    def version_elsewhere(self) -> int:
        """A number that is another one when another connection has written meanwhile."""
        row = self._db.one("PRAGMA data_version")
        return int(row[0]) if row else 0

    # -- sessions

    def new_id(self) -> str:
        """8 lowercase hex characters that no session has."""
        while True:
            session_id = secrets.token_hex(4)
            if not self.has(session_id):
                return session_id

    def create_session(self, session: Session, origin: Origin | None = None) -> None:
        """Store a session, and the messages it may already hold (an import, a fork), and where it is from.

        An empty `id` and times of 0 are filled in, text is cleaned, and the messages get new ids: all of that
        is written back to `session`.
        """
        now = self._clock()
        session.id = session.id or self.new_id()
        session.created = session.created or now
        session.updated = session.updated or max(session.created, self._used_now(now))
        session.title, session.system = clean_title(session.title), clean_text(session.system)
        session.summary, session.draft = clean_text(session.summary), clean_text(session.draft)
        session.tags = clean_tags(session.tags)
        ids: dict[int | None, int | None] = {None: None}
        old = sorted(session.messages.values(), key=lambda m: m.id)
        with self._db.write() as db:
            db.execute(
                "INSERT INTO sessions (id, title, system, model, model_path, created, updated, cold_done,"
                " tokens, pinned, archived, trashed, tags, params, draft, summary)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)",
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
                    session.pinned,
                    session.archived,
                    to_lines(session.tags),
                    to_json(session.params),
                    session.draft,
                    session.summary,
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
            if origin is not None:
                record(db, session.id, origin)
        for message in old:
            message.id, message.parent_id = cast(int, ids[message.id]), ids[message.parent_id]
        session.messages = {message.id: message for message in old}
        session.head_id, session.window_start_id = head, window

    def load_session(self, session_id: str) -> Session:
        """A session with its whole tree. Raises SessionNotFoundError."""
        row = self._db.one(
            "SELECT id, title, system, model, model_path, created, updated, head_id, window_start_id,"
            " cold_done, tokens, params, summary, pinned, archived, tags, draft FROM sessions WHERE id = ?",
            session_id,
        )
        if row is None:
            raise unknown(session_id)
        rows = self._db.all(
            "SELECT id, parent_id, role, text, state, tokens, fingerprint, model, created, stats,"
            " hidden FROM messages WHERE session_id = ? ORDER BY id",
            session_id,
        )
        with self._db.errors():
            session = Session(*row[:9])
            session.cold_done, session.tokens, session.params = bool(row[9]), row[10], from_json(row[11])
            session.summary, session.pinned, session.archived = row[12], bool(row[13]), bool(row[14])
            session.tags, session.draft = from_lines(row[15]), row[16]
            for id_, parent_id, role, text, state, tokens, fingerprint, model, created, stats, hidden in rows:
                if parent_id is not None and parent_id not in session.messages:
                    raise sqlite3.DatabaseError(f"message {id_} names an unknown parent {parent_id}")
                session.messages[id_] = Message(
                    id_,
                    parent_id,
                    role,
                    text,
                    state,
                    unpack(tokens),
                    fingerprint,
                    model,
                    created,
                    from_json(stats),
                    bool(hidden),
                )
            if session.head_id is not None and session.head_id not in session.messages:
                raise sqlite3.DatabaseError(
                    f"session {session_id} stands on an unknown message {session.head_id}"
                )
        return session

    def model_path(self, session_id: str) -> str:
        """Path of the model a session was last used with, "" for none. Raises SessionNotFoundError."""
        row = self._db.one("SELECT model_path FROM sessions WHERE id = ?", session_id)
        if row is None:
            raise unknown(session_id)
        return str(row[0])

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
        self._set(session_id, params=to_json(params))

    def set_system(self, session_id: str, text: str) -> None:
        """Replace the system prompt; "" for none."""
        self._set(session_id, system=clean_text(text))

    def set_summary(self, session_id: str, text: str) -> None:
        """Replace the summary of what lies before the window; "" for none."""
        self._set(session_id, summary=clean_text(text))

    # -- messages

    def add_message(self, session_id: str, message: Message) -> int:
        """Append a message below its parent and let the session stand on it; its new id.

        `id`, `text` (cleaned) and a `created` of 0 are written back to `message`. Raises
        SessionNotFoundError, and ValueError for a parent that is not in the session.
        """
        message.created = message.created or self._clock()
        with self._db.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone() is None:
                raise unknown(session_id)
            id_ = self._insert(db, session_id, message.parent_id, message)
            db.execute(
                "UPDATE sessions SET head_id = ?, updated = MAX(updated, ?) WHERE id = ?",
                (id_, self._used_now(message.created), session_id),
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
                (
                    clean_text(text),
                    pack(tokens),
                    state,
                    None if stats is None else to_json(stats),
                    message_id,
                ),
            ).rowcount
            if changed == 0:
                raise DatabaseError(
                    "The reply cannot be saved: its session was deleted elsewhere; start a new one."
                )

    def set_state(self, message_id: int, state: MessageState) -> None:
        """Set a message's state; a message that is gone is nobody's concern."""
        with self._db.write() as db:
            db.execute("UPDATE messages SET state = ? WHERE id = ?", (state, message_id))

    def set_hidden(self, message_ids: Iterable[int], hidden: bool) -> None:
        """Hide messages, or show them again, all or none; those that are gone are nobody's concern."""
        with self._db.write() as db:
            db.executemany(
                "UPDATE messages SET hidden = ? WHERE id = ?", [(int(hidden), id_) for id_ in message_ids]
            )

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

    # -- helpers

    def _used_now(self, now: float) -> float:
        """When a session counts as used that is used now: after all that were used before, also when the clock was set
        back since. Lists are in the order of use."""
        row = self._db.one("SELECT MAX(updated) FROM sessions")
        last = row[0] if row is not None and isinstance(row[0], int | float) else 0.0
        return max(now, last + LATER_SECONDS) if last > now else now

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
                " model, stats, text, tokens, hidden) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session_id,
                    parent_id,
                    depth,
                    message.role,
                    message.state,
                    message.created,
                    message.fingerprint,
                    clean_text(message.model),
                    to_json(message.stats),
                    message.text,
                    pack(message.tokens),
                    message.hidden,
                ),
            ).lastrowid,
        )
