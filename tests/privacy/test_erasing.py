"""A deleted chat is gone from every file: the database and its journal, checkpoints, drafts, locks, logs."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from ds4chat.checkpoints.store import remove_spans
from ds4chat.checkpoints.traces import traces
from ds4chat.engine.protocol import KvOptions
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import EngineNotice
from ds4chat.sessions.session import Message, Session
from tests.checkpoints.kv_helpers import Talk, open_store
from tests.support.manager_room import manager_room
from tests.support.program import Program

SECRET = "zanzibar"
OTHER = "cinnamon"


def holding(word: str, *folders: Path) -> list[str]:
    """Files with a word in their bytes, whatever its case."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*")):
        # A checkpoint that is being written changes its name.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if word.encode() in path.read_bytes().lower():
                found.append(str(path))
    return found


def short_spans(folder: Path) -> KvOptions:
    return KvOptions(
        directory=str(folder),
        budget_mb=0,
        min_tokens=64,
        continued_interval_tokens=64,
        boundary_align_tokens=64,
        boundary_trim_tokens=0,
    )


def test_rm_takes_the_words_out_of_all_files(tmp_path: Path, tiny: dict[str, Path]) -> None:
    program = Program(tmp_path)
    options = ("-m", str(tiny["dense"]), "--max-tokens", "3", "-s", "Shared beginning of both. " * 20)
    options += ("--kv-cache-min-tokens", "64")
    gone = program.ask(f"My {SECRET} " * 60, *options)["session"]
    kept = program.ask(f"My {OTHER} " * 60, *options)["session"]
    with Database(tmp_path / "data" / "sessions.db") as database:
        database.set_draft(gone, f"and {SECRET} again")
        database.set_tags(gone, [f"{SECRET}s"])
    assert holding(SECRET, tmp_path / "data") and holding(SECRET, tmp_path / "kv")
    assert program.run("rename", gone, f"About {SECRET}").returncode == 0
    # Sentences with a title in them are not for a log.
    assert program.run("show", f"about {SECRET} x").returncode == 2
    with Database(tmp_path / "data" / "sessions.db") as elsewhere:
        assert elsewhere.count() == 2
        done = program.run("rm", "-y", gone)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"Deleted {gone}  About {SECRET}\n", "")
        assert holding(SECRET, tmp_path) == [], "another program has the database open"
    assert holding(SECRET, tmp_path) == []
    assert not list((tmp_path / "data" / "locks").glob(f"{gone}*"))
    assert holding(OTHER, tmp_path / "data") and holding(OTHER, tmp_path / "kv")
    assert holding("shared beginning", tmp_path / "kv"), "what the other stands on stays"
    assert program.ask("Go on.", "-r", kept, *options[:4])["cached_tokens"] > 100


async def test_a_chat_deleted_on_the_screen_is_gone_when_the_program_is(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    kv = short_spans(tmp_path / "kv")
    async with manager_room(tiny["dense"], tmp_path, kv=kv, max_tokens=3) as room:
        gone, kept = room.manager.new_session(), room.manager.new_session()
        await room.ask(gone.id, f"My {SECRET} " * 60)
        await room.ask(kept.id, f"My {OTHER} " * 60)
        room.manager.save_draft(gone.id, f"{SECRET}, typed")
        fresh = room.manager.new_session()
        room.manager.save_draft(fresh.id, f"{SECRET} in a new chat")
        room.manager.save_draft(fresh.id, "")
        assert holding(SECRET, tmp_path)
        room.manager.delete_session(gone.id)
    assert holding(SECRET, tmp_path) == []
    assert holding(OTHER, tmp_path / "kv")


async def test_checkpoints_that_nobody_wrote_down_go_too(tmp_path: Path, tiny: dict[str, Path]) -> None:
    """A process that is killed leaves spans that its engine stored and it never heard of."""
    kv = short_spans(tmp_path / "kv")
    async with manager_room(tiny["dense"], tmp_path, kv=kv, max_tokens=3) as room:
        for text in (SECRET, OTHER):
            session = room.manager.new_session()
            await room.ask(session.id, f"My {text} " * 60)
    with Database(tmp_path / "sessions.db") as database:
        (info,) = [i for i in database.list_sessions() if SECRET in i.title.lower()]
        with database._db.write() as db:
            db.execute("DELETE FROM spans WHERE session_id = ?", (info.id,))
    shutil.copytree(tmp_path, tmp_path / "copy" / "data", ignore=shutil.ignore_patterns("kv", "copy"))
    shutil.copytree(tmp_path / "kv", tmp_path / "copy" / "kv")
    program = Program(tmp_path / "copy")
    assert holding(SECRET, tmp_path / "copy" / "kv")
    assert program.run("rm", "-y", info.id).returncode == 0
    assert holding(SECRET, tmp_path / "copy") == []
    assert holding(OTHER, tmp_path / "copy" / "kv")
    async with manager_room(tiny["dense"], tmp_path, kv=kv) as room:
        room.manager.delete_session(info.id)
    assert holding(SECRET, tmp_path / "kv") == []
    assert holding(OTHER, tmp_path / "kv")


def test_what_continues_a_deleted_chat_and_what_was_set_aside_of_it_go_with_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    talk, other = Talk(range(100, 170)), Talk([*range(100, 130), *range(300, 340)])
    talk.put(store, 10, 30, 60, 70)
    store.put(other.draft(30, 50))
    (aside,) = [path for path in tmp_path.rglob("*.kv") if path.stem == talk.name(60).hex()]
    found = traces(tmp_path, [talk.name(60)], [], [other.name(50)])
    assert found == {talk.name(70)}
    aside.with_name(f"{aside.name}.bad").write_bytes(aside.read_bytes())
    remove_spans(tmp_path, [talk.name(60), *found], [other.name(50)])
    assert {path.stem for path in tmp_path.rglob("*.kv*") if path.suffix in (".kv", ".bad")} == {
        other.name(end).hex() for end in (10, 30, 50)
    }


@pytest.mark.parametrize(
    ("said", "gone"), [("100 101 102", True), ("301 302", False), ("7 8 9", False), ("  ", False)]
)
def test_spans_are_found_by_what_was_said(tmp_path: Path, said: str, gone: bool) -> None:
    store = open_store(tmp_path)
    lost, kept = Talk(range(100, 130)), Talk(range(300, 330))
    lost.put(store, 10, 30)
    kept.put(store, 30)
    found = traces(tmp_path, [], [said], [kept.name(30)])
    assert found == ({lost.name(10), lost.name(30)} if gone else set())


async def test_nothing_typed_stays_in_a_draft_file_once_it_is_sent(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2) as room:
        session = room.manager.new_session()
        room.manager.save_draft(session.id, f"{SECRET}?")
        assert holding(SECRET, tmp_path) == [str(tmp_path / "draft.txt")]
        room.manager.save_draft(session.id, "")
        assert holding(SECRET, tmp_path) == []
        await asyncio.sleep(0)
        assert [e.message for e in room.of(EngineNotice)] == []


def test_a_message_that_is_too_long_for_a_page_leaves_nothing_in_the_index_either(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = Session("", title=f"{SECRET} title", summary=f"{SECRET} summary", system=f"{SECRET} system")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", f"{SECRET} {'word ' * 5000} {SECRET}"))
        reply = Message(0, session.head_id, "assistant", "", "streaming")
        database.add_message(session.id, reply)
        database.update_reply(reply.id, f"{SECRET} " * 500, list(range(500)), "complete")
        assert len(database.search(SECRET)) == 2
        database.delete(session.id)
        assert holding(SECRET, tmp_path) == []
