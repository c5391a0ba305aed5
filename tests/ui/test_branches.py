"""Alternatives of a message: made by regenerating and editing, shown, walked by keys and mouse."""

from __future__ import annotations

from ds4chat.sessions.events import PathChanged
from ds4chat.sessions.session import Message, Session
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

TEXTS = ["first question", "first answer", "second question", "second answer"]


def with_branches(manager: FakeManager, of: int = 3) -> Session:
    """A session whose first reply has alternatives; it stands on the oldest, with a turn behind it."""
    session = manager.make("t", TEXTS)
    question, head = session.path()[0].id, session.head_id
    for n in range(2, of + 1):
        session.append(Message(1000 + n, question, "assistant", f"answer number {n}"))
    session.head_id = head
    return session


class TestRegenerating:
    async def test_r_writes_the_reply_again(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "r")
            await chat.until(lambda: "second answer" not in chat.shown())
            manager.begin()
            manager.stream("something else")
            await chat.until_shown("something else", "< 2/2 >")
            assert chat.has_focus(chat.prompt)
            assert chat.prompt.text == "draft"
            assert chat.transcript.following

    async def test_alt_r_writes_the_last_one_again(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("alt+r")
            await chat.until(lambda: bool(manager.queue))
            assert session.head_id == session.path()[2].id

    async def test_alt_r_below_a_question_without_a_reply_leaves_the_reply_above_alone(
        self, manager: FakeManager
    ) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            manager.send(session.id, "And now?")
            manager.stop(session.id)
            await chat.until(lambda: not manager.is_busy(session.id))
            ids = [message.id for message in session.path()]
            await chat.pilot.press("alt+r")
            await chat.until(lambda: "no reply to this message yet: Ctrl+G answers it" in chat.status)
            assert [message.id for message in session.path()] == ids and not manager.queue

    async def test_r_on_a_question_regenerates_its_reply(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "home", "r")
            await chat.until(lambda: "first answer" not in chat.shown())
            assert session.head_id == session.path()[0].id

    async def test_a_busy_session_says_so(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            manager.send(session.id, "more")
            manager.begin()
            await chat.until_shown("more")
            await chat.pilot.press("tab", "home", "r")
            await chat.until(lambda: bool(chat.toasts))
            await chat.until_shown("first answer")


class TestWalking:
    async def test_arrows_walk_and_the_cursor_stays(self, manager: FakeManager) -> None:
        session = with_branches(manager)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("first answer", "< 1/3 >", "second answer")
            await chat.pilot.press("tab", "home", "down", "right")
            await chat.until_shown("answer number 2", "< 2/3 >")
            assert chat.chosen == 1002
            assert "second question" not in chat.shown()
            await chat.pilot.press("right")
            await chat.until_shown("answer number 3", "< 3/3 >")
            await chat.pilot.press("right")
            await chat.until(lambda: "no branch that way" in chat.status)
            await chat.pilot.press("left", "left")
            await chat.until_shown("first answer", "< 1/3 >", "second answer")

    async def test_the_signs_can_be_clicked(self, manager: FakeManager) -> None:
        session = with_branches(manager)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("< 1/3 >")
            row = chat.row_of("< 1/3 >")
            await chat.pilot.click(chat.transcript, offset=(chat.lines()[row].index("/3 >") + 3, row))
            await chat.until_shown("answer number 2", "< 2/3 >")
            await chat.pilot.click(chat.transcript, offset=(chat.lines()[row].index("< 2"), row))
            await chat.until_shown("first answer", "< 1/3 >")

    async def test_a_message_without_alternatives_shows_none(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("second answer")
            assert "1/1" not in chat.shown()
            await chat.pilot.press("tab", "left")
            assert [message.text for message in session.path()] == TEXTS

    async def test_the_view_stays_where_it_is(self, manager: FakeManager) -> None:
        texts = [
            f"text {n}" if n % 2 == 0 else "\n\n".join(f"line {n}.{i}" for i in range(9)) for n in range(40)
        ]
        session = manager.make("t", texts)
        question, head = session.path()[20].id, session.head_id
        session.append(Message(1002, question, "assistant", "\n\n".join(f"other {i}" for i in range(9))))
        session.head_id = head
        async with running(manager, session_id=session.id, size=(80, 24)) as chat:
            await chat.until_shown("line 39.8")
            chat.transcript.reveal(session.path()[21].id)
            await chat.until_shown("line 21.0", "< 1/2 >")
            row = chat.row_of("< 1/2 >")
            await chat.pilot.press("right")
            await chat.until_shown("other 0", "< 2/2 >")
            await chat.pilot.press("left")
            await chat.until_shown("line 21.0", "< 1/2 >")
            assert chat.row_of("< 1/2 >") == row

    async def test_what_is_the_same_is_not_painted_again(self, manager: FakeManager) -> None:
        session = with_branches(manager)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("first question")
            entry = chat.transcript.message(session.path()[0].id)
            assert entry is not None
            strips = entry.strips
            manager.choose_branch(session.id, 1003)
            await chat.until_shown("answer number 3")
            assert chat.transcript.message(session.path()[0].id) is entry
            assert entry.strips is strips

    async def test_notes_of_another_branch_wait_there(self, manager: FakeManager) -> None:
        session = with_branches(manager)
        async with running(manager, session_id=session.id) as chat:
            manager.notice("a note of this branch", session.id)
            await chat.until_shown("i a note of this branch")
            manager.choose_branch(session.id, 1002)
            await chat.until_shown("answer number 2")
            assert "i a note" not in chat.shown()
            manager.choose_branch(session.id, session.siblings(1002)[0].id)
            await chat.until_shown("i a note of this branch")


async def test_the_reader_keeps_the_place_when_the_path_changes(manager: FakeManager) -> None:
    texts = [f"text {n}" if n % 2 == 0 else "\n\n".join(f"line {n}.{i}" for i in range(9)) for n in range(40)]
    session = manager.make("t", texts)
    async with running(manager, session_id=session.id, size=(80, 24)) as chat:
        await chat.until_shown("line 39.8")
        await chat.pilot.press(*["pageup"] * 6)
        before = chat.lines()
        manager.emit(PathChanged(session.id))
        manager.delete_turn(session.id, session.path()[-1].id)
        await chat.until(lambda: chat.transcript.message(session.path()[-1].id) is not None)
        await chat.pilot.pause()
        assert chat.lines() == before
