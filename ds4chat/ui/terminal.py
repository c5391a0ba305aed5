"""The terminal below Textual: one that can vanish, and one in which Alt and a digit are a key.

Reaches into private corners of Textual, each for a behaviour it does not offer; without them the app runs
on, with that behaviour missing.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import sys
import termios
from collections.abc import Callable

from textual.drivers.linux_driver import LinuxDriver


class ChatDriver(LinuxDriver):
    """Drops output once the terminal is gone.

    Textual's writer thread dies with the terminal, and its queue is short: a few writes later the event loop
    would wait for ever, and with it the saving of the chat.
    """

    @property
    def _is_writing(self) -> bool:
        return self._writer_thread is not None and self._writer_thread.is_alive()

    def write(self, data: str) -> None:
        if self._is_writing:
            super().write(data)

    def close(self) -> None:
        if self._is_writing:
            super().close()


def read_any_bytes() -> None:
    """Let a byte that is no UTF-8 be U+FFFD: Textual's reader thread would end on it, and the screen with it."""
    with contextlib.suppress(ImportError):
        from textual.drivers import linux_driver

        def tolerant(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
            return functools.partial(codecs.getincrementaldecoder(encoding), "replace")

        linux_driver.getincrementaldecoder = tolerant  # type: ignore[attr-defined, assignment]


def let_go_of_dead_terminal() -> None:
    """Point the standard streams to nowhere if the terminal behind them has gone; a living one is left
    alone.
    """
    try:
        termios.tcgetattr(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    except (termios.error, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            with contextlib.suppress(OSError):
                os.dup2(nowhere, stream)
        os.close(nowhere)


def tell_alt_digits() -> None:
    """Let Alt and a digit be "alt+2".

    Most terminals send Escape and the digit for it, which Textual reads as what Option and that key type on a
    Mac ("™").
    """
    with contextlib.suppress(ImportError):
        from textual import _ansi_sequences

        sequences: dict[str, object] = getattr(_ansi_sequences, "ANSI_SEQUENCES_KEYS", {})
        for digit in range(10):
            sequences.pop(f"\x1b{digit}", None)
