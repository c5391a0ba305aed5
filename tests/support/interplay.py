"""Two people at one database: what they do by their keys, and what must have come of it."""

from __future__ import annotations

import itertools
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat.sessions.database import Database
from tests.support.program import Program
from tests.support.screens import Saved, Screen, Screens
from tests.support.terminal import ENTER, ctrl

F5, F8, F9 = "\x1b[15~", "\x1b[19~", "\x1b[20~"
READY = "Enter sends|Read only: open"


@dataclass
class Seat:
    """Somebody before a screen. `name` is how the title of the chat there begins, "" for a new one."""

    screen: Screen
    name: str = ""
    writable: bool = True


@dataclass
class Aside:
    """A command run beside the screens."""

    arguments: tuple[str, ...]
    process: subprocess.Popen[str]
    said: str = ""
    """What it asked with `-p`."""


@dataclass
class Interplay:
    """Whatever is said begins with a code of its own, which names the chat when it is the first word there."""

    screens: Screens
    said: dict[str, list[str]] = field(default_factory=dict)
    """By the name of a chat that is there, what was said in it."""
    deleted: set[str] = field(default_factory=set)
    asides: list[Aside] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._codes = itertools.count(1)
        self.saved = Saved(self.screens.program)

    @property
    def program(self) -> Program:
        return self.screens.program

    def sit_down(self, *args: str) -> Seat:
        """Start one more screen, and wait until its engine is ready."""
        seat = Seat(self.screens.open(*args))
        seat.screen.until(READY)
        return seat

    def code(self) -> str:
        return f"M{next(self._codes):03d}"

    # -- what somebody does

    def new(self, seat: Seat) -> None:
        seat.screen.type(ctrl("n"))
        seat.screen.until_title("New chat")
        seat.name, seat.writable = "", True

    def say(self, seat: Seat, words: str, *, wait: bool = True) -> str:
        """Send a message where the seat is, once what was said there before is answered; its text."""
        assert seat.writable
        if seat.name:
            self.until_answered(self.said[seat.name][-1])
        code = self.code()
        text = f"{code} {words.strip()}"
        # Pasted: a key after the other takes long.
        seat.screen.type(f"\x1b[200~{text}\x1b[201~{ENTER}")
        self.screens.until(lambda: self.saved.is_sent(text), f"{text!r} in the database")
        if not seat.name:
            seat.name = code
            seat.screen.until_title(code)
        self.said.setdefault(seat.name, []).append(text)
        if wait:
            self.until_answered(text)
        return text

    def until_answered(self, text: str, timeout: float = 120) -> None:
        self.screens.until(lambda: self.saved.answer(text) is not None, f"an answer to {text!r}", timeout)

    def go(self, seat: Seat, name: str) -> None:
        if seat.name != name or not seat.writable:
            seat.writable, seat.name = seat.screen.go_to(name), name

    def fork(self, seat: Seat) -> str:
        """Go on in a copy, under a name of its own; the name."""
        source = self.said[seat.name]
        self.until_answered(source[-1])
        seat.screen.until(re.escape(source[-1][:4]))
        code = self.code()
        seat.screen.type(F5)
        seat.screen.until("this is a copy")
        seat.writable = True
        self.rename(seat, code, "a copy", copied=True)
        self.said[code] = list(source)
        return code

    def rename(self, seat: Seat, code: str, words: str, *, copied: bool = False) -> None:
        """Give the chat another name."""
        seat.screen.type(F9)
        seat.screen.until("╭─[^\n]*(Rename|Title|title)")
        seat.screen.type(f"{code} {words}")
        seat.screen.until(f"{code} {words}")
        seat.screen.type(ENTER)
        seat.screen.until("╭─[^\n]*(Rename|Title|title)", gone=True)
        seat.screen.until_title(code)
        if not copied:
            self.said[code] = self.said.pop(seat.name)
        seat.name = code

    def delete(self, seat: Seat) -> None:
        self.until_answered(self.said[seat.name][-1])
        seat.screen.type(F8)
        seat.screen.until_title("New chat")
        del self.said[seat.name]
        self.deleted.add(seat.name)
        seat.name, seat.writable = "", True

    # -- commands beside the screens

    def id_of(self, name: str) -> str:
        """Id of a chat by its name."""
        return str(self.saved.all("SELECT id FROM sessions WHERE title LIKE ? || ' %'", name)[0][0])

    def run(self, *arguments: str, said: str = "") -> Aside:
        """Start `ds4chat` beside the screens; `reap` takes it in."""
        process = subprocess.Popen(
            self.program.command(*arguments),
            env=self.program.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.asides.append(Aside(arguments, process, said))
        return self.asides[-1]

    def reap(self) -> None:
        """Wait for all commands; what they complained of goes to `complaints`."""
        for aside in self.asides:
            self.screens.until(
                lambda aside=aside: aside.process.poll() is not None, f"the end of {aside.arguments}", 180
            )  # type: ignore[misc]
            _, complaint = aside.process.communicate()
            # What the other engine still holds of a chat that is deleted stays until it lets go: it is told, and true.
            held = aside.arguments[0] == "rm" and all(
                "in use by a running ds4chat" in line for line in complaint.splitlines()
            )
            if aside.process.returncode or (complaint and not held):
                self.complaints.append(f"{' '.join(aside.arguments)}: {aside.process.returncode} {complaint}")
        self.asides = []

    # -- what came of it

    def faults(self) -> list[str]:
        """What is not as it was said: messages lost, said twice or out of order, chats that came back."""
        found = []
        with Database(self.program.home / "data" / "sessions.db") as database:
            titles = {info.title.split()[0]: info.id for info in database.list_sessions(archived=None)}
            for name, texts in self.said.items():
                if name not in titles:
                    found.append(f"{name} is gone")
                    continue
                session = database.load_session(titles[name])
                path = session.path()
                asked = [message.text for message in path if message.role == "user"]
                if asked != texts:
                    found.append(f"{name}: said {texts}, saved {asked}")
                replies = [message for message in path if message.role == "assistant"]
                if len(path) != len(session.messages) or len(replies) != len(texts):
                    found.append(f"{name}: {len(replies)} replies, {len(session.messages)} messages in all")
                found += [
                    f"{name}: a reply is {m.state}, {m.text!r}"
                    for m in replies
                    if m.state not in ENDS or not m.text
                ]
            found += [f"{name} is there, and was deleted" for name in self.deleted & set(titles)]
            found += [f"{name} was never made" for name in set(titles) - set(self.said)]
        if not self.saved.is_whole():
            found.append("the database is damaged")
        return found


ENDS = ("complete", "length")
"""Of a whole reply."""


def replayed(program: Program, texts: list[str]) -> list[str]:
    """The answers when the same is said one after the other with nobody else there."""
    answers = []
    session = ""
    for text in texts:
        done = program.ask(text, *(["-r", session] if session else []))
        session = str(done["session"])
        answers.append(str(done["text"]))
    return answers


def answers(home: Path, session_id: str) -> list[tuple[str, str, dict[str, float | int | str]]]:
    """What was said in a chat, what was answered, and its measures."""
    with Database(home / "data" / "sessions.db") as database:
        path = database.load_session(session_id).path()
    return [(q.text, a.text, a.stats) for q, a in itertools.pairwise(path) if q.role == "user"]
