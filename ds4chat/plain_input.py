"""Lines from standard input for the line mode: with editing and history on a terminal, as they come from a pipe.

Promises: the event loop goes on while a line is waited for; the terminal is left as it was found, also over Ctrl+Z and
when the program ends in the middle of a line. Writes no escape sequence.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from typing import Any


class LineReader:
    """Reads one line at a time; `waiting` is the prompt that stands on the terminal, "" when none does."""

    def __init__(self) -> None:
        self.waiting = ""
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read = ""
        self._ended = False
        self._readline: Any = None
        self._found: list[str] = []
        self._attributes: list[Any] | None = None
        if self.is_terminal:
            with contextlib.suppress(termios.error):
                self._attributes = termios.tcgetattr(0)

    def prepare(self, history: Sequence[str], complete: Callable[[str], list[str]]) -> None:
        """Give the line editor what was sent before, oldest first, and completion of the first word."""
        if not self.is_terminal:
            return
        with contextlib.suppress(ImportError):
            import readline

            self._readline = readline
            readline.set_auto_history(False)
            # It would switch a mode of the terminal with each prompt.
            readline.parse_and_bind("set enable-bracketed-paste off")
            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims(" \n")

            def completer(text: str, state: int) -> str | None:
                if state == 0:
                    self._found = complete(text) if readline.get_begidx() == 0 else []
                return self._found[state] if state < len(self._found) else None

            readline.set_completer(completer)
            for text in history:
                self.remember(text)

    def remember(self, text: str) -> None:
        """Put a text into the history, if it is one line."""
        if self._readline is not None and text.strip() and "\n" not in text:
            self._readline.add_history(text)

    @property
    def typed(self) -> str:
        """What stands behind the prompt."""
        return self._readline.get_line_buffer() if self._readline is not None and self.waiting else ""

    async def line(self, prompt: str) -> str | None:
        """The next line without its end, None when there is no more. Cancelling it leaves the terminal in order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str | None] = loop.create_future()

        def work() -> None:
            try:
                found = self._ask(prompt)
            except (EOFError, OSError, ValueError):
                found = None
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(found))

        self.waiting = prompt
        threading.Thread(target=work, name="input", daemon=True).start()
        try:
            return await future
        except asyncio.CancelledError:
            self.restore()
            raise
        finally:
            self.waiting = ""

    def _ask(self, prompt: str) -> str | None:
        if self.is_terminal:
            return input(prompt)
        # Not through sys.stdin: its lock would be held when the program ends.
        while "\n" not in self._read and not self._ended:
            data = os.read(sys.stdin.fileno(), 65536)
            self._read += self._decoder.decode(data, final=not data)
            self._ended = not data
        line, end, rest = self._read.partition("\n")
        self._read = rest
        return line.removesuffix("\r") if line or end else None

    def restore(self) -> None:
        """The terminal as it was found."""
        if self._attributes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._attributes)

    def suspend(self) -> None:
        """Stop this process until it is continued; the line editor then finds the terminal as it had set it."""
        attributes = None
        if self._attributes is not None:
            with contextlib.suppress(termios.error):
                attributes = termios.tcgetattr(0)
            self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        if attributes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, attributes)
