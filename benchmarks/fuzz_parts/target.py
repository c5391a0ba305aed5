"""What is fuzzed, as the runner sees it, and what counts as an uncaught error.

An input is accepted, or refused with one sentence for the user. Anything else is uncaught: another exception, a
sentence that is none, too much time or memory, a file written outside of the folder the input may touch, a database
that a refused import changed.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Literal

Outcome = Literal["accepted", "refused"]

CPU_SECONDS = 2.0
"""An input may take, of the processor's time: a busy machine is no fault of it."""

WAIT_SECONDS = 10.0
"""After which an input waits for something that never comes."""

MEMORY_BYTES = 1_500_000_000
"""Of address space, above what the process had when it began."""

MAX_SENTENCE = 2_000

_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UncaughtError(AssertionError):
    """An input did what none may do."""


class OutOfTime(BaseException):
    """Not an `Exception`: what is fuzzed must not take it for its own."""


class Target(ABC):
    """A kind of input. `folder` is the only place it may write to; `prepare` is called once."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def prepare(self) -> None:
        """Make the examples."""

    @abstractmethod
    def make(self, draw: random.Random) -> bytes:
        """An input."""

    def arrange(self, data: bytes) -> None:  # noqa: B027
        """Lay out what the input stands for; neither limited nor watched."""

    @abstractmethod
    def feed(self, data: bytes) -> Outcome:
        """Take an input as the program does. Raises `UncaughtError`, or whatever escapes from the program."""

    def close(self) -> None:  # noqa: B027
        """Give up what `prepare` opened."""


def draw_for(seed: int, name: str, index: int) -> random.Random:
    """What an input is made with: each can be made again alone."""
    return random.Random(f"{seed}/{name}/{index}")


def check_sentence(text: str) -> None:
    """Raises `UncaughtError` for what should not be shown to a user."""
    if not text.strip():
        raise UncaughtError("an error without a sentence")
    if found := _ACTS.search(text):
        raise UncaughtError(f"{found.group()!r} in the sentence {text[:300]!r}")
    if len(text) > MAX_SENTENCE:
        raise UncaughtError(f"a sentence of {len(text)} characters: {text[:100]!r}")
    if not text.rstrip().endswith((".", "!", "?", "…", ")")):
        raise UncaughtError(f"no sentence: {text[-100:]!r}")


def check_shown(text: str) -> None:
    """Raises `UncaughtError` for what should not be printed: lines that do more than to be read."""
    for line in text.split("\n"):
        if found := _ACTS.search(line):
            raise UncaughtError(f"{found.group()!r} in the line {line[:300]!r}")


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A limit of time around one input. Raises `OutOfTime`."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, over), signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def limit_memory() -> None:
    """For the rest of the process: an input that takes too much gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


class Watch:
    """Sees what the process writes outside of a folder, by Python's own audit events."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.strays: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None or event not in _WATCHED:
            return
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if not writes or not isinstance(path, str | bytes | os.PathLike):
                return
            paths = [path]
        else:
            paths = [path for path in arguments if isinstance(path, str | bytes | os.PathLike)]
        inside = [
            number for number in arguments if isinstance(number, int) and number > 2 and event != "open"
        ]
        for path in paths:
            try:
                base = Path(f"/proc/self/fd/{inside[0]}").readlink() if inside else Path()
                # What a link points to is not what is renamed or deleted.
                named = base / os.fsdecode(path)
                where = f"{os.path.realpath(named.parent)}/{named.name}"
                links = event == "open" and isinstance(arguments[2], int) and not arguments[2] & os.O_NOFOLLOW
                where = os.path.realpath(where) if links else where
            except (OSError, ValueError):
                continue
            if not f"{where}/".startswith(f"{self.folder}/") and where != "/dev/null":
                self.strays.append(f"{event} {where}")

    @contextlib.contextmanager
    def only(self, folder: Path) -> Iterator[None]:
        """Raises `UncaughtError` when anything outside of the folder is written meanwhile."""
        self.folder, self.strays = os.path.realpath(folder), []
        try:
            yield
        finally:
            self.folder = None
        if self.strays:
            raise UncaughtError(f"written outside of the folder: {self.strays[:3]}")


_WATCHED = frozenset(
    {
        "open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "os.chmod",
        "shutil.rmtree", "os.system", "os.exec", "os.posix_spawn", "os.utime", "shutil.move",
    }
)  # fmt: skip

_watch: Watch | None = None


def watch() -> Watch:
    """The process's one: a hook cannot be taken away again."""
    global _watch
    _watch = _watch or Watch()
    return _watch


def run_one(target: Target, data: bytes) -> tuple[Outcome, float]:
    """Feed one input within all limits; what became of it, and the seconds it took. Raises what was uncaught."""
    target.arrange(data)
    began = time.process_time()
    with watch().only(target.folder), limits():
        outcome = target.feed(data)
    return outcome, time.process_time() - began
