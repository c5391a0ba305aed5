"""A SQLite file opened the way the session database needs it: modes, WAL, migrations, transactions,
errors."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from ds4chat.errors import DatabaseError
from ds4chat.sessions import migrations, search_index

BUSY_SECONDS = 5.0
"""How long a write waits for another process's: ours take milliseconds, a backup program's may take
seconds."""

WAY_OUT = "choose another folder with --data-dir"


class Connection:
    """One connection, in autocommit mode outside of `write`.

    Args:
        path: the file, made with its folder (0700) when missing and kept at 0600; ":memory:" keeps all in
            memory.
        busy_timeout: seconds a write waits for another process's.
        clock: seconds since the epoch.

    Raises:
        DatabaseError: the file cannot be opened, is damaged, of another program, or of a newer version (it is
            then left as it is).
    """

    def __init__(self, path: Path | str, busy_timeout: float, clock: Callable[[], float]) -> None:
        self.path = path
        if path != ":memory:":
            _prepare(Path(path))
        with self.errors():
            self._db = sqlite3.connect(str(path), timeout=busy_timeout, isolation_level=None)
            try:
                self._open(busy_timeout, clock)
            except BaseException:
                self._db.close()
                raise

    def _open(self, busy_timeout: float, clock: Callable[[], float]) -> None:
        if migrations.is_foreign(self._db):
            raise DatabaseError(f"{self.path} is a database of another program: move it away, or {WAY_OUT}.")
        if migrations.unknown(self._db):
            raise DatabaseError(f"{self.path} was written by a newer ds4chat: update ds4chat, or {WAY_OUT}.")
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
        self.all("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn failures of SQLite, and of reading what it holds, into a `DatabaseError`."""
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise DatabaseError(_sentence(self.path, error)) from error


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


def _code(error: Exception) -> int:
    """SQLite's primary result code, 0 when the error comes from elsewhere."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _sentence(path: Path | str, error: Exception) -> str:
    name = f"The session database {path}"
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"{name} is in use by another program, maybe a second ds4chat: "
                "let it finish or close it, then try again."
            )
        case sqlite3.SQLITE_FULL:
            return f"{name} cannot be written because the disk is full: free some space, then try again."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"{name} cannot be opened or written: make it and its folder writable, or {WAY_OUT}."
        case 0 | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"{name} is damaged or no database ({error}): move it away or put a copy back, then retry."
    return f"{name} failed ({error}): check the disk it lies on, then try again."
