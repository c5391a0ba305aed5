"""Files that are read and replaced as a whole. Imports nothing of the program."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_users_umask = -1


def keep_private() -> None:
    """From now on no other user may read what this process writes and its children: it holds what was said."""
    global _users_umask
    _users_umask = os.umask(0o077)


def users_umask() -> int:
    """The umask of before, for programs that are started for the user; -1 when it is still so."""
    return _users_umask


def read_limited(path: Path, limit: int) -> bytes:
    """The first `limit` + 1 bytes of a file: more than `limit` of them tell that it is too large.

    Never waits: what is a pipe, a socket or a folder raises OSError, and a device gives what it has. Raises
    ValueError for a name that no file can have.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        parts: list[bytes] = []
        left = limit + 1
        while left > 0 and (part := os.read(fd, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file as a whole, so that a crash leaves the old one or the new one. Raises OSError."""
    # Not needed before the first file is written, and slow to import.
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
