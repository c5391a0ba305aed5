"""The program itself, in processes of its own, over a home directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import memos


class Program:
    """`ds4chat` with all its files below one folder."""

    def __init__(self, home: Path, *, bare: bool = False) -> None:
        """`bare`: without settings, and without what the homes before found out about this machine and their models."""
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        (home / "data").mkdir(exist_ok=True)
        if bare:
            return
        config = home / "config.toml"
        if not config.exists():
            # Threads that wait for one another starve on a busy machine: a prompt takes ten times as long.
            config.write_text("[model]\nthreads = 1\n")
        memos.learn(home / "data")

    @property
    def env(self) -> dict[str, str]:
        # A size of another terminal would win over that of the one it runs in.
        unwanted = ("DS4CHAT_", "COLUMNS", "LINES")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        return kept | {
            "DS4CHAT_DATA_DIR": str(self.home / "data"),
            "DS4CHAT_KV_DIR": str(self.home / "kv"),
            "DS4CHAT_LOG_DIR": str(self.home / "log"),
            "DS4CHAT_CONFIG": str(self.home / "config.toml"),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "NO_COLOR": "",
        }

    @property
    def kv_files(self) -> list[Path]:
        return sorted((self.home / "kv").rglob("*.kv"))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "ds4chat", *args]

    def run(
        self, *args: str, stdin: str | None = None, timeout: float = 110
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; no terminal, standard input empty unless given."""
        return subprocess.run(
            self.command(*args),
            env=self.env,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def ask(self, prompt: str, *args: str) -> dict[str, Any]:
        """`-p` at temperature 0 with JSON output."""
        done = self.run("-p", prompt, "--temperature", "0", "--output-format", "json", *args)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def engine_of(parent: int) -> int:
    """Process id of the engine child of a running program; 0 when there is none (yet)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == parent and b"ds4chat.engine.worker" in command:
                return int(entry.name)
    return 0


def flip_payload_byte(path: Path) -> None:
    """Damage one byte in the middle of a checkpoint's payload."""
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 0x10
    path.write_bytes(data)


def toml_session(title: str, messages: Sequence[tuple[str, str]]) -> str:
    """A session file to import."""
    lines = [f"title = {json.dumps(title)}"]
    for role, text in messages:
        lines += ["", "[[messages]]", f"role = {json.dumps(role)}", f"text = {json.dumps(text)}"]
    return "\n".join(lines) + "\n"
