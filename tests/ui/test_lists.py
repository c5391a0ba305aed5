"""Moving in lists and over the transcript by keys: each key that moves, wherever it does."""

from __future__ import annotations

from ds4chat.ui.desk import ModelChoice
from ds4chat.ui.widgets.session_list import SessionList
from tests.ui.driving import running
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager
from tests.ui.panels import panels


class TestTranscript:
    async def test_it_scrolls_a_little_a_page_and_to_its_ends(self, manager: FakeManager) -> None:
        session = manager.make("Long", [text for n in range(20) for text in (f"q{n}", "line\n\n" * 10)])
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("line")
            transcript = chat.transcript

            async def goes_to(key: str, up: bool) -> int:
                before = transcript.scroll_offset.y
                await chat.pilot.press(key)
                await chat.until(
                    lambda: transcript.scroll_offset.y < before if up else transcript.scroll_offset.y > before
                )
                return abs(transcript.scroll_offset.y - before)

            assert await goes_to("ctrl+up", True) == 3
            assert await goes_to("ctrl+down", False) == 3
            assert await goes_to("pageup", True) > 10
            assert await goes_to("pagedown", False) > 10
            await goes_to("ctrl+home", True)
            await chat.until_shown("q0")
            await goes_to("ctrl+end", False)
            assert chat.prompt.has_focus


class TestSessionList:
    async def test_the_list_of_chats(self, manager: FakeManager) -> None:
        for n in range(60):
            manager.make(f"S{n}", ["a", "b"], updated=1000 - n)
        async with running(manager) as chat:
            await chat.pilot.press("f2")
            sessions = chat.screen.query_one(SessionList)
            assert sessions.has_focus
            await chat.pilot.press("end")
            await chat.until(lambda: sessions.cursor == 59)
            await chat.pilot.press("pageup", "up", "k")
            at = sessions.cursor
            assert at < 59 - 10
            await chat.pilot.press("pagedown", "down", "j")
            assert sessions.cursor > at
            await chat.pilot.press("home")
            assert sessions.cursor == 0

    async def test_the_switcher_and_the_search(self, manager: FakeManager) -> None:
        for n in range(60):
            manager.make(f"S{n}", [f"borrow {n}", "b"], updated=1000 - n)
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+o", "pagedown", "down")
            found = chat.app.screen.query_one(SessionList)
            await chat.until(lambda: found.cursor > 5)
            await chat.pilot.press("pageup", "up")
            await chat.until(lambda: found.cursor == 0)
            await chat.pilot.press("escape")
            await chat.until(lambda: chat.app.screen is chat.screen)
            await chat.pilot.press("ctrl+f", *"borrow")
            await chat.until(lambda: bool(chat.app.screen.query("#hits")))
            hits = chat.app.screen.query_one("#hits")
            await chat.until(lambda: hits._count > 20)  # type: ignore[attr-defined]
            start = hits.cursor  # type: ignore[attr-defined]
            await chat.pilot.press("pagedown", "down")
            await chat.until(lambda: hits.cursor > start + 2)  # type: ignore[attr-defined]
            await chat.pilot.press("up", "pageup")
            await chat.until(lambda: hits.cursor == start)  # type: ignore[attr-defined]


class TestPanels:
    async def test_the_rows_of_a_panel(self) -> None:
        async with panels() as p:
            p.desk.listed = [ModelChoice(f"m{n:02}", f"/m/{n:02}.gguf") for n in range(60)]
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == 60)
            await p.press("home")
            await p.until(lambda: p.rows.current == "/m/00.gguf")
            await p.press("end")
            await p.until(lambda: p.rows.current == "/m/59.gguf")
            await p.press("pageup", "up")
            await p.until(lambda: p.rows.cursor < 55)
            at = p.rows.cursor
            await p.press("pagedown", "down")
            await p.until(lambda: p.rows.cursor > at)

    async def test_what_is_listed_is_read_again(self) -> None:
        async with panels() as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == len(FakeDesk().listed))
            p.desk.listed = [ModelChoice("new", "/m/new.gguf"), *p.desk.listed]
            await p.press("r")
            await p.until(lambda: any(row.key == "/m/new.gguf" for row in p.rows.rows))
            p.desk.listed = p.desk.listed[1:]
            await p.press("f5")
            await p.until(lambda: not any(row.key == "/m/new.gguf" for row in p.rows.rows))

    async def test_the_checkpoints_are_read_again(self) -> None:
        async with panels() as p:
            await p.press("alt+k")
            await p.until_top("CheckpointsScreen")
            await p.until(lambda: bool(p.rows.rows))
            asked: list[bool] = []
            report = p.desk.checkpoints
            p.desk.checkpoints = lambda: (asked.append(True), report())[1]  # type: ignore[method-assign, func-returns-value]
            await p.press("r")
            await p.until(lambda: len(asked) == 1)
            await p.press("f5")
            await p.until(lambda: len(asked) == 2)
