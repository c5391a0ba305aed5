"""The database as a file: modes, migrations, damage, other processes, kills."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat.errors import DatabaseError
from ds4chat.sessions import migrations
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session

WRITE_AND_WAIT = """
import sys
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session
database = Database(sys.argv[1])
session = Session("1a2b3c4d", title="killed")
database.create_session(session)
reply = Message(0, None, "assistant", "", "streaming")
database.add_message(session.id, reply)
for i in range(100):
    database.update_reply(reply.id, "word " * (i + 1), list(range(i + 1)), "streaming")
print("saved", flush=True)
sys.stdin.read()
"""


def fill(path: Path) -> str:
    with Database(path) as database:
        session = Session("", title="kept")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "hello " * 2000))
        return session.id


def test_file_and_folder_are_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sessions.db"
    with Database(path) as database:
        database.create_session(Session(""))
        modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert modes and set(modes.values()) == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    fill(path)
    path.chmod(0o644)
    Database(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_saved_is_lost_at_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "saved\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with Database(path) as database:
        assert database.recover("1a2b3c4d") == 1
        (reply,) = database.load_session("1a2b3c4d").path()
    assert (reply.text, reply.tokens, reply.state) == ("word " * 100, list(range(100)), "cut")


# ---- migrations ----


def test_each_migration_runs_once_in_memory_and_is_written_down() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrations.migrate(db, 1.0)
    migrations.migrate(db, 2.0)
    assert (
        migrations.applied(db)
        == [step.__name__ for step in migrations.MIGRATIONS]
        == [
            "m001_initial",
            "m002_organizing",
            "m003_search",
            "m004_origins",
        ]
    )
    assert db.execute("SELECT applied FROM migrations").fetchall() == [(1.0,)] * 4
    assert not migrations.is_foreign(db) and migrations.unknown(db) == []


def test_names_of_migrations_are_numbered_in_order() -> None:
    assert [int(step.__name__[1:4]) for step in migrations.MIGRATIONS] == list(
        range(1, len(migrations.MIGRATIONS) + 1)
    )


def test_a_migration_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def m002_broken(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half (x)")
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.m001_initial, m002_broken))
    db = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrations.migrate(db, 1.0)
    assert migrations.applied(db) == ["m001_initial"]
    assert db.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def m999_future(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE sessions ADD COLUMN colour TEXT")

    path = tmp_path / "sessions.db"
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, m999_future))
        fill(path)
    before = path.read_bytes()
    with pytest.raises(DatabaseError) as caught:
        Database(path)
    assert "was written by a newer ds4chat: update ds4chat" in str(caught.value)
    assert path.read_bytes() == before


def test_two_processes_may_make_the_database_at_the_same_moment(tmp_path: Path) -> None:
    code = "import sys; from ds4chat.sessions.database import Database; Database(sys.argv[1]).close()"
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "s.db")]) for _ in range(4)]
    assert [child.wait(60) for child in children] == [0, 0, 0, 0]


# ---- damage and obstacles ----


def broken(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "another program's":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE tasks (x)")
        db.close()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("folder", "cannot be opened"),
        ("another program's", "a database of another program"),
    ],
)
def test_what_is_no_session_database_is_told_in_one_sentence(tmp_path: Path, kind: str, told: str) -> None:
    path = tmp_path / "sessions.db"
    broken(path, kind)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(DatabaseError) as caught:
        with Database(path) as database:
            for info in database.list_sessions():
                database.load_session(info.id)
    sentence = str(caught.value)
    assert told in sentence and str(path) in sentence
    assert sentence.endswith(".") and "\n" not in sentence
    assert (path.read_bytes() if path.is_file() else None) == before


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.touch()
    assert fill(path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match=r"cannot be opened \(.*--data-dir"):
        Database(tmp_path / "file" / "sessions.db")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET head_id = 999",
        "UPDATE messages SET parent_id = 999",
        "UPDATE messages SET stats = 'no json'",
        "UPDATE messages SET tokens = x'010203'",
        "UPDATE sessions SET params = '[1]'",
    ],
)
def test_contents_that_contradict_themselves_are_told(tmp_path: Path, change: str) -> None:
    path = tmp_path / "sessions.db"
    session_id = fill(path)
    with Database(path) as database:
        with database._db.write() as db:
            db.execute(change)
        with pytest.raises(DatabaseError, match="damaged"):
            database.load_session(session_id)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = Session("")
        database.create_session(session)
        database._db._db.execute("PRAGMA max_page_count = 20")
        with pytest.raises(DatabaseError, match="disk is full: free some space"):
            database.add_message(session.id, Message(0, None, "user", "x" * 1_000_000))
        assert database.load_session(session.id).messages == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    fill(path)
    path.chmod(0o400)
    with pytest.raises(DatabaseError, match="writable"), Database(path) as database:
        database.create_session(Session(""))


# ---- two connections ----


def test_a_write_that_waits_too_long_names_the_cause_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session_id = fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    with Database(path, busy_timeout=0.05) as database:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError) as caught:
            database.rename(session_id, "new")
        assert "is in use by another program, maybe a second ds4chat: let it finish or close it" in str(
            caught.value
        )
        assert database.load_session(session_id).title == "kept"
        other.execute("COMMIT")
        assert database.rename(session_id, "new") == "new"
    other.close()


def test_a_failed_create_leaves_the_session_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    session = Session("", title="x")
    session.append(Message(70, None, "user", "a"))
    with Database(path, busy_timeout=0.05) as database:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError):
            database.create_session(session)
        other.execute("COMMIT")
        assert list(session.messages) == [70] and session.head_id == 70
        database.create_session(session)
        assert database.load_session(session.id) == session
    other.close()


def test_two_programs_see_each_others_changes(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Database(path) as one, Database(path) as two:
        session = Session("", title="shared")
        one.create_session(session)
        two.rename(session.id, "seen")
        assert one.info(session.id).title == "seen"


def test_what_is_deleted_is_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with Database(path) as database:
        session = Session("", title="x")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "my deepest secret"))
        database.delete(session.id)
    assert not any(b"deepest secret" in p.read_bytes() for p in tmp_path.iterdir())


def test_a_copy_of_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    session_id = fill(path)
    shutil.copy(path, tmp_path / "copy.db")
    with Database(tmp_path / "copy.db") as database:
        assert database.load_session(session_id).title == "kept"
