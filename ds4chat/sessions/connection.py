"""A SQLite file opened the way the session database needs it: modes, WAL, migrations, transactions,
errors."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from ds4chat.errors import (
    DatabaseBusyError,
    DatabaseDamagedError,
    DatabaseError,
    DatabaseUnwritableError,
)
from ds4chat.sessions import migrations, search_index
from ds4chat.sessions.damage import finish_salvage, look, mark_damaged

BUSY_SECONDS = 15.0
"""How long a write waits for another process's: ours take milliseconds, a backup program's may take
seconds."""

WAY_OUT = "choose another folder with --data-dir"

FULL_BYTES = 65_536
"""Free bytes below which a disk is full: a new connection makes files of half of that."""

_open_files: Counter[str] = Counter()
"""Connections of this process by the file's real path."""


class Connection:
    """One connection, in autocommit mode outside of `write`.

    Args:
        path: the file, made with its folder (0700) when missing and kept at 0600; ":memory:" keeps all in
            memory.
        busy_timeout: seconds a write waits for another process's.
        clock: seconds since the epoch.

    What can be read of a damaged file is put into a new one (see `salvage`).

    Raises:
        DatabaseError: the file cannot be opened, is of another program or of a newer version (it is then left as it
            is), or is damaged and open elsewhere.
    """

    def __init__(self, path: Path | str, busy_timeout: float, clock: Callable[[], float]) -> None:
        self.path = path
        self._closed = True
        self._busy_timeout = busy_timeout
        self.patience: float | None = None
        """Seconds a write waits, when it is another time than the reads'."""
        self._file = None if path == ":memory:" else Path(path)
        if self._file is None:
            with self.errors():
                self._connect(clock)
            return
        _prepare(self._file)
        # Closing the file, however it was opened, drops the locks that this process has on it.
        alone = not _open_files[self._key]
        if alone:
            finish_salvage(self._file)
        inode = self._file.stat().st_ino
        try:
            with self.errors():
                if alone:
                    look(self._file)
                _check_version(self._file)
                self._connect(clock)
        except DatabaseDamagedError as error:
            self._salvage(self._file, inode, error, clock)
        _open_files[self._key] += 1

    @property
    def _key(self) -> str:
        return os.path.realpath(self.path)

    def _salvage(
        self, file: Path, inode: int, error: DatabaseDamagedError, clock: Callable[[], float]
    ) -> None:
        """Put what can be read into a new file, and open that."""
        if _open_files[self._key]:
            # Its locks would go, and what it writes.
            raise error
        from ds4chat.sessions.salvage import salvage

        salvage(file, inode, str(error.__cause__), clock)
        with self.errors():
            self._connect(clock)

    def _connect(self, clock: Callable[[], float]) -> None:
        self._db = sqlite3.connect(str(self.path), timeout=self._busy_timeout, isolation_level=None)
        self._closed = False
        try:
            self._open(self._busy_timeout, clock)
        except BaseException:
            self._db.close()
            raise

    def _open(self, busy_timeout: float, clock: Callable[[], float]) -> None:
        _refuse_others(self.path, self._db)
        self._use_wal(busy_timeout)
        # What is deleted is overwritten, so that a deleted conversation does not linger in the file.
        self._db.execute("PRAGMA secure_delete = ON")
        # The triggers that keep the search call a function of ours.
        self._db.execute("PRAGMA trusted_schema = ON")
        self._db.execute("PRAGMA foreign_keys = OFF")
        migrations.migrate(self._db, clock())
        self._db.execute("PRAGMA foreign_keys = ON")
        search_index.attend(self._db)

    def _use_wal(self, busy_timeout: float) -> None:
        """Switch to WAL. SQLite does not wait by itself when two processes do that at the same moment."""
        deadline = time.monotonic() + busy_timeout
        while True:
            try:
                mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
        # Some file systems cannot do WAL; with a rollback journal, NORMAL could damage the file in a power
        # cut.
        self._db.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")

    @property
    def raw(self) -> sqlite3.Connection:
        """SQLite's own connection, for reading; to be used within `errors`."""
        return self._db

    def close(self) -> None:
        """Close the file; again does nothing."""
        self._db.close()
        if not self._closed and self._file is not None:
            _open_files[self._key] -= 1
        self._closed = True

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows a query gives."""
        with self.errors():
            return self._db.execute(query, values).fetchall()

    def one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """The first row a query gives, None without any."""
        with self.errors():
            return cast("tuple[Any, ...] | None", self._db.execute(query, values).fetchone())

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction. It takes the write lock at once: taking it later can fail without waiting."""
        with self.errors():
            with self._waiting():
                self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def erase(self) -> Iterator[sqlite3.Connection]:
        """A `write` whose deletions leave nothing in the file: neither in the index nor in the journal.

        Reads and writes the whole index, so that several deletions belong into one.
        """
        with self.write() as db:
            yield db
            search_index.scrub(db)
        # While another program reads, its journal stays until the last one closes the file.
        with self._waiting():
            self.all("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait for other writers as long as `patience` says."""
        if self.patience is None:
            yield
            return
        self._db.execute(f"PRAGMA busy_timeout = {int(self.patience * 1000)}")
        try:
            yield
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn failures of SQLite, and of reading what it holds, into a `DatabaseError`."""
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError) as error:
            kind = _kind(error)
            if kind is DatabaseDamagedError and self._file is not None:
                mark_damaged(self._file)
            raise kind(_sentence(self.path, error)) from error


def _prepare(path: Path) -> None:
    """Make the file, for its owner alone, so that SQLite gives its journal files the same mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DatabaseError(
            f"The session database {path} cannot be opened ({reason}): make it writable, or {WAY_OUT}."
        ) from error


def _check_version(path: Path) -> None:
    """A file of a newer version, or another program's, is refused here when it has a journal: a connection that can
    write would bring that into the file when it is closed. Raises DatabaseError."""
    journal = path.with_name(f"{path.name}-wal")
    if not journal.exists() or not journal.stat().st_size:
        return
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
        _refuse_others(path, db)


def _refuse_others(path: Path | str, db: sqlite3.Connection) -> None:
    if migrations.is_foreign(db):
        raise DatabaseError(f"{path} is a database of another program: move it away, or {WAY_OUT}.")
    if migrations.unknown(db):
        raise DatabaseError(f"{path} was written by a newer ds4chat: update ds4chat, or {WAY_OUT}.")


def _code(error: Exception) -> int:
    """SQLite's primary result code, 0 when the error comes from elsewhere."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


_READ_ERRORS = (sqlite3.DatabaseError, sqlite3.OperationalError)


def _kind(error: Exception) -> type[DatabaseError]:
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return DatabaseBusyError
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return DatabaseDamagedError
        case (
            sqlite3.SQLITE_FULL
            | sqlite3.SQLITE_IOERR
            | sqlite3.SQLITE_READONLY
            | sqlite3.SQLITE_CANTOPEN
            | sqlite3.SQLITE_PERM
        ):
            return DatabaseUnwritableError
        case 0 if type(error) in _READ_ERRORS or isinstance(error, msgspec.DecodeError):
            # Not SQLite says so, but who reads what it gives.
            return DatabaseDamagedError
    return DatabaseError


def _sentence(path: Path | str, error: Exception) -> str:
    name = f"The session database {path}"
    kind = _kind(error)
    if kind is DatabaseBusyError:
        return (
            f"{name} is in use by another program, maybe a second ds4chat: "
            "let it finish or close it, then try again."
        )
    if kind is DatabaseDamagedError:
        return f"{name} is damaged ({error}): quit and start ds4chat again, which puts what can be read into a new one."
    if kind is DatabaseUnwritableError:
        # SQLite does not tell these from other failures to open or write a file.
        if not _files_can_be_opened():
            return (
                f"{name} cannot be opened because too many files are open: raise the limit with `ulimit -n`."
            )
        if _code(error) == sqlite3.SQLITE_FULL or _is_full(Path(path).parent):
            return f"{name} cannot be written because the disk is full: free some space, then try again."
        if _code(error) != sqlite3.SQLITE_IOERR:
            return f"{name} cannot be opened or written: make it and its folder writable, or {WAY_OUT}."
    return f"{name} failed ({error}): check the disk it lies on, then try again."


def _files_can_be_opened() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False
