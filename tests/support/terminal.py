"""The program in a real pseudo-terminal, and the screen a person would see."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from types import TracebackType

import pexpect
import pyte

from tests.support.program import Program, engine_of

ENTER, ESCAPE, NEWLINE = "\r", "\x1b", "\n"


def ctrl(letter: str) -> str:
    """The byte a terminal sends for a letter with Ctrl."""
    return chr(ord(letter.upper()) - 64)


def alt(key: str) -> str:
    """The bytes a terminal sends for a key with Alt."""
    return "\x1b" + key


class Terminal:
    """`ds4chat` with a keyboard and a screen of `columns` by `rows`."""

    def __init__(self, program: Program, *args: str, columns: int = 110, rows: int = 36) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._text: str | None = None
        command, *rest = program.command(*args)
        self.process = pexpect.spawn(command, rest, env=program.env, dimensions=(rows, columns), timeout=60)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine = engine_of(self.process.pid)
        self.process.close(force=True)
        if engine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)

    @property
    def text(self) -> str:
        """The screen's lines as they stand."""
        if self._text is None:
            self._text = "\n".join(line.rstrip() for line in self._screen.display)
        return self._text

    @property
    def engine(self) -> int:
        """Process id of the engine child."""
        return engine_of(self.process.pid)

    def type(self, text: str) -> None:
        """Send keys."""
        self.process.send(text)

    def send_message(self, text: str) -> None:
        """Type a message and press Enter."""
        self.process.send(text)
        self.until(re.escape(text[:20]))
        self.process.send(ENTER)

    def until(self, pattern: str, timeout: float = 60, gone: bool = False) -> str:
        """Read on until the screen matches (or no longer matches); returns the screen."""
        deadline = time.monotonic() + timeout
        wanted = re.compile(pattern, re.MULTILINE)
        while True:
            if (wanted.search(self.text) is None) == gone:
                return self.text
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(
                    f"{pattern!r} {'stayed' if gone else 'never came'}; the screen:\n{self.text}"
                )
            if not self._read(min(left, 0.5)) and not self.process.isalive():
                raise AssertionError(f"the program ended before {pattern!r} came; the screen:\n{self.text}")

    def until_raw(self, wanted: bytes, timeout: float = 30) -> None:
        """Read on until the program has written those bytes."""
        deadline = time.monotonic() + timeout
        while wanted not in self.raw:
            assert time.monotonic() < deadline, f"{wanted!r} never came; the screen:\n{self.text}"
            self._read(0.2)

    def read(self, seconds: float) -> None:
        """Take in what the program writes, once, and wait for it so long at most."""
        self._read(seconds)

    def blank(self) -> None:
        """Forget what stands on the screen, as if another program had wiped it."""
        self._screen.reset()
        self._text = None

    def _read(self, timeout: float) -> bool:
        try:
            data = self.process.read_nonblocking(65536, timeout)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        self._text = None
        return True

    def wait_end(self, timeout: float = 30) -> int:
        """Read to the end; the exit code, or minus the signal."""
        deadline = time.monotonic() + timeout
        while self._read(0.5):
            if time.monotonic() > deadline:
                raise AssertionError(f"the program did not end; the screen:\n{self.text}")
        self.process.wait()
        code = self.process.exitstatus
        return code if code is not None else -(self.process.signalstatus or 0)

    @property
    def last_line(self) -> str:
        """The last line the program left on the main screen."""
        after = self.raw.rpartition(b"\x1b[?1049l")[2].decode("utf-8", "replace")
        plain = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|.)", "", after)
        return next((line for line in reversed(plain.splitlines()) if line.strip()), "").strip()

    def assert_clean(self) -> None:
        """The terminal is as it was: main screen, no mouse reports, cursor shown, no bracketed paste."""
        for mode in (b"?1049", b"?1000", b"?1003", b"?1006", b"?2004"):
            on, off = self.raw.rfind(b"\x1b[" + mode + b"h"), self.raw.rfind(b"\x1b[" + mode + b"l")
            assert on <= off or on == -1, f"mode {mode!r} is left on"
        assert self.raw.rfind(b"\x1b[?25h") >= self.raw.rfind(b"\x1b[?25l"), "the cursor is left hidden"
