"""The sessions one process has open: which, under which locks, saved or not yet, its own or only to look at.

Promises: a session is written to by one process at a time; one that never had a message leaves nothing behind, and
neither does an incognito one; what could not be written is said once and stays in memory. Must not know: the engine,
the screen.
"""

from __future__ import annotations

import copy
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from ds4chat.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseUnwritableError,
    SessionLockedError,
    SessionNotFoundError,
    UsageError,
)
from ds4chat.files import write_private
from ds4chat.sessions.backlog import PATIENCE_SECONDS, Backlog
from ds4chat.sessions.database import Database
from ds4chat.sessions.locks import SessionLock, lock_session
from ds4chat.sessions.rows import unknown
from ds4chat.sessions.session import Message, Session, clean_tags, clean_text, clean_title, title_from

log = logging.getLogger(__name__)


PATIENT_SECONDS = 3.0
"""How long what cannot be done later waits for another program that writes."""

FIRST_INCOGNITO_ID = 1 << 48
"""Message ids of incognito sessions begin here, so that none is ever another session's in the database."""


class Shelf:
    """Open sessions over one database. With `save` False all is kept in memory and saved ones are only borrowed."""

    def __init__(
        self,
        data_dir: Path,
        *,
        save: bool,
        on_failure: Callable[[str], None],
        on_wait: Callable[[], None] = lambda: None,
        on_written: Callable[[bool], None] = lambda told: None,
        on_unsaved: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Open the database. Raises DatabaseError.

        Args:
            on_failure: gets one sentence, once.
            on_wait, on_written: another program has been writing for a while; all that waited for it is written now,
                and whether `on_wait` was called before.
            on_unsaved: the disk does not take what is to be saved, and why; "" when all is saved.
        """
        self._data_dir, self.save = data_dir, save
        self._new_draft = data_dir / "draft.txt"
        self._own_draft = ""
        self.db = Database(data_dir / "sessions.db" if save else ":memory:")
        self._on_failure: Callable[[str], None] | None = on_failure
        self._on_written, self._on_unsaved = on_written, on_unsaved
        self.unsaved = ""
        """Why what was written last is not on disk, "" when it is."""
        self.backlog = Backlog(self.db, on_wait, self._written, self._failed)
        """What is written later, because another program writes now."""
        self._put_away_then: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, SessionLock] = {}
        self._read_only: set[str] = set()
        self._seen_versions: dict[str, int] = {}
        self._version = self.db.version_elsewhere()
        self._unsaved: set[str] = set()
        self._incognito: set[str] = set()
        self._trash: dict[str, Session | None] = {}
        """What this process deleted, with the session itself where the file does not have it."""
        self.said_in_trash: dict[str, list[str]] = {}
        """The texts of sessions that were just deleted for good."""
        self.opened_last = ""
        self._ids = itertools.count(FIRST_INCOGNITO_ID)

    def get(self, session_id: str) -> Session | None:
        """The session if it is open."""
        return self._sessions.get(session_id)

    def __getitem__(self, session_id: str) -> Session:
        return self._sessions[session_id]

    def is_saved(self, session_id: str) -> bool:
        """Whether the session outlives this process."""
        return self.save and self.in_database(session_id)

    def in_database(self, session_id: str) -> bool:
        """Whether the session has a row to write to."""
        return session_id not in self._unsaved and session_id not in self._incognito

    def is_incognito(self, session_id: str) -> bool:
        """Whether nothing of the session may reach the disk."""
        return session_id in self._incognito

    def is_read_only(self, session_id: str) -> bool:
        return session_id in self._read_only

    def new(self, system: str, *, incognito: bool = False) -> Session:
        """A session that reaches the database with its first message, or never."""
        session = Session(id=self.db.new_id(), system=system)
        session.created = session.updated = time.time()
        self._sessions[session.id] = session
        (self._incognito if incognito else self._unsaved).add(session.id)
        self.opened_last = session.id
        return session

    def open(self, session_id: str) -> Session:
        """Open and lock a session (again: the same object). Raises SessionNotFoundError, SessionLockedError."""
        self.opened_last = session_id
        self._put_away_then.discard(session_id)
        if session_id in self._sessions and session_id not in self._read_only:
            return self._sessions[session_id]
        if not self.save:
            return self._borrow(session_id)
        session = self.db.load_session(session_id)
        if session_id not in self._locks:
            self._locks[session_id] = lock_session(self._data_dir, session_id, session.title)
        # Only now is what the file says of a reply in the making the last word on it.
        session = self._sessions[session_id] = self.db.load_session(session_id)
        self._read_only.discard(session_id)
        left = [message for message in session.messages.values() if message.state in ("streaming", "queued")]
        for message in left:
            message.state = "cut" if message.role == "assistant" else "complete"
        if left:
            self.write(session_id, self.db.recover, session_id)
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

    def changed_elsewhere(self) -> bool:
        """Whether another program has written to the database since this was asked last. Cheap."""
        before, self._version = self._version, self.db.version_elsewhere()
        return self._version != before

    def refresh_read_only(self, session_id: str) -> bool:
        """Bring a session that is only there to look at up to date; whether another process has changed it. Cheap while
        nothing was written. Raises SessionNotFoundError when it was deleted there."""
        session = self._sessions.get(session_id)
        if session is None or session_id not in self._read_only:
            return False
        version = self.db.version_elsewhere()
        if self._seen_versions.get(session_id) == version:
            return False
        self._seen_versions[session_id] = version
        if self.db.is_trashed(session_id):
            raise unknown(session_id)
        fresh = self.db.load_session(session_id)
        if fresh == session:
            return False
        for id_, message in fresh.messages.items():
            old = session.messages.get(id_)
            if old is not None:
                # What shows a message holds on to it.
                for part in fields(Message):
                    setattr(old, part.name, getattr(message, part.name))
                fresh.messages[id_] = old
        for part in fields(Session):
            setattr(session, part.name, getattr(fresh, part.name))
        return True

    def writable(self, session_id: str) -> Session:
        """The session, opened when it is not. Raises SessionLockedError when it is only there to look at."""
        if session_id in self._read_only:
            raise SessionLockedError(
                "This session is open in another ds4chat: go on there, or fork it to go on here."
            )
        return self._sessions.get(session_id) or self.open(session_id)

    def append(self, session: Session, message: Message, patience: float = PATIENCE_SECONDS) -> None:
        """Write a message below its parent and stand on it; the first one brings the session itself. Raises
        DatabaseError, DatabaseBusyError when another program writes for longer than so many seconds."""
        if session.id in self._incognito:
            session.title = session.title or title_from(message.text) or "Untitled"
            message.id, message.text = next(self._ids), clean_text(message.text)
            session.append(message)
            session.updated = message.created
            return
        with self.backlog.first(patience):
            if session.id in self._unsaved:
                session.title = session.title or title_from(message.text) or "Untitled"
                self.db.create_session(session)
                if self.save:
                    self._locks[session.id] = lock_session(self._data_dir, session.id, session.title)
                self._unsaved.discard(session.id)
            self.db.add_message(session.id, message)
        session.append(message)
        session.updated = message.created

    def stand_on(self, session: Session, message_id: int | None) -> None:
        """Stand on another message of the session."""
        session.head_id = message_id
        self.write(session.id, self.db.set_head, session.id, message_id)

    def fork(self, session_id: str, at: int | None = None) -> Session:
        """A new session with the same path (up to and with the message `at`) and the same checkpoints. Raises
        UsageError for a message that is not in the session."""
        source = self._sessions.get(session_id) or self.db.load_session(session_id)
        if at is not None and at not in source.messages:
            raise UsageError(f"There is no message {at} in this session.")
        fork = copy.deepcopy(source)
        if all(message.id != fork.window_start_id for message in fork.lineage(at)):
            # Cut off before the window begins, or on another branch: what falls out is found anew.
            fork.window_start_id, fork.summary = None, ""
        path = fork.keep_path(at)
        fork.id, fork.created, fork.updated = "", 0.0, 0.0
        fork.title = f"{source.title} (fork)"
        fork.pinned, fork.archived, fork.draft = False, False, ""
        for message in path:
            if message.state in ("streaming", "queued"):
                message.state = "cut" if message.role == "assistant" else "complete"
        if session_id in self._incognito:
            fork.id, fork.created, fork.updated = self.db.new_id(), time.time(), time.time()
            self._incognito.add(fork.id)
            self._sessions[fork.id] = fork
            return fork
        with self.backlog.first(PATIENT_SECONDS):
            self.db.create_session(fork)
            self.db.copy_spans(session_id, fork.id)
        if self.save:
            self._locks[fork.id] = lock_session(self._data_dir, fork.id, fork.title)
        self._sessions[fork.id] = fork
        return fork

    def rename(self, session_id: str, title: str) -> None:
        """Raises UsageError for a blank title."""
        title = clean_title(title)
        if not title:
            raise UsageError("A session's title must not be blank: give it at least one visible character.")
        if self.in_database(session_id):
            self.backlog.do(lambda: self.db.rename(session_id, title))
        if session_id in self._sessions:
            self._sessions[session_id].title = title

    # ---- marks, drafts ----

    def set_flags(self, session_id: str, *, pinned: bool | None = None, archived: bool | None = None) -> None:
        """Pin or archive. Raises SessionNotFoundError, DatabaseError."""
        if self.in_database(session_id):
            self.backlog.do(lambda: self.db.set_flags(session_id, pinned=pinned, archived=archived))
        session = self._sessions.get(session_id)
        if session is not None:
            session.pinned = session.pinned if pinned is None else pinned
            session.archived = session.archived if archived is None else archived

    def set_tags(self, session_id: str, tags: Sequence[str]) -> None:
        """Replace the tags. Raises SessionNotFoundError, DatabaseError."""
        if self.in_database(session_id):
            self.backlog.do(lambda: self.db.set_tags(session_id, tags))
        if session_id in self._sessions:
            self._sessions[session_id].tags = clean_tags(tags)

    def save_draft(self, session_id: str, text: str) -> None:
        """Keep what was typed and not sent: on disk where the session is, else as long as the process lives."""
        session = self._sessions.get(session_id)
        if session is not None:
            if session.draft == text:
                return
            session.draft = text
        if session_id in self._unsaved:
            self.keep_draft(text)
        elif session_id not in self._read_only and session_id not in self._trash:
            self.write(session_id, self.db.set_draft, session_id, text)

    # A session that never had a message is in no database: its draft lies in a file of its own.

    def kept_draft(self) -> str:
        """What was typed in a session that never had a message, by this process or the one before; "" for nothing."""
        if not self.save:
            return ""
        self._own_draft = self._read_draft()
        return self._own_draft

    def _read_draft(self) -> str:
        try:
            return clean_text(self._new_draft.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return ""

    def keep_draft(self, text: str) -> None:
        """Keep what was typed in a session that never had a message; "" for nothing."""
        if not self.save:
            return
        try:
            self._write_draft(text)
        except DatabaseUnwritableError as error:
            self._keep_unsaved(lambda: self._write_draft(text), self._new_draft, error)

    def _write_draft(self, text: str) -> None:
        try:
            if text:
                self._own_draft = clean_text(text)
                write_private(self._new_draft, self._own_draft)
            elif self._read_draft() == self._own_draft:
                # Another process's stays.
                self._new_draft.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DatabaseUnwritableError(
                f"What is typed cannot be kept in {self._new_draft} ({reason}): make room and make it writable."
            ) from error

    # ---- the trash ----

    @property
    def has_trash(self) -> bool:
        """Whether this process deleted a session that can be brought back."""
        return bool(self._trash)

    def trash(self, session_id: str) -> None:
        """Delete a session so that it can be brought back until this process closes; its lock is held until then.
        Raises SessionLockedError, SessionNotFoundError."""
        if self.in_database(session_id):
            held = session_id in self._locks or not self.save
            lock = None if held else lock_session(self._data_dir, session_id)
            try:
                self.backlog.do(lambda: self.db.trash(session_id))
            except (DatabaseError, SessionNotFoundError):
                if lock is not None:
                    lock.release()
                raise
            if lock is not None:
                self._locks[session_id] = lock
        session = self._sessions.pop(session_id, None)
        self._read_only.discard(session_id)
        self._trash[session_id] = None if self.is_saved(session_id) else session

    def untrash(self, session_id: str) -> None:
        """Bring a deleted session back. Raises SessionNotFoundError when this process did not delete it."""
        if session_id not in self._trash:
            raise SessionNotFoundError(f"Session {session_id} is not among those that were deleted here.")
        if self.in_database(session_id):
            self.backlog.do(lambda: self.db.untrash(session_id))
        session = self._trash.pop(session_id)
        if session is not None:
            self._sessions[session_id] = session
        lock = self._locks.pop(session_id, None)
        if lock is not None:
            lock.release()

    def empty_trash(self, *, with_spans: bool) -> dict[str, list[str]]:
        """Delete for good what this process deleted; by session the checkpoints that no session stands on now.
        `with_spans` False: only what has none."""
        mine = [session_id for session_id in self._trash if self.in_database(session_id)]
        emptied = self._purge(float("inf"), mine, with_spans) if mine else {}
        for session_id in emptied:
            lock = self._locks.pop(session_id, None)
            if lock is not None:
                lock.release(remove=True)
        self._trash.clear()
        return emptied

    def leftovers(self, before: float) -> dict[str, list[str]]:
        """Delete for good what other processes deleted before a time and never emptied; as `empty_trash`."""
        return self._purge(before, None, True) if self.save else {}

    def _purge(self, before: float, only: Sequence[str] | None, with_spans: bool) -> dict[str, list[str]]:
        try:
            if only is not None and not with_spans:
                only = [session_id for session_id in only if not self.db.spans_of(session_id)]
            with self.backlog.first(PATIENT_SECONDS):
                self.said_in_trash = self.db.said_in(self.db.trashed() if only is None else only)
                return self.db.purge_trash(before, only)
        except DatabaseBusyError:
            log.info("the trash is left for the next start: another program writes to the database")
            return {}
        except DatabaseError:
            # It is out of sight all the same, and the next start tries again.
            log.exception("the trash was not emptied")
            return {}

    def put_away(self, session_id: str) -> None:
        """Let go of a session, lock and all. One that is not in the file stays, and so does one in the trash."""
        if session_id in self._trash:
            return
        if len(self.backlog):
            # What the file says of it is not yet what is so.
            self._put_away_then.add(session_id)
            return
        if self.is_saved(session_id):
            self._sessions.pop(session_id, None)
        self._read_only.discard(session_id)
        lock = self._locks.pop(session_id, None)
        if lock is not None:
            lock.release()

    def write(self, session_id: str, write: Callable[..., object], *args: object) -> None:
        """Write something of a session, if it has anywhere to be written to. A write that fails must not end the chat:
        it is said once, and what was shown stays in memory."""
        if not self.in_database(session_id):
            return
        # Of a growing reply only the last state counts.
        key = args[0] if write == self.db.update_reply else None
        try:
            self.backlog.do(lambda: write(*args), key)
        except SessionNotFoundError as error:
            log.info("%s", error)
        except DatabaseUnwritableError as error:
            self._keep_unsaved(lambda: write(*args), key, error)
        except DatabaseError as error:
            self._failed(error)

    def _keep_unsaved(self, job: Callable[[], object], key: object, error: DatabaseUnwritableError) -> None:
        """What the disk does not take stays in memory, and is tried again; said once until it is saved."""
        if not self.backlog.keep(job, key):
            self._failed(error)
            return
        if not self.unsaved:
            log.error("saving must wait", exc_info=error)
            self.unsaved = str(error)
            self._on_unsaved(self.unsaved)

    def _failed(self, error: DatabaseError) -> None:
        log.error("saving failed", exc_info=error)
        if self._on_failure is not None:
            self._on_failure(f"{error} What is shown here is kept until you quit.")
            self._on_failure = None

    def _written(self, told: bool) -> None:
        if self.unsaved:
            self.unsaved = ""
            self._on_unsaved("")
        later, self._put_away_then = self._put_away_then, set()
        for session_id in later:
            self.put_away(session_id)
        self._on_written(told)

    def close(self) -> None:
        """Release all locks and close the database."""
        self.backlog.close()
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()
        self.db.close()
