"""One lock file for each open session, so that two terminals do not write to one conversation.

The operating system drops the lock with the process that holds it, so a crash leaves none behind; the files
themselves may stay and mean nothing. The holder's process id lies in a file beside the lock, because taking a
lock truncates its file with some versions of `filelock`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ds4chat.errors import DatabaseError, SessionLockedError

if TYPE_CHECKING:
    from filelock import FileLock

FOLDER = "locks"


class SessionLock:
    """The lock of one session, held until `release` (or the end of the process)."""

    def __init__(self, lock: FileLock, owner: Path) -> None:
        self._lock = lock
        self._owner = owner

    def release(self, *, remove: bool = False) -> None:
        """Let go; again does nothing. `remove` also deletes the files, for a session that is deleted."""
        if not self._lock.is_locked:
            return
        with contextlib.suppress(OSError):
            self._owner.unlink(missing_ok=True)
        if remove:
            with contextlib.suppress(OSError):
                Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> SessionLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


OPEN_WAY_OUT = "close it there, or open it here read-only or as a fork"


def lock_session(
    data_dir: Path, session_id: str, title: str = "", *, way_out: str = OPEN_WAY_OUT
) -> SessionLock:
    """Take the lock of a session without waiting.

    Args:
        data_dir: lock files lie in its folder `locks`.
        title: named in the error, when there is one.
        way_out: what the error advises.

    Raises:
        SessionLockedError: another ds4chat (or another part of this one) holds it.
        DatabaseError: the lock file cannot be written.
    """
    folder = data_dir / FOLDER
    path = folder / f"{session_id}.lock"
    owner = folder / f"{session_id}.pid"
    # Not before it is needed: it takes as long to import as the database, and the screen is painted first.
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise SessionLockedError(
            _sentence(session_id, title, holder(data_dir, session_id), way_out)
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DatabaseError(
            f"The lock file {path} cannot be written ({reason}): make its folder writable, or choose another "
            "with --data-dir."
        ) from error
    with contextlib.suppress(OSError):
        owner.write_text(f"{os.getpid()}\n", encoding="ascii")
    return SessionLock(lock, owner)


def holder(data_dir: Path, session_id: str) -> int | None:
    """The process id that the holder of a session's lock left, None when it left none."""
    try:
        return int((data_dir / FOLDER / f"{session_id}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _sentence(session_id: str, title: str, pid: int | None, way_out: str) -> str:
    name = f'{session_id} "{title}"' if title else session_id
    where = f"another ds4chat (process {pid})" if pid is not None else "another ds4chat"
    return f"Session {name} is open in {where}: {way_out}."
