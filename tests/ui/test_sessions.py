"""The list of chats: days, marks, pages."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta

from ds4chat.ui.listing import PAGE, Listing, Row, day_of, headings, restore_words, tokens_words
from ds4chat.ui.widgets.session_list import SessionList
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager
from tests.ui.lists import DAY, CountingManager, line_with, lines, many, switcher


class TestDays:
    def test_a_day_is_named(self) -> None:
        today = date(2026, 3, 10)
        noon = datetime(2026, 3, 10, 12)
        names = {
            back: day_of((noon - timedelta(days=back)).timestamp(), today)
            for back in (0, 1, 2, 7, 8, 20, 100)
        }
        assert names == {
            0: "Today",
            1: "Yesterday",
            2: "Previous 7 days",
            7: "Previous 7 days",
            8: "March",
            20: "February",
            100: "November 2025",
        }
        assert day_of((noon + timedelta(days=3)).timestamp(), today) == "Today"

    async def test_sessions_stand_under_their_day_and_pinned_ones_on_top(self, manager: FakeManager) -> None:
        now = time.time()
        old = manager.make("Old one", ["a", "b"], updated=now - 400 * DAY)
        manager.make("Fresh one", ["a", "b"], updated=now)
        manager.pin_session(old.id, True)
        manager.make("Another", ["a", "b"], updated=now - 3 * DAY)
        async with running(manager, size=(110, 30)) as chat:
            found = chat.screen.sessions
            shown = [line.strip() for line in lines(found) if line.strip()]
            assert [line for line in shown if line in ("Pinned", "Today", "Previous 7 days")] == [
                "Pinned",
                "Today",
                "Previous 7 days",
            ]
            assert "Old one" in shown[1] and "Fresh one" in shown[3] and "Another" in shown[5]

    async def test_headings_cannot_be_chosen(self, manager: FakeManager) -> None:
        now = time.time()
        one = manager.make("One", ["a", "b"], updated=now)
        two = manager.make("Two", ["a", "b"], updated=now - 400 * DAY)
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press("f2", "down", "enter")
            assert chat.screen.current_id == two.id
            heading = next(y for y, line in enumerate(lines(chat.screen.sessions)) if line.strip() == "Today")
            await chat.pilot.click(SessionList, offset=(5, heading))
            assert chat.screen.current_id == two.id
            await chat.pilot.click(SessionList, offset=(5, heading + 1))
            assert chat.screen.current_id == one.id

    def test_headings_stand_where_the_group_changes(self) -> None:
        rows = [Row("1", "a", group="Today"), Row("2", "b", group="Today"), Row("3", "c", group="March")]
        assert headings(rows) == {0: "Today", 2: "March"}


class TestRows:
    def test_short_words(self) -> None:
        assert [tokens_words(n) for n in (0, 980, 1234, 9960, 12_345, 1_200_000)] == [
            "",
            "980",
            "1.2k",
            "10k",
            "12k",
            "1.2M",
        ]
        assert [restore_words(ms) for ms in (13, 140, 2300, 12_000)] == ["0.1 s", "0.1 s", "2.3 s", "12 s"]

    async def test_a_row_says_age_length_and_what_it_costs_to_come_back(self, manager: FakeManager) -> None:
        now = time.time()
        warm, disk, _ = (manager.make(t, ["a", "b"], updated=now - 7200) for t in ("Warm", "Disk", "Cold"))
        warm.tokens, disk.tokens = 1234, 900
        disk.tags = ["rust"]
        manager.live_session = warm.id
        manager.stored[disk.id] = (900, 3_450_000_000)
        async with running(manager, size=(120, 30)) as chat:
            await chat.pilot.press("ctrl+o")
            found = switcher(chat)
            assert line_with(found, "Warm").split()[-3:] == ["◆", "1.2k", "2h"]
            assert line_with(found, "Disk").split()[-6:] == ["#rust", "◇", "2.3", "s", "900", "2h"]
            assert line_with(found, "Cold").split()[-2:] == ["·", "2h"]

    async def test_the_marks_differ_in_shape(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        async with running(manager, session_id=one.id) as chat:
            manager.send(two.id, "x")
            manager.begin()
            manager.send(one.id, "y")
            await chat.until(lambda: "●" in line_with(chat.screen.sessions, "Two"))
            assert "○" in line_with(chat.screen.sessions, "One")
            assert line_with(chat.screen.sessions, "One").startswith("▸")
            assert "engine" in str(chat.screen.sessions.tooltip)

    async def test_a_reply_in_the_background_is_marked_until_it_is_looked_at(
        self, manager: FakeManager
    ) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        async with running(manager, session_id=one.id) as chat:
            manager.send(two.id, "x")
            manager.begin()
            manager.stream("done")
            manager.finish()
            await chat.until(lambda: "✓" in line_with(chat.screen.sessions, "Two"))
            await chat.until(lambda: "✓ 1 new elsewhere" in chat.status)
            assert chat.screen.terminal_title.text.startswith("✓ 1 · One")
            chat.screen.open(two.id)
            await chat.until(lambda: "✓" not in line_with(chat.screen.sessions, "Two"))
            assert "✓" not in chat.screen.terminal_title.text

    async def test_at_40_by_10_title_and_age_remain(self, manager: FakeManager) -> None:
        manager.make(
            "A chat with a rather long title about borrowing", ["a", "b"], updated=time.time() - 7200
        )
        async with running(manager, size=(40, 10)) as chat:
            await chat.pilot.press("ctrl+b")
            await chat.until(lambda: chat.screen.sessions.size.height > 0)
            row = line_with(chat.screen.sessions, "A chat")
            assert row.endswith("2h") and "…" in row
            await chat.pilot.press("ctrl+b", "ctrl+o")
            assert line_with(switcher(chat), "A chat").endswith("2h")


class TestTenThousand:
    async def test_opening_fetches_and_paints_what_is_in_view(self) -> None:
        manager = CountingManager()
        many(manager)
        async with running(manager) as chat:
            assert manager.fetched <= 3 * PAGE
            manager.fetched = 0
            await chat.pilot.press("ctrl+o")
            found = switcher(chat)
            await chat.until(lambda: found.painted > 0)
            assert manager.fetched <= 2 * PAGE
            assert found.painted < 200
            assert found.line_count > 10_000

    async def test_the_list_loads_as_it_scrolls(self) -> None:
        manager = CountingManager()
        many(manager, 1000)
        async with running(manager) as chat:
            found = chat.screen.sessions
            await chat.pilot.press("f2")
            for _ in range(6):
                await chat.pilot.press("pagedown")
            await chat.until(lambda: len(found.rows) > PAGE)
            assert found.cursor > PAGE
            assert len(found.rows) < 1000
            await chat.pilot.press("end")
            await chat.until(lambda: found.cursor == 999)
            await chat.until(lambda: any("Talk number 999" in line for line in lines(found)))

    async def test_the_wheel_loads_too(self) -> None:
        manager = CountingManager()
        many(manager, 1000)
        async with running(manager) as chat:
            found = chat.screen.sessions
            found.scroll_to(y=500, animate=False)
            await chat.until(lambda: any("Talk number 4" in line for line in lines(found)))
            assert len(found.rows) < 1000

    async def test_a_filter_finds_the_last_of_them(self) -> None:
        manager = CountingManager()
        many(manager)
        wanted = manager.make("Borrow checker woes", ["a", "b"], updated=1)
        async with running(manager) as chat:
            await chat.pilot.press("ctrl+o", *"brwchk")
            found = switcher(chat)
            await chat.until(lambda: [row.session_id for row in found.rows] == [wanted.id])
            # Each was read once, however many letters were typed.
            assert manager.fetched <= 10_001 + 4 * PAGE
            await chat.pilot.press("enter")
            assert chat.screen.current_id == wanted.id

    async def test_new_sessions_while_far_down_fetch_no_more_than_is_seen(self) -> None:
        manager = CountingManager()
        many(manager)
        async with running(manager):
            manager.fetched = 0
            manager.make("New one", ["a", "b"])
            manager.rename_session("00000001", "Other")
        assert manager.fetched <= 2 * PAGE

    def test_pages_survive_sessions_that_come_and_go(self) -> None:
        manager = FakeManager()
        many(manager, 250)
        listing = Listing(manager)  # type: ignore[arg-type]
        listing.reload()
        manager.make("New one", ["a", "b"])
        for session_id in list(manager.sessions)[-40:-1]:
            del manager.sessions[session_id]
        while listing.more(len(listing.infos) + PAGE):
            pass
        ids = [info.id for info in listing.infos]
        assert len(ids) == len(set(ids)) and listing.complete
