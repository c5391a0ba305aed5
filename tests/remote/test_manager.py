"""A chat on an engine elsewhere, as the manager keeps it: the real adapter child, a scripted server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.engine.protocol import KvOptions, Sampling
from ds4chat.engine_settings import choose_engine
from ds4chat.sessions.database import Database
from ds4chat.sessions.engine_host import EngineOptions
from ds4chat.sessions.events import ContextUsed, EngineNotice, TextStreamed
from ds4chat.sessions.manager import SessionManager
from ds4chat.sessions.saving import SAVE_SECONDS
from tests.checkpoints.kv_helpers import Talk, open_store
from tests.remote.scripted_server import DONE, Answer, Scripted, piece, refuses, says, serving
from tests.support.manager_room import ManagerRoom


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as script:
        yield script


def saved(home: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(home / "sessions.db") as db:
        return db.execute("SELECT text, state FROM messages WHERE role = 'assistant' ORDER BY id").fetchall()


def manager(home: Path, server: Scripted) -> SessionManager:
    remote = choose_engine(server.url, [])
    assert remote is not None
    kv = KvOptions(directory=str(home / "kv"))
    options = EngineOptions(remote.path, pinned=True, remote=remote, kv=kv, log_path=home / "engine.log")
    return SessionManager(home, options, Sampling(temperature=0.0))


async def test_what_streams_is_saved_though_no_tokens_are_told(tmp_path: Path, server: Scripted) -> None:
    go_on = threading.Event()
    parts = [piece("Half of it"), lambda: go_on.wait(30), piece(", and the rest."), piece("", "stop"), DONE]
    server.replies = [Answer(parts)]
    kept = manager(tmp_path, server)
    room = ManagerRoom(kept)
    try:
        await kept.start_engine()
        session = kept.new_session()
        kept.send(session.id, "Tell me.")
        await room.until(TextStreamed)
        async with asyncio.timeout(30):
            while saved(tmp_path) != [("Half of it", "streaming")]:  # noqa: ASYNC110 - as another program would look
                await asyncio.sleep(SAVE_SECONDS / 4)
        go_on.set()
        await kept.wait_turn(session.id)
        assert saved(tmp_path) == [("Half of it, and the rest.", "complete")]
        assert session.model == "little" and session.model_path == ""
    finally:
        go_on.set()
        await kept.aclose()


async def test_how_full_the_context_is_is_told_now_and_then(tmp_path: Path, server: Scripted) -> None:
    server.replies = [says(*["word "] * 40)]
    kept = manager(tmp_path, server)
    room = ManagerRoom(kept)
    try:
        await kept.start_engine()
        session = kept.new_session()
        await room.ask(session.id, "Tell me.")
        told = [event.tokens for event in room.of(ContextUsed)]
        # At its start, behind 16 and 32 pieces, and at its end.
        assert [tokens - told[0] for tokens in told] == [0, 16, 32, 40]
    finally:
        await kept.aclose()


async def test_a_question_that_did_not_get_through_stays_asked(tmp_path: Path, server: Scripted) -> None:
    server.replies = [
        Answer([piece("Half")], whole=False),
        refuses(500, "oops"),
        says("Here."),
        refuses(418, "no"),
        says("Here."),
    ]
    kept = manager(tmp_path, server)
    room = ManagerRoom(kept)
    try:
        await kept.start_engine()
        session = kept.new_session()
        for question in ("One?", "Two?", "Three?", "Four?", "Five?"):
            await room.ask(session.id, question)
        assert [state for _, state in saved(tmp_path)] == ["cut", "cut", "complete", "failed", "complete"]
        told = " ".join(notice.message for notice in room.of(EngineNotice))
        assert "broke off" in told and "failed with 500 (oops)" in told and "418" not in told
        # What was refused is not asked again, what did not get through is.
        asked = [m["content"] for m in server.bodies[-1]["messages"]]
        assert asked == ["One?", "Half", "Two?\n\nThree?", "Here.", "Five?"]
    finally:
        await kept.aclose()


async def test_a_deleted_chats_checkpoints_of_this_machine_go_too(tmp_path: Path, server: Scripted) -> None:
    server.replies = [says("Here.")]
    store = open_store(tmp_path / "kv")
    talk = Talk(range(100, 130))
    talk.put(store, 10, 30)
    kept = manager(tmp_path, server)
    room = ManagerRoom(kept)
    await kept.start_engine()
    session = kept.new_session()
    await room.ask(session.id, "One?")
    with Database(tmp_path / "sessions.db") as db:
        for start, end in ((0, 10), (10, 30)):
            db.record_span(session.id, talk.name(end).hex(), start, end, "evict", 1000)
    kept.delete_session(session.id)
    await kept.aclose()
    assert list((tmp_path / "kv").rglob("*.kv")) == []
