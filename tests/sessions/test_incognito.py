"""A session that leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ds4chat.engine.worker import IDLE_SECONDS
from ds4chat.errors import UsageError
from tests.support.engine_room import EngineRoom, user
from tests.support.manager_room import manager_room
from tests.support.scripted_engine import scripted_room

SECRET = "A secret of mine, and of no one else. "


def holders(folder: Path, *words: bytes) -> list[Path]:
    """Files below a folder that hold one of the words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(word in path.read_bytes() for word in words)]


async def test_nothing_of_it_reaches_the_disk(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=12) as room:
        manager = room.manager
        open_one, secret = manager.new_session(), manager.new_session(incognito=True)
        assert manager.is_incognito(secret.id) and not manager.is_incognito(open_one.id)
        await room.ask(secret.id, SECRET * 8)
        await room.ask(secret.id, SECRET)
        await room.ask(open_one.id, "Tell me of the sea. " * 40)
        first = await room.ask(secret.id, "And the wind?")
        assert first.stats.generated_tokens == 12 and len(secret.path()) == 6
        manager.save_draft(secret.id, SECRET)
        manager.rename_session(secret.id, SECRET)
        manager.tag_session(secret.id, ["secret"])
        manager.regenerate(secret.id, secret.path()[-1].id)
        await manager.wait_turn(secret.id)
        manager.edit_message(secret.id, secret.path()[2].id, SECRET + SECRET)
        await manager.wait_turn(secret.id)
        fork = manager.fork_session(secret.id)
        assert manager.is_incognito(fork.id) and [m.text for m in fork.path()] == [
            m.text for m in secret.path()
        ]
        await room.ask(fork.id, SECRET)
        manager.rest_on(secret.id)
        manager.leave_session(secret.id)
        assert manager.open_session(secret.id) is secret, "it is kept as long as the process lives"
        assert [info.id for info in manager.list_sessions()] == [open_one.id]
        assert not manager.is_saved(secret.id)
        await asyncio.sleep(IDLE_SECONDS + 0.5)
    assert list((tmp_path / "kv").rglob("*.kv")), "the other session is stored"
    assert holders(tmp_path, b"secret", secret.id.encode(), fork.id.encode()) == []
    assert not [path for path in tmp_path.rglob("*") if secret.id in path.name or fork.id in path.name]


def test_a_turn_that_is_not_stored_stores_nothing_and_restores_what_is_there(
    tiny_model: Path, tmp_path: Path
) -> None:
    opening = user("Tell me of the sea. " * 20)
    with EngineRoom(tiny_model, tmp_path / "kv") as room:
        reply = room.chat([opening], session="open")
    files = sorted((tmp_path / "kv").rglob("*.kv"))
    with EngineRoom(tiny_model, tmp_path / "kv") as room:
        secret = room.chat([opening, reply.message, user(SECRET * 10)], session="secret", store=False)
        assert secret.restored > 0, "what others stored is taken up"
        room.chat([user("Something else, at some length. " * 6)], session="other")
        room.flush()
    assert files == [path for path in files if path.exists()]
    assert holders(tmp_path / "kv", b"secret") == []


def test_what_comes_after_in_the_same_session_is_stored_without_it(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    with EngineRoom(tiny["dense"], tmp_path / "kv") as room:
        opening = user("Tell me of the sea. " * 4)
        reply = room.chat([opening])
        room.chat([opening, reply.message, user(SECRET)], store=False)
        after = room.chat([opening, reply.message, user("And of the wind?")])
        assert after.done is not None and after.done.prefilled_tokens < 40
    assert holders(tmp_path / "kv", b"And of the wind?") and not holders(tmp_path / "kv", b"secret")


async def test_it_is_deleted_and_brought_back_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session(incognito=True)
        await room.ask(session.id, "One?")
        assert not script.asked.store
        room.manager.delete_session(session.id)
        room.manager.undelete_session(session.id)
        assert room.manager.open_session(session.id) is session
        with pytest.raises(UsageError):
            room.manager.rename_session(session.id, " ")
        ids = room.manager.delete_turn(session.id, session.path()[0].id)
        room.manager.restore_turn(session.id, ids)
        assert [m.text for m in session.path()] == ["One?", "so be it"]
