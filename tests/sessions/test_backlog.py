"""Another program writes to the session database: nothing waits for it, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ds4chat.errors import DatabaseBusyError, DatabaseError
from ds4chat.sessions import backlog, conductor
from ds4chat.sessions.backlog import Backlog
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import EngineNotice, SessionListChanged, TextStreamed, TurnEnded
from ds4chat.sessions.session import Message, Session
from tests.support.scripted_engine import scripted_room

BRISK = 0.25
"""Seconds that no call may take while the database is busy: far below what the screen would feel as stuck."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(backlog, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(backlog, "TELL_SECONDS", 0.1)


@contextmanager
def busy(home: Path) -> Iterator[sqlite3.Connection]:
    """Another program in the middle of a write, until the end of the block."""
    other = sqlite3.connect(home / "sessions.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


@contextmanager
def brisk() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < BRISK


def texts(home: Path, session_id: str) -> list[tuple[str, str]]:
    with Database(home / "sessions.db") as database:
        return [(message.text, message.state) for message in database.load_session(session_id).path()]


async def test_a_message_sent_meanwhile_is_answered_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        manager = room.manager
        session = manager.new_session()
        await room.ask(session.id, "first")
        with busy(tmp_path):
            with brisk():
                assert manager.send(session.id, "second") is None
                assert manager.send(session.id, "third") is None
            assert manager.is_busy(session.id) and manager.busy_sessions() == {session.id: "queued"}
            await room.until(EngineNotice, lambda e: "second" in e.message)
            assert any("Another program is writing" in e.message for e in room.of(EngineNotice))
            assert len(script.questions) == 1
        await room.until(EngineNotice, lambda e: "everything is saved" in e.message)
        async with asyncio.timeout(10):
            await manager.wait_turn(session.id)
        assert [m.text for m in session.path() if m.role == "user"] == ["first", "second", "third"]
        assert texts(tmp_path, session.id) == [(m.text, m.state) for m in session.path()]
    assert "database is locked" not in caplog.text


async def test_a_reply_goes_on_and_is_saved_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        manager = room.manager
        session = manager.new_session()
        script.hold = True
        manager.send(session.id, "a question")
        await room.until(TextStreamed)
        with busy(tmp_path):
            with brisk():
                script.go_on()
            await room.until(TurnEnded)
            assert session.path()[-1].text == "so be it"
            assert texts(tmp_path, session.id)[-1][1] == "streaming"
            with brisk():
                manager.rename_session(session.id, "Another title")
                manager.pin_session(session.id, True)
                manager.leave_session(session.id)
            assert manager.open_session(session.id) is session
            manager.leave_session(session.id)
            seen = len(room.events)
        await room.until(SessionListChanged, after=seen)
        assert texts(tmp_path, session.id)[-1] == ("so be it", "complete")
        assert [(info.title, info.pinned) for info in manager.list_sessions()] == [("Another title", True)]
        assert manager.open_session(session.id) is not session


async def test_a_turn_waits_for_the_place_of_its_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        manager = room.manager
        one, two = manager.new_session(), manager.new_session()
        script.hold = True
        manager.send(one.id, "first")
        await room.until(TextStreamed)
        manager.send(two.id, "second")
        with busy(tmp_path):
            script.go_on()
            await room.until(TurnEnded)
            await asyncio.sleep(0.1)
            assert manager.busy_sessions() == {two.id: "queued"}
        await room.until(TurnEnded, lambda e: e.session_id == two.id)
        assert [text for text, _ in texts(tmp_path, two.id)] == ["second", "so be it"]


async def test_what_waits_can_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        with busy(tmp_path):
            room.manager.send(session.id, "never mind")
            assert room.manager.stop(session.id)
            assert not room.manager.is_busy(session.id)
            await room.until(EngineNotice, lambda e: e.message == 'Not sent: "never mind"')
        await asyncio.sleep(0.1)
        assert not script.questions and room.manager.list_sessions() == []


async def test_a_quit_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        with busy(tmp_path) as other:
            room.manager.send(session.id, "last words")
            asyncio.get_running_loop().call_later(0.2, other.rollback)
            await room.manager.aclose()
    assert texts(tmp_path, session.id) == [("last words", "complete")]


async def test_a_quit_that_waited_too_long_keeps_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "WRITING_SECONDS", 0.1)
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        with busy(tmp_path):
            room.manager.send(room.manager.new_session().id, "last words")
            await room.manager.aclose()
        assert any("could not be saved" in e.message for e in room.of(EngineNotice))
        assert (tmp_path / "draft.txt").read_text() == "last words"


def test_looking_at_a_session_writes_nothing(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = Session("", title="kept")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "hello"))

    async def look() -> None:
        from ds4chat.sessions.shelf import Shelf

        with busy(tmp_path), brisk():
            shelf = Shelf(tmp_path, save=True, on_failure=pytest.fail)
            shelf.open(session.id)
            assert not len(shelf.backlog)
            shelf.close()

    asyncio.run(look())


class Door:
    """A database for a test: it is busy while it is shut."""

    def __init__(self) -> None:
        self.patience: float | None = None
        self.shut = True
        self.done: list[str] = []

    def write(self, what: str) -> None:
        if self.shut:
            raise DatabaseBusyError("busy")
        if what == "bad":
            raise DatabaseError("bad")
        self.done.append(what)


async def test_jobs_keep_their_order_and_a_bad_one_holds_up_nobody() -> None:
    door, failed, told = Door(), list[str](), list[bool]()
    jobs = Backlog(door, lambda: None, told.append, lambda error: failed.append(str(error)))
    for what in ("a", "bad", "b"):
        assert not jobs.do(lambda what=what: door.write(what))
    assert not jobs.do(lambda: door.write("old"), key=1)
    assert not jobs.do(lambda: door.write("new"), key=1)
    with pytest.raises(DatabaseBusyError), jobs.first():
        pass
    door.shut = False
    with jobs.first():
        door.write("first")
    assert door.done == ["a", "b", "new", "first"]
    assert failed == ["bad"] and told == [False] and door.patience is None
    with pytest.raises(DatabaseError, match="bad"):
        jobs.do(lambda: door.write("bad"))


def test_without_an_event_loop_it_is_as_it_was() -> None:
    door = Door()
    jobs = Backlog(door, lambda: None, lambda told: None, lambda error: None)
    with pytest.raises(DatabaseBusyError):
        jobs.do(lambda: door.write("a"))
    assert not len(jobs)
