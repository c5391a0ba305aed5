"""Two screens on one database: `python benchmarks/instances.py [--steps N] [--seed N] [--model PATH] [--json]`.

Two people at two pseudo-terminals talk, go to other chats and begin new ones, by turns and at the same time, on one
session database and one checkpoint directory whose budget is so small that one's writing deletes what the other would
restore. Beside them run `ds4chat ls`, `rename`, `rm`, `search`, `-p`, `cache verify` and `cache prune`. Now and then
both have the same chat open, or one deletes what the other looks at. Last, another program holds the database's write
lock, at a start and in the middle of a reply.

Exit code 1 when a claim does not hold: nothing that was sent is lost, doubled or out of order, and each has its reply;
no lock is felt (`FAULTS` in `tests/support/screens.py`); both chats resume; the answers are those of a run with nobody
else there, as far as nothing was computed anew; database and checkpoints are whole; keys are shown while the database
is locked.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.interplay import Interplay, Seat, answers, replayed
from tests.support.program import Program
from tests.support.screens import Screens, log_faults
from tests.support.terminal import ctrl
from tests.support.tiny_models import starter_model

CONFIG = """[model]
path = "{model}"
ctx = 2048
[sampling]
temperature = 0.0
max_tokens = 12
[kv]
space_mb = {budget}
"""

QUESTIONS = (
    "Name a colour of the sea.",
    "What is a skerry?",
    "Which bird lives on a cliff?",
    "Describe a small harbour in the evening, with its boats and the people who wait there for them.",
    "Why do ships carry a bell?",
)

KEY_SECONDS = 0.5
"""How late a typed key may be shown while another program holds the database."""

ANEW_TOKENS = 64
"""Prompt tokens of a turn beyond which something of the past was computed anew."""

MOST_CHATS = 10


@dataclass
class Result:
    """Of one run; times are seconds."""

    model: str
    seconds: float
    turns: int = 0
    switches: int = 0
    forks: int = 0
    commands: int = 0
    printed: int = 0
    """Questions asked with -p."""
    messages: int = 0
    stored_files: int = 0
    deleted_files: int = 0
    """Checkpoints that were there after a step, and those of them that were gone later."""
    restores: int = 0
    computed_anew: int = 0
    compared: int = 0
    different: int = 0
    key_seconds: float = 0.0
    start_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The claims that do not hold."""
        late = self.key_seconds > KEY_SECONDS
        return [
            *self.faults,
            *([f"{self.different} answers differ"] if self.different else []),
            *([f"a key took {self.key_seconds:.2f} s while the database was locked"] if late else []),
        ]


@contextmanager
def locked(home: Path, seconds: float) -> Iterator[None]:
    """Another program in the middle of a write for so long, and until the block is over."""
    began, ended = threading.Event(), threading.Event()

    def hold() -> None:
        other = sqlite3.connect(home / "data" / "sessions.db", isolation_level=None, timeout=30)
        other.execute("BEGIN IMMEDIATE")
        began.set()
        time.sleep(seconds)
        other.execute("ROLLBACK")
        other.close()
        ended.set()

    threading.Thread(target=hold, daemon=True).start()
    began.wait()
    yield
    ended.wait()


class Run:
    """The steps, and what they came to."""

    def __init__(self, screens: Screens, result: Result, seed: int) -> None:
        self.play = Interplay(screens)
        self.result, self.chance = result, random.Random(seed)
        self.seats = [self.play.sit_down(), self.play.sit_down()]
        self._files: set[Path] = set()

    def other(self, seat: Seat) -> Seat:
        return self.seats[1 - self.seats.index(seat)]

    def step(self, number: int) -> None:
        """Something somebody does."""
        self._do(number)
        files = set(self.play.program.kv_files)
        self.result.stored_files += len(files - self._files)
        self.result.deleted_files += len(self._files - files)
        self._files = files

    def _do(self, number: int) -> None:
        seat = self.seats[self.chance.randrange(2)]
        if number % 25 == 24:
            self._together(seat)
            return
        if number % 10 == 9:
            self._beside()
        roll = self.chance.random()
        if roll < 0.5 or not self.play.said:
            self._say(seat)
        elif roll < 0.62 and len(self.play.said) < MOST_CHATS:
            self.play.new(seat)
            self.result.switches += 1
            self._say(seat)
        elif len(self.play.said) >= MOST_CHATS and roll < 0.62:
            self._delete(seat)
        else:
            self._go(seat, self.chance.choice(list(self.play.said)))

    def _say(self, seat: Seat) -> None:
        if not seat.writable:
            self._leave(seat)
        self.play.say(seat, self.chance.choice(QUESTIONS), wait=self.chance.random() < 0.6)
        self.result.turns += 1

    def _go(self, seat: Seat, name: str) -> None:
        self.play.go(seat, name)
        self.result.switches += 1

    def _leave(self, seat: Seat) -> None:
        """Go to a chat that can be written in."""
        free = [name for name in self.play.said if name != self.other(seat).name]
        if free and self.chance.random() < 0.7:
            self._go(seat, self.chance.choice(free))
        if not seat.writable:
            self.play.new(seat)
            self.result.switches += 1

    def _delete(self, seat: Seat) -> None:
        if seat.writable and seat.name and seat.name != self.other(seat).name:
            self.play.delete(seat)

    def _together(self, seat: Seat) -> None:
        """One chat on both screens: the second follows, goes on in a copy, and sees it deleted or renamed."""
        other = self.other(seat)
        if not seat.writable or not seat.name:
            self._leave(seat)
            self._say(seat)
        self._go(other, seat.name)
        if other.writable:
            # It was only on its way out of the first one's hands.
            return
        text = self.play.say(seat, self.chance.choice(QUESTIONS))
        self.result.turns += 1
        other.screen.until(rf"{text[:4]}(.|\n)*◆(.|\n)*\w")
        copy = self.play.fork(other)
        self.result.forks += 1
        self.play.say(other, self.chance.choice(QUESTIONS), wait=False)
        self.play.say(seat, self.chance.choice(QUESTIONS))
        self.result.turns += 2
        code = self.play.code()
        self.play.rename(seat, code, "renamed")
        other.screen.until(code)
        self._go(seat, copy)
        if not seat.writable:
            self.play.delete(other)
            seat.screen.until("was deleted in another")
            self._leave(seat)

    def _beside(self) -> None:
        """Some command beside the screens, or two at once."""
        play, here = self.play, {seat.name for seat in self.seats}
        play.reap()
        closed = [
            name for name, texts in play.said.items() if name not in here and play.saved.answer(texts[-1])
        ]
        commands: list[tuple[str, ...]] = [
            ("ls",),
            ("search", "harbour"),
            ("cache", "verify"),
            ("cache", "prune"),
        ]
        for command in self.chance.sample(commands, 2):
            play.run(*command)
        if closed:
            name = self.chance.choice(closed)
            match self.chance.randrange(3):
                case 0:
                    play.run("rename", play.id_of(name), f"{name} renamed beside")
                case 1:
                    text = f"{play.code()} Why is the sea salty?"
                    play.said[name].append(text)
                    play.run("-p", text, "-r", play.id_of(name))
                    self.result.printed += 1
                case _:
                    play.run("rm", "-y", play.id_of(name))
                    del play.said[name]
                    play.deleted.add(name)
        self.result.commands = self.result.commands + 3
        # What they do must be over before somebody opens that chat: else it would be theirs.
        play.reap()

    def lock(self) -> None:
        """Another program holds the database: in the middle of a reply, and at a start."""
        play, seat = self.play, self.seats[0]
        if not seat.writable:
            self._leave(seat)
        play.say(seat, QUESTIONS[3], wait=False)
        with locked(play.program.home, 5.0):
            began = time.monotonic()
            seat.screen.type("zqx")
            seat.screen.until("│ zqx")
            self.result.key_seconds = time.monotonic() - began
            seat.screen.type("\x7f\x7f\x7f")
            text = f"{play.code()} said while it was locked."
            seat.screen.type(text + "\r")
            seat.screen.until("Another program is writing")
            began = time.monotonic()
            seat.screen.type("zqx")
            seat.screen.until("│ zqx")
            self.result.key_seconds = max(self.result.key_seconds, time.monotonic() - began)
            seat.screen.type("\x7f\x7f\x7f")
        play.said[seat.name].append(text)
        play.until_answered(text)
        self.result.turns += 2

    def end(self) -> None:
        """Leave, and come back while the database is locked."""
        play = self.play
        for seat in self.seats:
            if not seat.writable or not seat.name:
                self._leave(seat)
                self._say(seat)
            if play.said[seat.name]:
                play.until_answered(play.said[seat.name][-1])
        play.reap()
        for seat in self.seats:
            name = seat.name
            seat.screen.type(ctrl("q"))
            code = seat.screen.wait_end()
            if code != 0:
                self.result.faults.append(f"exit code {code}")
            self.result.faults += seat.screen.faults
            resume = seat.screen.last_line.split()
            if resume[:2] != ["ds4chat", "--resume"]:
                self.result.faults.append(f"no word on how to resume: {resume}")
            play.screens.close(seat.screen)
            with locked(play.program.home, 8.0):
                began = time.monotonic()
                again = Seat(play.screens.open("--resume", resume[-1]), name)
                again.screen.until_title(name)
                self.result.start_seconds = max(self.result.start_seconds, time.monotonic() - began)
            again.screen.until("Enter sends")
            play.say(again, "Go on.")
            self.result.turns += 1
            again.screen.type(ctrl("q"))
            again.screen.wait_end()
            self.result.faults += again.screen.faults


def compare(run: Run, alone: Program, chats: int) -> None:
    """The same said with nobody else there, as far as nothing of it had been computed anew."""
    play, result = run.play, run.result
    home = play.program.home
    names = [name for name in play.said if len(play.said[name]) >= 2]
    for name in sorted(names, key=lambda name: len(play.said[name]))[:chats]:
        told = answers(home, play.id_of(name))
        kept = 0
        while kept < len(told) and (kept == 0 or int(told[kept][2]["prefilled_tokens"]) <= ANEW_TOKENS):
            kept += 1
        heard = replayed(alone, [text for text, _, _ in told[:kept]])
        result.compared += len(heard)
        for (text, answer, _), other in zip(told, heard, strict=False):
            if answer != other:
                result.different += 1
                print(f"{name}: {text!r}\n  two: {answer!r}\n  one: {other!r}", file=sys.stderr)


def home(folder: Path, model: Path, budget: int) -> Program:
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG.format(model=model, budget=budget), encoding="utf-8")
    return Program(folder)


def measure(model: Path, steps: int, seed: int, budget: int, chats: int) -> Result:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ds4chat-instances-") as folder:
        result = Result(model.name.removesuffix(".gguf"), 0.0)
        program = home(Path(folder) / "home", model, budget)
        with Screens(program) as screens:
            run = Run(screens, result, seed)
            number = 0
            while result.turns + result.switches < steps:
                run.step(number)
                number += 1
            run.lock()
            run.end()
        result.faults += [*run.play.faults(), *run.play.complaints, *log_faults(program.home)]
        checked = program.run("cache", "verify")
        if checked.returncode != 0:
            result.faults.append(f"cache verify: {checked.stdout}{checked.stderr}")
        stats = [stat for name in run.play.said for _, _, stat in answers(program.home, run.play.id_of(name))]
        result.messages = 2 * len(stats)
        result.restores = sum(float(stat.get("restore_ms", 0)) > 0 for stat in stats)
        result.computed_anew = sum(int(stat.get("prefilled_tokens", 0)) > ANEW_TOKENS for stat in stats)
        compare(run, home(Path(folder) / "alone", model, 0), chats)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def table(result: Result) -> str:
    """The result for people."""
    rows = [
        ("turns, switches, copies", f"{result.turns}, {result.switches}, {result.forks}"),
        ("commands beside them, `-p` among them", f"{result.commands}, {result.printed}"),
        ("checkpoints stored, deleted meanwhile", f"{result.stored_files}, {result.deleted_files}"),
        ("messages kept at the end", f"{result.messages}"),
        ("of their turns, with a restore / computed anew", f"{result.restores} / {result.computed_anew}"),
        ("answers compared with a run alone, different", f"{result.compared}, {result.different}"),
        ("a key while the database is locked, at most", f"{result.key_seconds:.2f} s"),
        ("a chat on the screen, started while it is locked", f"{result.start_seconds:.2f} s"),
        ("in all", f"{result.seconds:.0f} s"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    lines += [f"{'went wrong'.ljust(width)}  {words}" for words in result.broken]
    lines.append(
        f"{'DOES NOT HOLD' if result.broken else 'holds'}: nothing lost, no lock felt, the same answers"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description="Two screens on one database.")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="turns and switches (200)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="1")
    parser.add_argument("--budget", type=int, default=40, metavar="MB", help="for checkpoints (40)")
    parser.add_argument("--compare", type=int, default=4, metavar="N", help="chats said again alone (4)")
    parser.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file instead of the starter model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    model = given.model or starter_model()
    if model is None:
        print("instances.py: the starter model is not installed: run `make test`.", file=sys.stderr)
        return 1
    result = measure(model, given.steps, given.seed, given.budget, given.compare)
    if given.json:
        print(json.dumps(asdict(result) | {"broken": result.broken}, indent=2))
    else:
        print(table(result))
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
