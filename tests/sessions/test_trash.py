"""Deleting with undo, drafts, pins, archive and tags through the manager."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from ds4chat.engine.protocol import Stored
from ds4chat.errors import SessionLockedError, SessionNotFoundError, UsageError
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import EngineChanged, SessionListChanged, TextStreamed
from ds4chat.sessions.housekeeping import KEEP_SECONDS
from tests.support.manager_room import ManagerRoom, manager_room
from tests.support.scripted_engine import scripted_room


def listed(room: ManagerRoom, **which: object) -> list[str]:
    return [info.title for info in room.manager.list_sessions(**which)]  # type: ignore[arg-type]


async def test_a_deleted_session_comes_back_with_all_of_it(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        session = room.manager.new_session()
        first = await room.ask(session.id, "Tell me of the sea. " * 6)
        room.manager.delete_session(session.id)
        assert room.manager.list_sessions() == [] and room.manager.count_sessions() == 0
        with pytest.raises(UsageError):
            room.manager.undelete_session("00000000")
        room.manager.undelete_session(session.id)
        again = room.manager.open_session(session.id)
        assert [m.text for m in again.path()] == [m.text for m in session.path()]
        ended = await room.ask(session.id, "And of the wind?")
        assert ended.stats.cached_tokens >= first.stats.prompt_tokens, "its state is as warm as before"
        with pytest.raises(SessionNotFoundError):
            room.manager.undelete_session(session.id)


async def test_what_was_deleted_goes_for_good_with_the_process(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        kept, gone = room.manager.new_session(), room.manager.new_session()
        await room.ask(gone.id, "A secret of mine. " * 6)
        await room.ask(kept.id, "Tell me something. " * 6)
        assert any(b"secret" in path.read_bytes() for path in (tmp_path / "kv").rglob("*.kv"))
        room.manager.delete_session(gone.id)
    left = [path.read_bytes() for path in (tmp_path / "kv").rglob("*.kv")]
    assert left and not any(b"secret" in data for data in left)
    assert not any((tmp_path / "locks").glob(f"{gone.id}*"))
    with sqlite3.connect(tmp_path / "sessions.db") as db:
        assert db.execute("SELECT COUNT(*) FROM sessions").fetchone() == (1,)


async def test_leftovers_of_a_killed_process_go_after_a_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        old, young = room.manager.new_session(), room.manager.new_session()
        await room.ask(old.id, "Old?")
        await room.ask(young.id, "Young?")
    with Database(tmp_path / "sessions.db") as db:
        db.record_span(old.id, "ab" * 20, 0, 10, "evict", 1000)
        db.trash(young.id)
        db.trash(old.id)
    with sqlite3.connect(tmp_path / "sessions.db") as raw:
        raw.execute("UPDATE sessions SET trashed = trashed - ? WHERE id = ?", (KEEP_SECONDS + 60, old.id))
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        assert [(f.session, f.spans) for f in script.forgotten] == [(old.id, ["ab" * 20])]
        assert listed(room) == []
    with sqlite3.connect(tmp_path / "sessions.db") as raw:
        assert raw.execute("SELECT id FROM sessions").fetchall() == [(young.id,)]


async def test_without_an_engine_what_has_checkpoints_waits_for_a_later_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        a, b = room.manager.new_session(), room.manager.new_session()
        await room.ask(a.id, "A?")
        await room.ask(b.id, "B?")
    with Database(tmp_path / "sessions.db") as db:
        db.record_span(a.id, "ab" * 20, 0, 10, "evict", 1000)
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, _):
        room.manager.delete_session(a.id)
        room.manager.delete_session(b.id)
        assert listed(room) == []
    with sqlite3.connect(tmp_path / "sessions.db") as raw:
        assert raw.execute("SELECT id FROM sessions").fetchall() == [(a.id,)]


async def test_the_checkpoints_of_what_was_deleted_are_the_first_to_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        a, b = room.manager.new_session(), room.manager.new_session()
        await room.ask(a.id, "A?")
        await room.ask(b.id, "B?")
        shared = Stored(b.id, "aa" * 20, 0, 10, "evict", 1000)
        for event in (
            shared,
            msgspec.structs.replace(shared, session=a.id),
            Stored(a.id, "bb" * 20, 10, 20, "idle", 1),
        ):
            script.clients[-1].say(event)
        assert script.expendable == []
        room.manager.delete_session(a.id)
        assert script.expendable == [["bb" * 20]], "the other chat stands on the first"
        # What was being written when it was deleted.
        script.clients[-1].say(Stored(a.id, "cc" * 20, 20, 30, "evict", 1))
        assert script.expendable[1:] == [["bb" * 20, "cc" * 20]]
        script.crash()
        await room.until(EngineChanged, lambda e: e.status.phase == "ready", after=len(room.events))
        assert script.expendable[2:] == [["bb" * 20, "cc" * 20]], "a new engine is told too"
        room.manager.undelete_session(a.id)
        assert script.expendable[3:] == [[]]


async def test_a_session_that_is_busy_or_open_elsewhere_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.hold = True
        room.manager.send(session.id, "One?")
        await room.until(TextStreamed)
        with pytest.raises(UsageError, match="stop it first"):
            room.manager.delete_session(session.id)
        script.go_on()
        await room.manager.wait_turn(session.id)
        async with scripted_room(monkeypatch, tmp_path, start=False) as (other, _):
            with pytest.raises(SessionLockedError):
                other.manager.delete_session(session.id)
        assert listed(room) == ["One?"]


async def test_a_session_that_never_had_a_message_is_deleted_and_brought_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, _):
        session = room.manager.new_session()
        room.manager.save_draft(session.id, "half a th")
        room.manager.delete_session(session.id)
        room.manager.undelete_session(session.id)
        assert room.manager.open_session(session.id).draft == "half a th"


async def test_undo_in_a_chat_that_is_not_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, save=False) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        room.manager.delete_session(session.id)
        room.manager.undelete_session(session.id)
        assert room.manager.open_session(session.id) is session
        await room.ask(session.id, "Two?")
        assert len(session.path()) == 4
    assert not (tmp_path / "sessions.db").exists()


async def test_a_draft_is_there_after_a_kill_and_does_not_move_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        first, second = room.manager.new_session(), room.manager.new_session()
        await room.ask(first.id, "First?")
        await room.ask(second.id, "Second?")
        room.manager.save_draft(first.id, "and then I wan")
        room.manager.leave_session(first.id)
        room.manager.save_draft(first.id, "and then I wanted")
        assert listed(room) == ["Second?", "First?"]
        with Database(tmp_path / "sessions.db") as db:
            assert db.load_session(first.id).draft == "and then I wanted"
        assert room.manager.open_session(first.id).draft == "and then I wanted"


async def test_pins_archive_and_tags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        manager = room.manager
        a, b = manager.new_session(), manager.new_session()
        await room.ask(a.id, "A?")
        await room.ask(b.id, "B?")
        seen = len(room.of(SessionListChanged))
        manager.pin_session(a.id, True)
        assert listed(room) == ["A?", "B?"] and a.pinned
        manager.archive_session(b.id, True)
        assert listed(room) == ["A?"] and listed(room, archived=True) == ["B?"]
        assert (manager.count_sessions(), manager.count_sessions(archived=True)) == (1, 1)
        manager.tag_session(a.id, ["  work ", "#home", "work"])
        assert a.tags == ["work", "home"] and manager.all_tags() == ["home", "work"]
        assert listed(room, tag="work") == ["A?"] and listed(room, tag="play") == []
        manager.archive_session(b.id, False)
        manager.pin_session(a.id, False)
        assert listed(room) == ["B?", "A?"]
        assert len(room.of(SessionListChanged)) == seen + 5
        assert [hit.session_id for hit in manager.search("so be")] == [b.id, a.id]
