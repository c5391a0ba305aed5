"""What broke programs like this one: sessions and their storage. A test each, named after what must hold."""

from __future__ import annotations

import re
import shlex
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.errors import DatabaseError, SessionLockedError
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import TextStreamed
from ds4chat.sessions.interchange import from_toml, to_toml
from ds4chat.sessions.session import Message, Session
from tests.support.manager_room import manager_room
from tests.support.program import Program
from tests.support.terminal import Terminal, ctrl

ODD = {
    "NUL": "a\x00b",
    "line separator": "a\u2028b\u2029c",
    "lone surrogate": "a\ud800b",
    "ANSI": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b5n",
    "a megabyte on one line": "word " * 200_000,
    "right to left": "\u202eabc\u202c \u05e9\u05dc\u05d5\u05dd",
    "markup": "[bold]x[/bold] [/INST] A=b,",
}


async def test_the_window_closed_in_the_middle_of_a_reply_keeps_the_part_that_was_shown(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        for count in range(8):
            await room.until(TextStreamed, after=0 if not count else len(room.events))
    shown = "".join(event.text for event in room.of(TextStreamed))
    async with manager_room(tiny["dense"], tmp_path, start=False) as room:
        question, reply = room.manager.open_session(session.id).path()
    assert question.text == "Tell me a very long story."
    assert reply.text.startswith(shown) and reply.state == "cut" and reply.tokens


async def test_the_same_session_in_two_terminals_is_read_only_in_the_second(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    async with manager_room(tiny["dense"], tmp_path, start=False) as first:
        session = first.manager.new_session()
        first.manager.send(session.id, "Hello")
        first.manager.stop(session.id)
        first.manager.rename_session(session.id, "Mine")
        async with manager_room(tiny["dense"], tmp_path, start=False) as second:
            with pytest.raises(SessionLockedError) as refused:
                second.manager.open_session(session.id)
            assert session.id in str(refused.value) and "\n" not in str(refused.value)
            assert second.manager.open_read_only(session.id).title == "Mine"
            first.manager.leave_session(session.id)
            assert second.manager.open_session(session.id).id == session.id


def test_a_database_that_another_program_is_busy_with_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    Database(path).close()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ("COMMIT",))
    release.start()
    with Database(path) as database:
        session = Session("", title="waited")
        database.create_session(session)
        assert database.info(session.id).title == "waited"
    release.join()
    other.execute("BEGIN IMMEDIATE")
    with Database(path, busy_timeout=0.05) as database:
        assert database.load_session(session.id).title == "waited", "reading never waits"
        with pytest.raises(DatabaseError) as refused:
            database.rename(session.id, "no")
    assert "in use by another program" in str(refused.value) and "locked" not in str(refused.value)
    other.close()


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_within_a_message_is_kept_and_comes_out_again(tmp_path: Path, name: str) -> None:
    text = ODD[name]
    kept = text.replace("\x00", "").replace("\ud800", "\ufffd")
    session = Session("", messages={1: Message(1, None, "user", text)}, head_id=1)
    with Database(tmp_path / "sessions.db") as database:
        database.create_session(session)
    with Database(tmp_path / "sessions.db") as database:
        loaded = database.load_session(session.id)
        assert [m.text for m in loaded.path()] == [kept]
        assert [m.text for m in from_toml(to_toml(loaded), "odd.toml").path()] == [kept]
        assert all(ord(c) >= 32 and c not in "\x1b\x9b\u2028\u202e" for c in database.info(session.id).title)


def steps(database: Database, act: Callable[[], object]) -> int:
    """Work that SQLite does: instructions of its machine, in hundreds."""
    count = [0]

    def step() -> int:
        count[0] += 1
        return 0

    database._db.raw.set_progress_handler(step, 100)
    act()
    database._db.raw.set_progress_handler(None, 100)
    return count[0]


def test_500_sessions_and_one_of_600_kb_cost_the_list_the_search_and_the_opening_no_more(
    tmp_path: Path,
) -> None:
    work: list[tuple[int, int, int]] = []
    for many in (50, 500):
        with Database(tmp_path / f"{many}.db") as database:
            for number in range(many):
                text = f"question {number} of a harbour" if number % 10 == 0 else f"question {number}"
                messages = {1: Message(1, None, "user", text), 2: Message(2, 1, "assistant", "An answer.")}
                if number == 7:
                    messages[2].text = "a long tale " * 50_000
                database.create_session(Session("", messages=messages, head_id=2, updated=number + 1.0))
            latest = database.list_sessions(limit=1)[0].id
            work.append(
                (
                    steps(database, lambda: database.list_sessions(limit=40)),
                    steps(database, lambda: database.search("harbour", 5)),
                    steps(database, lambda: database.load_session(latest)),  # noqa: B023
                )
            )
            assert len(database.search("harbour", 5)) == 5 and len(database.search("tale")) == 1
    few, many_ = work
    assert all(more <= 2 * less + 2 for less, more in zip(few, many_, strict=True)), work


def test_a_session_whose_model_is_gone_opens_and_says_what_to_do(
    starter: Path, tiny: dict[str, Path], tmp_path: Path
) -> None:
    program = Program(tmp_path)
    with Database(tmp_path / "data" / "sessions.db") as database:
        session = Session("", title="Old", model="gone", model_path=str(tmp_path / "gone.gguf"))
        session.messages = {1: Message(1, None, "user", "kept words")}
        session.head_id = 1
        database.create_session(session)
    told = program.run("-p", "Hello", "-r", session.id)
    assert told.returncode == 1 and told.stdout == ""
    assert told.stderr == (
        f"ds4chat: The model {tmp_path}/gone.gguf of session {session.id} is not there: "
        "put it back, or give another with --model.\n"
    )
    assert "kept words" in program.run("show", session.id).stdout
    answer = program.ask("Hello", "-r", session.id, "-m", str(tiny["dense"]), "--max-tokens", "2")
    assert answer["session"] == session.id


def test_the_printed_resume_command_works_from_another_directory(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    program = Program(tmp_path / "home")
    monkeypatch.chdir(tmp_path / "here")
    model = ("-m", str(tiny["dense"]), "--max-tokens", "4")
    answer = program.ask("Hello", *model, "--data-dir", "my data")
    with Terminal(program, "-r", answer["session"], *model, "--data-dir", "my data") as terminal:
        terminal.until("Hello")
        terminal.type(ctrl("q"))
        terminal.wait_end()
        found = re.search(r"ds4chat --resume .*", terminal.raw.decode())
    assert found is not None
    line = found[0].strip()
    monkeypatch.chdir(tmp_path / "there")
    _, *arguments = shlex.split(line)
    again = program.ask("And you?", *arguments, *model)
    assert again["session"] == answer["session"] and again["cached_tokens"] > 0
