"""The prompt box: history, the user's own editor, pastes, and that nothing typed is lost."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from ds4chat.errors import UsageError
from ds4chat.ui import editor
from ds4chat.ui.terminal import ChatParser
from ds4chat.ui.text import visible
from tests.support.program import Program
from tests.support.terminal import Terminal, ctrl
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import FakeManager
from tests.ui.lists import burst

START, END = "\x1b[200~", "\x1b[201~"


class TestGrowing:
    @pytest.mark.parametrize(("size", "most"), [((100, 30), 10), ((40, 10), 3)])
    async def test_to_a_third_of_the_screen(
        self, manager: FakeManager, size: tuple[int, int], most: int
    ) -> None:
        async with running(manager, size=size) as chat:
            chat.prompt.put("line\n" * 40)
            await chat.pilot.pause()
            assert chat.prompt.outer_size.height <= most
            assert chat.prompt.region.bottom <= size[1]
            chat.prompt.put("")
            await chat.pilot.pause()
            assert chat.prompt.outer_size.height == 3


class TestHistory:
    async def test_over_all_chats_newest_first(self, manager: FakeManager) -> None:
        manager.make("One", ["first", "reply", "second", "reply"])
        manager.make("Two", ["third", "reply", "second", "reply"])
        async with running(manager) as chat:
            for text in ("second", "third", "first", "first"):
                await chat.pilot.press("up")
                assert chat.prompt.text == text
            await chat.pilot.press("down", "down", "down")
            assert chat.prompt.text == ""

    async def test_what_begins_with_what_is_typed(self, manager: FakeManager) -> None:
        manager.make("One", ["find rain", "r", "other", "r", "find sun\nnow", "r"])
        async with running(manager) as chat:
            await chat.pilot.press(*"find", "up")
            assert chat.prompt.text == "find sun\nnow"
            await chat.pilot.press("up", "up")
            assert chat.prompt.text == "find rain"
            await chat.pilot.press("down", "down")
            assert chat.prompt.text == "find"
            await chat.pilot.press("x", "up")
            assert chat.prompt.text == "findx", "nothing begins like that: nothing is lost"

    async def test_a_changed_one_is_a_text_of_its_own(self, manager: FakeManager) -> None:
        manager.make("One", ["older", "r", "newer", "r"])
        async with running(manager) as chat:
            await chat.pilot.press("up", *"!", "up", "down", "down")
            assert chat.prompt.text == "newer!"

    async def test_commands_sent_in_this_run(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"/rename x", "enter")
            await chat.until(lambda: chat.prompt.text == "/rename x" or not chat.prompt.text)
            chat.prompt.put("")
            await chat.pilot.press("up")
            assert chat.prompt.text == "/rename x"


class TestCase23PastingAndTypingWhileAReplyStreams:
    async def test_many_lines_at_once(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            text = "\n".join(f"line {n}\twith a tab" for n in range(2000))
            chat.app.post_message(events.Paste(text))
            await chat.until(lambda: chat.prompt.text == text)
            await chat.pilot.press("enter")
            await chat.until(lambda: len(manager.queue) == 1)
            assert manager.sessions[chat.screen.current_id].path()[-1].text == text

    async def test_while_a_reply_streams(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"go", "enter")
            await chat.until(lambda: len(manager.queue) == 1)
            manager.begin()
            for n in range(20):
                manager.stream(f"word {n} ")
                chat.app.post_message(events.Paste(f"p{n}\n"))
                await chat.pilot.press("x")
            expected = "".join(f"p{n}\nx" for n in range(20))
            await chat.until(lambda: chat.prompt.text == expected)
            await chat.pilot.press("enter")
            await chat.until(lambda: len(manager.queue) == 1)
            manager.finish()
            assert manager.begin().parent_id == manager.running[1]  # type: ignore[index]
            assert (
                "".join(m.text for m in manager.sessions[chat.screen.current_id].path()).count("word 19") == 1
            )

    @pytest.mark.parametrize("step", [1, 3, 7, 1000])
    def test_control_characters_keep_their_place_and_become_visible(self, step: int) -> None:
        pasted = "a\x1b[31mred\x1b\x1b[0m\x00b\x07c\x08d\x7fe\r\nf\rg\th\x1b"
        data = f"1{START}{pasted}{END}2\x1b[A{START}{END}3"
        parser = ChatParser()
        found = [m for at in range(0, len(data), step) for m in parser.feed(data[at : at + step])]
        told = [m.text if isinstance(m, events.Paste) else getattr(m, "key", m) for m in found]
        assert told == ["1", "a␛[31mred␛␛[0m␀b␇c␈d␡e\nf\ng\th␛", "2", "up", "", "3"]

    @given(st.text(max_size=80), st.integers(1, 12))
    def test_any_paste_arrives_whole(self, text: str, step: int) -> None:
        text = text.replace(END, "")
        if END in text + END[:-1]:
            return
        parser, data = ChatParser(), f"{START}{text}{END}x"
        found = [m for at in range(0, len(data), step) for m in parser.feed(data[at : at + step])]
        paste, key = found
        assert isinstance(paste, events.Paste) and isinstance(key, events.Key)
        assert paste.text == visible(text.replace("\r\n", "\n").replace("\r", "\n"))


class TestCase24EscLosesNothingTyped:
    async def test_with_text_in_the_box(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"typed", "escape", "escape")
            assert chat.prompt.text == "typed"

    async def test_with_text_while_a_reply_streams_and_a_message_waits(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"one", "enter")
            await chat.until(lambda: len(manager.queue) == 1)
            manager.begin()
            manager.stream("some words")
            await chat.pilot.press(*"two", "enter")
            await chat.until(lambda: len(manager.queue) == 1)
            await chat.pilot.press(*"three", "escape")
            await chat.until(lambda: manager.running is None)
            await chat.pilot.press("escape")
            await chat.until(lambda: not manager.queue)
            assert chat.prompt.text == "three"
            texts = [m.text for m in manager.sessions[chat.screen.current_id].messages.values()]
            assert texts[0] == "one" and {"two", "some words"} <= set(texts)

    async def test_with_a_dialog_open(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            chat.prompt.put("typed")
            for opener in ("ctrl+o", "f9", "f1"):
                await chat.pilot.press(opener)
                await chat.until(lambda: len(chat.app.screen_stack) > 1)
                await chat.pilot.press("escape")
                await chat.until(lambda: len(chat.app.screen_stack) == 1)
                assert chat.prompt.text == "typed"

    async def test_with_the_list_of_commands_open(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"/re", "escape", "escape")
            assert chat.prompt.text == "/re"


class TestUndoAndSuspend:
    async def test_a_change_is_taken_back_and_ctrl_z_is_not_for_that(
        self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running(manager) as chat:
            suspended: list[str] = []
            monkeypatch.setattr(chat.app, "action_suspend_process", lambda: suspended.append("yes"))
            await chat.pilot.press(*"abc")
            await chat.pilot.press("ctrl+z")
            assert chat.prompt.text == "abc" and suspended == ["yes"]
            await chat.pilot.press("ctrl+underscore")
            assert chat.prompt.text == ""
            await chat.pilot.press("ctrl+y")
            assert chat.prompt.text == "abc"

    async def test_ctrl_z_in_a_dialog(self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
        async with running(manager) as chat:
            suspended: list[str] = []
            monkeypatch.setattr(chat.app, "action_suspend_process", lambda: suspended.append("yes"))
            await chat.pilot.press("ctrl+o")
            await chat.until(lambda: len(chat.app.screen_stack) > 1)
            await chat.pilot.press("ctrl+z")
            assert suspended == ["yes"]


def script(folder: Path, body: str) -> str:
    path = folder / "my editor"
    path.write_text(f"#!{sys.executable}\nimport sys, os\npath = sys.argv[-1]\n{body}\n")
    path.chmod(0o700)
    return str(path)


EXCLAIM = "text = open(path).read().rstrip(); open(path, 'w').write(text + '!\\n')"


class TestEditor:
    def test_which_it_is(self, tmp_path: Path) -> None:
        own = script(tmp_path, "")
        path = {"PATH": "/nowhere"}
        assert editor.find_editor({"VISUAL": f"'{own}' --wait", "EDITOR": "vi", **path}) == [own, "--wait"]
        assert editor.find_editor({"VISUAL": " ", "EDITOR": f'"{own}"', **path}) == [own]
        for wrong, word in (({}, "VISUAL"), ({"EDITOR": "no-such"}, "no-such"), ({"EDITOR": "'x"}, "quotes")):
            with pytest.raises(UsageError, match=word):
                editor.find_editor(wrong | path)

    async def test_the_file_is_private_markdown_and_the_text_comes_back(self, tmp_path: Path) -> None:
        own = script(
            tmp_path,
            f"open({str(tmp_path / 'seen')!r}, 'w').write(f'{{path}} {{os.stat(path).st_mode:o}} {{sys.argv[1]}}')\n"
            "text = open(path).read().rstrip(); open(path, 'w').write(text + ' more\\n')",
        )
        edited = await editor.edit([own, "--wait"], "some text")
        assert edited == editor.Edited("some text more")
        name, mode, argument = (tmp_path / "seen").read_text().split()
        assert name.endswith(".md") and stat.S_IMODE(int(mode, 8)) == 0o600 and argument == "--wait"
        assert not Path(name).exists()

    async def test_one_that_fails_loses_nothing(self, tmp_path: Path) -> None:
        own = script(tmp_path, "open(path, 'w').write('half'); sys.exit(3)")
        edited = await editor.edit([own], "some text")
        assert edited.text == "some text" and "ended with 3" in edited.problem
        kept = Path(edited.problem.rpartition(" ")[2].rstrip("."))
        assert kept.read_text() == "half"
        kept.unlink()
        removed = await editor.edit([script(tmp_path, "os.unlink(path)")], "some text")
        assert removed.text == "some text" and removed.problem
        with pytest.raises(UsageError, match="cannot be started"):
            await editor.edit([str(tmp_path)], "some text")

    @pytest.mark.parametrize("way", ["alt+e", "/editor"])
    async def test_on_the_screen(
        self, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        monkeypatch.setenv("VISUAL", f"'{script(tmp_path, EXCLAIM)}'")
        async with running(manager) as chat:
            suspended = free_terminal(chat, monkeypatch)
            if way == "alt+e":
                chat.prompt.put("typed")
                await chat.pilot.press(way)
                await chat.until(lambda: chat.prompt.text == "typed!")
            else:
                await chat.pilot.press(*way, "enter")
                await chat.until(lambda: chat.prompt.text == "!")
            assert suspended == ["left", "back"]

    async def test_none_is_a_sentence(self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VISUAL", "no-such-editor")
        async with running(manager) as chat:
            free_terminal(chat, monkeypatch)
            chat.prompt.put("typed")
            await chat.pilot.press("alt+e")
            await chat.until(lambda: any("no-such-editor" in n.message for n in chat.app._notifications))
            assert chat.prompt.text == "typed"


def free_terminal(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a screen without a terminal be left for another program."""
    happened: list[str] = []

    @contextmanager
    def suspend() -> Iterator[None]:
        happened.append("left")
        yield
        happened.append("back")

    monkeypatch.setattr(chat.app, "suspend", suspend)
    return happened


class ScreenProcess(Program):
    """The chat screen on a fake manager."""

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "tests.ui.screen_process", str(self.home / "marker")]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(pid: int, state: str) -> None:
    end = time.monotonic() + 20
    while state_of(pid) not in state:
        assert time.monotonic() < end
        time.sleep(0.02)


class TestInARealTerminal:
    @pytest.fixture
    def program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
        monkeypatch.setenv("VISUAL", f"'{script(tmp_path, EXCLAIM)}'")
        return ScreenProcess(tmp_path)

    def test_ctrl_z_and_back(self, program: Program) -> None:
        with Terminal(program, columns=90, rows=24) as terminal:
            whole = terminal.until("an answer")
            terminal.type("typed")
            terminal.until("typed")
            terminal.type(ctrl("z"))
            wait_for(terminal.process.pid, "T")
            terminal.until_raw(b"\x1b[?1049l")
            terminal.assert_clean()
            # The shell wrote over it.
            terminal.blank()
            os.kill(terminal.process.pid, signal.SIGCONT)
            terminal.until("an answer")
            again = terminal.until("typed")
            assert again.splitlines()[:6] == whole.splitlines()[:6]
            terminal.until("Ctrl|\\^q")
            terminal.type(" on")
            terminal.until("typed on")

    def test_the_editor_and_a_paste_with_control_characters(self, program: Program) -> None:
        with Terminal(program, columns=90, rows=24) as terminal:
            terminal.until("an answer")
            terminal.type(f"one{START}two\x1b[31m\x07\x00\x08\x7f{END}three")
            terminal.until(re.escape("onetwo␛[31m␇␀␈␡three"))
            terminal.type("\x1be")
            terminal.until(re.escape("␡three!"))
            assert "an answer" in terminal.text
            terminal.type("more")
            terminal.until(re.escape("three!more"))

    def test_without_colour_things_are_told_apart(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Program, "env", {**program.env, "NO_COLOR": "1"})
        with Terminal(program, columns=90, rows=24) as terminal:
            terminal.until("an answer")
            terminal.type("/re")
            terminal.until("› /")
            terminal.until("▌ You")
            colours = set(re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", terminal.raw))
            assert all(red == green == blue for red, green, blue in colours)


class TestBursts:
    """Keys that come faster than the screen acts on them."""

    async def test_text_typed_over_a_chosen_message_goes_to_the_box_whole(self, manager: FakeManager) -> None:
        session = manager.make("t", ["q", "a"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "tab")
            await chat.until(lambda: chat.transcript.chosen is not None)
            text = "Tell me a very long story about a dragon."
            await burst(chat, *("space" if c == " " else "full_stop" if c == "." else c for c in text))
            await chat.until(lambda: chat.prompt.text == text)
            assert len(session.path()) == 2

    async def test_a_choice_and_what_follows_in_one_burst(self, manager: FakeManager) -> None:
        session = manager.make("t", ["first", "a", "second", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "tab", "home", "e", "x", "y")
            await chat.until(lambda: chat.prompt.text == "firstxy")
            assert chat.screen.editing == session.path()[0].id

    async def test_a_deleted_turn_and_words_behind_it(self, manager: FakeManager) -> None:
        session = manager.make("t", ["first", "a", "second", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "tab", "d", "escape", "h", "i")
            await chat.until(lambda: chat.prompt.text == "hi")
            assert [m.text for m in session.path()] == ["first", "a"]

    @pytest.mark.parametrize("key", ["tab", "f2"])
    async def test_a_paste_goes_to_the_box_wherever_the_focus_is(
        self, manager: FakeManager, key: str
    ) -> None:
        session = manager.make("t", ["q", "a"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(key)
            await chat.until(lambda: chat.app.focused is not chat.prompt)
            chat.app.post_message(events.Paste("pasted\rtext"))
            await chat.until(lambda: chat.prompt.text == "pasted\ntext")
