"""A grammar is of one reply: it goes with each question that is asked for it, and with no other."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ds4chat.sessions.events import TextStreamed
from tests.support.manager_room import manager_room
from tests.support.scripted_engine import scripted_room

YES = 'root ::= "yes"'


async def test_only_the_reply_it_was_sent_with_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        room.manager.send(session.id, "Well?", grammar=YES)
        await room.manager.wait_turn(session.id)
        await room.ask(session.id, "And now?")
        first = session.path()[1]
        room.manager.regenerate(session.id, first.id)
        await room.manager.wait_turn(session.id)
        assert [question.grammar for question in script.questions] == [YES, "", ""]
    assert b"root ::=" not in (tmp_path / "sessions.db").read_bytes()


async def test_one_that_waits_for_another_engine_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        one, two = room.manager.new_session(), room.manager.new_session()
        script.hold = True
        room.manager.send(one.id, "First")
        room.manager.send(two.id, "Second", grammar=YES)
        await room.until(TextStreamed)
        script.go_on()
        await room.manager.wait_turn(two.id)
        assert [question.grammar for question in script.questions] == ["", YES]


async def test_an_engine_that_could_not_be_stopped_ends_the_turn_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.hold = True
        room.manager.send(session.id, "Well?", grammar=YES)
        await room.until(TextStreamed)
        script.clients[-1].die(-signal.SIGPROF)
        ended = await room.manager.wait_turn(session.id)
        assert ended.state == "cut" and ended.error.startswith(
            "The grammar can read this answer in too many ways"
        )
        assert session.path()[-1].text == "so"


async def test_the_real_engine_goes_on_in_it(tiny: dict[str, Path], tmp_path: Path) -> None:
    """The context is full in the middle of the reply, and the oldest turns make room for the rest of it."""
    async with manager_room(tiny["dense"], tmp_path, n_ctx=256, max_tokens=30) as room:
        session = room.manager.new_session()
        for number in range(2):
            await room.ask(session.id, f"Question {number}? " * 4)
        room.manager.set_params(session.id, {"max_tokens": 400})
        room.manager.send(session.id, "Well?", grammar='root ::= ([a-z]{3} " "){60} "end"')
        ended = await room.manager.wait_turn(session.id)
        reply = session.path()[-1].text
        assert ended.error == "" and ended.stats.stop_reason == "stop"
        assert len(reply.split()) == 61 and reply.endswith(" end")
        assert len(session.window()) < len(session.path())
