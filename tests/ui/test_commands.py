"""Slash commands: how a line is read, what is offered, and that they run the screen's own actions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import UsageError
from ds4chat.sessions.session import Message, Session
from ds4chat.ui.command_arguments import branch_of, message_of, one_of, session_of, setting, tags_of
from ds4chat.ui.commands import COMMANDS, PARAMETERS, Slash, complete, find, read, unknown
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import FakeManager


def labels(line: str) -> list[str]:
    return [s.label for s in complete(line, len(line), COMMANDS, lambda name: ["ember", "paper", "harbor"])]


class TestReading:
    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("/new", Slash("new")),
            ("/Rename  a title ", Slash("rename", "a title")),
            ("/system one\ntwo", Slash("system", "one\ntwo")),
            ("//new", "/new"),
            (" /new", "/new"),
            ("/usr/bin/env python", "/usr/bin/env python"),
            ("// a comment", "// a comment"),
            ("/", "/"),
            ("/ 2", "/ 2"),
            ("a /new", "a /new"),
            ("/*", "/*"),
        ],
    )
    def test_a_line_is_a_command_or_text(self, typed: str, meant: Slash | str) -> None:
        assert read(typed) == meant

    @given(st.text(max_size=30))
    def test_only_a_slash_makes_a_command(self, text: str) -> None:
        if not text.startswith("/"):
            assert isinstance(read(text), str)

    def test_names_are_distinct(self) -> None:
        words = [word for c in COMMANDS for word in (c.name, *c.aliases)]
        assert len(words) == len(set(words))

    def test_the_docs_list_them(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
        for command in COMMANDS:
            only = " screen |" if not command.plain else " line mode |" if not command.screen else " |"
            assert f"| `{command.usage}` | {command.summary} |{only}" in page, command.name

    def test_aliases_and_clear_beginnings_are_found(self) -> None:
        for name, word in (("quit", "exit"), ("regenerate", "regen"), ("open", "open")):
            command = find(word)
            assert command is not None and command.name == name
        assert find("co") is None and find("zzz") is None and find("q") is not None

    def test_an_unknown_one_names_near_ones(self) -> None:
        assert "did you mean /rename" in unknown("renam3")
        assert "/help" in unknown("zzz") and "//zzz" in unknown("zzz")


class TestCompletion:
    def test_fuzzy_by_name_and_alias(self) -> None:
        assert labels("/ren")[0] == "/rename [TITLE]"
        assert "/regenerate" in labels("/rgn")
        assert "/quit" in labels("/exi")
        assert len(labels("/")) == len(COMMANDS)

    def test_none_for_text(self) -> None:
        assert (
            labels("//")
            == labels("/usr/")
            == labels(" /n")
            == labels("/rename my title")
            == labels("n")
            == []
        )

    def test_choices_of_an_argument(self) -> None:
        assert labels("/theme em") == ["ember"]
        assert labels("/theme ") == ["ember", "paper", "harbor"]
        assert labels("/theme ember") == []


class TestArguments:
    def test_settings(self) -> None:
        assert setting("temperature 0.5", {}) == {"temperature": 0.5}
        assert setting("top-k=3", {"seed": 1}) == {"seed": 1, "top_k": 3}
        assert setting("seed default", {"seed": 1}) == {}
        for wrong in ("temperature", "temperature x", "temperature 99", "colour red", "top_k 1.5"):
            with pytest.raises(UsageError):
                setting(wrong, {})
        assert set(PARAMETERS) == {*setting("ctx 512", {}), *PARAMETERS}

    def test_names(self) -> None:
        named = [("Ember", 1), ("Ember dark", 2), ("Paper", 3)]
        assert [one_of(w, named, "theme") for w in ("ember", "dark", "pap")] == [1, 2, 3]
        for wrong in ("mb", "zzz"):
            with pytest.raises(UsageError, match="theme"):
                one_of(wrong, named, "theme")
        assert tags_of("#a, b  #c,") == ["a", "b", "c"]

    def test_chats(self, manager: FakeManager) -> None:
        first = manager.make("The rain", ["a", "b"])
        manager.make("Trains", ["a", "b"])
        infos = manager.list_sessions()
        assert session_of(first.id, infos) == session_of("the rain", infos) == first.id
        with pytest.raises(UsageError, match="more than one"):
            session_of("rain", [*infos, *infos])

    def test_messages_and_branches(self) -> None:
        session = Session("s")
        for n, (parent, role) in enumerate(((None, "user"), (1, "assistant"), (1, "assistant")), 1):
            session.append(Message(n, parent, role, str(n)))  # type: ignore[arg-type]
        assert message_of(session, "", "user").id == 1 and message_of(session, "2").id == 3
        assert branch_of(session, "1").id == 2 and branch_of(session, "2 2").id == 3
        for wrong in ("3", "x", "", "1 9"):
            with pytest.raises(UsageError):
                branch_of(session, wrong)


async def run(chat: Chat, line: str) -> None:
    chat.prompt.put(line)
    chat.prompt.close_suggestions()
    await chat.pilot.press("enter")
    await chat.pilot.pause()


def told(chat: Chat) -> str:
    return " ".join(n.message for n in chat.app._notifications)


class TestOnTheScreen:
    async def test_every_command_leads_somewhere(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            bindings = chat.screen._bindings_by_id()
            for command in chat.screen.slash_commands():
                method = hasattr(chat.screen, f"_do_{command.name}")
                assert command.binding in bindings or method, command.name
                assert not command.argument or method, command.name

    async def test_keys_without_a_command_of_their_own_are_commands_too(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            names = {command.name for command in chat.screen.slash_commands()}
            assert {"older", "newer", "sidebar"} <= names
            assert not {"pageup", "number1"} & names

    async def test_typing_tab_and_enter(self, manager: FakeManager) -> None:
        manager.make("Old", ["a", "b"])
        async with running(manager) as chat:
            await chat.pilot.press(*"/renam")
            await chat.until(lambda: chat.screen.suggestion_list.display)
            await chat.pilot.press("tab")
            assert chat.prompt.text == "/rename "
            await chat.until(lambda: not chat.screen.suggestion_list.display)
            await chat.pilot.press("escape")
            assert chat.prompt.text == "/rename "

    async def test_up_and_down_choose_and_enter_runs(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"/sid", "up", "down", "enter")
            assert chat.prompt.text == "" and manager.queue == []
            await chat.until(lambda: chat.screen.has_class("-no-sidebar"))

    async def test_escape_closes_the_list_and_keeps_the_text(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"/ne", "escape")
            assert chat.prompt.text == "/ne" and chat.prompt.suggestions == []
            await chat.pilot.press("w")
            assert next(s.label for s in chat.prompt.suggestions) == "/new"

    async def test_letters_and_enter_in_one_burst(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"/new", "enter", *"hello", "enter")
            await chat.until(lambda: len(manager.queue) == 1)
            assert manager.queue[0][0] != session.id

    async def test_an_unknown_command_keeps_the_text(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await run(chat, "/renam3 x")
            await chat.until(lambda: "/rename" in told(chat))
            assert chat.prompt.text == "/renam3 x" and manager.queue == []

    async def test_paths_and_escaped_slashes_are_sent(self, manager: FakeManager, tmp_path: Path) -> None:
        async with running(manager) as chat:
            for typed in ("/usr/bin/env python", "//new", " /new", "/tmp is full"):
                await run(chat, typed)
            await chat.until(lambda: len(manager.queue) == 4)
            texts = [m.text for m in manager.sessions[chat.screen.current_id].path()]
            assert texts == ["/usr/bin/env python", "/new", "/new", "/tmp is full"]

    async def test_with_arguments(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["one", "reply"])
        other = manager.make("Other chat", ["x", "y"])
        async with running(manager, session_id=session.id) as chat:
            await run(chat, "/rename New title")
            await run(chat, "/tag #a b")
            await run(chat, "/system Be brief.")
            await run(chat, "/set temperature 0.5")
            await run(chat, "/theme paper")
            await chat.until(lambda: chat.app.theme == "paper")
            assert (session.title, session.tags, session.system) == ("New title", ["a", "b"], "Be brief.")
            assert session.params == {"temperature": 0.5}
            await run(chat, "/open other")
            await chat.until(lambda: chat.screen.current_id == other.id)
            assert chat.prompt.text == ""

    async def test_a_wrong_argument_keeps_the_text(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["one", "reply"])
        async with running(manager, session_id=session.id) as chat:
            for line in (
                "/set temperature hot",
                "/open nowhere",
                "/branch 1",
                "/new x",
                "/attach nothing.txt",
            ):
                await run(chat, line)
                await chat.until(lambda: len(chat.app._notifications) > 0)
                assert chat.prompt.text == line
                chat.app.clear_notifications()

    async def test_a_click_puts_a_suggestion_in(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"/ren")
            await chat.until(lambda: chat.screen.suggestion_list.display)
            await chat.pilot.pause()
            await chat.pilot.click("#suggestions", offset=(4, 0))
            await chat.until(lambda: chat.prompt.text == "/rename ")

    async def test_the_list_fits_a_tiny_screen(self, manager: FakeManager) -> None:
        async with running(manager, size=(40, 10)) as chat:
            await chat.pilot.press("/")
            await chat.until(lambda: chat.screen.suggestion_list.display)
            await chat.pilot.pause()
            assert chat.screen.suggestion_list.size.height <= 3
            assert chat.prompt.region.bottom <= 10
