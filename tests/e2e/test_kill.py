"""The engine killed at once (SIGKILL): between turns nothing is lost, in a reply what was shown stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ds4chat.engine.protocol import Event, Stored
from ds4chat.sessions.events import TextStreamed, TurnEnded
from tests.support.manager_room import ManagerRoom, manager_room
from tests.support.tiny_models import KINDS

FIRST, SECOND = "Tell me about the sea, please.", "And about the hills?"


@pytest.fixture(params=[*KINDS, "starter"])
def model(request: pytest.FixtureRequest, tiny: dict[str, Path], starter: Path) -> Path:
    return starter if request.param == "starter" else tiny[request.param]


async def stored(room: ManagerRoom, reason: str) -> None:
    """Wait until the engine says that a span was stored for this reason."""
    host, seen = room.manager._conductor.host, asyncio.Event()
    deliver = host._on_event

    def listen(event: Event) -> None:
        deliver(event)
        if isinstance(event, Stored) and event.reason == reason:
            seen.set()

    host._on_event = listen
    async with asyncio.timeout(30):
        await seen.wait()


async def test_after_a_kill_behind_a_stored_tail_the_tokens_are_the_same(model: Path, tmp_path: Path) -> None:
    async with manager_room(model, tmp_path / "whole", max_tokens=12) as room:
        session = room.manager.new_session()
        await room.ask(session.id, FIRST)
        await room.ask(session.id, SECOND)
        whole = [m.tokens for m in session.path()]
    async with manager_room(model, tmp_path / "killed", max_tokens=12) as room:
        session = room.manager.new_session()
        waiting = asyncio.ensure_future(stored(room, "idle"))
        await room.ask(session.id, FIRST)
        await waiting
        room.kill_engine()
    async with manager_room(model, tmp_path / "killed", max_tokens=12) as room:
        again = room.manager.open_session(session.id)
        ended = await room.ask(again.id, SECOND)
        assert [m.tokens for m in again.path()] == whole
        assert ended.stats.prefilled_tokens < 40 and ended.stats.cached_tokens > 0


async def test_after_a_kill_in_a_reply_its_text_stays_and_the_chat_goes_on(
    tiny_model: Path, tmp_path: Path
) -> None:
    model = tiny_model
    async with manager_room(model, tmp_path / "whole", max_tokens=40) as room:
        session = room.manager.new_session()
        await room.ask(session.id, FIRST)
        whole = session.path()[-1].tokens
    async with manager_room(model, tmp_path / "killed", max_tokens=40) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, FIRST)
        await room.until(TextStreamed)
        room.kill_engine()
        ended = await room.until(TurnEnded)
        shown = "".join(e.text for e in room.of(TextStreamed))
    if ended.state == "cut":
        async with manager_room(model, tmp_path / "killed", max_tokens=8) as room:
            again = room.manager.open_session(session.id)
            reply = again.path()[-1]
            assert reply.state == "cut" and reply.text == shown
            assert reply.tokens == whole[: len(reply.tokens)]
            ended = await room.ask(again.id, SECOND)
            assert ended.stats.generated_tokens > 0
    else:
        assert session.path()[-1].tokens == whole, "it was faster than the kill"
