"""The status line, and telling a user who looks elsewhere."""

from __future__ import annotations

import pytest
from textual import events

from ds4chat.sessions.events import (
    ContextUsed,
    EngineChanged,
    EngineStatus,
    PromptProgress,
    TurnStarted,
)
from ds4chat.ui.activity import Activity, bar, time_left
from ds4chat.ui.attention import title_words
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import MODEL, FakeManager


def painted(chat: Chat) -> str:
    return chat.screen.status.render_line(0).text


class TestContext:
    def test_a_bar_tells_without_colour(self) -> None:
        assert [bar(part, 4) for part in (0, 0.01, 0.5, 1, 7)] == ["▱▱▱▱", "▰▱▱▱", "▰▰▱▱", "▰▰▰▰", "▰▰▰▰"]

    async def test_bar_and_numbers_as_far_as_there_is_room(self, manager: FakeManager) -> None:
        session = manager.make("One", ["a", "b"])
        session.tokens = 4096
        async with running(manager, session_id=session.id, size=(110, 30)) as chat:
            await chat.until(lambda: "▰▰▰▰▱▱▱▱ 4,096 / 8,192 · 50%" in painted(chat))
            await chat.pilot.resize_terminal(40, 10)
            await chat.until(lambda: "50%" in painted(chat))
            assert "4,096" not in painted(chat) and painted(chat).lstrip().startswith("SmolLM2")


class TestProgress:
    def test_time_left(self) -> None:
        assert [time_left(s) for s in (0.2, 12.4, 600)] == [
            "about 1 s left",
            "about 12 s left",
            "about 10 min left",
        ]

    def test_a_prompt_tells_how_long_it_still_takes(self) -> None:
        activity = Activity(EngineStatus())
        activity.apply(EngineChanged(EngineStatus("ready", "M", 1.0, 8192)), 0)
        activity.apply(TurnStarted("s", 1, 2), 0)
        activity.apply(PromptProgress("s", 512, 4608), 1)
        assert activity.left("s") == ["M", "reading prompt 512 / 4,608"]
        activity.apply(PromptProgress("s", 1024, 4608), 3)
        assert activity.left("s") == ["M", "reading prompt 1,024 / 4,608", "about 14 s left"]

    def test_a_long_restore_is_told_and_a_short_one_is_not(self) -> None:
        activity = Activity(EngineStatus("ready", "M", 1.0, 8192))
        activity.apply(TurnStarted("s", 1, 2), 0)
        activity.expect_restore("s", 2300)
        assert activity.left("s") == ["M", "restoring, about 2.3 s"]
        activity.expect_restore("s", 100)
        assert activity.left("s") == ["M", "reading prompt"]

    def test_forms_of_the_right_side_grow_shorter(self) -> None:
        activity = Activity(EngineStatus("ready", "M", 1.0, 8192))
        activity.apply(ContextUsed("s", 1168, 8192), 1)
        forms = activity.right_forms("s")
        assert forms == ["▰▱▱▱▱▱▱▱ 1,168 / 8,192 · 14%", "1,168 / 8,192 · 14%", "▰▱▱▱ 14%"]
        assert Activity(EngineStatus()).right_forms("s", 12) == ["12 tokens"]

    async def test_the_model_load_is_told(self, manager: FakeManager) -> None:
        manager.auto_ready = False
        async with running(manager) as chat:
            await chat.until(lambda: f"loading {MODEL} 43%" in chat.status)

    async def test_where_the_context_is(self, manager: FakeManager) -> None:
        warm, disk, cold = (manager.make(title, ["a", "b"]) for title in ("Warm", "Disk", "Cold"))
        manager.live_session = warm.id
        manager.stored[disk.id] = (900, 3_450_000_000)
        async with running(manager, session_id=warm.id) as chat:
            assert "in the engine" not in chat.status, "nothing of it was ever computed"
            manager.emit(ContextUsed(warm.id, 900, 8192))
            await chat.until(lambda: "◆ in the engine" in chat.status)
            chat.screen.open(disk.id)
            assert "◇ on disk, 2.3 s" in chat.status
            chat.screen.open(cold.id)
            assert "to be read again" in chat.status


class TestAttention:
    def test_words_of_the_title(self) -> None:
        assert title_words("Rust\x1b]2;x", unread=2, writing=True) == "✓ 2 · Rust␛]2;x · ds4chat"
        assert title_words("", unread=0, writing=True) == "● · ds4chat"
        assert title_words("Rust", unread=0, writing=False) == "Rust · ds4chat"

    async def _answered(self, chat: Chat, manager: FakeManager, session_id: str) -> None:
        manager.send(session_id, "x")
        manager.begin()
        manager.stream("done")
        manager.finish()
        await chat.until(lambda: "elsewhere" not in chat.status or "new" in chat.status)

    @pytest.mark.parametrize("wanted", [True, False])
    async def test_an_unfocused_terminal_gets_a_mark_and_a_bell_if_wanted(
        self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, wanted: bool
    ) -> None:
        session = manager.make("One", ["a", "b"])
        rung: list[bool] = []
        async with running(manager, session_id=session.id) as chat:
            monkeypatch.setattr(chat.app, "bell", lambda: rung.append(True))
            chat.screen.bell_when_done = wanted
            chat.app.post_message(events.AppBlur())
            await chat.until(lambda: not chat.app.app_focus)
            await self._answered(chat, manager, session.id)
            await chat.until(lambda: chat.screen.terminal_title.text == "✓ 1 · One · ds4chat")
            assert rung == ([True] if wanted else [])
            chat.app.post_message(events.AppFocus())
            await chat.until(lambda: chat.screen.terminal_title.text == "One · ds4chat")

    async def test_a_reply_that_is_watched_rings_nothing(
        self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = manager.make("One", ["a", "b"])
        rung: list[bool] = []
        async with running(manager, session_id=session.id) as chat:
            monkeypatch.setattr(chat.app, "bell", lambda: rung.append(True))
            chat.screen.bell_when_done = True
            await self._answered(chat, manager, session.id)
            await chat.until_shown("done")
            assert rung == [] and chat.screen.terminal_title.text == "One · ds4chat"

    async def test_a_stopped_reply_is_no_news(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["a", "b"])
        async with running(manager, session_id=one.id) as chat:
            manager.send(two.id, "x")
            manager.begin()
            manager.stop(two.id)
            await chat.pilot.pause()
            assert "new elsewhere" not in chat.status
