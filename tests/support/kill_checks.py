"""What must hold after a kill: the terminal as it was, the database and the checkpoints whole, no engine left behind,
and every message that was on the screen in the file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds4chat.checkpoints.inventory import verify
from ds4chat.sessions import search_index
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message
from tests.support.program import Program
from tests.support.terminal import Terminal

MARK = re.compile(r"\bn\d{5}\b")
"""The word that begins each question: no other has it."""

ON_BY_DEFAULT = {b"7", b"25"}
"""Private modes of a terminal that programs find switched on: wrapping lines, the cursor."""

_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_KEYBOARD_PUSH, _KEYBOARD_POP = re.compile(rb"\x1b\[>\d*u"), re.compile(rb"\x1b\[<\d*u")

_NOTE = re.compile(r" {2}[i!] ")
_STATUS = re.compile(
    r"writing…|reading prompt|restoring|failed|stopped|cut off|not answered|[\d,]+ tokens?( ·|$)"
)


class Watched(Terminal):
    """A terminal that remembers when it showed what."""

    def __init__(self, program: Program, *args: str) -> None:
        self.history: list[tuple[float, str]] = []
        self._changed = 0.0
        self.began = time.monotonic()
        super().__init__(program, *args, columns=80, rows=30)
        self.process.delaybeforesend = None
        self._modes = self._tty_modes()

    def _tty_modes(self) -> list[Any] | None:
        # A terminal's master answers for the whole of it on Linux; elsewhere it may not.
        try:
            return termios.tcgetattr(self.process.child_fd)
        except (termios.error, OSError):
            return None

    def _read(self, timeout: float) -> bool:
        before = len(self.raw)
        going = super()._read(timeout)
        if len(self.raw) != before:
            self._changed = time.monotonic()
        elif self._changed:
            # Nothing more came: this is a whole frame.
            self.history.append((self._changed, self.text))
            self._changed = 0.0
        return going

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Read on for so long, or until something is the case; whether it is."""
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0 or (not self._read(min(left, 0.005)) and not self.process.isalive()):
                return until()
        return True

    def catch(self, seconds: float, what: Callable[[], bool]) -> bool:
        """Wait for something that is over in a millisecond; whether it was caught."""
        deadline, read_at = time.monotonic() + seconds, 0.0
        while not what():
            now = time.monotonic()
            if now > deadline:
                return False
            if now > read_at:
                # The program must be able to go on writing.
                self._read(0)
                read_at = time.monotonic() + 0.03
            # Nor is its processor taken away.
            time.sleep(0.0003)
        return True

    def hang_up(self) -> None:
        """Close the terminal's window."""
        self.process.ptyproc.fileobj.close()
        self.process.ptyproc.fd = -1
        self.process.ptyproc.closed = True
        self.process.child_fd = -1
        self.process.closed = True

    def gone(self, seconds: float) -> bool:
        """Wait for the program's end without its terminal; whether it came."""
        deadline = time.monotonic() + seconds
        while self.process.isalive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def dirt(self) -> list[str]:
        """What the program left changed."""
        on: dict[bytes, bool] = {}
        for modes, letter in _MODE.findall(self.raw):
            for mode in modes.split(b";"):
                on[mode] = letter == b"h"
        wrong = [
            f"mode ?{mode.decode()} is left {'on' if state else 'off'}"
            for mode, state in on.items()
            if state != (mode in ON_BY_DEFAULT)
        ]
        if len(_KEYBOARD_PUSH.findall(self.raw)) > len(_KEYBOARD_POP.findall(self.raw)):
            wrong.append("the keyboard protocol is left on")
        if not self.process.closed and self._modes is not None and self._tty_modes() != self._modes:
            wrong.append("the line discipline (stty) is left changed")
        return wrong


def rows(screen: str) -> list[str]:
    """The lines of the transcript: below the title, above the prompt box."""
    lines = screen.split("\n")
    box = next((i for i, line in enumerate(lines) if line.lstrip().startswith("╭─")), 0)
    return lines[1:box]


def box(screen: str) -> str:
    """What stands in the prompt box."""
    return "\n".join(line for line in screen.split("\n") if line.lstrip().startswith("│"))


def status(screen: str) -> str:
    """The line below the prompt box."""
    lines = screen.split("\n")
    box = next((i for i, line in enumerate(lines) if line.lstrip().startswith("╰─")), len(lines))
    return "".join(lines[box + 1 : box + 2]).strip()


def asked(screen: str) -> set[str]:
    """The marks of the questions in the transcript."""
    return {mark for row in rows(screen) if row.startswith("  ▌") for mark in MARK.findall(row)}


def said(screen: str) -> list[list[str]]:
    """What the transcript shows of each reply: the letters of each of its lines, without the program's own words."""
    replies: list[list[str]] = [[]]
    skipping = False
    if re.search(r"Enter +send a message", screen):
        # No chat is shown yet.
        return []
    for row in rows(screen):
        bare = row.strip(" ▁▂▃▄▅▆▇█")
        # The bar is that of a question or, further right, of a note that covers what is said.
        if not bare or "▌" in bare or bare.startswith("◆"):
            skipping = False
            if bare:
                replies.append([])
        elif skipping or _NOTE.match(row) or _STATUS.match(bare):
            skipping = True
        else:
            replies[-1].append(letters(bare))
    return [reply for reply in replies if any(reply)]


def letters(text: str) -> str:
    """What wrapping and Markdown leave of a text."""
    return "".join(filter(str.isalpha, text))


def unsaved(screen: str, messages: dict[int, Message]) -> list[str]:
    """The replies on a screen that are not in the database as far as they were shown."""
    stored = [letters(m.text) for m in messages.values() if m.role == "assistant"]
    wrong = []
    for reply in said(screen):
        whole = "".join(reply)
        if any(whole in text for text in stored):
            continue
        # Markdown may have put the lines of a table or a list in another order: each for itself then.
        if any(all(line in text for line in reply) for text in stored):
            continue
        wrong.append(whole)
    return wrong


@dataclass
class Contents:
    """A database: its messages by id, which session each belongs to, and what is wrong with it."""

    messages: dict[int, Message]
    session_of: dict[int, str]
    stored_sessions: list[str]
    """Sessions with checkpoints."""
    faults: list[str]

    def session_with(self, mark: str) -> str:
        """The session with the question of a mark, "" for none."""
        return next((self.session_of[m.id] for m in self.messages.values() if mark in m.text), "")


def read_database(path: Path) -> Contents:
    """Look at a copy, so that the program itself meets the file as the kill left it."""
    contents = Contents({}, {}, [], [])
    if not path.exists():
        return contents
    with tempfile.TemporaryDirectory(prefix="ds4chat-kills-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        try:
            _check_file(copy, contents.faults)
            with Database(copy) as database:
                for info in database.list_sessions(archived=None):
                    session = database.load_session(info.id)
                    contents.messages |= session.messages
                    contents.session_of |= dict.fromkeys(session.messages, session.id)
                    if database.spans_of(session.id):
                        contents.stored_sessions.append(session.id)
        except Exception as error:
            contents.faults.append(f"{type(error).__name__}: {error}")
    return contents


def _check_file(path: Path, faults: list[str]) -> None:
    """The file as it is, before anything of ours has opened it."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        search_index.register(db)
        db.execute("PRAGMA trusted_schema = ON")
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check")]
        faults += [line for line in found if line != "ok"]
        if search_index.has_index(db):
            # 1: the index is held against what the messages say.
            db.execute(
                f"INSERT INTO {search_index.INDEX} ({search_index.INDEX}, rank) VALUES ('integrity-check', 1)"
            )
    finally:
        db.close()


def damaged_checkpoints(kv: Path) -> list[str]:
    """Files that cannot be used, and marks of those that an engine is thought to have crashed on."""
    if not kv.is_dir():
        return []
    faults = [f"{fault.path.name}: {fault.reason}" for fault in verify(kv).faults]
    return faults + [path.name for path in kv.rglob("*.kv.*") if path.suffix in (".strike", ".bad")]


def engines_of(home: Path) -> list[int]:
    """Process ids of the engines that work in a home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                is_engine = b"ds4chat.engine.worker" in (entry / "cmdline").read_bytes()
                own = os.fsencode(f"DS4CHAT_KV_DIR={home / 'kv'}")
                if is_engine and own in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found
