"""Searching all chats: as one types, and going to the place."""

from __future__ import annotations

from textual.widgets import Static

from ds4chat.errors import DatabaseError
from ds4chat.sessions.search import SearchHit
from ds4chat.ui.screens.search import PAGE, SearchScreen
from ds4chat.ui.widgets.hit_list import HitList, hit_line
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import FakeManager


def hits(chat: Chat) -> HitList:
    assert isinstance(chat.app.screen, SearchScreen)
    return chat.app.screen.query_one(HitList)


def lines(found: HitList) -> list[str]:
    return [found.render_line(y).text.rstrip() for y in range(found.size.height)]


def state(chat: Chat) -> str:
    return str(chat.app.screen.query_one("#search-state", Static).render())


def talk(manager: FakeManager) -> tuple[str, str]:
    one = manager.make(
        "About rust", ["why borrow?", "Because of **ownership**.\nA borrow ends early."], updated=2
    )
    two = manager.make("About books", ["may I borrow it", "no"], updated=1)
    return one.id, two.id


class TestSearch:
    async def test_hits_come_as_one_types_grouped_by_chat(self, manager: FakeManager) -> None:
        talk(manager)
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f", *"borrow")
            found = hits(chat)
            await chat.until(lambda: len(found.hits) == 3)
            shown = [line for line in lines(found) if line]
            assert shown[0].strip().startswith("About rust")
            assert shown[1].split() == ["Reply", "A", "borrow", "ends", "early."]
            assert shown[2].split() == ["You", "why", "borrow?"]
            assert shown[3].strip().startswith("About books")
            assert "3 in 2 chats" in state(chat)

    async def test_the_hit_is_marked_in_its_line(self, manager: FakeManager) -> None:
        talk(manager)
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f", *"own")
            found = hits(chat)
            await chat.until(lambda: len(found.hits) == 1)
            marked = [s.text for s in found.render_line(1) if s.style and s.style.underline]
            assert marked == ["own"]

    async def test_enter_goes_to_the_message(self, manager: FakeManager) -> None:
        long = manager.make("Long", [f"message {n}\n\n" + "words " * 60 for n in range(80)], updated=1)
        other = manager.make("Other", ["a", "b"], updated=2)
        async with running(manager, session_id=other.id) as chat:
            await chat.pilot.press("ctrl+f", *"message 7", "enter")
            await chat.until(lambda: chat.screen.current_id == long.id)
            await chat.until_shown("message 7")
            assert "message 70" not in chat.shown() or "message 7" in chat.shown()

    async def test_a_hit_on_another_branch_is_gone_to(self, manager: FakeManager) -> None:
        session = manager.make("Branches", ["first wording", "reply one"])
        async with running(manager, session_id=session.id) as chat:
            manager.edit_message(session.id, session.path()[0].id, "second wording")
            manager.begin()
            manager.finish()
            await chat.until_shown("second wording")
            await chat.pilot.press("ctrl+f", *"first", "enter")
            await chat.until_shown("first wording", "reply one")

    async def test_esc_comes_back(self, manager: FakeManager) -> None:
        one, _ = talk(manager)
        async with running(manager, session_id=one) as chat:
            await chat.pilot.press(*"draft", "ctrl+f", *"borrow", "escape")
            assert chat.app.screen is chat.screen
            assert chat.screen.current_id == one and chat.prompt.text == "draft"
            await chat.pilot.press("ctrl+f")
            assert hits(chat).hits, "what was searched last is still there"

    async def test_empty_and_without_result(self, manager: FakeManager) -> None:
        talk(manager)
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f")
            assert "as you type" in state(chat)
            await chat.pilot.press("enter", *"zebra", "enter")
            await chat.until(lambda: "Nothing found for “zebra”" in state(chat))
            assert isinstance(chat.app.screen, SearchScreen)

    async def test_a_search_that_fails_says_so(self, manager: FakeManager) -> None:
        def fail(query: str, limit: int = 100) -> list[SearchHit]:
            raise DatabaseError("The index cannot be read.")

        manager.search = fail  # type: ignore[method-assign]
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f", *"x")
            await chat.until(lambda: "The index cannot be read." in state(chat))

    async def test_more_come_with_scrolling(self, manager: FakeManager) -> None:
        manager.make("Many", [f"line {n}" for n in range(3 * PAGE)])
        asked: list[int] = []
        search = manager.search

        def counting(query: str, limit: int = 100) -> list[SearchHit]:
            asked.append(limit)
            return search(query, limit)

        manager.search = counting  # type: ignore[method-assign]
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f", *"line")
            found = hits(chat)
            await chat.until(lambda: len(found.hits) == PAGE)
            assert f"{PAGE} or more" in state(chat)
            for _ in range(4):
                await chat.pilot.press("pagedown")
            await chat.until(lambda: len(found.hits) == 2 * PAGE)
            assert max(asked) == 2 * PAGE

    async def test_a_click_goes_there(self, manager: FakeManager) -> None:
        one, two = talk(manager)
        async with running(manager, session_id=one) as chat:
            await chat.pilot.press("ctrl+f", *"may")
            await chat.until(lambda: len(hits(chat).hits) == 1)
            await chat.pilot.click(HitList, offset=(12, 1))
            assert chat.screen.current_id == two

    async def test_at_40_by_10(self, manager: FakeManager) -> None:
        talk(manager)
        async with running(manager, size=(40, 10)) as chat:
            await chat.pilot.press("ctrl+f", *"borrow")
            await chat.until(lambda: any("why borrow?" in line for line in lines(hits(chat))))

    async def test_titles_and_lines_are_never_markup(self, manager: FakeManager) -> None:
        manager.make("[bold]x[/]", ["say [red]hi[/red] \x1b[31m"])
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+f", *"hi")
            await chat.until(lambda: len(hits(chat).hits) == 1)
            text = "\n".join(lines(hits(chat)))
            assert "[bold]x[/]" in text and "[red]hi[/red] ␛[31m" in text


class TestLine:
    def test_marks_follow_what_is_made_visible(self) -> None:
        text, found = hit_line("a\x1bb\x9fhit", [(4, 7)], 40)
        assert "".join(text[i] for i in found) == "hit"

    def test_a_late_hit_is_brought_into_view(self) -> None:
        line = "word " * 30 + "needle in it"
        text, found = hit_line(line, [(150, 156)], 40)
        assert text.startswith("…") and found[-1] < 40
        assert "".join(text[i] for i in found) == "needle"

    def test_a_line_without_marks_stays(self) -> None:
        assert hit_line("plain", [], 40) == ("plain", [])
