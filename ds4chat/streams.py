"""Standard streams that a caller closed, or that nobody reads any more, and how many others may be opened."""

from __future__ import annotations

import contextlib
import os
import sys


def open_missing_streams() -> None:
    """A stream that the caller closed (`<&-`) is None: what is read from it is empty, what is written goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


FREE_FILES = 12
"""What the parent of an engine needs at least: pipes, a log, a database with its journal, locks."""


def check_free_files() -> None:
    """Raises OSError when too few files can be opened: later that would show in places that cannot say so."""
    opened: list[int] = []
    try:
        for _ in range(FREE_FILES):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def nobody_reads() -> int:
    """Let the interpreter flush into nothing, so that it does not complain about the closed pipe at its
    end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
