"""What is kept of a chat and what is not: drafts, incognito chats, chats that another terminal has."""

from __future__ import annotations

import pytest

from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager
from tests.ui.lists import lines


class TestIncognito:
    async def test_it_is_said_and_leaves_nothing(self, manager: FakeManager) -> None:
        kept = manager.make("Kept", ["a", "b"])
        async with running(manager, session_id=kept.id) as chat:
            await chat.pilot.press("alt+n")
            secret = chat.screen.current_id
            assert manager.is_incognito(secret)
            assert "leaves nothing behind" in str(chat.screen.query_one("#title").render())
            assert "incognito" in chat.status
            await chat.pilot.press(*"psst", "enter")
            manager.begin()
            manager.stream("quiet")
            manager.finish()
            await chat.until_shown("quiet")
            assert "incognito" in str(chat.screen.query_one("#title").render())
            assert [info.id for info in manager.list_sessions()] == [kept.id]
            assert chat.screen.resumable is None

    async def test_the_way_back_is_in_the_list(self, manager: FakeManager) -> None:
        kept = manager.make("Kept", ["a", "b"])
        async with running(manager, session_id=kept.id) as chat:
            await chat.pilot.press("alt+n", *"psst", "enter")
            secret = chat.screen.current_id
            chat.screen.open(kept.id)
            await chat.until(
                lambda: [row.session_id for row in chat.screen.sessions.rows] == [secret, kept.id]
            )
            assert lines(chat.screen.sessions)[0].strip() == "Incognito"
            await chat.pilot.press("ctrl+o", "1")
            assert chat.screen.current_id == secret

    async def test_a_new_chat_is_not_the_incognito_one(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            plain = chat.screen.current_id
            await chat.pilot.press("alt+n")
            secret = chat.screen.current_id
            await chat.pilot.press("ctrl+n")
            assert chat.screen.current_id == plain
            await chat.pilot.press("alt+n")
            assert chat.screen.current_id == secret


class TestDrafts:
    async def test_saved_when_leaving_and_restored_later(self, manager: FakeManager) -> None:
        one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
        async with running(manager, session_id=one.id) as chat:
            await chat.pilot.press(*"for one")
            chat.screen.open(two.id)
            assert one.draft == "for one"
            await chat.pilot.press(*"for two", "ctrl+q")
            await chat.until(lambda: not chat.app.is_running)
        assert two.draft == "for two"
        async with running(manager, session_id=two.id) as chat:
            assert chat.prompt.text == "for two"
            chat.screen.open(one.id)
            assert chat.prompt.text == "for one"

    async def test_what_was_typed_in_a_new_chat_is_there_in_the_next_run(self, manager: FakeManager) -> None:
        manager.new_draft = "from the run before"
        async with running(manager) as chat:
            assert chat.prompt.text == "from the run before"
            await chat.pilot.press("alt+n")
            assert chat.prompt.text == ""

    async def test_saved_while_typing(self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ds4chat.ui.screens.viewing.DRAFT_SECONDS", 0.05)
        session = manager.make("One", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"half a")
            await chat.until(lambda: session.draft == "half a")

    async def test_what_was_sent_is_no_draft(self, manager: FakeManager) -> None:
        session = manager.make("One", ["a", "b"])
        session.draft = "ready to go"
        async with running(manager, session_id=session.id) as chat:
            assert chat.prompt.text == "ready to go"
            await chat.pilot.press("enter")
            await chat.until(lambda: len(manager.queue) == 1)
            assert session.draft == ""

    async def test_incognito_drafts_stay_in_memory(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press("alt+n", *"secret")
            secret = chat.screen.current_id
            await chat.pilot.press("ctrl+n", "alt+n")
            assert chat.prompt.text == "secret"
            assert manager.sessions[secret].draft == ""


class TestReadOnly:
    async def test_it_follows_the_other_terminal(
        self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ds4chat.ui.screens.viewing.FOLLOW_SECONDS", 0.02)
        session = manager.make("Elsewhere", ["a question", "an answer"])
        manager.locked.add(session.id)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("an answer", "read only")
            session.messages[2].text = "an answer that grew there"
            session.title = "Renamed there"
            manager.written_elsewhere.add(session.id)
            await chat.until_shown("an answer that grew there")
            await chat.until(
                lambda: "Renamed there (read only)" in str(chat.screen.query_one("#title").render())
            )
            for action in ("pin", "archive", "tags", "rename", "delete"):
                assert not chat.screen.check_action(action, ())
