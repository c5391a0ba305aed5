"""Keys as the user sets them: ids, presets, faults, and that no action is forgotten."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from textual.command import CommandPalette

from ds4chat.errors import UsageError
from ds4chat.key_settings import KeySettings, load_key_settings
from ds4chat.ui.keymap import PRESETS, SWALLOWED, dump, resolve
from ds4chat.ui.screens.help import HelpScreen
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.widgets.key_lines import KeyLines
from ds4chat.ui.widgets.prompt_box import editing
from ds4chat.ui.widgets.session_list import SessionList
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

ROOT = Path(__file__).parents[2]
FILE = Path("/conf/config.toml")


def settings(preset: str = "", **keys: str) -> KeySettings:
    """Keys by id, with "_" for the dot in it."""
    return KeySettings(FILE, preset, {id.replace("_", ".", 1): value for id, value in keys.items()})


class TestActions:
    def test_every_action_has_an_id_a_name_and_a_place(self) -> None:
        actions = dump()
        ids = [action.id for action in actions]
        assert len(ids) == len(set(ids)) and len(ids) > 60
        for action in actions:
            assert action.name and action.place and "." in action.id, action
            assert action.about or action.id[-1].isdigit(), action.id

    def test_every_binding_of_ours_has_an_id(self) -> None:
        from textual.binding import Binding

        from ds4chat.ui.keymap import kinds

        for kind in kinds():
            for binding in kind.__dict__["BINDINGS"]:
                assert isinstance(binding, Binding) and binding.id, f"{kind.__name__}: {binding}"

    def test_no_key_is_one_that_terminals_swallow(self) -> None:
        for action in dump():
            assert not SWALLOWED.keys() & set(action.keys.split(",")), action

    def test_presets_name_actions_that_are_there(self) -> None:
        ids = {action.id for action in dump()}
        for name, preset in PRESETS.items():
            assert set(preset) <= ids, name
            resolve(KeySettings(FILE, name))

    async def test_every_action_of_the_chat_is_a_command(self, manager: FakeManager) -> None:
        """Those that need a place of their own or a number aside."""
        session = manager.make("t", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("ctrl+p")
            await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))
            await chat.pilot.press("escape")
            titles = {command.title for command in chat.app.get_system_commands(chat.screen)}
            assert {"New", "Open", "Help", "Themes", "Rename", "Delete", "Quit"} <= titles


class TestPage:
    """docs/keys.md and the script that writes it."""

    @staticmethod
    def script() -> ModuleType:
        spec = importlib.util.spec_from_file_location("keys_page", ROOT / "docs" / "keys.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_the_page_is_true(self) -> None:
        keys = self.script()
        assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "run .venv/bin/python docs/keys.py"

    def test_every_action_is_pressed_in_a_test(self) -> None:
        keys = self.script()
        assert [action.id for action, test in keys.rows(keys.sources()) if not test] == []


class TestSettings:
    def test_ids_are_read_quoted_and_dotted(self, tmp_path: Path) -> None:
        path = tmp_path / "config.toml"
        path.write_text(
            '[keys]\npreset = "vim"\n"chat.new" = "f10"\nchat.help = ["f1", "f12"]\nlist.up = ""\n'
        )
        found = load_key_settings(path)
        assert (found.preset, found.keys) == (
            "vim",
            {"chat.new": "f10", "chat.help": "f1,f12", "list.up": ""},
        )
        assert load_key_settings(tmp_path / "none.toml").keys == {}

    def test_a_value_that_is_no_key_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text("[keys]\nchat.new = 5\n")
        with pytest.raises(UsageError, match=r"config\.toml has a fault: keys\.chat\.new .*type int"):
            load_key_settings(tmp_path / "config.toml")

    def test_nothing_set_costs_nothing(self) -> None:
        assert resolve(KeySettings()) == ({}, [])

    @pytest.mark.parametrize(
        ("given", "key"),
        [
            ("F10", "f10"),
            ("Ctrl+N", "ctrl+n"),
            ("/", "slash"),
            ("G", "G"),
            ("shift+g", "G"),
            ("alt+ü", "alt+ü"),
            ("ALT+x", "alt+x"),
            ("shift+ctrl+f5", "ctrl+shift+f5"),
            ("question_mark", "question_mark"),
        ],
    )
    def test_keys_are_written_in_many_ways(self, given: str, key: str) -> None:
        keymap, _ = resolve(KeySettings(FILE, "", {"rename.cancel": given}))
        assert keymap["rename.cancel"] == key

    @pytest.mark.parametrize(
        ("id", "key", "words"),
        [
            ("chat.nwe", "f10", ["/conf/config.toml", "chat.nwe", "chat.new"]),
            ("bogus", "f10", ["/conf/config.toml", '"bogus"', "docs/keys.md"]),
            ("chat.new", "ctrl+i", ["keys.chat.new", "ctrl+i", "Tab"]),
            ("chat.new", "ctrl+m", ["keys.chat.new", "ctrl+m", "Enter"]),
            ("chat.new", "ctrl+h", ["keys.chat.new", "Backspace"]),
            ("chat.new", "ctrl+tab", ["keys.chat.new", "terminals"]),
            ("chat.new", "alt+f", ["keys.chat.new", "Ctrl+Right"]),
            ("chat.new", "pagup", ["keys.chat.new", '"pagup"', '"pageup"', "ctrl+"]),
            ("chat.new", "super+n", ["keys.chat.new", '"super+n"', "alt+"]),
            ("chat.new", "ctrl+ctrl+n", ["keys.chat.new"]),
            ("chat.new", "ctrl+o", ["keys.chat.new", "keys.chat.switch", '"ctrl+o"', "chat"]),
        ],
    )
    def test_faults_name_file_id_and_what_may_stand_there(self, id: str, key: str, words: list[str]) -> None:
        with pytest.raises(UsageError) as caught:
            resolve(KeySettings(FILE, "", {id: key}))
        for word in words:
            assert word in str(caught.value)

    def test_a_preset_that_is_not_there_is_told(self) -> None:
        with pytest.raises(UsageError, match=r'keys\.preset must be one of "default", "vim", not "emacs"'):
            resolve(KeySettings(FILE, "emacs"))

    def test_two_that_change_places_do_not_clash(self) -> None:
        keymap, _ = resolve(settings(chat_new="ctrl+o", chat_switch="ctrl+n"))
        assert (keymap["chat.new"], keymap["chat.switch"]) == ("ctrl+o", "ctrl+n")

    def test_a_key_of_the_prompt_box_is_warned_of(self) -> None:
        _, warnings = resolve(settings(chat_new="ctrl+k"))
        assert len(warnings) == 1 and "chat.new" in warnings[0] and "prompt box" in warnings[0]
        _, warnings = resolve(settings(chat_new="ctrl+shift+n"))
        assert "many terminals" in warnings[0]

    def test_the_boxs_own_keys_follow(self) -> None:
        changed = editing({"prompt.send": "ctrl+s", "prompt.newline": "enter"})
        assert (changed["enter"], changed["ctrl+s"]) == ("newline", "submit")
        assert "ctrl+j" not in changed


class TestInTheApp:
    async def test_a_key_that_was_set_works_and_the_old_one_does_not(self, manager: FakeManager) -> None:
        session = manager.make("t", ["a", "b"])
        keys = settings(chat_new="f10,f11", prompt_send="f12", prompt_newline="enter", help_close="escape")
        async with running(manager, session_id=session.id, keys=keys) as chat:
            await chat.pilot.press("ctrl+n")
            assert chat.screen.current_id == session.id
            await chat.pilot.press("a", "enter", "b", "f12")
            assert [m.text for m in session.path()][-1] == "a\nb"
            await chat.pilot.press("f11")
            assert chat.screen.has_class("-empty")
            await chat.pilot.press("f1", "f1")
            assert isinstance(chat.app.screen, HelpScreen)

    async def test_an_action_can_be_left_without_a_key(self, manager: FakeManager) -> None:
        async with running(manager, keys=settings(chat_switch="")) as chat:
            await chat.pilot.press("ctrl+o")
            assert chat.app.screen is chat.screen
            titles = {command.title for command in chat.app.get_system_commands(chat.screen)}
            assert "Open" in titles

    async def test_others_on_a_shared_key_keep_it(self, manager: FakeManager) -> None:
        """Esc is on several actions of the chosen message and of the chat."""
        async with running(manager, keys=settings(chat_stop="f10")) as chat:
            await chat.pilot.press("ctrl+o")
            assert isinstance(chat.app.screen, SwitcherScreen)
            await chat.pilot.press("escape")
            assert chat.app.screen is chat.screen

    async def test_warnings_are_shown(self, manager: FakeManager) -> None:
        async with running(manager, keys=settings(chat_new="ctrl+k")) as chat:
            await chat.until(lambda: any("chat.new" in n.message for n in chat.app._notifications))

    async def test_a_fault_ends_it_before_the_screen(self, manager: FakeManager) -> None:
        with pytest.raises(UsageError):
            async with running(manager, keys=settings(chat_nwe="f10")):
                pass


class TestTerminal:
    """What terminals send for the keys: Escape and the letter for Alt, and so on."""

    @staticmethod
    def arrive(sequence: str) -> list[str]:
        from textual._xterm_parser import XTermParser
        from textual.events import Key

        from ds4chat.ui.terminal import tell_alt_digits

        tell_alt_digits()
        return [event.key for event in XTermParser().feed(sequence) if isinstance(event, Key)]

    def test_every_key_with_alt_arrives(self) -> None:
        keys = {key for action in dump() for key in action.keys.split(",") if key.startswith("alt+")}
        letters = {key for key in keys if len(key) == len("alt+x")}
        assert len(letters) >= 9
        special = {"alt+enter": "\x1b\r", "alt+up": "\x1b[1;3A", "alt+down": "\x1b[1;3B"}
        assert keys - letters <= set(special)
        for key in letters:
            assert self.arrive(f"\x1b{key[-1]}") == [key]
            assert self.arrive(f"\x1b{key[-1]}\x1b[A\x1b{key[-1]}x") == [key, "up", key, "x"]
        for key, sequence in special.items():
            assert self.arrive(sequence) == [key]


class TestVim:
    @staticmethod
    def long(manager: FakeManager) -> str:
        texts = [text for n in range(20) for text in (f"question {n}", "line\n\n" * 10)]
        return manager.make("Long", texts).id

    async def test_the_prompt_box_stays_text(self, manager: FakeManager) -> None:
        async with running(manager, keys=settings("vim")) as chat:
            await chat.pilot.press(*"jkgG:/i", "x")
            await chat.until(lambda: chat.prompt.text == "jkgG:/ix")
            await chat.pilot.press("escape")
            assert chat.prompt.has_focus, "Esc leaves an empty box only"

    async def test_esc_chooses_messages_and_letters_move(self, manager: FakeManager) -> None:
        session_id = self.long(manager)
        async with running(manager, session_id=session_id, keys=settings("vim")) as chat:
            await chat.until_shown("line")
            await chat.pilot.press("escape")
            assert chat.transcript.has_focus

            def chosen() -> int:
                message = chat.transcript.chosen_message
                return message.message.id if message else 0

            ids = [m.id for m in manager.sessions[session_id].path()]
            assert chosen() == ids[-1]
            await chat.pilot.press("k", "k")
            assert chosen() == ids[-3]
            await chat.pilot.press("j")
            assert chosen() == ids[-2]
            await chat.pilot.press("g")
            await chat.until(lambda: chosen() == ids[0])
            await chat.pilot.press("G")
            await chat.until(lambda: chosen() == ids[-1])
            before = chat.transcript.scroll_offset.y
            await chat.pilot.press("ctrl+u")
            await chat.until(lambda: chat.transcript.scroll_offset.y < before)
            above = chat.transcript.scroll_offset.y
            await chat.pilot.press("ctrl+d")
            await chat.until(lambda: chat.transcript.scroll_offset.y > above)
            await chat.pilot.press("i")
            assert chat.prompt.has_focus and chat.prompt.text == ""

    async def test_letters_over_the_transcript_are_no_text(self, manager: FakeManager) -> None:
        session_id = self.long(manager)
        async with running(manager, session_id=session_id, keys=settings("vim")) as chat:
            await chat.until_shown("line")
            chat.screen.set_focus(chat.transcript)
            await chat.pilot.press("z", "x")
            assert chat.prompt.text == "" and chat.transcript.has_focus
            await chat.pilot.press("colon")
            await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))

    async def test_slash_searches(self, manager: FakeManager) -> None:
        session_id = self.long(manager)
        async with running(manager, session_id=session_id, keys=settings("vim")) as chat:
            await chat.until_shown("line")
            await chat.pilot.press("escape", "slash")
            await chat.until(lambda: type(chat.app.screen).__name__ == "SearchScreen")

    async def test_lists_move_by_letters(self, manager: FakeManager) -> None:
        for n in range(5):
            manager.make(f"S{n}", ["a", "b"], updated=100 - n)
        async with running(manager, keys=settings("vim")) as chat:
            await chat.pilot.press("f2", "j", "j")
            sessions = chat.screen.query_one(SessionList)
            at = sessions.cursor
            await chat.pilot.press("k")
            assert sessions.cursor == at - 1
            await chat.pilot.press("G")
            assert sessions.cursor == 4
            await chat.pilot.press("g")
            assert sessions.cursor == 0
            await chat.pilot.press("i")
            assert chat.prompt.has_focus

    async def test_esc_still_stops_a_reply(self, manager: FakeManager) -> None:
        async with running(manager, keys=settings("vim")) as chat:
            await chat.pilot.press(*"hi", "enter")
            manager.begin()
            manager.stream("half")
            await chat.pilot.press("escape")
            assert manager.running is None and chat.prompt.has_focus

    async def test_the_help_shows_the_keys_as_they_are(self, manager: FakeManager) -> None:
        async with running(manager, keys=settings("vim", chat_new="f10"), size=(120, 50)) as chat:
            await chat.pilot.press("f1", *"new chat")
            content = chat.app.screen.query_one(KeyLines).text
            assert "F10" in content and "Ctrl+N" not in content.split("Switcher")[0]
