"""Finding a chat, and what can be done with one: from the switcher and from the screen."""

from __future__ import annotations

import time

import pytest
from textual.widgets import Input

from ds4chat.ui.finding import QUERY_LIMIT, find, match
from ds4chat.ui.listing import Row
from ds4chat.ui.screens.confirm import ConfirmScreen
from ds4chat.ui.screens.rename import RenameScreen
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.screens.tags import TagsScreen, complete, split_tags
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager
from tests.ui.lists import burst, line_with, lines, switcher


class TestFilter:
    ROWS = (
        Row("aa11bb22", "The rain", tags=("weather",)),
        Row("cc33dd44", "Train times", tags=("travel", "rail way")),
        Row("ee55ff66", "Rusty anchor in ice"),
    )

    @pytest.mark.parametrize(
        ("typed", "first"),
        [
            ("rain", "The rain"),
            ("cc33", "Train times"),
            ("weath", "The rain"),
            ("ruice", "Rusty anchor in ice"),
        ],
    )
    def test_the_best_match_comes_first(self, typed: str, first: str) -> None:
        assert find(self.ROWS, typed)[0].title == first

    def test_tags_are_asked_for_with_a_hash(self) -> None:
        assert [row.title for row in find(self.ROWS, "#tra")] == ["Train times"]
        assert [row.title for row in find(self.ROWS, "time #travel #rail")] == ["Train times"]
        assert find(self.ROWS, "rain #travel #weather") == []
        assert len(find(self.ROWS, "#")) == 3

    def test_letters_found_are_marked(self) -> None:
        found = match("brwchk", "Borrow checker")
        assert found is not None and found[1] == (0, 2, 5, 7, 8, 11)
        by_title = {row.title: row.matched for row in find(self.ROWS, "rain")}
        assert by_title == {
            "The rain": (4, 5, 6, 7),
            "Train times": (1, 2, 3, 4),
            "Rusty anchor in ice": by_title["Rusty anchor in ice"],
        }

    def test_odd_queries_find_nothing_and_break_nothing(self) -> None:
        for typed in ("zzz", "İ", "ß" * 100, "[", "x" * 10_000, "#" * QUERY_LIMIT):
            find(self.ROWS, typed)
        assert match("i", "İstanbul") is not None

    async def test_matched_letters_are_underlined(self, manager: FakeManager) -> None:
        manager.make("Borrow checker", ["a", "b"])
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+o", *"chec")
            found = switcher(chat)
            marked = [s.text for s in found.render_line(0) if s.style and s.style.underline]
            assert "".join(marked) == "chec"

    async def test_nothing_found_says_so(self, manager: FakeManager) -> None:
        manager.make("One", ["a", "b"])
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+o", *"zzz")
            nothing = chat.app.screen.query_one("#nothing")
            assert nothing.display
            await chat.pilot.press("enter")
            assert isinstance(chat.app.screen, SwitcherScreen)


class TestArchived:
    async def test_archived_sessions_are_hidden_until_asked_for(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("f7")
            await chat.until(lambda: one.archived)
            await chat.until(lambda: [row.session_id for row in chat.screen.sessions.rows] == [two.id])
            assert chat.screen.current_id == one.id
            await chat.pilot.press("ctrl+o")
            found = switcher(chat)
            assert [row.session_id for row in found.rows] == [two.id]
            await chat.pilot.press("alt+a")
            assert lines(found)[0].strip() == "Archived"
            assert [row.session_id for row in found.rows] == [one.id, two.id]
            await chat.pilot.press(*"one")
            assert "archived" in line_with(found, "One")
            await chat.pilot.press("f7")
            assert not one.archived


class TestActions:
    async def test_pinning(self, manager: FakeManager) -> None:
        one = manager.make("One", ["a", "b"], updated=1)
        manager.make("Two", ["c", "d"], updated=2)
        async with running(manager, session_id=one.id) as chat:
            assert chat.screen.sessions.rows[0].title == "Two"
            await chat.pilot.press("f6")
            await chat.until(lambda: chat.screen.sessions.rows[0].title == "One")
            await chat.pilot.press("f6")
            await chat.until(lambda: chat.screen.sessions.rows[0].title == "Two")

    async def test_deleting_asks_nothing_and_can_be_undone(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a question", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"typed", "f8")
            assert not isinstance(chat.app.screen, ConfirmScreen)
            assert session.id not in manager.sessions
            assert chat.screen.has_class("-empty")
            await chat.until(lambda: "deleted “Old” · Alt+Z brings it back" in chat.status)
            await chat.pilot.press("alt+z")
            assert "Alt+Z" not in chat.status
            assert chat.screen.current_id == session.id
            await chat.until_shown("a question")
            assert chat.prompt.text == "typed"
            await chat.pilot.press("alt+z")
            assert "back" in chat.status or "nothing" in chat.status

    async def test_the_last_one_deleted_comes_back_first(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        turns: list[str] = []
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("f8")
            chat.screen.undo.append(lambda: turns.append("turn"))
            chat.screen.open(two.id)
            await chat.pilot.press("f8")
            assert manager.sessions.keys().isdisjoint({one.id, two.id})
            await chat.pilot.press("alt+z")
            assert two.id in manager.sessions and turns == []
            await chat.pilot.press("alt+z")
            assert turns == ["turn"] and one.id not in manager.sessions
            await chat.pilot.press("alt+z")
            assert chat.screen.current_id == one.id

    async def test_a_busy_session_is_not_deleted(self, manager: FakeManager) -> None:
        session = manager.make("Busy", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            manager.send(session.id, "x")
            await chat.pilot.press("f8")
            assert session.id in manager.sessions
            assert chat.screen.current_id == session.id
            assert any("stop it first" in n.message for n in chat.app._notifications)

    async def test_tags_with_completion(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        two.tags = ["rust", "weather"]
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("alt+t")
            assert isinstance(chat.app.screen, TagsScreen)
            await chat.pilot.press(*"ru", "tab", *"new one", "enter")
            assert one.tags == ["rust", "new one"]
            await chat.until(lambda: "#rust #new one" in str(chat.screen.query_one("#title").render()))
            await chat.pilot.press("alt+t", "ctrl+u", "enter")
            assert one.tags == []

    def test_tags_as_typed(self) -> None:
        assert split_tags(" #rust, big  idea,,rust , ") == ["rust", "big idea"]
        assert complete("rust, we", ["rust", "weather"]) == "rust, weather"
        assert complete("rust, ru", ["rust"]) is None
        assert complete("", ["rust"]) is None

    async def test_inside_of_the_switcher(self, manager: FakeManager) -> None:
        now = time.time()
        one = manager.make("One", ["a", "b"], updated=now)
        two = manager.make("Two", ["c", "d"], updated=now - 100)
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("ctrl+o")
            found = switcher(chat)
            assert found.chosen is not None and found.chosen.session_id == two.id
            await chat.pilot.press("f6")
            assert two.pinned and found.chosen.session_id == two.id
            await chat.pilot.press("f9")
            assert isinstance(chat.app.screen, RenameScreen)
            await chat.pilot.press(*"Renamed", "enter")
            await chat.until(lambda: two.title == "Renamed")
            await chat.until(lambda: any("Renamed" in line for line in lines(found)))
            await chat.pilot.press("f8")
            assert two.id not in manager.sessions
            assert [row.session_id for row in found.rows] == [one.id]
            await chat.pilot.press("alt+z")
            assert {row.session_id for row in found.rows} == {one.id, two.id}
            assert isinstance(chat.app.screen, SwitcherScreen)
            assert chat.screen.current_id == one.id

    async def test_deleting_the_chat_on_the_screen_from_the_switcher(self, manager: FakeManager) -> None:
        one = manager.make("One", ["a", "b"])
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("ctrl+o", "f8", "escape")
            assert chat.screen.has_class("-empty")
            await chat.pilot.press("alt+z")
            assert chat.screen.current_id == one.id

    async def test_keys_that_are_no_use_are_off(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            for action in ("pin", "archive", "tags", "rename", "delete", "undo"):
                assert not chat.screen.check_action(action, ())


class TestBursts:
    """Keys that arrive together, before the dialog that the first of them opens is there."""

    async def test_rename(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "f9", *"New", "space", *"title", "enter")
            await chat.until(lambda: session.title == "New title")
            assert chat.prompt.text == ""
            assert manager.queue == []
            await chat.until(lambda: chat.app.screen is chat.screen)

    async def test_rename_from_the_list(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("f2")
            await burst(chat, "f9", *"New", "enter")
            await chat.until(lambda: session.title == "New")

    async def test_open(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        async with running(manager, session_id=one.id) as chat:
            await burst(chat, "ctrl+o", *"two", "enter")
            await chat.until(lambda: chat.screen.current_id == two.id)
            assert chat.prompt.text == ""

    async def test_escape(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "f9", *"no", "escape", *"typed")
            await chat.until(lambda: chat.app.screen is chat.screen)
            assert session.title == "Old"
            await chat.until(lambda: chat.prompt.text == "typed")

    async def test_what_is_typed_behind_enter_is_not_lost(self, manager: FakeManager) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "f9", *"New", "enter", *"words")
            await chat.until(lambda: session.title == "New")
            await chat.until(lambda: chat.prompt.text == "words")

    async def test_letters_behind_an_enter_that_closes_nothing_stay_in_the_dialog(
        self, manager: FakeManager
    ) -> None:
        session = manager.make("Old", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await burst(chat, "ctrl+o", *"zz", "enter", *"zz")
            await chat.until(lambda: isinstance(chat.app.screen, SwitcherScreen))
            await chat.until(lambda: chat.app.screen.query_one(Input).value == "zzzz")
