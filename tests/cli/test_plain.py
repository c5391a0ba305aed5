"""`--plain`: the chat line by line, in-process on a fake manager, and the program itself in a pipe and a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pexpect
import pytest

from ds4chat.plain import PlainChat
from ds4chat.sessions.session import Message
from ds4chat.ui.commands import COMMANDS
from tests.cli.conftest import Line
from tests.support.program import Program, engine_of
from tests.ui.fake_manager import FakeManager


class AnsweringManager(FakeManager):
    """Answers every turn at once."""

    def __init__(self, *replies: str) -> None:
        super().__init__()
        self.replies = list(replies)
        self.state = "complete"

    def _queue(self, session_id: str, message_id: int) -> None:
        super()._queue(session_id, message_id)
        asyncio.get_running_loop().call_soon(self._answer)

    def send(self, session_id: str, text: str) -> Message:
        message = super().send(session_id, text)
        asyncio.get_running_loop().call_soon(self._answer)
        return message

    def _answer(self) -> None:
        if self.queue and self.running is None:
            self.begin()
            reply = self.replies.pop(0) if self.replies else "A reply."
            for part in re.findall(r"\S+\s*|\s+", reply):
                self.stream(part)
            self.finish(self.state)


class Reader:
    """Gives the lines of a script; a number waits for nothing and is sent as a signal."""

    is_terminal = False
    waiting = typed = ""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        self.remembered: list[str] = []

    def prepare(self, history: Sequence[str], complete: object) -> None:
        self.remembered = list(history)

    def remember(self, text: str) -> None:
        self.remembered.append(text)

    async def line(self, prompt: str) -> str | None:
        await asyncio.sleep(0)
        return self.lines.pop(0) if self.lines else None

    def restore(self) -> None: ...

    def suspend(self) -> None: ...


async def chat(manager: FakeManager, *lines: str, session_id: str | None = None) -> tuple[str, PlainChat]:
    out = io.StringIO()
    plain = PlainChat(manager, Reader(lines), out)  # type: ignore[arg-type]
    await plain.run(session_id)
    assert manager.closed
    text = out.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), "no escape sequences"
    return text, plain


class TestChatting:
    async def test_a_question_its_answer_and_the_end_of_the_input(self) -> None:
        text, plain = await chat(AnsweringManager("Paris, I \x1b[31mthink."), "Capital of France?")
        assert text.endswith("You: Capital of France?\nSmolLM2 135M Instruct: Paris, I ␛[31mthink.\n")
        assert plain.resumable == "00000001" and plain.exit_code == 0

    async def test_a_line_that_goes_on_and_an_escaped_slash(self) -> None:
        manager = AnsweringManager()
        await chat(manager, "one\\", "two", "//new", "", "  ")
        assert [m.text for m in manager.sessions["00000001"].path() if m.role == "user"] == [
            "one\ntwo",
            "/new",
        ]

    async def test_nothing_said_leaves_nothing(self) -> None:
        _, plain = await chat(AnsweringManager(), "/quit")
        assert plain.resumable is None

    async def test_a_cut_reply_says_so(self) -> None:
        manager = AnsweringManager("half")
        manager.state = "stopped"
        text, _ = await chat(manager, "go")
        assert "half\n(stopped; /continue goes on)" in text

    async def test_a_file_is_put_in_and_a_bad_one_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.txt").write_text("inside")
        (tmp_path / "b.bin").write_bytes(b"\x00")
        manager = AnsweringManager()
        text, _ = await chat(manager, "see @a.txt", "see @b.bin")
        assert "binary" in text
        (sent,) = [m.text for m in manager.sessions["00000001"].path() if m.role == "user"]
        assert sent == "see @a.txt\n\na.txt:\n```txt\ninside\n```"


class TestSignals:
    async def test_one_in_a_burst_of_callbacks_is_heard(self) -> None:
        """The pipe that wakes the event loop has no room for the signal's number then."""

        class Burst(Reader):
            async def line(self, prompt: str) -> str | None:
                for _ in range(10_000):
                    asyncio.get_running_loop().call_soon_threadsafe(int)
                os.kill(os.getpid(), signal.SIGTERM)
                return await asyncio.wait_for(asyncio.get_running_loop().create_future(), 20)

        manager = AnsweringManager()
        plain = PlainChat(manager, Burst([]), io.StringIO())  # type: ignore[arg-type]
        assert await plain.run(None) == 128 + signal.SIGTERM
        assert manager.closed

    async def test_hang_ups_that_come_together_leave_time_to_save(self) -> None:
        class Slow(AnsweringManager):
            async def aclose(self) -> None:
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0.05)
                await super().aclose()

        class HungUp(Reader):
            async def line(self, prompt: str) -> str | None:
                os.kill(os.getpid(), signal.SIGHUP)
                return await asyncio.wait_for(asyncio.get_running_loop().create_future(), 20)

        manager = Slow()
        plain = PlainChat(manager, HungUp([]), io.StringIO())  # type: ignore[arg-type]
        assert await plain.run(None) == 128 + signal.SIGHUP
        assert manager.closed


class TestCommands:
    def test_every_one_of_the_table_is_there(self) -> None:
        for command in COMMANDS:
            assert hasattr(PlainChat, f"do_{command.name}") == command.plain, command.name

    async def test_help_names_them_all(self) -> None:
        text, _ = await chat(AnsweringManager(), "/help")
        assert all(f"\n{c.usage}: {c.summary}" in text for c in COMMANDS if c.plain)

    async def test_an_unknown_one(self) -> None:
        manager = AnsweringManager()
        text, _ = await chat(manager, "/renam3", "/new x", "/branch")
        assert "did you mean /rename" in text and "/new takes nothing" in text and "/branch needs N" in text
        assert all(not session.messages for session in manager.sessions.values())

    async def test_chats_are_listed_opened_found_renamed_tagged_pinned_deleted_and_brought_back(self) -> None:
        manager = AnsweringManager()
        rain = manager.make("The rain", ["about rain", "wet"], updated=1)
        trains = manager.make("Trains", ["about trains", "late"], updated=2)
        text, plain = await chat(
            manager,
            "/list",
            "/open 2",
            "/rename Rain and sun",
            "/tag #a b",
            "/pin",
            "/archive",
            "/archive",
            "/delete",
            "/undo",
            "/search trains",
            "/open 1",
            "/undo",
        )
        assert "1. Trains (2 messages" in text and "2. The rain (2 messages" in text
        assert (rain.title, rain.tags, rain.pinned, rain.archived) == (
            "Rain and sun",
            ["a", "b"],
            True,
            False,
        )
        assert "Deleted: Rain and sun (/undo" in text and "The chat is back." in text
        assert "1. Trains, You: about trains" in text
        assert "There is no delete to take back." in text
        assert plain.resumable == trains.id

    async def test_branches(self) -> None:
        manager = AnsweringManager("first", "second", "third")
        text, _ = await chat(
            manager,
            "one",
            "/regenerate",
            "/show",
            "/branch 1",
            "/edit 1 two",
            "/show 1",
            "/drop",
            "/undo",
            "/fork",
        )
        assert "1. You: one\n2. SmolLM2 135M Instruct (branch 2 of 2): second" in text
        assert "2. SmolLM2 135M Instruct (branch 1 of 2): first" in text
        assert "1. You (branch 2 of 2): two" in text
        assert "The turn is back." in text and "This is a copy." in text

    async def test_settings_of_the_chat(self) -> None:
        manager = AnsweringManager()
        lines = ("/set temperature 0.5", "/set top_k x", "/system Be brief.", "/system", "/model x")
        text, _ = await chat(manager, *lines)
        session = manager.sessions["00000001"]
        assert session.params == {"temperature": 0.5} and session.system == "Be brief."
        assert "top_k must be a whole number" in text and "System prompt: Be brief." in text
        assert "neither models nor personas" in text

    async def test_an_incognito_chat_prints_no_resume_line(self) -> None:
        text, plain = await chat(AnsweringManager(), "/incognito", "secret")
        assert "leaves nothing behind" in text and plain.resumable is None


class TestCommandLine:
    def test_what_it_excludes(self, line: Line) -> None:
        for arguments in (("--plain", "-p", "x"), ("--plain", "--output-format", "json"), ("--plain", "-r")):
            result = line(*arguments)
            assert result.code == 2 and "--plain" in result.err

    def test_a_dumb_terminal_starts_it(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        from ds4chat import plain

        greetings: list[str] = []

        def run(manager: Any, *, greeting: str, **_: Any) -> tuple[int, str | None]:
            greetings.append(greeting)
            return 0, "0000cccc"

        monkeypatch.setattr(plain, "run", run)
        monkeypatch.setenv("TERM", "dumb")
        assert line(terminal=True).out == "ds4chat --resume 0000cccc\n"
        assert "TERM is dumb" in greetings[0] and line.ui_calls == []
        monkeypatch.setenv("TERM", "xterm-256color")
        line(terminal=True)
        assert len(greetings) == 1 and len(line.ui_calls) == 1

    @pytest.mark.parametrize(("value", "kept"), [("", False), ("1", True)])
    def test_an_empty_no_color_is_none(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, value: str, kept: bool
    ) -> None:
        monkeypatch.setenv("NO_COLOR", value)
        monkeypatch.setenv("TERM", "xterm")
        line(terminal=True)
        assert ("NO_COLOR" in os.environ) == kept


@pytest.fixture
def program(tmp_path: Path, starter: Path) -> Program:
    (tmp_path / "config.toml").write_text(
        "[model]\nthreads = 1\n[sampling]\ntemperature = 0.0\n[chat]\nsystem = ''\n"
    )
    return Program(tmp_path)


class TestTheProgram:
    def test_in_a_pipe(self, program: Program) -> None:
        done = program.run(
            "--plain",
            stdin="What is the capital city of France? Answer in one word.\n/rename Capitals\n/list\n",
        )
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert re.search(
            r"^You: What is the capital.*\n(\(.*\)\n)*SmolLM2[^\n]*: .*Paris", done.stdout, re.MULTILINE
        )
        assert "1. Capitals (2 messages" in done.stdout
        (session,) = json.loads(program.run("ls", "--json").stdout)
        assert done.stdout.splitlines()[-1] == f"ds4chat --resume {session['id']}"
        again = program.run("--plain", "-c", stdin="/show\n")
        assert "2. SmolLM2" in again.stdout

    def test_in_a_terminal(self, program: Program) -> None:
        command, *rest = program.command("--plain", "--max-tokens", "400")
        child = pexpect.spawn(
            command, rest, env=program.env, encoding="utf-8", timeout=60, dimensions=(24, 80)
        )
        child.logfile_read = seen = io.StringIO()
        try:
            child.expect("You: ")
            child.send("Write a long story about a whale.\r")
            child.expect("SmolLM2[^\n]*: .{20}")
            child.sendintr()
            child.expect(r"\(stopped; /continue goes on\)")
            child.expect("You: ")
            child.send("/hel\t\r")
            child.expect("/regenerate: ")
            child.expect("You: ")
            # Up brings the line before back, as the line editor does.
            child.send("/list\r")
            child.expect("1\\. Write a long")
            child.expect("You: ")
            child.send("typed")
            child.expect("typed")
            child.send("\x1a")
            wait_for_state(child.pid, "T")
            engine = engine_of(child.pid)
            assert engine and state_of(engine) != "T"
            os.kill(child.pid, signal.SIGCONT)
            child.expect("You: typed")
            child.sendintr()
            child.expect("Ctrl\\+C again quits")
            child.sendintr()
            child.expect(r"ds4chat --resume \w{8}")
            child.expect(pexpect.EOF)
            child.wait()
            assert child.exitstatus == 0
        finally:
            child.close(force=True)
        assert "\x1b" not in seen.getvalue().replace("\x1b[K", ""), "but for the line editor's"

    def test_no_escape_sequences_of_a_printed_answer(self, program: Program) -> None:
        command, *rest = program.command("-p", "Name a colour.", "--max-tokens", "4")
        child = pexpect.spawn(
            command, rest, env=program.env | {"NO_COLOR": "1"}, encoding="utf-8", timeout=60
        )
        child.expect(pexpect.EOF)
        child.close()
        assert "\x1b" not in (child.before or "")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_state(pid: int, state: str) -> None:
    end = time.monotonic() + 20
    while state_of(pid) != state:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_line_mode_loads_no_textual() -> None:
    code = "import sys, ds4chat.plain; print([m for m in ('textual', 'readline') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
