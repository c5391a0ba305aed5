"""Leases: what a process says it stands on, so that no other one deletes it.

Promises that a lease counts exactly as long as its process lives, whatever ends that, and that writing one
costs no more than a small file. It must not know what spans are worth, nor the engine.

Layout: `<root>/leases/<pid>-<random>.lock` is locked while the process lives, and holds the name of the file
that is being handed to llama.cpp right now, or nothing; `<pid>-<random>.json` names the spans it stands on.
The second is replaced as a whole, which its lock would not outlive: hence two files. Neither is synced, since
after a power cut no process lives.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from ds4chat.checkpoints.span import SUFFIX
from ds4chat.files import read_limited

log = logging.getLogger(__name__)

FOLDER = "leases"

_LOCK, _CHAIN = ".lock", ".json"
_NOTE_BYTES = 256
"""Room for `<family>/<variant>/<sha1>.kv`: the family has at most 100 characters."""

_CHAIN_BYTES = 20_000_000
"""More than the names of all spans a context of millions of tokens stands on."""

_STALE_SECONDS = 86_400
"""Age at which a lease ends where the file system has no locks to tell whether its process lives."""

_SPAN = re.compile(rf"[^/\0]+/[0-9a-f]{{16}}/[0-9a-f]{{40}}\{SUFFIX}")


class _Chain(msgspec.Struct):
    """The JSON file: paths relative to the root."""

    pid: int
    spans: list[str] = []


class Lease:
    """This process's own, for any of its threads. It ends with `close`, with the object, or with the process."""

    def __init__(self, root: Path) -> None:
        """Nothing is written before `stand_on`, `handing` or `ensure`; none of these ever raises for the disk's
        sake: without a lease the chain is merely not spared."""
        self._root = root
        # The engine names what it stands on while the writer sees that there is a lease at all.
        self._mutex = threading.RLock()
        self._fd = -1
        self._lock = self._chain = root
        self._spans: list[str] = []
        self._end: weakref.finalize[..., Lease] | None = None

    def ensure(self) -> None:
        """Make the lease, also when somebody deleted the directory in between."""
        with self._mutex:
            if self._fd >= 0 and self._lock.exists():
                return
            try:
                self._take()
                self._write()
            except OSError as error:
                log.info("no lease in %s: %s", self._root, error)

    def stand_on(self, spans: Iterable[Path]) -> None:
        """Name the span files the live state stands on, in place of those named before."""
        names = [path.relative_to(self._root).as_posix() for path in spans]
        with self._mutex:
            self._spans = names
            try:
                if self._fd < 0:
                    return
                self._write()
            except OSError:
                if self._root.is_dir():
                    self.ensure()

    def handing(self, span: Path | None) -> None:
        """Note which file llama.cpp is about to take in; None when it has."""
        note = b"" if span is None else os.fsencode(span)[len(os.fsencode(self._root)) + 1 :]
        with self._mutex, suppress(OSError):
            if self._fd >= 0:
                os.pwrite(self._fd, note[:_NOTE_BYTES].ljust(_NOTE_BYTES, b"\0"), 0)

    def close(self) -> None:
        """Stand on nothing any more; again does nothing."""
        with self._mutex:
            if self._end is not None:
                self._end()
            self._fd, self._end = -1, None

    def _take(self) -> None:
        self.close()
        folder = self._root / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        stem = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._lock, self._chain = folder / (stem + _LOCK), folder / (stem + _CHAIN)
        while True:
            fd = os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            # Somebody may have swept the file before it was locked.
            with suppress(OSError):
                if self._lock.stat().st_ino == os.fstat(fd).st_ino:
                    break
            os.close(fd)
        self._fd = fd
        self._end = weakref.finalize(self, _end, fd, self._chain, self._lock)

    def _write(self) -> None:
        temp = self._chain.with_suffix(".tmp")
        fd = os.open(temp, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(_Chain(os.getpid(), self._spans)))
        finally:
            os.close(fd)
        temp.replace(self._chain)


def _end(fd: int, *paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
    os.close(fd)


def leased(root: Path) -> set[Path]:
    """The span files that living processes stand on, this one included."""
    spans: set[Path] = set()
    for lock in _locks(root):
        if _is_held(lock):
            spans.update(root / name for name in _spans_of(lock))
    return spans


def sweep(root: Path, blamed_pid: int = 0) -> list[Path]:
    """Delete the leases of processes that are gone. Hold the directory's lock.

    Returns the files that the process `blamed_pid` was handing to llama.cpp when it ended.
    """
    blamed: list[Path] = []
    for lock in _locks(root):
        if _is_held(lock):
            continue
        with suppress(OSError):
            note = read_limited(lock, _NOTE_BYTES)[:_NOTE_BYTES].rstrip(b"\0")
            if note and lock.name.startswith(f"{blamed_pid}-"):
                name = os.fsdecode(note)
                blamed += [root / name] if _SPAN.fullmatch(name) else []
        for path in (lock, lock.with_suffix(_CHAIN), lock.with_suffix(".tmp")):
            with suppress(OSError):
                path.unlink()
    return blamed


def _locks(root: Path) -> list[Path]:
    try:
        with os.scandir(root / FOLDER) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.name.endswith(_LOCK))
    except OSError:
        return []


def _is_held(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # A time to come is a wrong one, as far away as one that is past.
        return abs(time.time() - os.fstat(fd).st_mtime) < _STALE_SECONDS
    finally:
        os.close(fd)
    return False


def _spans_of(lock: Path) -> list[str]:
    try:
        chain = msgspec.json.decode(read_limited(lock.with_suffix(_CHAIN), _CHAIN_BYTES), type=_Chain)
    except (OSError, ValueError, RecursionError):
        return []
    return [name for name in chain.spans if _SPAN.fullmatch(name)]
