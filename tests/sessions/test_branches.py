"""Edits, other replies, branches walked to, forks at a message, turns deleted and brought back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.errors import UsageError
from ds4chat.sessions.branching import turn_of
from ds4chat.sessions.events import MessageAdded, PathChanged, TextStreamed, TurnEnded, TurnQueued
from ds4chat.sessions.session import Message
from tests.support.manager_room import manager_room
from tests.support.scripted_engine import scripted_room

SMALL = 40
"""Tokens that a short question and its markers take at most: what an edit may cost on a model that can be cut back."""


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_a_walk_through_branches_computes_what_is_new_and_no_more(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=12) as room:
        manager = room.manager
        session = manager.new_session()
        for text in ("Tell me of the sea. " * 12, "And of the wind?", "And of the sand?"):
            await room.ask(session.id, text)
        path = session.path()
        manager.regenerate(session.id, path[-1].id)
        again = await manager.wait_turn(session.id)
        assert again.stats.prefilled_tokens == 1 and again.stats.generated_tokens == 12
        other = session.path()[-1]
        assert session.siblings(other.id) == [path[-1], other] and other.tokens == path[-1].tokens

        edited = manager.edit_message(session.id, path[2].id, "And of the rain?")
        ended = await manager.wait_turn(session.id)
        assert ended.message_id == edited.id and 0 < ended.stats.prefilled_tokens < SMALL
        assert texts(session.siblings(edited.id)) == ["And of the wind?", "And of the rain?"]
        assert len(session.path()) == 4

        manager.choose_branch(session.id, path[2].id)
        assert session.path()[-1] is other
        ended = await room.ask(session.id, "And then?")
        assert 0 < ended.stats.prefilled_tokens < 3 * SMALL, "the branch's own turns, and nothing before it"

        saved = texts(session.path())
    async with manager_room(tiny["dense"], tmp_path, start=False) as room:
        assert texts(room.manager.open_session(session.id).path()) == saved


async def test_regenerate_and_edit_on_a_model_that_cannot_be_cut_back(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["recurrent"], tmp_path, max_tokens=12) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me of the sea. " * 12)
        first = await room.ask(session.id, "And of the wind?")
        room.manager.regenerate(session.id, session.path()[-1].id)
        again = await room.manager.wait_turn(session.id)
        assert again.stats.prefilled_tokens < first.stats.prompt_tokens / 2
        room.manager.edit_message(session.id, session.path()[2].id, "And of the rain?")
        edited = await room.manager.wait_turn(session.id)
        assert edited.stats.prefilled_tokens < first.stats.prompt_tokens / 2
        assert len(session.siblings(session.path()[2].id)) == 2


async def test_what_the_events_say_of_an_edit_and_a_regenerate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        seen = len(room.events)
        script.hold = True
        edited = room.manager.edit_message(session.id, session.path()[0].id, "Two?")
        assert edited.state == "complete", "the engine is free: it is answered at once"
        kinds = [type(event) for event in room.events[seen:]]
        assert kinds[0] is PathChanged and kinds.count(MessageAdded) == 1, "the reply alone is added"
        await room.until(TextStreamed, after=seen)
        for change in (
            lambda: room.manager.regenerate(session.id, session.path()[1].id),
            lambda: room.manager.edit_message(session.id, edited.id, "Three?"),
            lambda: room.manager.choose_branch(session.id, edited.id),
            lambda: room.manager.delete_turn(session.id, edited.id),
        ):
            with pytest.raises(UsageError, match="stop it first"):
                change()
        script.go_on()
        await room.manager.wait_turn(session.id)


async def test_a_message_that_waits_is_edited_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.hold = True
        room.manager.send(session.id, "One?")
        await room.until(TextStreamed)
        waiting = room.manager.send(session.id, "Tow?")
        assert room.manager.edit_message(session.id, waiting.id, "Two?") is waiting
        assert session.siblings(waiting.id) == [waiting]
        script.go_on()
        ended = await room.manager.wait_turn(session.id)
        assert ended.message_id == waiting.id
        assert script.asked.messages[-1].text == "Two?"
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, _):
        assert texts(room.manager.open_session(session.id).path()) == ["One?", "so be it", "Two?", "so be it"]


async def test_a_regenerate_that_waits_and_is_stopped_leaves_the_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        mine, other = room.manager.new_session(), room.manager.new_session()
        await room.ask(mine.id, "One?")
        script.hold = True
        room.manager.send(other.id, "Two?")
        await room.until(TextStreamed, lambda e: e.session_id == other.id)
        room.manager.regenerate(mine.id, mine.path()[1].id)
        assert texts(mine.path()) == ["One?"] and room.of(TurnQueued)[-1].session_id == mine.id
        assert room.manager.stop(mine.id)
        assert texts(mine.path()) == ["One?", "so be it"]
        script.go_on()


async def test_with_a_seed_each_reply_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session(params={"seed": 7})
        await room.ask(session.id, "One?")
        seeds = [script.asked.sampling.seed]
        for _ in range(2):
            room.manager.regenerate(session.id, session.path()[1].id)
            await room.manager.wait_turn(session.id)
            seeds.append(script.asked.sampling.seed)
        assert seeds == [7, 8, 9]


async def test_what_cannot_be_edited_or_regenerated_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        question, reply = session.path()
        with pytest.raises(UsageError, match="nothing to send"):
            room.manager.edit_message(session.id, question.id, " ")
        with pytest.raises(UsageError, match="regenerate the reply"):
            room.manager.edit_message(session.id, reply.id, "No.")
        with pytest.raises(UsageError, match="Only a reply"):
            room.manager.regenerate(session.id, question.id)
        with pytest.raises(UsageError, match="no message 99"):
            room.manager.choose_branch(session.id, 99)
        assert session.path() == [question, reply]


async def test_a_fork_at_a_message_ends_with_it_and_begins_with_the_same_checkpoints(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=12) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me of the sea. " * 12)
        await room.ask(session.id, "And of the wind?")
        fork = room.manager.fork_session(session.id, session.path()[1].id)
        assert texts(fork.path()) == texts(session.path()[:2])
        assert len(fork.messages) == 2 and not fork.messages.keys() & session.messages.keys()
        ended = await room.ask(fork.id, "And of the rain?")
        assert ended.stats.prefilled_tokens < SMALL
        assert len(session.path()) == 4
        with pytest.raises(UsageError, match="no message"):
            room.manager.fork_session(session.id, 10_000)


async def test_a_deleted_turn_is_not_sent_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        for text in ("One?", "Two?", "Three?"):
            await room.ask(session.id, text)
        whole = session.path()
        ids = room.manager.delete_turn(session.id, whole[3].id)
        assert ids == [whole[2].id, whole[3].id]
        assert texts(session.path()) == ["One?", "so be it", "Three?", "so be it"]
        await room.ask(session.id, "Four?")
        assert [m.text for m in script.asked.messages] == ["One?", "so be it", "Three?", "so be it", "Four?"]
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.open_session(session.id)
        assert len(session.path()) == 6
        room.manager.restore_turn(session.id, ids)
        assert texts(session.path())[2] == "Two?" and room.of(PathChanged)
        last = room.manager.delete_turn(session.id, session.path()[-1].id)
        assert texts(session.path())[-2:] == ["Three?", "so be it"]
        await room.ask(session.id, "Five?")
        assert [m.text for m in script.asked.messages][-2:] == ["so be it", "Five?"]
        room.manager.restore_turn(session.id, last)
        assert texts(session.path())[-4:] == ["Four?", "so be it", "Five?", "so be it"]
        with pytest.raises(UsageError, match="not part of the chat"):
            room.manager.delete_turn(session.id, 12_345)


async def test_a_reply_before_a_deleted_end_can_be_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.hold = True
        room.manager.send(session.id, "One?")
        await room.until(TextStreamed)
        room.manager.stop(session.id)
        await room.until(TurnEnded)
        script.hold = False
        await room.ask(session.id, "Two?")
        room.manager.delete_turn(session.id, session.path()[2].id)
        room.manager.continue_reply(session.id)
        await room.manager.wait_turn(session.id)
        assert texts(session.path()) == ["One?", "soso be it"]


def test_a_turn_is_what_was_answered_together() -> None:
    roles = ["user", "assistant", "user", "user", "assistant", "user"]
    path = [Message(i, i - 1 if i else None, role, "") for i, role in enumerate(roles)]  # type: ignore[arg-type]
    assert [turn_of(path, i) for i in range(6)] == [[0, 1], [0, 1], [2, 3, 4], [2, 3, 4], [2, 3, 4], [5]]
    assert turn_of(path, 9) == []
