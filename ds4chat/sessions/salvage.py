"""A damaged session database: what can be read of it goes into a new one, and the damaged file stays beside it.

Promises: nothing is overwritten or deleted, a kill at any moment loses nothing, and one process at a time does it, with
no other program in the file. Must not know: who has the database open in this process.

The order: the new database is written beside the damaged one (`sessions.salvaging.db`) and takes the name
`sessions.salvaged.db` when it is whole; before, the damaged file and its journal get a second name. Then the journal's
old name goes (SQLite would take it for the new file's) and the new file takes its place. Where that was interrupted,
the next start does the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from ds4chat import news
from ds4chat.errors import DatabaseError
from ds4chat.sessions import migrations
from ds4chat.sessions.damage import beside, journal, marker, salvaged, size_of
from ds4chat.sessions.salvage_pages import MAGIC, Pages
from ds4chat.sessions.salvage_rows import Found, build, gather, mend

log = logging.getLogger(__name__)

IN_SECONDS = 0.5
"""How long another program may be in a damaged database before that is told."""

WAIT_SECONDS = 120.0
"""How long another process's salvage is waited for."""


def finish(path: Path) -> None:
    """Do the rest of a salvage that was interrupted. Raises DatabaseError."""
    with _one_at_a_time(path):
        if salvaged(path).exists():
            with _nobody_in(path):
                _put_in_place(path)


def salvage(path: Path, inode: int, reason: str, clock: Callable[[], float] = time.time) -> str:
    """Put a new database with what can be read in the place of a damaged one; a sentence about it, which `news` keeps
    too. "" when another process has done it meanwhile.

    Args:
        inode: of the file that was found to be damaged.

    Raises:
        DatabaseError: the file is of a newer version or another program's, or open elsewhere, or the new one cannot be
            written; nothing has changed then.
    """
    with _one_at_a_time(path), contextlib.ExitStack() as alone:
        if path.stat().st_ino != inode:
            return ""
        alone.enter_context(_nobody_in(path))
        log.error("%s is damaged (%s): reading what is left", path, reason)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("rb"))
            wal = None
            with contextlib.suppress(FileNotFoundError):
                wal = stack.enter_context(journal(path).open("rb"))
            pages = Pages(file, wal)
            found = gather(pages)
            _refuse_others(path, found, pages.header)
        mend(found)
        building = beside(path, "salvaging")
        building.unlink(missing_ok=True)
        try:
            build(building, found, clock())
            kept = _keep_damaged(path, clock())
        except (OSError, sqlite3.Error):
            building.unlink(missing_ok=True)
            raise
        building.replace(salvaged(path))
        _put_in_place(path)
    sentence = _sentence(path, kept, found)
    log.error("%s", sentence)
    news.add(sentence)
    return sentence


def _sentence(path: Path, kept: Path, found: Found) -> str:
    name = f"The session database {path} was damaged"
    if not found.sessions:
        return f"{name} and nothing in it could be read: a new one begins, and the damaged file is kept as {kept}."
    saved = f"{_count(len(found.sessions), 'chat')} with {_count(len(found.messages), 'message')}"
    part = f" ({found.in_part:,} in part)" if found.in_part else ""
    return f"{name}: {saved}{part} could be read and are in a new one; the damaged file is kept as {kept}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _refuse_others(path: Path, found: Found, header: bytes) -> None:
    known = {step.__name__ for step in migrations.MIGRATIONS}
    if found.migrations - known:
        raise DatabaseError(
            f"The session database {path} is damaged and was written by a newer ds4chat: update ds4chat, which then "
            "saves what can be read."
        )
    ours = int.from_bytes(header[68:72], "big") in (0, migrations.APPLICATION_ID)
    if (
        header.startswith(MAGIC)
        and not ours
        and not found.sessions
        and found.tables - {"sessions", "messages"}
    ):
        raise DatabaseError(
            f"{path} is a damaged database of another program: move it away, or choose another folder with --data-dir."
        )


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Between processes of ours. What goes wrong inside becomes a DatabaseError."""
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f"{path.name}.salvage-lock"), mode=0o600)
    try:
        with lock.acquire(timeout=WAIT_SECONDS):
            yield
    except Timeout:
        raise DatabaseError(
            f"The session database {path} is damaged, and another ds4chat has been reading it for long: wait for it, "
            "then try again."
        ) from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(
            f"The session database {path} is damaged, and what can be read of it cannot be saved beside it ({reason}): "
            "make room there and make its folder writable, then try again."
        ) from error


_SHM_BYTE = 128
"""Whoever has a database in WAL mode open holds this byte of its shared memory."""

_FILE_BYTES = (0x40000000, 512)
"""Whoever reads or writes the file itself holds some of these."""


@contextlib.contextmanager
def _nobody_in(path: Path) -> Iterator[None]:
    """Keep other programs out of the database. Raises DatabaseError when one is in.

    Only where this process has no connection to it: what is closed here would drop that one's locks.
    """
    shm = path.with_name(f"{path.name}-shm")
    with contextlib.ExitStack() as stack:
        if not shm.exists():
            stack.callback(shm.unlink, missing_ok=True)
        for name, start, length in ((shm, _SHM_BYTE, 1), (path, *_FILE_BYTES)):
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            if not _take(fd, start, length):
                raise DatabaseError(
                    f"The session database {path} is damaged and open in another program: close that, maybe a second "
                    "ds4chat, then try again."
                )
        yield


def _take(fd: int, start: int, length: int) -> bool:
    """Lock a part of a file. Waits a little: who finds the damage just now is in for a moment."""
    deadline = time.monotonic() + IN_SECONDS
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        except OSError as error:
            log.info("no locks: %s", error)
            return True
        else:
            return True


def _keep_damaged(path: Path, now: float) -> Path:
    """Give the damaged file, and its journal, a second name."""
    day = datetime.fromtimestamp(now).strftime("%Y-%m-%d")
    for number in range(1, 1000):
        kept = beside(path, f"damaged-{day}" + (f"-{number}" if number > 1 else ""))
        if not kept.exists() and not journal(kept).exists():
            break
    else:
        raise OSError("too many damaged files lie there already")
    _second_name(path, kept)
    if size_of(journal(path)):
        _second_name(journal(path), journal(kept))
    return kept


def _second_name(file: Path, other: Path) -> None:
    try:
        os.link(file, other)
    except OSError:
        # Not every file system has links.
        fd = os.open(other, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as out, file.open("rb") as source:
                shutil.copyfileobj(source, out)
                out.flush()
                os.fsync(out.fileno())
        except OSError:
            other.unlink(missing_ok=True)
            raise


def _put_in_place(path: Path) -> None:
    for ending in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    salvaged(path).replace(path)
    marker(path).unlink(missing_ok=True)


def damaged_files(path: Path) -> list[Path]:
    """The damaged files that were kept beside a database."""
    return sorted(path.parent.glob(f"{path.stem}.damaged-*{path.suffix}*"))
