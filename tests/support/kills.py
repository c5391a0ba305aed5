"""The program at a real terminal, with its real engine, killed at random moments; then everything is looked at.

A `Home` is killed again and again: each start of the program is that after the last kill, so that damage would add up.
What must hold is in `kill_checks`.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pexpect

from ds4chat.sessions.session import Message
from tests.support.kill_checks import (
    Watched,
    asked,
    box,
    damaged_checkpoints,
    engines_of,
    read_database,
    status,
    unsaved,
)
from tests.support.kill_homes import BUNDLED, SENTENCE, Template
from tests.support.program import Program
from tests.support.terminal import ENTER, ESCAPE, alt, ctrl

WAYS = ("all", "engine", "screen", "term", "hup", "close")
"""SIGKILL of screen and engine at once, of the engine, of the screen; SIGTERM; SIGHUP; the terminal's window closed."""

MOMENTS = (
    *("loading", "prefilling", "generating", "restoring", "storing", "switching"),
    *("exporting", "importing", "migrating"),
)

FAULTS = (
    *("messages lost", "failed starts", "stuck", "damaged databases"),
    *("dirty terminals", "damaged checkpoints", "orphans"),
)

SHOWN_SECONDS = 0.5
"""What was on the screen this long before a kill of the screen is kept."""

ORPHAN_SECONDS = 15.0
"""The longest an engine may outlive its screen."""

READY_SECONDS, ANSWER_SECONDS, END_SECONDS = 40.0, 60.0, 30.0

_SIGNALS = {"term": signal.SIGTERM, "hup": signal.SIGHUP}

_TALK = "Tell me a long story about the sea and the people who live by it."


@dataclass
class Outcome:
    """One kill and what came of it."""

    way: str
    moment: str
    landed: bool = False
    """Whether what the moment is named after was going on."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    engine_seconds: float = 0.0
    """How long the engine outlived its screen."""
    seconds: float = 0.0
    screen: str = ""

    def fault(self, kind: str, text: str) -> None:
        self.faults.append((kind, text))


class Home:
    """One home, and what it must hold."""

    def __init__(self, folder: Path, template: Template, rng: random.Random) -> None:
        self.template, self.rng = template, rng
        if folder != template.folder:
            shutil.copytree(template.folder, folder)
        self.program = Program(folder)
        self.sent: dict[str, str] = {}
        """Questions by their mark."""
        self.seen: set[str] = set()
        """Marks that were in the transcript."""
        self.known: dict[int, Message] = {}
        self._session_of: dict[int, str] = {}
        self.sessions: list[str] = []
        self.stored_sessions: list[str] = []
        """Those with checkpoints."""
        self._bundled = ""
        self.start_seconds = 2.5
        self._learn(Outcome("", ""))

    @property
    def folder(self) -> Path:
        return self.program.home

    @property
    def database(self) -> Path:
        return self.folder / "data" / "sessions.db"

    # ---- a kill ----

    def kill(self, way: str, moment: str) -> Outcome:
        """Start the program, bring it to the moment, kill it, look at everything."""
        outcome = Outcome(way, moment)
        began = time.monotonic()
        terminals: list[Watched] = []
        try:
            Kill(self, outcome, terminals).run()
        except (AssertionError, pexpect.ExceptionPexpect, OSError) as error:
            outcome.fault("stuck", f"{type(error).__name__}: {error}")
        finally:
            for terminal in terminals:
                with contextlib.suppress(Exception):
                    terminal.process.close(force=True)
                if terminal.process.isalive():
                    _kill_all([terminal.process.pid])
            _kill_all(engines_of(self.folder))
        if outcome.faults and terminals:
            outcome.screen = terminals[0].text
        outcome.seconds = time.monotonic() - began
        return outcome

    def use_old_database(self) -> None:
        """From now on with a database that has to be migrated."""
        for file in self.database.parent.glob("sessions.db*"):
            file.unlink()
        # In the midst of a migration one is not to be looked at: what it holds is read from a copy here.
        shutil.copyfile(self.template.old_database, self.database)
        self.known, self.seen = {}, set()
        self._learn(Outcome("", ""))

    def forget_bundle(self) -> None:
        """Delete the chat that the bundle brings, so that it comes in again."""
        if self._bundled:
            done = self.program.run("rm", "-y", self._bundled)
            assert done.returncode == 0, done.stderr
            self.known = {n: m for n, m in self.known.items() if self._session_of[n] != self._bundled}
            self._learn(Outcome("", ""))

    def look(self, outcome: Outcome, terminal: Watched, killed: float, *, at_once: bool) -> None:
        """Everything on disk after the program has gone, and what was shown on the screen before `killed`.

        Args:
            at_once: the screen could not act any more.
        """
        messages = self._learn(outcome)
        for when, screen in terminal.history:
            if when <= killed:
                self.seen |= asked(screen) & self.sent.keys()
        questions = [m.text for m in messages.values() if m.role == "user"]
        for mark in sorted(self.seen):
            if not any(self.sent[mark] in text for text in questions):
                outcome.fault("messages lost", f"the question {mark} was shown and is not there")
        lost = {
            text
            for when, screen in terminal.history
            if when <= killed - (SHOWN_SECONDS if at_once else 0)
            for text in unsaved(screen, messages)
        }
        for text in sorted(lost, key=len)[-1:]:
            outcome.fault("messages lost", f"of a reply that was shown, this is not there: {text}")
        for text in damaged_checkpoints(self.folder / "kv"):
            outcome.fault("damaged checkpoints", text)

    def _learn(self, outcome: Outcome) -> dict[int, Message]:
        contents = read_database(self.database)
        for text in contents.faults:
            outcome.fault("damaged databases", text)
        if not contents.faults:
            for number, message in self.known.items():
                now = contents.messages.get(number)
                if now is None or not now.text.startswith(message.text):
                    outcome.fault("messages lost", f"message {number} was stored and is not there as it was")
            self.known = contents.messages
            self.sessions = sorted(set(contents.session_of.values()))
            self.stored_sessions = contents.stored_sessions
            self._session_of = contents.session_of
            self._bundled = contents.session_with(BUNDLED)
        return contents.messages


class Kill:
    """One kill of a home."""

    def __init__(self, home: Home, outcome: Outcome, terminals: list[Watched]) -> None:
        self.home, self.outcome, self._terminals = home, outcome, terminals
        self.rng, self.way = home.rng, outcome.way
        self.tool: Watched | None = None
        """A second program that is killed, beside the screen."""
        self._quits = False
        """The screen was told to close before the kill."""

    def run(self) -> None:
        if self.outcome.moment == "migrating":
            self.home.use_old_database()
        if self.outcome.moment == "importing":
            self.home.forget_bundle()
        starting = self.outcome.moment in ("loading", "restoring", "migrating")
        terminal = self._open() if starting else self._start()
        bring: Callable[[Watched], bool] = getattr(self, f"_{self.outcome.moment}")
        self.outcome.landed = bring(terminal)
        if self.tool is None:
            self._end(terminal)
        else:
            self._end_tool(terminal, self.tool)

    def _open(self) -> Watched:
        restores = self.outcome.moment == "restoring"
        sessions = self.home.stored_sessions if restores else self.home.sessions
        resume = sessions and (restores or self.rng.random() < 0.85)
        terminal = Watched(self.home.program, *(("--resume", self.rng.choice(sessions)) if resume else ()))
        self._terminals.append(terminal)
        return terminal

    def _start(self) -> Watched:
        terminal = self._open()
        if not terminal.watch(READY_SECONDS, lambda: self._is_ready(terminal)):
            self.outcome.fault("failed starts", f"it was not ready:\n{terminal.text}")
            raise AssertionError("no start")
        if "read only" in terminal.text.split("\n")[0]:
            self.outcome.fault("failed starts", "the chat can only be looked at")
        self.home.start_seconds = time.monotonic() - terminal.began
        return terminal

    def _is_ready(self, terminal: Watched) -> bool:
        words, name = status(terminal.text), self.home.template.model.stem[:12]
        return name in words and "loading" not in words and "starting" not in words

    # ---- moments ----

    def _loading(self, terminal: Watched) -> bool:
        if self.way == "engine":
            return self._engine_loads(terminal)
        until = terminal.began + self.rng.uniform(0, self.home.start_seconds)
        if (
            terminal.watch(until - time.monotonic(), lambda: "╰─" in terminal.text)
            and self.rng.random() < 0.7
        ):
            self._ask(terminal, "Name a colour.")
        terminal.watch(until - time.monotonic())
        return not self._is_ready(terminal)

    def _engine_loads(self, terminal: Watched) -> bool:
        assert terminal.watch(READY_SECONDS, lambda: terminal.engine != 0), "the engine was not started"
        terminal.watch(self.rng.uniform(0, 1))
        return not self._is_ready(terminal)

    def _prefilling(self, terminal: Watched) -> bool:
        slow = self.home.template.slow
        self._ask(terminal, "".join(SENTENCE.format(i, i) for i in range(6 if slow else 30)), paste=True)
        terminal.watch(self.rng.uniform(0, 2.5 if slow else 0.6))
        return "reading prompt" in terminal.text

    def _generating(self, terminal: Watched) -> bool:
        self._ask(terminal, _TALK)
        self._await_words(terminal)
        terminal.watch(self.rng.uniform(0, 2))
        return "writing…" in terminal.text

    def _restoring(self, terminal: Watched) -> bool:
        leases = self.home.folder / "kv" / "leases"
        if not terminal.watch(READY_SECONDS, lambda: terminal.engine != 0):
            return False
        engine = terminal.engine

        def is_handed() -> bool:
            # The lease of an engine names the file that llama.cpp takes in.
            for path in leases.glob(f"{engine}-*.lock"):
                with contextlib.suppress(OSError):
                    if path.read_bytes()[:1].strip(b"\0"):
                        return True
            return False

        landed = terminal.catch(4, is_handed)
        time.sleep(self.rng.choice((0, 0.001, 0.01)))
        return landed

    def _storing(self, terminal: Watched) -> bool:
        self._ask(terminal, _TALK)
        self._await_words(terminal)
        terminal.watch(self.rng.uniform(0, 0.5))
        how = self.rng.choice(("idle", "evict", "quit"))
        if how != "quit":
            terminal.type(ESCAPE)
            terminal.until(r"stopped|\d tokens? ·")
        if how == "evict":
            terminal.type(ctrl("n"))
            terminal.until("New chat")
            self._ask(terminal, "Name a colour.")
        if how == "quit":
            terminal.type(ctrl("q"))
            self._quits = True
        folders = [path for path in (self.home.folder / "kv").glob("*/*") if path.is_dir()]

        def is_written() -> bool:
            return any(".tmp." in entry.name for folder in folders for entry in os.scandir(folder))

        # A chat that is not gone on in is stored after two seconds, one that is left at once.
        landed = terminal.catch(3 if how == "idle" else 1.5, is_written)
        time.sleep(self.rng.choice((0, 0.001, 0.003, 0.01)))
        return landed

    def _switching(self, terminal: Watched) -> bool:
        if self.rng.random() < 0.6:
            self._ask(terminal, _TALK)
            terminal.watch(self.rng.uniform(0, 1))
        for _ in range(self.rng.randint(1, 4)):
            terminal.type(self.rng.choice((alt("1"), alt("2"), ctrl("n"))))
            terminal.watch(self.rng.uniform(0, 0.4))
        if self.rng.random() < 0.5:
            self._ask(terminal, "Name a colour.")
            terminal.watch(self.rng.uniform(0, 0.4))
        return True

    def _exporting(self, terminal: Watched) -> bool:
        self._ask(terminal, _TALK)
        self._await_words(terminal)
        target = self.home.folder / "out.zip"
        target.unlink(missing_ok=True)
        option = self.rng.choice(("--output", "--with-checkpoints"))
        return self._run_tool(terminal, "export", self.rng.choice(self.home.sessions), option, str(target))

    def _importing(self, terminal: Watched) -> bool:
        self._ask(terminal, _TALK)
        self._await_words(terminal)
        return self._run_tool(terminal, "import", str(self.home.template.bundle))

    def _run_tool(self, terminal: Watched, *args: str) -> bool:
        tool = self.tool = Watched(self.home.program, *args)
        self._terminals.append(tool)
        until = time.monotonic() + self.rng.uniform(0, 0.8)
        while time.monotonic() < until and tool.process.isalive():
            terminal.watch(0.005)
            tool.watch(0.005)
        return bool(tool.process.isalive())

    def _migrating(self, terminal: Watched) -> bool:
        if self.way == "engine":
            return self._engine_loads(terminal)
        journal = self.home.database.with_name("sessions.db-wal")
        landed = terminal.catch(READY_SECONDS, journal.exists)
        # What comes after is the index over all messages, for some tenths of a second.
        terminal.watch(self.rng.uniform(0, 0.4))
        return landed

    # ---- typing ----

    def _ask(self, terminal: Watched, text: str, *, paste: bool = False) -> None:
        mark = f"n{len(self.home.sent):05d}"
        question = self.home.sent[mark] = f"{mark} {text.strip()}" + f" {mark}" * paste
        terminal.type(f"\x1b[200~{question}\x1b[201~" if paste else question)
        end = question[-6:]
        assert terminal.watch(ANSWER_SECONDS, lambda: end in box(terminal.text)), (
            f"not typed:\n{terminal.text}"
        )
        terminal.type(ENTER)

    def _await_words(self, terminal: Watched) -> None:
        """Until a reply to the last question is shown."""
        mark = f"n{len(self.home.sent) - 1:05d}"

        def is_answered() -> bool:
            _, found, below = terminal.text.rpartition(mark)
            return bool(
                found and re.search(r"^ *◆.*\n *(?!reading|restoring|writing|failed)\S", below, re.MULTILINE)
            )

        assert terminal.watch(ANSWER_SECONDS, is_answered), f"not answered:\n{terminal.text}"

    # ---- ends ----

    def _end(self, terminal: Watched) -> None:
        pid, engine = terminal.process.pid, terminal.engine
        killed = time.monotonic()
        if self.way in ("all", "screen"):
            victims = [pid, engine] if self.way == "all" and engine else [pid]
            self.rng.shuffle(victims)
            _kill_all(victims)
            terminal.wait_end(END_SECONDS)
        elif self.way == "engine":
            if engine:
                _kill_all([engine])
            if not self._quits:
                self._go_on(terminal)
                killed = time.monotonic()
                terminal.type(ctrl("q"))
            self._expect_end(terminal)
        elif self.way == "close":
            terminal.hang_up()
            if not terminal.gone(END_SECONDS):
                self.outcome.fault("stuck", "the program did not end with its terminal")
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, _SIGNALS[self.way])
            terminal.wait_end(END_SECONDS)
            self._expect_clean(terminal)
        self._await_engines(killed)
        self.home.look(self.outcome, terminal, killed, at_once=self.way in ("all", "screen"))

    def _end_tool(self, terminal: Watched, tool: Watched) -> None:
        """The way is taken with the tool, where it is not about the screen or the engine alone."""
        pid, engine = terminal.process.pid, terminal.engine
        killed = time.monotonic()
        told = self.way not in ("engine", "screen")
        if self.way in ("all", "screen"):
            _kill_all([pid, engine, tool.process.pid] if self.way == "all" else [pid])
            terminal.wait_end(END_SECONDS)
        elif self.way == "engine":
            _kill_all([engine])
        elif self.way == "close":
            tool.hang_up()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tool.process.pid, _SIGNALS[self.way])
        if self.way == "close":
            if not tool.gone(END_SECONDS):
                self.outcome.fault("stuck", f"{self.outcome.moment} did not end with its terminal")
        else:
            code = tool.wait_end(END_SECONDS)
            if self.way != "all":
                self._expect_clean(tool)
            if code != 0 and not told:
                self.outcome.fault("stuck", f"{self.outcome.moment} ended with {code}:\n{tool.text}")
        if self.way not in ("all", "screen"):
            self._go_on(terminal)
            killed = time.monotonic()
            terminal.type(ctrl("q"))
            self._expect_end(terminal)
        self._await_engines(killed)
        self.home.look(self.outcome, terminal, killed, at_once=self.way in ("all", "screen"))
        target = self.home.folder / "out.zip"
        if self.outcome.moment == "exporting" and target.exists():
            with zipfile.ZipFile(target) as file:
                if file.testzip() is not None:
                    self.outcome.fault("damaged checkpoints", "the bundle is damaged")

    def _go_on(self, terminal: Watched) -> None:
        """The chat is still there: what is asked now is answered."""
        if self.way == "engine":
            words = "ended by SIGKILL"
            assert terminal.watch(20, lambda: words in " ".join(terminal.text.split())), (
                f"nothing was said of the engine:\n{terminal.text}"
            )
        terminal.type(ESCAPE)
        # Together with what is typed next it would be another key.
        terminal.watch(0.3)
        self._ask(terminal, "Name another colour.")
        self._await_words(terminal)

    def _expect_end(self, terminal: Watched) -> None:
        """The screen, which was told to close, ends in good order."""
        code = terminal.wait_end(END_SECONDS)
        if code != 0:
            self.outcome.fault("stuck", f"the program ended with {code}")
        self._expect_clean(terminal)

    def _expect_clean(self, terminal: Watched) -> None:
        for text in terminal.dirt():
            self.outcome.fault("dirty terminals", text)

    def _await_engines(self, killed: float) -> None:
        while engines := engines_of(self.home.folder):
            if time.monotonic() - killed > ORPHAN_SECONDS:
                self.outcome.fault("orphans", f"the engine {engines[0]} is left behind")
                return
            time.sleep(0.05)
        self.outcome.engine_seconds = time.monotonic() - killed


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
