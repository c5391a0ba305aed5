"""A damaged session database: what can be read is in a new one, and the damaged file stays beside it, byte for byte."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ds4chat import news
from ds4chat.errors import DatabaseDamagedError, DatabaseError
from ds4chat.sessions import migrations, salvage
from ds4chat.sessions.damage import damaged_files, marker
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session
from ds4chat.sessions.spans import Span
from tests.support.program import Program

PAGE = 4096
CHATS, MESSAGES = 5, 8

HOLD_OPEN = """
import sys
from ds4chat.sessions.database import Database
database = Database(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_news() -> Iterator[None]:
    """What one test finds out is no news for the next."""
    news.take()
    yield
    news.take()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with some chats; to be copied."""
    path = tmp_path_factory.mktemp("sample") / "sessions.db"
    words = random.Random(7)
    with Database(path) as database:
        for i in range(CHATS):
            session = Session("", title=f"chat {i}", tags=["kept"], draft=f"draft {i}", pinned=i == 0)
            session.params, session.system = {"temperature": 0.5}, "Be brief."
            database.create_session(session)
            parent = None
            for j in range(MESSAGES):
                text = f"message {i}.{j} " + "words and more words " * words.choice([1, 10, 400])
                message = Message(0, parent, "assistant" if j % 2 else "user", text, created=1e9 + j)
                message.tokens = list(range(j * 300)) if j % 2 else []
                parent = database.add_message(session.id, message)
            database.record_span(session.id, f"{i:02x}" * 20, 0, 512, "cold", 1000)
    return path


@pytest.fixture
def path(sample: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sample, tmp_path / "sessions.db"))


def contents(path: Path) -> tuple[dict[str, Session], dict[str, list[Span]]]:
    """All sessions and what they stand on."""
    with Database(path) as database:
        infos = database.list_sessions(archived=None)
        sessions = {info.id: database.load_session(info.id) for info in infos}
        return sessions, {info.id: database.spans_of(info.id) for info in infos}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def kept_as(path: Path) -> Path:
    return path.with_name(f"sessions.damaged-{datetime.now():%Y-%m-%d}.db")


def lose_header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(b"\0" * PAGE + data[PAGE:])


def break_message_page(path: Path) -> None:
    """Damage that is met only when a certain message is read."""
    data = bytearray(path.read_bytes())
    at = next(
        at
        for at in range(PAGE, len(data), PAGE)
        if data[at] == 0x0D and b"message 2.0" in data[at : at + PAGE]
    )
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)


# ---- what is saved


def test_without_its_first_page_all_of_it_is_saved_and_told(path: Path) -> None:
    before = contents(path)
    lose_header(path)
    damaged = digest(path)
    assert contents(path) == before
    assert digest(kept_as(path)) == damaged
    assert news.take() == [
        f"The session database {path} was damaged: 5 chats with 40 messages could be read and are in a new one; "
        f"the damaged file is kept as {kept_as(path)}."
    ]
    with Database(path) as database:
        assert len(database.search("message 3.4")) == 1, "what is searched is there too"
        assert database.add_message(next(iter(before[0])), Message(0, None, "user", "on we go"))
    assert sorted(p.name for p in path.parent.iterdir()) == [
        kept_as(path).name,
        path.name,
        f"{path.name}.salvage-lock",
    ]
    assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "kind", ["cut off", "page of noise", "flipped bits", "noise behind the header", "no SQLite"]
)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_damage_the_rest_can_be_used(path: Path, kind: str, seed: int) -> None:
    before, _ = contents(path)
    rng = random.Random(f"{kind} {seed}")
    data = bytearray(path.read_bytes())
    match kind:
        case "cut off":
            del data[rng.randrange(1, len(data)) :]
        case "page of noise":
            at = rng.randrange(len(data) // PAGE) * PAGE
            data[at : at + PAGE] = rng.randbytes(PAGE)
        case "flipped bits":
            for _ in range(40):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case "noise behind the header":
            data[16:] = rng.randbytes(len(data) - 16)
        case "no SQLite":
            data[:] = b"this is no database " * 400
    path.write_bytes(data)
    damaged = digest(path)
    for _ in range(2):
        # Damage inside is met by who reads there; the next start mends it.
        try:
            after, _ = contents(path)
            break
        except DatabaseDamagedError:
            assert digest(path) == damaged, "nothing is written into a damaged file"
            assert marker(path).exists()
    sentences = news.take()
    if sentences:
        (sentence,) = sentences
        assert digest(kept_as(path)) == damaged
        told = re.search(r"([\d,]+) chats? with ([\d,]+) messages?", sentence)
        messages = sum(len(session.messages) for session in after.values())
        assert (told.groups() if told else ("0", "0")) == (str(len(after)), str(messages))
    if kind == "page of noise":
        assert sum(len(session.messages) for session in after.values()) >= CHATS * MESSAGES - 12
    intact = [session for id_, session in after.items() if before.get(id_) == session]
    assert kind != "page of noise" or intact, "chats elsewhere are as they were"


def test_what_only_the_journal_has_is_saved_with_it(path: Path) -> None:
    elsewhere = path.parent / "crashed"
    elsewhere.mkdir()
    with Database(path) as database:
        session = Session("", title="said last")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "only in the journal"))
        for name in ("sessions.db", "sessions.db-wal"):
            shutil.copy(path.with_name(name), elsewhere / name)
    crashed = elsewhere / "sessions.db"
    lose_header(crashed)
    files = [digest(elsewhere / name) for name in ("sessions.db", "sessions.db-wal")]
    sessions, _ = contents(crashed)
    assert len(sessions) == CHATS + 1
    assert [m.text for m in sessions[session.id].path()] == ["only in the journal"]
    assert [digest(kept_as(crashed)), digest(Path(f"{kept_as(crashed)}-wal"))] == files


def test_an_empty_file_beside_a_journal_is_not_taken_for_a_new_one(path: Path) -> None:
    with Database(path) as database:
        session = Session("", title="said last")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "only in the journal"))
        journal = path.with_name("sessions.db-wal").read_bytes()
    path.write_bytes(b"")
    path.with_name("sessions.db-wal").write_bytes(journal)
    sessions, _ = contents(path)
    assert [m.text for m in sessions[session.id].path()] == ["only in the journal"]
    assert Path(f"{kept_as(path)}-wal").read_bytes() == journal


def test_a_session_that_was_deleted_does_not_come_back(path: Path) -> None:
    sessions, _ = contents(path)
    gone, thrown, *_ = sessions
    with Database(path) as database:
        database.delete(gone)
        database.trash(thrown)
    lose_header(path)
    after, spans = contents(path)
    assert after == {id_: session for id_, session in sessions.items() if id_ not in (gone, thrown)}
    assert len(spans) == CHATS - 2


@pytest.mark.parametrize(
    "change", ["parent_id = 999 WHERE id = 12", "parent_id = 38 WHERE id = 4", "stats = '[' "]
)
def test_messages_that_contradict_each_other_hang_together_again(path: Path, change: str) -> None:
    before, _ = contents(path)
    with sqlite3.connect(path) as db:
        db.create_function("ds4chat_terms", 1, lambda text: "")
        db.execute(f"UPDATE messages SET {change}")
    db.close()
    with pytest.raises(DatabaseDamagedError) as caught:
        contents(path)
    assert str(caught.value).endswith(
        "quit and start ds4chat again, which puts what can be read into a new one."
    )
    after, _ = contents(path)
    assert {id_: [m.text for m in s.path()] for id_, s in after.items()} == {
        id_: [m.text for m in s.path()] for id_, s in before.items()
    }


def test_a_second_damage_on_one_day_overwrites_nothing(path: Path) -> None:
    lose_header(path)
    first = digest(path)
    contents(path)
    lose_header(path)
    contents(path)
    assert [p.name for p in damaged_files(path)] == [
        kept_as(path).with_stem(f"{kept_as(path).stem}-2").name,
        kept_as(path).name,
    ]
    assert digest(kept_as(path)) == first


# ---- who else is there


def test_two_programs_that_start_at_once_salvage_once(path: Path) -> None:
    before = contents(path)
    lose_header(path)
    code = "import sys; from ds4chat.sessions.database import Database; print(Database(sys.argv[1]).count())"
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [child.communicate(timeout=60)[0] for child in children] == [f"{CHATS}\n"] * 3
    assert len(damaged_files(path)) == 1
    assert contents(path) == before


def test_a_database_that_another_program_has_open_is_left_to_it(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        break_message_page(path)
        damaged = digest(path)
        with pytest.raises(DatabaseDamagedError):
            contents(path)
        with pytest.raises(DatabaseError) as caught:
            contents(path)
        assert str(caught.value) == (
            f"The session database {path} is damaged and open in another program: close that, maybe a second ds4chat, "
            "then try again."
        )
        assert digest(path) == damaged and damaged_files(path) == []
    finally:
        child.communicate()
    assert len(contents(path)[0]) == CHATS


def test_one_that_this_program_has_open_is_left_alone_too(path: Path) -> None:
    with Database(path):
        lose_header(path)
        with pytest.raises(DatabaseDamagedError, match="quit and start ds4chat again"):
            Database(path)
        assert damaged_files(path) == []


# ---- what may go wrong with it


def test_a_kill_before_the_new_file_has_its_place_is_made_up_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(path)
    lose_header(path)

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(salvage, "_put_in_place", killed)
        with pytest.raises(KeyboardInterrupt):
            Database(path)
    assert contents(path) == before
    assert len(damaged_files(path)) == 1


def test_without_room_for_the_new_file_nothing_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_header(path)
    damaged = digest(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(salvage, "build", full)
    with pytest.raises(DatabaseError) as caught:
        Database(path)
    assert str(caught.value) == (
        f"The session database {path} is damaged, and what can be read of it cannot be saved beside it (No space left "
        "on device): make room there and make its folder writable, then try again."
    )
    assert digest(path) == damaged and damaged_files(path) == []


def newer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def m999_future(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE sessions ADD COLUMN colour TEXT")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, m999_future))
        Database(path).close()


def test_a_newer_database_keeps_its_bytes_and_those_of_its_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer(path, monkeypatch)
    other = sqlite3.connect(path)
    other.execute("UPDATE sessions SET colour = 'red'")
    other.commit()
    copy = path.parent / "copy"
    copy.mkdir()
    for name in ("sessions.db", "sessions.db-wal"):
        shutil.copy(path.with_name(name), copy / name)
    other.close()
    files = [copy / name for name in ("sessions.db", "sessions.db-wal")]
    before = [digest(file) for file in files]
    assert files[1].stat().st_size > 0
    with pytest.raises(DatabaseError) as caught:
        Database(copy / "sessions.db")
    assert str(caught.value) == (
        f"{copy / 'sessions.db'} was written by a newer ds4chat: update ds4chat, or choose another folder with "
        "--data-dir."
    )
    assert [digest(file) for file in files] == before


def test_a_damaged_newer_database_is_left_to_the_newer_program(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer(path, monkeypatch)
    lose_header(path)
    damaged = digest(path)
    with pytest.raises(DatabaseError) as caught:
        Database(path)
    assert str(caught.value) == (
        f"The session database {path} is damaged and was written by a newer ds4chat: update ds4chat, which then saves "
        "what can be read."
    )
    assert digest(path) == damaged and damaged_files(path) == []


# ---- what a user sees


def test_the_command_line_says_what_is_damaged_and_then_what_was_saved(sample: Path, tmp_path: Path) -> None:
    program = Program(tmp_path)
    path = Path(shutil.copy(sample, tmp_path / "data" / "sessions.db"))
    break_message_page(path)
    first = program.run("show", "chat 2")
    assert (first.returncode, first.stdout) == (1, "")
    assert first.stderr == (
        f"ds4chat: The session database {path} is damaged (database disk image is malformed): quit and start ds4chat "
        "again, which puts what can be read into a new one.\n"
    )
    second = program.run("ls")
    assert second.returncode == 0 and second.stdout.count("chat ") == CHATS
    assert second.stderr.count("\n") == 1
    assert re.fullmatch(
        rf"ds4chat: The session database {re.escape(str(path))} was damaged: 5 chats with \d+ messages could be read "
        rf"and are in a new one; the damaged file is kept as {re.escape(str(kept_as(path)))}\.\n",
        second.stderr,
    )
    assert program.run("ls").stderr == ""
