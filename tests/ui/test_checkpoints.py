"""The checkpoint panel: what is on disk, pinning, checking, clearing, the budget; and that it never holds up."""

from __future__ import annotations

import threading

from textual.widgets import Static

from ds4chat.errors import Ds4chatError, UsageError
from tests.ui.fake_desk import MB, FakeDesk
from tests.ui.panels import Panels, panels

FIRST, SECOND = "00000001", "00000002"


def usage(p: Panels) -> str:
    return str(p.top.query_one("#usage", Static).render())


async def opened(p: Panels) -> None:
    await p.press("alt+k")
    await p.until_top("CheckpointsScreen")
    await p.until(lambda: len(p.rows.rows) == 3)


class TestCheckpoints:
    async def test_each_chat_is_shown_with_size_use_and_whether_it_can_be_used(self) -> None:
        async with panels() as p:
            await opened(p)
            title, tokens, size, used, usable = p.cells(FIRST)
            assert (title, tokens, size, usable) == (
                "A tide table for the harbour",
                "6k",
                "141 MB",
                "6,144 tokens reusable",
            )
            assert used.endswith("y")
            assert p.cells(SECOND)[4] == "its model is not there"
            assert (p.mark(FIRST), p.mark(SECOND)) == ("◆", "✗")
            assert any("Fold [b]the[/b] dough" in line for line in p.shown())
            assert p.words == "6,144 tokens, 141 MB, pinned, 6,144 can be restored."
            assert (
                "200 MB of 400 MB · 50%" in usage(p) and "█" in usage(p) and "/cache/ds4chat/kv" in usage(p)
            )

    async def test_the_cursor_begins_on_the_chat_that_is_open(self) -> None:
        desk = FakeDesk()
        desk.rows.reverse()
        async with panels(desk) as p:
            await opened(p)
            assert p.rows.current == p.session.id == FIRST

    async def test_pinning_and_letting_go(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.go_to(SECOND)
            await p.press("p")
            await p.until(lambda: p.mark(SECOND) == "◆")
            await p.press("enter")
            await p.until(lambda: p.mark(SECOND) == "✗")
            assert [call for call in p.desk.calls if call[0] == "pin"] == [
                ("pin", SECOND, True),
                ("pin", SECOND, False),
            ]  # type: ignore[index]

    async def test_what_no_chat_stands_on_cannot_be_pinned(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.press("end", "p")
            await p.until_words("No chat stands on these")

    async def test_a_refusal_is_said(self) -> None:
        async with panels() as p:
            await opened(p)
            p.desk.refuse = UsageError("This chat has no checkpoints on disk: open it once, then pin them.")
            await p.press("p")
            await p.until_words("open it once")

    async def test_clearing_one_asks_first(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.go_to(SECOND)
            await p.press("c")
            await p.until_top("ConfirmScreen")
            assert "47 MB" in str(p.top.query_one("#question", Static).render())
            await p.press("n")
            await p.until_top("CheckpointsScreen")
            assert len(p.rows.rows) == 3
            await p.press("delete")
            await p.until_top("ConfirmScreen")
            await p.press("y")
            await p.until(lambda: len(p.rows.rows) == 2)
            await p.until_words("47 MB were deleted.")
            assert ("clear", SECOND) in p.desk.calls

    async def test_reading_again(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.go_to(SECOND)
            p.desk.rows = p.desk.rows[1:]
            await p.press("f5")
            await p.until(lambda: len(p.rows.rows) == 2)
            assert p.rows.current == SECOND
            assert "59 MB of 400 MB" in usage(p)

    async def test_clearing_all(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.press("a")
            await p.until_top("ConfirmScreen")
            await p.press("y")
            await p.until(lambda: p.rows.rows == [])
            await p.until(lambda: any("There are no checkpoints yet" in line for line in p.shown()))
            await p.press("a", "c", "p", "down", "enter")
            await p.until_words("200 MB were deleted.")

    async def test_the_budget(self) -> None:
        async with panels() as p:
            await opened(p)
            await p.press("b")
            await p.until_top("AskScreen")
            await p.type("-3")
            await p.press("enter")
            await p.until_words(
                "space_mb must be a whole number of MB, 0 for no limit, from 0 to 1000000000, not -3."
            )
            await p.type("100")
            await p.press("enter")
            await p.until_top("CheckpointsScreen")
            await p.until(lambda: "200 MB of 100 MB · 200%" in usage(p))
            assert p.top.query_one("#usage").has_class("-over")
            await p.press("b")
            await p.until_top("AskScreen")
            await p.type("0")
            await p.press("enter")
            await p.until(lambda: "no limit" in usage(p))


class TestVerifying:
    async def test_progress_and_result(self) -> None:
        async with panels() as p:
            p.desk.gate = threading.Event()
            await opened(p)
            await p.press("v")
            await p.until_words("Esc ends it")
            # The panel goes on meanwhile, and what is said of the reading stays.
            await p.press("down", "up", "v")
            assert "Esc ends it" in p.words and p.rows.current == FIRST
            p.desk.gate.set()
            await p.until_words("3 files (200.0 MB) read: all are whole.")
            assert [call for call in p.desk.calls if call == ("verify",)] == [("verify",)]

    async def test_it_can_be_ended(self) -> None:
        async with panels() as p:
            p.desk.steps, p.desk.gate = 10**9, threading.Event()
            p.desk.gate.set()
            await opened(p)
            await p.press("v")
            await p.until_words("read · Esc ends it")
            await p.press("escape")
            await p.until_words("The reading was ended. Nothing was changed.")
            await p.press("escape")
            await p.until(lambda: p.top is p.chat.screen)

    async def test_a_failure_ends_it(self) -> None:
        async with panels() as p:
            await opened(p)
            p.desk.refuse = Ds4chatError("The checkpoints in /kv cannot be read (denied).")
            await p.press("v")
            await p.until_words("cannot be read (denied)")
            assert not p.top.verifying

    async def test_leaving_the_app_meanwhile(self) -> None:
        async with panels() as p:
            p.desk.steps, p.desk.gate = 10**9, threading.Event()
            p.desk.gate.set()
            await opened(p)
            await p.press("v")
            await p.until_words("read · Esc ends it")
            panel = p.top
        assert panel._stop.is_set(), "the thread was told to end"


class TestSlowDisks:
    async def test_the_panel_can_be_left_while_the_directory_is_read(self) -> None:
        class Slow(FakeDesk):
            def checkpoints(self):  # type: ignore[no-untyped-def]
                gate.wait(5)
                return super().checkpoints()

        gate = threading.Event()
        async with panels(Slow()) as p:
            await p.press("alt+k")
            await p.until_top("CheckpointsScreen")
            await p.until(lambda: any("Reading the directory" in line for line in p.shown()))
            await p.press("p", "c", "b", "a", "escape")
            await p.until(lambda: p.top is p.chat.screen)
            gate.set()

    async def test_at_40_by_10(self) -> None:
        desk = FakeDesk()
        desk.budget = 100 * MB
        async with panels(desk, size=(40, 10)) as p:
            await opened(p)
            assert any("A tide" in line and "141 MB" in line for line in p.shown())
            assert "of 100 MB" in usage(p) and "Esc closes" in p.keys
