"""F1: all keys, as they are set, found by typing, at any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.key_settings import KeySettings
from ds4chat.ui.keymap import dump
from ds4chat.ui.screens.help import HelpScreen, help_groups, key_name, key_names
from ds4chat.ui.widgets.key_lines import KeyLines
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import FakeManager


def text(chat: Chat) -> str:
    screen = chat.app.screen
    assert isinstance(screen, HelpScreen)
    return screen.query_one(KeyLines).text


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("ctrl+j,shift+enter", "Ctrl+J"),
        ("escape", "Esc"),
        ("alt+1", "Alt+1"),
        ("pageup", "Page Up"),
        ("f10", "F10"),
        ("g", "g"),
        ("G", "G"),
        ("slash", "/"),
        ("alt+shift+s", "Alt+Shift+S"),
        ("shift+tab", "Shift+Tab"),
        ("up", "Up"),
    ],
)
def test_keys_are_written_as_people_do(keys: str, name: str) -> None:
    assert key_name(keys) == name


def test_all_keys_of_an_action_are_named() -> None:
    assert key_names(["ctrl+j", "shift+enter"]) == "Ctrl+J, Shift+Enter"
    assert key_names([]) == "no key"


class TestHelp:
    def test_every_action_with_a_key_is_in_it(self) -> None:
        lines = [line for group in help_groups({}).values() for line in group]
        shown = " ".join(what for _, what, _ in lines)
        found = {word for line in lines for word in line[2].split()}
        for action in dump():
            if action.id[-1].isdigit():
                assert action.id[:-1] + "1" in found
            elif action.keys != "ignore":
                assert action.id in found and action.about in shown

    async def test_it_is_grouped_and_begins_with_writing(self, manager: FakeManager) -> None:
        async with running(manager, size=(120, 45)) as chat:
            await chat.pilot.press("f1")
            groups = [line for line in text(chat).splitlines() if line and not line.startswith(" ")]
            assert groups[0] == "Writing"
            for name in ("Chats", "Messages", "Panels", "Reading", "Everywhere", "Lists"):
                assert name in groups

    async def test_typing_narrows_it_down(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press("f1", *"theme pre")
            shown = text(chat)
            assert "Alt+L" in shown and "Choose how the screen looks" in shown
            assert "Start a new chat" not in shown
            await chat.pilot.press(*["backspace"] * 9, *"ctrl+q")
            assert "Save and leave" in text(chat) and "Alt+L" not in text(chat)
            await chat.pilot.press(*"zzz")
            assert text(chat) == "No key with these words."

    async def test_it_scrolls_by_keys_and_closes(self, manager: FakeManager) -> None:
        async with running(manager, size=(80, 24)) as chat:
            await chat.pilot.press("f1")
            box = chat.app.screen.query_one("#keys")
            await chat.pilot.press("pagedown", "down")
            await chat.until(lambda: box.scroll_offset.y > 10)
            await chat.pilot.press("up", "pageup", "pageup")
            await chat.until(lambda: box.scroll_offset.y == 0)
            await chat.pilot.press("f1")
            assert chat.app.screen is chat.screen
            for key in ("escape", "enter"):
                await chat.pilot.press("f1", key)
                assert chat.app.screen is chat.screen

    async def test_it_shows_the_keys_as_they_are_set(self, manager: FakeManager) -> None:
        keys = KeySettings(Path("config.toml"), "", {"chat.new": "f10", "chat.rename": ""})
        async with running(manager, keys=keys, size=(120, 45)) as chat:
            await chat.pilot.press("f1")
            line = next(line for line in text(chat).splitlines() if line.endswith("Start a new chat."))
            assert line.startswith("F10 ")
            assert "Give this chat another title." not in text(chat)

    @pytest.mark.parametrize("size", [(40, 10), (60, 16), (80, 24), (160, 45)])
    async def test_it_fits(self, manager: FakeManager, size: tuple[int, int]) -> None:
        async with running(manager, size=size) as chat:
            await chat.pilot.press("f1")
            box = chat.app.screen.query_one("#help").region
            assert box.x >= 0 and box.y >= 0 and box.right <= size[0] and box.bottom <= size[1]
            scroll = chat.app.screen.query_one("#keys")
            assert scroll.size.height >= 5
            width = scroll.scrollable_content_region.width
            assert all(len(line.rstrip()) <= width for line in text(chat).splitlines())
