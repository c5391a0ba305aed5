"""Standard streams that a caller closed, or that nobody reads any more."""

from __future__ import annotations

import contextlib
import os
import sys


def open_missing_streams() -> None:
    """A stream that the caller closed (`<&-`) is None: what is read from it is empty, what is written goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def nobody_reads() -> int:
    """Let the interpreter flush into nothing, so that it does not complain about the closed pipe at its
    end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
