"""The program in a tmux window: a terminal that other people wrote, with its own idea of keys and screens."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.support.program import Program, engine_of

ENDED = "ended with"
"""Printed after the program, with its exit code."""

POLL_SECONDS = 0.05


def has_tmux() -> bool:
    return shutil.which("tmux") is not None


class Tmux:
    """`ds4chat` in the only window of a tmux server of its own, `columns` by `rows`."""

    def __init__(self, program: Program, *args: str, columns: int = 110, rows: int = 36) -> None:
        self._socket = program.home / "tmux.socket"
        (program.home / "tmux.conf").write_text("set -g escape-time 0\nset -g status off\n")
        given = [f"{name}={value}" for name, value in program.env.items() if name.startswith("DS4CHAT_")]
        command = shlex.join(["env", *given, *program.command(*args)])
        script = f"echo $$; {command}; echo; echo {ENDED} $?; exec sleep 1000"
        self._tmux(
            "-f",
            str(program.home / "tmux.conf"),
            "new-session",
            "-d",
            "-x",
            str(columns),
            "-y",
            str(rows),
            script,
        )

    def __enter__(self) -> Tmux:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine = self.engine
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")
        if engine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *args], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout

    @property
    def text(self) -> str:
        """The window's lines as they stand."""
        return self._tmux("capture-pane", "-p")

    @property
    def pid(self) -> int:
        """Process id of the program; 0 when it has ended."""
        shell = int(self._tmux("display-message", "-p", "#{pane_pid}"))
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[1]) == shell and b"ds4chat" in (entry / "cmdline").read_bytes():
                        return int(entry.name)
        return 0

    @property
    def engine(self) -> int:
        """Process id of the engine child."""
        with contextlib.suppress(subprocess.CalledProcessError):
            return engine_of(self.pid)
        return 0

    def type(self, text: str) -> None:
        """Send keys, byte for byte as a keyboard would."""
        self._tmux("send-keys", "-H", *(f"{byte:02x}" for byte in text.encode()))

    def send_message(self, text: str) -> None:
        """Type a message and press Enter."""
        self.type(text)
        self.until(re.escape(text[:20]))
        self.type("\r")

    def until(self, pattern: str, timeout: float = 60, gone: bool = False) -> str:
        """Look until the window matches (or no longer matches); returns its text."""
        deadline = time.monotonic() + timeout
        wanted = re.compile(pattern, re.MULTILINE)
        while True:
            text = self.text
            if (wanted.search(text) is None) == gone:
                return text
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} {'stayed' if gone else 'never came'}; the window:\n{text}")
            time.sleep(POLL_SECONDS)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def wait_end(self, timeout: float = 30) -> int:
        """Wait for the program's end; its exit code."""
        text = self.until(rf"{ENDED} \d+", timeout)
        return int(re.findall(rf"{ENDED} (\d+)", text)[-1])
