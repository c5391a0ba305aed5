"""A full disk: nothing that was shown or typed is lost, and each thing says so in one sentence."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from ds4chat.config_file import save_setting
from ds4chat.errors import DatabaseUnwritableError, UsageError
from ds4chat.files import write_private
from ds4chat.sessions import backlog
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import EngineNotice, SavingChanged, TextStreamed
from ds4chat.sessions.session import Message, Session
from tests.faults.places import fill_up, small_disk
from tests.support.manager_room import ManagerRoom
from tests.support.program import Program
from tests.support.scripted_engine import scripted_room
from tests.support.terminal import Terminal, ctrl

LONG = "word " * 20_000


def full(path: Path) -> str:
    return f"The session database {path} cannot be written because the disk is full: free some space, then try again."


def let_it_grow(room: ManagerRoom, pages: int) -> None:
    """How large the database may become: what a disk does, without one."""
    room.manager._shelf.db._db.raw.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_reply_that_finds_no_room_is_saved_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(backlog, "DISK_SECONDS", 0.05)
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.replies, script.hold = [f"Yes. {LONG}"], True
        room.manager.send(session.id, "Is there room?")
        await room.until(TextStreamed)
        let_it_grow(room, 1)
        script.go_on()
        ended = await room.manager.wait_turn(session.id)
        assert ended.state == "complete" and not ended.error, "the chat goes on"
        sentence = full(tmp_path / "sessions.db")
        assert room.of(SavingChanged) == [SavingChanged(sentence)]
        notices = [e.message for e in room.of(EngineNotice)]
        assert notices == [f"{sentence} What is said here meanwhile is saved as soon as that is possible."]
        with Database(tmp_path / "sessions.db") as other:
            assert len(other.load_session(session.id).path()[-1].text) < 10
        let_it_grow(room, 1_000_000)
        await room.until(SavingChanged, lambda event: not event.why)
        with Database(tmp_path / "sessions.db") as other:
            reply = other.load_session(session.id).path()[-1]
        assert (reply.text, reply.state) == (f"Yes. {LONG}", "complete")


async def test_a_message_that_finds_no_room_is_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, "Hello?")
        let_it_grow(room, 1)
        with pytest.raises(DatabaseUnwritableError) as caught:
            room.manager.send(session.id, LONG)
        assert str(caught.value) == full(tmp_path / "sessions.db")
        assert not room.manager.is_busy(session.id)
        let_it_grow(room, 1_000_000)
        ended = await room.ask(session.id, LONG[:50])
        assert ended.state == "complete"
        assert [m.text for m in session.path()] == ["Hello?", "so be it", LONG[:50], "so be it"]


async def test_while_a_reply_waits_for_room_no_message_goes_ahead_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.replies, script.hold = [f"Yes. {LONG}"], True
        room.manager.send(session.id, "Is there room?")
        await room.until(TextStreamed)
        let_it_grow(room, 1)
        script.go_on()
        await room.manager.wait_turn(session.id)
        with pytest.raises(DatabaseUnwritableError):
            room.manager.send(session.id, "And now?")
        assert not room.manager.is_busy(session.id)
        let_it_grow(room, 1_000_000)
        await room.ask(session.id, "And now?")
        with Database(tmp_path / "sessions.db") as other:
            saved = [m.text for m in other.load_session(session.id).path()]
        assert saved == ["Is there room?", f"Yes. {LONG}", "And now?", "so be it"]


async def test_what_a_quit_cannot_save_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ds4chat import news

    news.take()
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        session = room.manager.new_session()
        script.replies, script.hold = [f"Yes. {LONG}"], True
        room.manager.send(session.id, "Is there room?")
        await room.until(TextStreamed)
        let_it_grow(room, 1)
        script.go_on()
        await room.manager.wait_turn(session.id)
        async with asyncio.timeout(5):
            await room.manager.aclose()
    assert news.take() == [f"What was said last could not be saved. {full(tmp_path / 'sessions.db')}"]


# ---- real disks


def test_files_that_are_replaced_stay_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256) as disk:
        config, note = disk / "config.toml", disk / "note"
        config.write_text("# mine\n[chat]\nbell = true\n" + "# filling\n" * 2000)
        write_private(note, "before")
        fill_up(disk)
        with pytest.raises(OSError, match="No space left"):
            write_private(note, "after " * 2000)
        assert note.read_text() == "before"
        before = config.read_text()
        with pytest.raises(UsageError) as caught:
            save_setting(config, "chat", "system", "Be brief.")
        assert str(caught.value) == (
            f"The configuration {config} cannot be written (No space left on device): see to it and try again."
        )
        assert config.read_text() == before
        assert sorted(path.name for path in disk.iterdir()) == ["ballast", "config.toml", "note"]


def test_an_export_that_finds_no_room_leaves_the_file_of_before(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with Database(tmp_path / "data" / "sessions.db") as database:
        session = Session("", title="long")
        session.append(Message(1, None, "user", LONG * 5))
        database.create_session(session)
    with small_disk(tmp_path / "disk", 256) as disk:
        target = disk / "chat.toml"
        target.write_text("of before")
        done = program.run("export", "long", "-o", str(target))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"ds4chat: {target} cannot be written (No space left on device): make room there, or give another file.\n"
        )
        assert target.read_text() == "of before"
        assert [path.name for path in disk.iterdir()] == ["chat.toml"]


def test_a_question_that_cannot_be_saved_is_not_asked(tmp_path: Path, tiny: dict[str, Path]) -> None:
    program = Program(tmp_path)
    with small_disk(tmp_path / "data", 512) as disk:
        assert program.run("ls").returncode == 0
        ballast = fill_up(disk)
        done = program.run("-p", "Hello?", "-m", str(tiny["dense"]))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"ds4chat: {full(disk / 'sessions.db')}\n"
        ballast.unlink()
        assert program.run("ls").stderr == "There are no sessions yet: start one with `ds4chat`.\n"


def test_without_room_for_checkpoints_the_chat_goes_on_and_says_so_once(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    program = Program(tmp_path)
    (tmp_path / "config.toml").write_text("[model]\nthreads = 1\n[kv]\nspace_mb = 100\n")
    with small_disk(tmp_path / "kv", 64) as disk:
        done = program.run(
            "-p", LONG[:4000], "-m", str(tiny["dense"]), "--max-tokens", "4", "--output-format", "json"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["stop_reason"] in ("stop", "length")
        assert done.stderr == (
            f"ds4chat: Checkpoints are not stored any more (No space left on device: {disk}); the chat goes on. "
            "Free some disk space or give another directory with --kv-disk-dir.\n"
        )
        assert list(disk.rglob("*.tmp.*")) == [], "what was begun is taken away"


def test_on_the_screen_what_was_typed_stays_until_it_can_be_saved(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    program = Program(tmp_path)
    with small_disk(tmp_path / "data", 1024) as disk:
        with Terminal(program, "-m", str(tiny["dense"]), "--max-tokens", "4") as terminal:
            terminal.until(r"Write a message")
            ballast = fill_up(disk)
            terminal.send_message("is there any room?")
            terminal.until(r"cannot be kept in")
            terminal.until(r"NOT SAVED")
            assert "is there any room?" in terminal.text
            terminal.type(ctrl("q"))
            terminal.until(r"Ctrl\+Q again leaves")
            ballast.unlink()
            terminal.until(r"everything is saved")
            terminal.until(r"NOT SAVED", gone=True)
            terminal.type("\r")
            terminal.until(r"(?s)is there any room\?.*Write a message")
            terminal.type(ctrl("q"))
            assert terminal.wait_end() == 0
            assert re.fullmatch(r"ds4chat --resume [0-9a-f]{8}", terminal.last_line)
        with Database(disk / "sessions.db") as database:
            (info,) = database.list_sessions()
            assert [m.role for m in database.load_session(info.id).path()] == ["user", "assistant"]
