"""Several screens of the program over one home, all of them read while one is waited for."""

from __future__ import annotations

import re
import select
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from tests.support.program import Program
from tests.support.terminal import ENTER, Terminal, ctrl

KEPT_BYTES = 1 << 18
"""Of what a program wrote to its terminal."""

SETTLE_SECONDS = 0.1

FAULTS = re.compile(r"database is locked|in use by another program|Traceback|The chat screen failed")


class Screen(Terminal):
    """One of several terminals. What was ever shown of `FAULTS` is in `faults`."""

    def __init__(self, beside: list[Screen], program: Program, *args: str, columns: int, rows: int) -> None:
        super().__init__(program, *args, columns=columns, rows=rows)
        self._beside = beside
        self.faults: list[str] = []

    def _read(self, timeout: float) -> bool:
        """Read from this terminal or, while it is silent, from the others."""
        others = [screen for screen in self._beside if screen is not self and not screen.process.closed]
        ready, _, _ = select.select([screen.process for screen in (self, *others)], [], [], timeout)
        for screen in others:
            if screen.process in ready:
                screen._take()
        return self._take() if self.process in ready else self.process.isalive()

    def _take(self) -> bool:
        alive = super()._read(0)
        self.raw = self.raw[-KEPT_BYTES:]
        shown = " ".join(self.text.split())
        self.faults += [match[0] for match in FAULTS.finditer(shown) if match[0] not in self.faults]
        return alive

    @property
    def title(self) -> str:
        """What stands above the chat."""
        return self.text.partition("\n")[0].rpartition("▕")[2].strip()

    def until_title(self, pattern: str, timeout: float = 30) -> bool:
        """Wait for a session by its title; whether it can be written in."""
        self.until(rf"\A[^\n]*▕\s+{pattern}", timeout)
        # The title is the first line of a frame that may come in pieces.
        shown = ""
        while shown != self.text:
            shown = self.text
            self._read(SETTLE_SECONDS)
        return "Read only: open" not in self.text

    def go_to(self, name: str) -> bool:
        """Open the one session whose title begins with `name`; whether it can be written in."""
        self.type(ctrl("o"))
        self.until("╭─ Open a chat")
        self.type(name)
        # In the line of the letters, and two below it, where the best match stands.
        self.until(rf"│  {name} [^\n]*\n[^\n]*\n[^\n]*│ [^│\n]*{name}")
        self.type(ENTER)
        self.until("╭─ Open a chat", gone=True)
        return self.until_title(re.escape(name))


class Screens:
    """The screens of one program."""

    def __init__(self, program: Program, *, columns: int = 92, rows: int = 24) -> None:
        self.program, self._columns, self._rows = program, columns, rows
        self.all: list[Screen] = []

    def __enter__(self) -> Screens:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for screen in self.all:
            screen.__exit__(kind, error, trace)

    def open(self, *args: str) -> Screen:
        """Start the program once more."""
        screen = Screen(self.all, self.program, *args, columns=self._columns, rows=self._rows)
        self.all.append(screen)
        return screen

    def close(self, screen: Screen) -> None:
        """Forget a screen whose program has ended."""
        self.all.remove(screen)
        screen.__exit__(None, None, None)

    def until(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Read all screens until a condition holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                shown = "\n\n".join(screen.text for screen in self.all)
                raise AssertionError(f"{what} never came; the screens:\n{shown}")
            self.read(0.05)

    def read(self, seconds: float) -> None:
        """Read all screens for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.all:
                self.all[0]._read(left)
            else:
                time.sleep(left)


@dataclass(frozen=True)
class Answer:
    """A reply as it is saved."""

    text: str
    state: str
    stats: dict[str, Any]


class Saved:
    """The session database, read from outside."""

    def __init__(self, program: Program) -> None:
        self._path = program.home / "data" / "sessions.db"

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows, [] before there is a database."""
        if not self._path.exists():
            return []
        db = sqlite3.connect(self._path, timeout=10)
        try:
            return db.execute(query, values).fetchall()
        finally:
            db.close()

    def is_sent(self, text: str) -> bool:
        """Whether a message of the user's is saved."""
        return bool(self.all("SELECT 1 FROM messages WHERE role = 'user' AND text = ?", text))

    def answer(self, text: str) -> Answer | None:
        """The newest reply to a message that ended, None before."""
        rows = self.all(
            "SELECT r.text, r.state, r.stats FROM messages q JOIN messages r ON r.parent_id = q.id"
            " WHERE q.role = 'user' AND q.text = ? AND r.state NOT IN ('streaming') ORDER BY r.id DESC",
            text,
        )
        return Answer(rows[0][0], rows[0][1], msgspec.json.decode(rows[0][2])) if rows else None

    def session_of(self, text: str) -> str:
        """Id of the session in which a message was said first."""
        return str(
            self.all("SELECT session_id FROM messages WHERE role = 'user' AND text = ? ORDER BY id", text)[0][
                0
            ]
        )

    def is_whole(self) -> bool:
        """What SQLite says of its file."""
        return self.all("PRAGMA integrity_check") == [("ok",)]


def log_faults(home: Path) -> list[str]:
    """Lines of the logs that tell of a lock, a traceback or an error."""
    wanted = re.compile(r"database is locked|Traceback| ERROR ")
    return [
        line
        for path in sorted((home / "log").glob("*"))
        for line in path.read_text(errors="replace").splitlines()
        if wanted.search(line)
    ]
