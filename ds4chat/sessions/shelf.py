"""The sessions one process has open: which, under which locks, saved or not yet, its own or only to look at.

Promises: a session is written to by one process at a time; one that never had a message leaves nothing behind; what
could not be written is said once and stays in memory. Must not know: the engine, the screen.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from pathlib import Path

from ds4chat.errors import DatabaseError, SessionLockedError, SessionNotFoundError
from ds4chat.sessions.database import Database
from ds4chat.sessions.locks import SessionLock, lock_session
from ds4chat.sessions.session import Message, Session, title_from

log = logging.getLogger(__name__)


class Shelf:
    """Open sessions over one database. With `save` False all is kept in memory and saved ones are only borrowed."""

    def __init__(self, data_dir: Path, *, save: bool, on_failure: Callable[[str], None]) -> None:
        """Open the database. `on_failure` gets one sentence, once. Raises DatabaseError."""
        self._data_dir, self.save = data_dir, save
        self.db = Database(data_dir / "sessions.db" if save else ":memory:")
        self._on_failure: Callable[[str], None] | None = on_failure
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, SessionLock] = {}
        self._read_only: set[str] = set()
        self._unsaved: set[str] = set()

    def get(self, session_id: str) -> Session | None:
        """The session if it is open."""
        return self._sessions.get(session_id)

    def __getitem__(self, session_id: str) -> Session:
        return self._sessions[session_id]

    def is_saved(self, session_id: str) -> bool:
        """Whether the session outlives this process."""
        return self.save and session_id not in self._unsaved

    def is_read_only(self, session_id: str) -> bool:
        return session_id in self._read_only

    def new(self, system: str) -> Session:
        """A session that reaches the database with its first message."""
        session = Session(id=self.db.new_id(), system=system)
        session.created = session.updated = time.time()
        self._sessions[session.id] = session
        self._unsaved.add(session.id)
        return session

    def open(self, session_id: str) -> Session:
        """Open and lock a session (again: the same object). Raises SessionNotFoundError, SessionLockedError."""
        if session_id in self._sessions and session_id not in self._read_only:
            return self._sessions[session_id]
        if not self.save:
            return self._borrow(session_id)
        session = self.db.load_session(session_id)
        self._locks[session_id] = lock_session(self._data_dir, session_id, session.title)
        # Only now is what the file says of a reply in the making the last word on it.
        self.db.recover(session_id)
        session = self._sessions[session_id] = self.db.load_session(session_id)
        self._read_only.discard(session_id)
        return session

    def _borrow(self, session_id: str) -> Session:
        """A saved session to go on in without saving."""
        with Database(self._data_dir / "sessions.db") as saved:
            session = saved.load_session(session_id)
        self.db.create_session(session)
        self._sessions[session.id] = session
        return session

    def open_read_only(self, session_id: str) -> Session:
        """A session that another process has open, to look at."""
        session = self._sessions[session_id] = self.db.load_session(session_id)
        self._read_only.add(session_id)
        return session

    def writable(self, session_id: str) -> Session:
        """The session, opened when it is not. Raises SessionLockedError when it is only there to look at."""
        if session_id in self._read_only:
            raise SessionLockedError(
                "This session is open in another ds4chat: go on there, or fork it to go on here."
            )
        return self._sessions.get(session_id) or self.open(session_id)

    def append(self, session: Session, message: Message) -> None:
        """Write a message below the session's head; the first one brings the session itself. Raises DatabaseError."""
        if session.id in self._unsaved:
            session.title = session.title or title_from(message.text) or "Untitled"
            self.db.create_session(session)
            if self.save:
                self._locks[session.id] = lock_session(self._data_dir, session.id, session.title)
            self._unsaved.discard(session.id)
        self.db.add_message(session.id, message)
        session.append(message)
        session.updated = message.created

    def fork(self, session_id: str) -> Session:
        """A new session with the same path and the same checkpoints."""
        source = self._sessions.get(session_id) or self.db.load_session(session_id)
        fork = copy.deepcopy(source)
        path = fork.path()
        fork.id, fork.created, fork.updated = "", 0.0, time.time()
        fork.title = f"{source.title} (fork)"
        fork.messages = {message.id: message for message in path}
        for message in path:
            if message.state in ("streaming", "queued"):
                message.state = "cut" if message.role == "assistant" else "complete"
        self.db.create_session(fork)
        self.db.copy_spans(session_id, fork.id)
        if self.save:
            self._locks[fork.id] = lock_session(self._data_dir, fork.id, fork.title)
        self._sessions[fork.id] = fork
        return fork

    def rename(self, session_id: str, title: str) -> None:
        """Raises UsageError for a blank title."""
        title = self.db.rename(session_id, title)
        if session_id in self._sessions:
            self._sessions[session_id].title = title

    def delete(self, session_id: str) -> list[str]:
        """Delete a session for good; the checkpoints only it stood on. Raises SessionLockedError."""
        if session_id in self._unsaved:
            self._unsaved.discard(session_id)
            self._sessions.pop(session_id, None)
            return []
        lock = self._locks.pop(session_id, None)
        if lock is None and self.save:
            lock = lock_session(self._data_dir, session_id)
        spans = self.db.delete(session_id)
        if lock is not None:
            lock.release(remove=True)
        self._sessions.pop(session_id, None)
        return spans

    def put_away(self, session_id: str) -> None:
        """Let go of a session, lock and all. One that never had a message stays as it is."""
        if session_id not in self._unsaved and self.save:
            self._sessions.pop(session_id, None)
        self._read_only.discard(session_id)
        lock = self._locks.pop(session_id, None)
        if lock is not None:
            lock.release()

    def guard(self, write: Callable[..., object], *args: object) -> None:
        """A write that fails must not end the chat: it is said once, and what was shown stays in memory."""
        try:
            write(*args)
        except SessionNotFoundError as error:
            log.info("%s", error)
        except DatabaseError as error:
            log.exception("saving failed")
            if self._on_failure is not None:
                self._on_failure(f"{error} What is shown here is kept until you quit.")
                self._on_failure = None

    def close(self) -> None:
        """Release all locks and close the database."""
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()
        self.db.close()
