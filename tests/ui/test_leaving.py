"""Ending the screen from outside, in a real pseudo-terminal: the chat is saved, the terminal left clean."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.drivers import linux_driver
from textual.events import Key
from textual.message import Message

from ds4chat.ui.terminal import ChatDriver, read_any_bytes

ROOT = Path(__file__).parents[2]
SECONDS = 30
KEY_REPEAT_SECONDS = 0.03


class Terminal:
    """The screen in a terminal of 90 by 24; `output` is all it has written."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker
        self.output = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "tests.ui.screen_process", str(marker)])
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))

    def until(self, text: bytes) -> None:
        end = time.monotonic() + SECONDS
        while text not in self.output:
            assert time.monotonic() < end, self.output[-2000:]
            if select.select([self.fd], [], [], 0.1)[0]:
                self.output += os.read(self.fd, 65536)

    def ended(self) -> int:
        """Exit status, after reading what is left."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self.fd >= 0 and select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.output += os.read(self.fd, 65536)
                except OSError:
                    self.close()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if self.fd < 0:
                time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("the screen did not end")

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "marker")
    try:
        terminal.until(b"an answer")
        yield terminal
    finally:
        terminal.close()


def assert_clean(terminal: Terminal) -> None:
    assert terminal.marker.read_text() == "00000001 True"
    assert b"Traceback" not in terminal.output
    assert b"left 00000001" in terminal.output
    after = terminal.output
    for entered, left in (
        (b"\x1b[?1049h", b"\x1b[?1049l"),
        (b"\x1b[?1003h", b"\x1b[?1003l"),
        (b"\x1b[?25l", b"\x1b[?25h"),
    ):
        assert after.rfind(left) > after.rfind(entered)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals(terminal: Terminal, number: signal.Signals) -> None:
    os.kill(terminal.pid, number)
    assert terminal.ended() == 0
    assert_clean(terminal)


@pytest.mark.parametrize("starter", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_in_a_burst_of_callbacks(terminal: Terminal, starter: signal.Signals) -> None:
    """The pipe that wakes the event loop has no room for the signal's number then."""
    os.kill(terminal.pid, starter)
    assert terminal.ended() == 0
    assert_clean(terminal)
    assert b"Exception ignored" not in terminal.output


def test_signals_that_come_together_leave_time_to_save(terminal: Terminal) -> None:
    """A terminal's window that is closed hangs up, and so does the shell in it."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        os.kill(terminal.pid, number)
    assert terminal.ended() == 0
    assert_clean(terminal)


def test_ctrl_c_twice(terminal: Terminal) -> None:
    os.write(terminal.fd, b"\x03")
    terminal.until(b"Ctrl+C again quits")
    os.write(terminal.fd, b"\x03")
    assert terminal.ended() == 0
    assert_clean(terminal)


def test_a_terminal_that_vanishes(terminal: Terminal) -> None:
    terminal.close()
    assert terminal.ended() == 0
    assert terminal.marker.read_text() == "00000001 True"


def test_keys_end_where_a_terminal_has_nothing_more_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read after a hang-up it gives no bytes, again and again: the thread that reads must end, and say so."""
    monkeypatch.setattr(linux_driver, "getincrementaldecoder", linux_driver.getincrementaldecoder)
    monkeypatch.setattr(linux_driver, "XTermParser", linux_driver.XTermParser)
    read_any_bytes()
    fd, writing = os.pipe()
    os.write(writing, b"a\xffb")
    os.close(writing)
    keys: list[Message] = []
    panics: list[object] = []
    driver = ChatDriver.__new__(ChatDriver)
    driver.fileno, driver._debug, driver.exit_event = fd, False, threading.Event()
    driver._app = SimpleNamespace(call_later=lambda *args: panics.append(args), panic=None)  # type: ignore[assignment]
    monkeypatch.setattr(driver, "process_message", keys.append)
    reader = threading.Thread(target=driver._run_input_thread, daemon=True)
    reader.start()
    reader.join(SECONDS)
    ended = not reader.is_alive()
    driver.exit_event.set()
    reader.join(SECONDS)
    os.close(fd)
    assert ended and len(panics) == 1
    assert "".join(key.character or "" for key in keys if isinstance(key, Key)) == "a\ufffdb"


def test_letters_that_come_fast_keep_their_order(terminal: Terminal) -> None:
    """What arrives in one read is typed in order: no key overtakes another, Alt and a digit is not text."""
    os.write(terminal.fd, b"ab\x7fc\nd\rnext")
    terminal.until(b"next")
    os.write(terminal.fd, b"\x11")
    assert terminal.ended() == 0
    for text in (b"ac", b"next"):
        assert text in terminal.output


def test_the_terminals_title_is_given_back(terminal: Terminal) -> None:
    os.write(terminal.fd, b"\x11")
    assert terminal.ended() == 0
    assert b"\x1b]2;Kept" in terminal.output
    assert terminal.output.find(b"\x1b[22;2t") < terminal.output.find(b"\x1b]2;")
    assert terminal.output.rfind(b"\x1b[23;2t") > terminal.output.rfind(b"\x1b]2;")


def test_keys_pressed_while_the_screen_comes_up_are_text(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "marker")
    try:
        end, typed = time.monotonic() + SECONDS, 0.0
        while b"an answer" not in terminal.output or b"zz" not in terminal.output:
            assert time.monotonic() < end, terminal.output[-2000:]
            # As fast as a key repeats that is held down.
            if time.monotonic() - typed >= KEY_REPEAT_SECONDS:
                os.write(terminal.fd, b"z")
                typed = time.monotonic()
            if select.select([terminal.fd], [], [], 0.01)[0]:
                terminal.output += os.read(terminal.fd, 65536)
        os.write(terminal.fd, b"\x11")
        assert terminal.ended() == 0, terminal.output[-500:]
        assert b"failed" not in terminal.output
    finally:
        terminal.close()


def test_a_title_typed_in_one_read_with_its_key_renames(terminal: Terminal) -> None:
    os.write(terminal.fd, b"\x1b[20~Other name\rwords behind")
    terminal.until(b"\x1b]2;Other name")
    terminal.until(b"behind")
    os.write(terminal.fd, b"\x11")
    assert terminal.ended() == 0


def test_the_screen_starts_without_what_only_replies_need() -> None:
    code = "import sys, ds4chat.ui.app; print([m for m in sys.argv[1:] if m in sys.modules])"
    modules = [
        "rich.markdown",
        "markdown_it",
        "pygments",
        "sqlite3",
        "llama_cpp",
        "ds4chat.sessions.database",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *modules], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
