"""A context that is smaller than what a session holds, or nearly full; an engine that was updated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.engine import spawn
from ds4chat.sessions.events import ContextUsed, EngineNotice, PathChanged, WindowMoved
from tests.support.manager_room import ManagerRoom, manager_room
from tests.support.scripted_engine import scripted_room

LONG = "word " * 60


def notices(room: ManagerRoom, words: str) -> list[EngineNotice]:
    return [event for event in room.of(EngineNotice) if words in event.message]


async def test_a_look_at_a_chat_in_a_smaller_context_costs_it_nothing(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=2048, max_tokens=12) as room:
        session = room.manager.new_session()
        for number in range(5):
            await room.ask(session.id, f"Question {number}? " * 12)
        assert session.tokens > 512
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512, max_tokens=12) as room:
        small = room.manager.open_session(session.id)
        room.manager.rest_on(session.id)
        moved = await room.until(WindowMoved)
        assert moved.session_id == session.id and moved.first_message_id == small.window_start_id
        await room.until(ContextUsed)
        assert not [e for e in room.of(EngineNotice) if e.severity == "error"]
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512, max_tokens=12) as room:
        small = room.manager.open_session(session.id)
        assert small.window_start_id is None, "only looked at"
        room.manager.rest_on(session.id)
        await room.until(ContextUsed)
        ended = await room.ask(session.id, "And the last one?")
        assert ended.error == "" and ended.stats.generated_tokens == 12
        assert len(room.of(WindowMoved)) == 1
    async with manager_room(tiny["dense"], tmp_path, start=False) as room:
        assert room.manager.open_session(session.id).window_start_id == small.window_start_id is not None


async def test_a_message_in_a_smaller_context_lets_the_oldest_turns_fall_out(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=2048, max_tokens=12) as room:
        session = room.manager.new_session()
        for number in range(5):
            await room.ask(session.id, f"Question {number}? " * 12)
        room.manager.set_params(session.id, {"ctx": 512})
        ended = await room.ask(session.id, "And the last one?")
        assert ended.error == "" and ended.stats.generated_tokens == 12
        assert len(session.window()) < len(session.path()) and notices(room, "no longer reach")
        room.manager.set_params(session.id, {})
        assert session.window_start_id is None and room.of(PathChanged), "there is room for all again"
        ended = await room.ask(session.id, "And once more?")
        assert ended.stats.prompt_tokens > 512 and len(session.window()) == len(session.path())


async def test_one_turn_larger_than_the_context_is_looked_at_without_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, LONG * 5)
    async with scripted_room(monkeypatch, tmp_path, n_ctx=200) as (room, script):
        room.manager.open_session(session.id)
        room.manager.rest_on(session.id)
        other = room.manager.new_session()
        assert (await room.ask(other.id, "One?")).error == ""
        assert len(script.preparations) == 2, "then, and once more after the other's turn"
        assert room.of(WindowMoved) == []
        assert (await room.ask(session.id, "And?")).error == "", "the window is met on the way"


async def test_that_turns_will_fall_out_is_said_once_before_and_when_they_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        for number in range(11):
            await room.ask(session.id, f"{number} {LONG}")
            if session.tokens < 750:
                assert notices(room, "75% full") == []
        assert session.tokens > 750 and room.of(WindowMoved) == []
        await room.ask(session.id, "A short one?")
        said = notices(room, "The context is 75% full")
        assert len(said) == 1 and said[0].session_id == session.id and "/compact" in said[0].message
        while not room.of(WindowMoved):
            await room.ask(session.id, LONG)
        assert len(notices(room, "no longer reach")) == 1
        while len(room.of(WindowMoved)) < 2:
            await room.ask(session.id, LONG)
        assert len(notices(room, "75% full")) == 2, "once for each window"


async def test_an_update_of_the_engine_is_said_once_and_only_where_it_costs_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def version(number: str) -> None:
        monkeypatch.setattr(spawn, "_build", lambda: number)

    memo = tmp_path / "engine.json"
    version("0.3.1")
    memo.write_text(json.dumps({"no_extra_buffers": "0.3.1"}))
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        assert notices(room, "updated") == [], "the first run knows of none before"
    version("0.3.2")
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        assert notices(room, "updated") == [], "no checkpoint is lost"
        room.manager._shelf.db.record_span(session.id, "ab" * 20, 0, 10, "evict", 1000)
    version("0.3.3")
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        assert [e.message for e in notices(room, "updated")] == [
            "The engine was updated (0.3.2 to 0.3.3): each chat is computed once more when it is opened next."
        ]
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        assert notices(room, "updated") == []
    assert json.loads(memo.read_text()) == {"no_extra_buffers": "0.3.1", "build": "0.3.3"}
