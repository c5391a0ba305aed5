"""The checkpoint directory as files: listing, locking, writing whole files, sweeping what a crash left.

Promises that a file with a span's name is always whole on disk (temp file, fsync, rename, fsync of the
directory), that only its owner can read it, and that a temp file is deleted only when no process writes it
any more. It must not know which spans are worth what.

Layout: `<root>/<family>/<variant>/<sha1>.kv`, and beside them temp files `<sha1>.kv.tmp.<random>`, files set
aside `<sha1>.kv.bad` and marks `<sha1>.kv.strike` (see `quarantine`); `<root>/.lock`. Names that begin with a
dot are not looked into.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from filelock import FileLock

from ds4chat.checkpoints.span import SUFFIX, span_path

log = logging.getLogger(__name__)

MAX_DEFAULT_BUDGET = 32 * 10**9
"""Bytes; more than this nobody gives away without being asked."""

BAD = ".bad"
"""Ending of a file that is set aside."""

STRIKE = ".strike"
"""Ending of a mark beside a file under suspicion."""

_NAME = re.compile(rf"[0-9a-f]{{40}}\{SUFFIX}")
_BESIDE = re.compile(rf"[0-9a-f]{{40}}\{SUFFIX}(\.tmp\..+|\{BAD}|\{STRIKE})")

_RACY_NS = 1_100_000_000
"""A directory changed this short a time ago may change again within one tick of its file system's clock (a
second on the coarsest), so its time stamp does not yet tell whether a listing is complete."""

_STALE_SECONDS = 86_400
"""Age at which a temp file goes where the file system has no locks to tell whether somebody writes it."""


class FileId(NamedTuple):
    """One span's file: `inode` tells a replaced file from the one listed before, `size` is in bytes."""

    inode: int
    size: int


@dataclass(frozen=True)
class Listing:
    """What lies in one folder. One that did not change gives the same object again.

    Attributes:
        files: the span files by SHA-1.
        beside: by file name, the size in bytes of what belongs to spans: temp files, files set aside, marks.
        nbytes: of all of these.
    """

    mtime_ns: int
    complete: bool
    files: Mapping[bytes, FileId]
    beside: Mapping[str, int]
    nbytes: int


_EMPTY = Listing(0, False, {}, {}, 0)


class Directory:
    """The files below one root. Threads may share it: a listing one loses to another is read again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listings: dict[Path, Listing] = {}
        self._lock = FileLock(root / ".lock", mode=0o600)

    def ensure(self, folder: Path) -> None:
        """Make a folder below the root, and the root, for the owner alone. Raises `OSError`."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (*reversed(folder.relative_to(self.root).parents[:-1]), folder.relative_to(self.root)):
            (self.root / path).mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def lock(self, timeout: float = 10.0) -> Iterator[None]:
        """The lock over eviction, sweeping and the birth of temp files, between processes and threads.

        Raises `filelock.Timeout` after `timeout` seconds, another `OSError` where no lock file can be made.
        """
        try:
            self._lock.acquire(timeout=timeout)
        except NotImplementedError as error:
            raise OSError(f"the file system of {self.root} has no locks") from error
        try:
            yield
        finally:
            self._lock.release()

    def folders(self) -> list[Path]:
        """All `<family>/<variant>` folders; none when the root cannot be read."""
        found: list[Path] = []
        for family in _subfolders(self.root):
            found += _subfolders(family)
        return found

    def listing(self, folder: Path) -> Listing:
        """The folder's span files, read again only when it changed; empty when it cannot be read."""
        known = self._listings.get(folder, _EMPTY)
        try:
            mtime_ns = folder.stat().st_mtime_ns
            if known.complete and known.mtime_ns == mtime_ns:
                return known
            complete = time.time_ns() - mtime_ns > _RACY_NS
            files: Mapping[bytes, FileId]
            files, beside = _list(folder, known.files)
        except OSError:
            self._listings.pop(folder, None)
            return _EMPTY
        if files == known.files:
            files = known.files
        nbytes = sum([file.size for file in files.values()]) + sum(beside.values())
        listing = Listing(mtime_ns, complete, files, beside, nbytes)
        self._listings[folder] = listing
        return listing

    def total_bytes(self) -> int:
        """Bytes of all span files below the root, those being written and those set aside included."""
        return sum(self.listing(folder).nbytes for folder in self.folders())

    def sweep(self) -> int:
        """Delete temp files whose writer is gone and marks whose span is; say how many. Hold the lock: a temp
        file is born and locked under it, so one that can be locked here has lost its writer, however young."""
        swept = 0
        for folder in self.folders():
            listing = self.listing(folder)
            for name in listing.beside:
                with suppress(OSError):
                    if name.endswith(STRIKE):
                        gone = bytes.fromhex(name[:40]) not in listing.files
                    else:
                        gone = not name.endswith(BAD) and _is_abandoned(folder / name)
                    if gone:
                        (folder / name).unlink()
                        swept += 1
        return swept

    def default_budget(self) -> int:
        """A tenth of the free disk in bytes, at most `MAX_DEFAULT_BUDGET`. What the store itself holds counts
        as free: else a full store would be given less at every start."""
        place = self.root
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            free = shutil.disk_usage(place).free
        except OSError:
            return MAX_DEFAULT_BUDGET
        return min((free + self.total_bytes()) // 10, MAX_DEFAULT_BUDGET)


class Temp:
    """A file being written beside its final name. Make it under the lock; `commit` or `discard` it."""

    def __init__(self, folder: Path, name: bytes, nbytes: int = 0) -> None:
        """`nbytes` is the size it will have: it counts from now on, or two writers would fill the same room."""
        self._final = span_path(folder, name)
        self._path = folder / f"{self._final.name}.tmp.{secrets.token_hex(8)}"
        fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.file: BinaryIO = os.fdopen(fd, "w+b")
        with suppress(OSError):
            os.truncate(fd, nbytes)

    def commit(self) -> FileId:
        """Make the file durable and give it its final name, in place of any other. Raises `OSError`."""
        self.file.flush()
        os.fsync(self.file.fileno())
        status = os.fstat(self.file.fileno())
        self._path.replace(self._final)
        self.file.close()
        fd = os.open(self._final.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some file systems cannot sync a directory, and have nothing to sync there.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)
        return FileId(status.st_ino, status.st_size)

    def discard(self) -> None:
        """Delete the unfinished file, after a failure. Never raises."""
        with suppress(OSError):
            self._path.unlink()
        # Closing flushes what the disk may not take.
        with suppress(OSError):
            self.file.close()


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [
                e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def _list(folder: Path, known: Mapping[bytes, FileId]) -> tuple[dict[bytes, FileId], dict[str, int]]:
    """Span files, and the sizes of what lies beside them."""
    files: dict[bytes, FileId] = {}
    beside: dict[str, int] = {}
    is_span, from_hex, regular = _NAME.fullmatch, bytes.fromhex, stat.S_IFREG
    with open_folder(folder) as fd, os.scandir(fd) as entries, pausing_gc():
        for entry in entries:
            name = entry.name
            try:
                if is_span(name):
                    sha1 = from_hex(name[:40])
                    file = known.get(sha1)
                    if file is None or file[0] != entry.inode():
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_IFMT(status.st_mode) != regular:
                            continue
                        file = FileId(status.st_ino, status.st_size)
                    files[sha1] = file
                elif _BESIDE.fullmatch(name) and entry.is_file(follow_symlinks=False):
                    beside[name] = entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return files, beside


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """A descriptor to reach a folder's files from: for a hundred thousand of them, walking the path to it each time
    is a good part of the work. Raises `OSError`."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def pausing_gc() -> Iterator[None]:
    """While many small objects are made that all stay: looking through them again and again takes as long as making
    them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_abandoned(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return abs(time.time() - os.fstat(fd).st_mtime) > _STALE_SECONDS
    finally:
        os.close(fd)
    return True
