"""Summaries of the older part: what the model is asked, what takes the place of what, and what changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.errors import UsageError
from ds4chat.sessions.compacting import QUESTION
from ds4chat.sessions.events import (
    CompactProgress,
    EngineNotice,
    PathChanged,
    SummaryChanged,
    TextStreamed,
    TurnEnded,
    WindowMoved,
)
from ds4chat.sessions.manager import SessionManager
from ds4chat.sessions.session import Session
from tests.support.manager_room import ManagerRoom, manager_room
from tests.support.scripted_engine import scripted_room

LONG = "word " * 60


async def chat(room: ManagerRoom, turns: int = 4, system: str | None = None) -> Session:
    session = room.manager.new_session(system)
    for number in range(turns):
        await room.ask(session.id, f"Question {number}: {LONG}")
    return session


async def compacted(room: ManagerRoom, session: Session, instructions: str = "") -> TurnEnded:
    room.manager.compact(session.id, instructions)
    return await room.manager.wait_turn(session.id)


async def test_a_summary_takes_the_place_of_the_older_half(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, system="Be brief.") as (room, script):
        session = await chat(room, 5)
        seen = len(room.events)
        script.replies = ["<think>Hm.</think> They spoke of words. "]
        assert (await compacted(room, session, "Keep the numbers.")).state == "complete"
        question = script.asked
        assert question.messages[-1].text == f"{QUESTION} Keep the numbers."
        assert len(question.messages) == 1 + 10 + 1 and not question.store
        assert question.sampling.temperature <= 0.2 and question.max_tokens == 125

        assert session.summary == "They spoke of words."
        path = session.path()
        assert len(path) == 10, "no message is gone, none was added"
        assert session.window_start_id == path[6].id and len(session.window()) == 4
        progress = [e.text for e in room.events[seen:] if isinstance(e, CompactProgress)]
        assert progress[0] == "" and "".join(progress) == "<think>Hm.</think> They spoke of words. "
        assert room.of(SummaryChanged) == [SummaryChanged(session.id)]
        assert room.of(WindowMoved) == [WindowMoved(session.id, path[6].id, 3)]
        assert not [e for e in room.events[seen:] if isinstance(e, TurnEnded | TextStreamed)]

        await room.ask(session.id, "And now?")
        sent = script.asked.messages
        assert sent[0].text == "Be brief.\n\nSummary of the conversation so far: They spoke of words."
        assert len(sent) == 1 + 4 + 1
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        again = room.manager.open_session(session.id)
        assert again.summary == "They spoke of words."
        await room.ask(again.id, "And later?")
        assert script.asked.messages[0].text.endswith("They spoke of words.")


async def test_a_summary_is_taken_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = await chat(room)
        script.replies = ["First.", "Second, with the first in it."]
        await compacted(room, session)
        first = session.window_start_id
        await compacted(room, session)
        assert script.asked.messages[0].text.endswith("First."), (
            "an earlier summary is part of what is summarised"
        )
        assert session.summary.startswith("Second")
        room.manager.undo_compact(session.id)
        assert (session.summary, session.window_start_id) == ("First.", first)
        room.manager.undo_compact(session.id)
        assert (session.summary, session.window_start_id) == ("", None)
        assert len(session.window()) == 8
        with pytest.raises(UsageError, match="no summary"):
            room.manager.undo_compact(session.id)


async def test_a_summary_of_an_earlier_run_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = await chat(room)
        await compacted(room, session)
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        again = room.manager.open_session(session.id)
        room.manager.undo_compact(again.id)
        assert (again.summary, again.window_start_id) == ("", None)
        await room.ask(again.id, "And?")
        assert script.asked.messages[0].text.startswith("Question 0")


async def test_one_turn_always_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = await chat(room, 1)
        with pytest.raises(UsageError, match="nothing to summarise"):
            room.manager.compact(session.id)
        await room.ask(session.id, "word " * 300)
        await compacted(room, session)
        assert [m.role for m in session.window()] == ["user", "assistant"]
        with pytest.raises(UsageError, match="nothing to summarise"):
            room.manager.compact(session.id)


def unchanged(session: Session, manager: SessionManager) -> bool:
    return (session.summary, session.window_start_id) == ("", None) and not manager.is_busy(session.id)


async def test_stopped_empty_or_crashed_it_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = await chat(room)
        for text in ("", "<think>Only thoughts."):
            script.replies = [text]
            assert (await compacted(room, session)).state == "failed"
            assert unchanged(session, room.manager)
            assert room.of(EngineNotice)[-1].message == "The model wrote no summary: nothing changed."
        script.hold = True
        room.manager.compact(session.id)
        await room.until(CompactProgress, lambda e: e.text == "so")
        assert room.manager.busy_sessions() == {session.id: "running"}
        assert room.manager.stop(session.id)
        assert (await room.manager.wait_turn(session.id)).state == "stopped"
        assert unchanged(session, room.manager)
        assert "stopped" in room.of(EngineNotice)[-1].message
        seen = len(room.events)
        room.manager.compact(session.id)
        await room.until(CompactProgress, lambda e: e.text == "so", after=seen)
        script.crash()
        assert (await room.manager.wait_turn(session.id)).state == "cut"
        assert unchanged(session, room.manager)
        assert len(room.of(SummaryChanged)) == 4, "each ends in one"
        assert len(session.path()) == 8


async def test_it_waits_its_turn_and_what_is_sent_meanwhile_waits_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = await chat(room)
        script.hold = True
        room.manager.send(session.id, "One more?")
        await room.until(TextStreamed, lambda e: e.message_id == session.head_id)
        room.manager.compact(session.id)
        after = room.manager.send(session.id, "And another?")
        script.replies = ["A summary."]
        script.go_on()
        ended = await room.manager.wait_turn(session.id)
        assert ended.message_id == after.id
        assert session.summary == "A summary."
        assert [m.text for m in session.path()][-4:] == ["One more?", "so be it", "And another?", "so be it"]
        assert script.asked.messages[0].text.endswith("A summary.")


async def test_a_window_too_full_for_the_question_is_summarised_in_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, n_ctx=290) as (room, script):
        session = await chat(room, 3)
        assert session.tokens < 0.85 * 290 < session.tokens + len(QUESTION.split())
        assert (await compacted(room, session)).state == "complete"
        first, second = [c for c in script.questions if c.messages[-1].text == QUESTION]
        assert len(first.messages) == 7 and not first.force
        assert len(second.messages) == 5 and second.force, "the two turns that fall out, and the question"
        assert session.summary and session.window()[0].text.startswith("Question 2")


async def test_another_branch_goes_without_the_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, system="Be brief.") as (room, script):
        session = await chat(room)
        await compacted(room, session)
        start = session.window_start_id
        room.manager.edit_message(session.id, session.path()[0].id, "Something else?")
        await room.manager.wait_turn(session.id)
        assert [m.text for m in script.asked.messages] == ["Be brief.", "Something else?"]
        room.manager.choose_branch(session.id, session.siblings(session.path()[0].id)[0].id)
        await room.ask(session.id, "Back?")
        assert script.asked.messages[0].text.endswith("so be it"), "it is still that branch's"
        assert session.window_start_id == start


async def test_a_fork_takes_the_summary_along_where_it_reaches_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = await chat(room)
        await compacted(room, session)
        whole = room.manager.fork_session(session.id)
        assert whole.summary and whole.window()[0].text == session.window()[0].text
        short = room.manager.fork_session(session.id, session.path()[1].id)
        assert (short.summary, short.window_start_id) == ("", None)


async def test_the_models_own_summary_and_what_goes_on_from_it(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=1024, max_tokens=20) as room:
        session = room.manager.new_session()
        for text in ("Tell me of the sea.", "And of the wind?", "And of the sand?"):
            await room.ask(session.id, text)
        ended = await compacted(room, session)
        assert ended.state == "complete", ended
        assert 0 < ended.stats.prefilled_tokens <= len(QUESTION) // 2, "the question alone is computed"
        assert session.summary and session.window_start_id is not None
        after = await room.ask(session.id, "And then?")
        assert after.error == ""
        room.manager.undo_compact(session.id)
        assert room.of(PathChanged)
        again = await room.ask(session.id, "And now?")
        assert again.stats.cached_tokens > 100, "what was computed before the summary is found again"
        assert len(session.window()) == len(session.path())
    names = [path.read_bytes() for path in (tmp_path / "kv").rglob("*.kv")]
    assert names and not any(b"Summarise our conversation" in data for data in names)
