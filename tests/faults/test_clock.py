"""A clock that was set back: times to come in every file, and lists that are still in the order of use."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

import pytest

from ds4chat.checkpoints import leases
from ds4chat.checkpoints.policy import Entry, victims
from ds4chat.checkpoints.reason import Reason
from ds4chat.sessions import shelf
from ds4chat.sessions.database import Database
from ds4chat.sessions.housekeeping import KEEP_SECONDS
from ds4chat.sessions.session import Message, Session
from ds4chat.ui.listing import rows_of
from tests.checkpoints.kv_helpers import Clock
from tests.support.program import Program
from tests.support.scripted_engine import scripted_room
from tests.ui.fake_manager import FakeManager

YEAR = 365 * 86_400.0


def test_the_list_is_in_the_order_of_use_whatever_the_clock_says(tmp_path: Path) -> None:
    clock = Clock(time.time() + 3 * YEAR)
    with Database(tmp_path / "sessions.db", clock=clock) as database:
        first, second = Session("", title="first"), Session("", title="second")
        for session in (first, second):
            database.create_session(session)
            database.add_message(session.id, Message(0, None, "user", "a question"))
            clock.now += 60
        clock.now -= 4 * YEAR
        third = Session("", title="third")
        database.create_session(third)
        assert [info.title for info in database.list_sessions()] == ["third", "second", "first"]
        database.add_message(first.id, Message(0, None, "user", "one more"))
        assert [info.title for info in database.list_sessions()] == ["first", "third", "second"]
        assert database.latest() == first.id
        clock.now += 10
        database.add_message(second.id, Message(0, None, "user", "another"))
        assert database.latest() == second.id


async def test_a_fork_is_on_top_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db", clock=Clock(time.time() + YEAR)) as database:
        session = Session("", title="of next year")
        database.create_session(session)
        database.add_message(session.id, Message(0, None, "user", "a question"))
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        fork = room.manager.fork_session(session.id)
        assert [info.id for info in room.manager.list_sessions()] == [fork.id, session.id]


def test_ages_of_times_to_come_are_now(tmp_path: Path) -> None:
    manager = FakeManager()
    for title, updated in (
        ("soon", time.time() + 3 * 3600),
        ("much later", time.time() + 900 * YEAR),
        ("never", 1e300),
    ):
        session = manager.make(title, ["a question"])
        session.updated = updated
    rows = rows_of(manager.list_sessions(), manager)  # type: ignore[arg-type]
    shown = {row.title: (row.note, row.group) for row in rows}
    assert shown == dict.fromkeys(("soon", "much later", "never"), ("now", "Today"))


def test_the_command_line_lists_any_time(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with Database(tmp_path / "data" / "sessions.db") as database:
        for title, updated in (
            ("now", time.time()),
            ("later", time.time() + YEAR),
            ("beyond the calendar", 1e300),
        ):
            database.create_session(Session("", title=title, created=1.0, updated=updated))
    done = program.run("ls")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()[1:]
    assert [line.split("  ")[1].strip() for line in lines] == ["beyond the calendar", "later", "now"]
    assert f"{date.today().year + 1}-" in lines[1]


async def test_what_was_deleted_before_the_clock_was_set_back_goes_with_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session()
        await room.ask(session.id, "a secret of mine")
        room.manager.delete_session(session.id)
        now = time.time() - YEAR
        monkeypatch.setattr(shelf.time, "time", lambda: now)
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_leftovers_of_a_wrong_clock_go_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock(time.time())
    with Database(tmp_path / "sessions.db", clock=clock) as database:
        for title, trashed in (("wrong clock", clock.now + YEAR), ("just now", clock.now - 1)):
            session = Session("", title=title)
            database.create_session(session)
            clock.now, now = trashed, clock.now
            database.trash(session.id)
            clock.now = now
    async with scripted_room(monkeypatch, tmp_path):
        pass
    with Database(tmp_path / "sessions.db") as database:
        assert [database.load_session(id_).title for id_ in database.trashed()] == ["just now"]
    assert KEEP_SECONDS >= 86_400


def test_spans_used_in_the_future_are_worth_what_those_used_now_are() -> None:
    def entry(name: str, age: float, hits: int = 0) -> Entry:
        return Entry(name, None, 100, 64, hits, age, 1000, Reason.CONTINUED)

    late = [
        entry("later", -YEAR * 50),
        entry("hit later", -YEAR, 3),
        entry("now", 0.0),
        entry("old", 86_400.0),
    ]
    gone = victims(late, 0, 150)
    assert gone[0] == "old", "age alone decides among spans nobody came back to"
    assert set(gone) == {"old", "now", "later"}, "and the span that was hit stays"
    assert victims([entry("later", -1e18), entry("hit", -1e18, 2**32 - 1)], 0, 150) == ["later"]


def test_a_lease_without_locks_ends_also_when_its_time_is_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.Lease(tmp_path)
    lease.ensure()
    (lock,) = (tmp_path / leases.FOLDER).glob("*.lock")

    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(leases.fcntl, "flock", no_locks)
        assert leases._is_held(lock)
        os.utime(lock, (time.time() + YEAR, time.time() + YEAR))
        assert not leases._is_held(lock)
    lease.close()
