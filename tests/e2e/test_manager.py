"""The session manager on the real engine child: queueing, stopping, crashes, a full context, other processes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ds4chat.engine.protocol import KvOptions
from ds4chat.errors import SessionLockedError, UsageError
from ds4chat.sessions.events import (
    ContextRestored,
    EngineChanged,
    EngineNotice,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    WindowMoved,
)
from tests.support.manager_room import manager_room


async def test_two_sessions_one_streams_while_the_other_waits(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=500) as room:
        a, b = room.manager.new_session().id, room.manager.new_session().id
        room.manager.send(a, "Tell me a long story.")
        await room.until(TextStreamed, lambda e: e.session_id == a)
        room.manager.send(b, "And a short one.")
        assert room.manager.busy_sessions() == {a: "running", b: "queued"}
        assert await room.until(TurnQueued, lambda e: e.session_id == b) == TurnQueued(
            b, room.manager.open_session(b).path()[0].id, 1
        )
        ended_a = await room.until(TurnEnded, lambda e: e.session_id == a)
        ended_b = await room.until(TurnEnded, lambda e: e.session_id == b)
        assert ended_a.stats.generated_tokens == 500 and ended_b.stats.generated_tokens == 500
        order = [e.session_id for e in room.of(TurnStarted)]
        assert order == [a, b]
        assert [m.role for m in room.manager.open_session(b).path()] == ["user", "assistant"]


async def test_what_is_sent_twice_while_waiting_is_answered_once(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, start=False) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "First half,")
        room.manager.send(session.id, "second half.")
        ended = await room.manager.wait_turn(session.id)
        assert ended.state == "length"
        assert [m.role for m in session.path()] == ["user", "user", "assistant"]
        assert len(room.of(TurnStarted)) == 1


async def test_stop_keeps_what_came_and_continue_goes_on(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path / "whole", max_tokens=800) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me a long story.")
        whole = session.path()[-1].tokens
    async with manager_room(tiny["dense"], tmp_path / "parts", max_tokens=800) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a long story.")
        await room.until(TextStreamed)
        assert room.manager.stop(session.id)
        ended = await room.manager.wait_turn(session.id)
        reply = session.path()[-1]
        assert (ended.state, reply.state) == ("stopped", "stopped")
        part = list(reply.tokens)
        assert 0 < len(part) < 800 and part == whole[: len(part)]
        room.manager.continue_reply(session.id)
        await room.manager.wait_turn(session.id)
        assert reply.tokens[:800] == whole
        assert len([m for m in session.messages.values() if m.role == "assistant"]) == 1


async def test_stopping_a_waiting_turn_keeps_its_text(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=500) as room:
        a, b = room.manager.new_session().id, room.manager.new_session()
        room.manager.send(a, "Tell me a long story.")
        await room.until(TextStreamed)
        room.manager.send(b.id, "Never mind.")
        assert room.manager.stop(b.id)
        assert not room.manager.stop(b.id)
        assert [m.text for m in b.path()] == ["Never mind."]
        assert b.path()[0].state == "complete"
        ended = await room.until(TurnEnded, lambda e: e.session_id == b.id)
        assert ended.reply_id is None
        await room.manager.wait_turn(a)


async def test_the_engine_killed_in_the_middle_of_a_reply(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        await room.until(TextStreamed)
        room.kill_engine()
        ended = await room.until(TurnEnded)
        assert ended.state == "cut"
        reply = session.path()[-1]
        assert reply.state == "cut" and reply.text
        shown = "".join(e.text for e in room.of(TextStreamed))
        assert reply.text == shown
        notice = room.of(EngineNotice)[0]
        assert notice.session_id == session.id
        assert (
            notice.message == "The engine was ended by SIGKILL and is started again; what was shown is kept."
        )
        await room.until(EngineChanged, lambda e: e.status.phase == "ready", after=room.events.index(ended))
        room.manager.set_params(session.id, {"max_tokens": 8})
        again = await room.ask(session.id, "Go on.")
        assert again.state == "length" and again.stats.generated_tokens == 8


async def test_an_engine_that_dies_again_and_again_waits_for_the_next_message(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        session = room.manager.new_session()
        for _ in range(2):
            seen = len(room.events)
            room.kill_engine()
            await room.until(EngineChanged, lambda e: e.status.phase in ("ready", "failed"), after=seen)
        assert room.manager.engine.phase == "failed"
        assert "the next message starts it anew" in room.manager.engine.message
        ended = await room.ask(session.id, "Hello?")
        assert ended.stats.generated_tokens == 24


async def test_a_model_that_cannot_be_loaded_fails_the_turn_and_keeps_the_text(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    async with manager_room(bad, tmp_path / "home", start=False) as room:
        session = room.manager.new_session()
        ended = await room.ask(session.id, "Hello?")
        assert ended.state == "failed" and ended.reply_id is None
        assert ended.error.startswith(f"The model {bad} is a GGUF file of version 0")
        assert [m.text for m in session.path()] == ["Hello?"]


async def test_forty_turns_in_512_tokens_keep_the_system_prompt(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(
        tiny["dense"], tmp_path, n_ctx=512, max_tokens=30, system="You answer in verse."
    ) as room:
        session = room.manager.new_session()
        for i in range(40):
            ended = await room.ask(session.id, f"Question number {i}, if you please?")
            assert ended.error == "" and ended.stats.generated_tokens == 30, (i, ended)
            assert ended.stats.prompt_tokens + 30 <= 512
        assert len(session.path()) == 80
        moves = room.of(WindowMoved)
        assert len(moves) > 3
        assert moves[-1].first_message_id == session.window_start_id
        notices = [e for e in room.of(EngineNotice) if "no longer reach" in e.message]
        assert len(notices) == len(moves)
        window = session.window()
        assert window[0].role == "user" and len(window) < 80
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512, max_tokens=30) as room:
        again = room.manager.open_session(session.id)
        assert again.window_start_id == session.window_start_id
        assert again.system == "You answer in verse."
        ended = await room.ask(again.id, "And the last one?")
        assert ended.stats.prefilled_tokens < 60, "the same window renders the same bytes"


async def test_a_reply_that_fills_the_context_goes_on_in_a_moved_window(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512, max_tokens=None) as room:
        session = room.manager.new_session()
        room.manager.set_params(session.id, {"max_tokens": 100})
        for _ in range(3):
            await room.ask(session.id, "Tell me something.")
        room.manager.set_params(session.id, {"max_tokens": 330})
        ended = await room.ask(session.id, "And now at length.")
        assert ended.stats.generated_tokens == 330 and ended.stats.stop_reason == "length"
        assert len(session.path()[-1].tokens) == 330
        assert room.of(WindowMoved)


async def test_a_message_larger_than_the_context_fails_with_a_sentence(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512) as room:
        session = room.manager.new_session()
        ended = await room.ask(session.id, "word " * 2000)
        assert ended.state == "failed" and "larger --ctx" in ended.error
        assert session.path()[0].text.startswith("word word")
        ended = await room.ask(session.id, "Hello?")
        assert ended.state == "length", "the chat goes on without it"


async def test_a_session_open_elsewhere_is_locked_and_can_be_forked(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path) as first:
        session = first.manager.new_session()
        await first.ask(session.id, "Tell me something.")
        async with manager_room(tiny["dense"], tmp_path, start=False) as second:
            with pytest.raises(SessionLockedError):
                second.manager.open_session(session.id)
            view = second.manager.open_read_only(session.id)
            assert [m.text for m in view.path()] == [m.text for m in session.path()]
            with pytest.raises(SessionLockedError):
                second.manager.send(session.id, "Me too.")
            fork = second.manager.fork_session(session.id)
            ended = await second.ask(fork.id, "Me too.")
            assert ended.stats.generated_tokens == 24
            first.manager.leave_session(session.id)
            assert second.manager.open_session(session.id).id == session.id


async def test_resting_on_a_session_restores_it_before_anything_is_sent(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me a story of the sea.")
    async with manager_room(tiny["dense"], tmp_path) as room:
        room.manager.open_session(session.id)
        room.manager.rest_on(session.id)
        restored = await room.until(ContextRestored)
        assert restored.session_id == session.id and restored.tokens > 20
        ended = await room.ask(session.id, "And then?")
        assert ended.stats.restore_ms == 0 and ended.stats.cached_tokens >= restored.tokens


async def test_nothing_is_left_of_a_chat_that_is_not_saved(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(
        tiny["dense"], tmp_path, save=False, kv=KvOptions(directory=str(tmp_path / "kv"), read_only=True)
    ) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "A secret.")
        assert not room.manager.is_saved(session.id)
    assert not list(tmp_path.rglob("*.kv"))
    assert not (tmp_path / "sessions.db").exists()


async def test_a_quit_in_the_middle_of_a_reply_marks_it_cut_and_stores_the_tail(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        await room.until(TextStreamed)
    saved = session.path()[-1]
    assert saved.state == "cut" and saved.tokens
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        again = room.manager.open_session(session.id)
        assert again.path()[-1].tokens == saved.tokens
        room.manager.continue_reply(again.id)
        ended = await room.manager.wait_turn(again.id)
        assert ended.stats.prefilled_tokens == 1, "only the pending token"
        assert again.path()[-1].tokens[: len(saved.tokens)] == saved.tokens


async def test_the_sessions_checkpoints_are_known_to_the_database(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me something.")
    names = {path.stem for path in (tmp_path / "kv").rglob("*.kv")}
    with sqlite3.connect(tmp_path / "sessions.db") as db:
        known = {row[0] for row in db.execute("SELECT sha1 FROM spans WHERE session_id = ?", (session.id,))}
    assert names and known == names


async def test_blank_text_is_refused(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, start=False) as room:
        session = room.manager.new_session()
        with pytest.raises(UsageError):
            room.manager.send(session.id, "  \n ")
        with pytest.raises(UsageError):
            room.manager.continue_reply(session.id)
        assert session.path() == []


async def test_a_deleted_session_leaves_neither_checkpoints_nor_its_tail(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        kept, gone = room.manager.new_session(), room.manager.new_session()
        await room.ask(kept.id, "Tell me something.")
        await room.ask(gone.id, "A secret of mine.")
        await room.ask(kept.id, "And more.")
        await room.ask(gone.id, "Another secret.")
        room.manager.delete_session(gone.id)
        assert [s.id for s in room.manager.list_sessions()] == [kept.id]
    left = [path.read_bytes() for path in (tmp_path / "kv").rglob("*.kv")]
    assert left and not any(b"secret" in data for data in left)
    assert any(b"Tell me something" in data for data in left)


async def test_the_session_brings_its_own_model(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path) as room:
        a = room.manager.new_session()
        await room.ask(a.id, "Tell me something.")
    async with manager_room(tiny["recurrent"], tmp_path) as room:
        b = room.manager.new_session()
        await room.ask(b.id, "Tell me something.")
        assert room.manager.engine.model == "recurrent"
        room.manager.open_session(a.id)
        ended = await room.ask(a.id, "And more.")
        assert room.manager.engine.model == "dense"
        assert ended.stats.cached_tokens > 0, "its checkpoints are found again"
        assert [m.model for m in room.manager.open_session(a.id).path() if m.model] == ["dense", "dense"]


async def test_a_message_too_long_for_any_window_does_not_cost_the_chat_its_past(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=512) as room:
        session = room.manager.new_session()
        first = await room.ask(session.id, "My name is Bob.")
        refused = await room.ask(session.id, "word " * 2000)
        assert refused.state == "failed"
        assert room.of(WindowMoved) == [] and session.window_start_id is None
        after = await room.ask(session.id, "What is my name?")
        assert after.stats.prompt_tokens > first.stats.prompt_tokens + first.stats.generated_tokens


async def test_a_question_that_waited_when_all_was_killed_can_be_answered(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        await room.until(TextStreamed)
        room.manager.send(session.id, "And then?")
    assert [m.role for m in session.path()] == ["user", "assistant", "user"]
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        room.manager.open_session(session.id)
        room.manager.continue_reply(session.id)
        ended = await room.manager.wait_turn(session.id)
        assert ended.stats.generated_tokens == 8
        assert [m.role for m in room.manager.open_session(session.id).path()][-2:] == ["user", "assistant"]
