"""A program in a pseudo-terminal of its own, with the time at which each byte came."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

COLUMNS, ROWS = 120, 36
ALTERNATE_SCREEN = b"\x1b[?1049h"
TICK = os.sysconf("SC_CLK_TCK")
KEY_SECONDS = 0.02
PAGE = os.sysconf("SC_PAGE_SIZE")


class Running:
    """A child on a terminal of 120 by 36. `output` is all it wrote, `chunks` the times at which it grew."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.output = bytearray()
        self.chunks: list[tuple[int, float]] = []
        self.began = time.monotonic()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], list(command), dict(env))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self._fd, text.encode())

    def read(self, seconds: float) -> bool:
        """Wait that long for output and take it in; False when the program has ended."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if ready:
            try:
                data = os.read(self._fd, 1 << 20)
            except OSError:
                return False
            self.output += data
            self.chunks.append((len(self.output), time.monotonic()))
            return bool(data)
        return True

    def until(self, condition: Callable[[], bool], seconds: float, what: str, step: float = 0.05) -> float:
        """Read until the condition holds; seconds since the start. Raises TimeoutError naming `what`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or not self.read(step):
                raise TimeoutError(
                    f"{what} did not come; the end of the output: {bytes(self.output[-400:])!r}"
                )
        return time.monotonic() - self.began

    def until_shown(self, text: str, seconds: float = 60, after: int | None = None) -> float:
        """Read until the text was written behind byte `after` (the alternate screen by default)."""
        wanted = text.encode()

        def shown() -> bool:
            start = self.output.find(ALTERNATE_SCREEN) if after is None else after
            return start >= 0 and self.output.find(wanted, start) >= 0

        return self.until(shown, seconds, repr(text))

    def until_takes_keys(self, character: str, seconds: float = 60) -> float:
        """Type a character again and again until the first is shown; seconds since the start.

        Once is not enough: what comes before the program sets the terminal up waits there for the next key.
        """
        wanted, typed = character.encode(), 0.0

        def shown() -> bool:
            nonlocal typed
            if time.monotonic() - typed >= KEY_SECONDS:
                typed = time.monotonic()
                self.type(character)
            start = self.output.find(ALTERNATE_SCREEN)
            return start >= 0 and self.output.find(wanted, start) >= 0

        return self.until(shown, seconds, repr(character), step=KEY_SECONDS / 5)

    def time_of(self, position: int) -> float:
        """When the byte at `position` came."""
        return next(when for end, when in self.chunks if end > position)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the process itself, without children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    @property
    def memory_mb(self) -> float:
        """Resident memory, MB of 2**20 bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE / 2**20

    def end(self) -> None:
        """Ask it to end, then see to it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(self.pid, number)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                self.read(0.02)
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    os.close(self._fd)
                    return
        os.waitpid(self.pid, 0)
        os.close(self._fd)
