"""Many sessions: the list and its order, tags, drafts, hidden messages, the trash."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.errors import SessionNotFoundError
from ds4chat.sessions import migrations
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Role, Session, SessionInfo


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(":memory:", clock=itertools.count(1000).__next__) as database:
        yield database


def make(database: Database, title: str, *texts: str) -> Session:
    session = Session("", title=title)
    database.create_session(session)
    for i, text in enumerate(texts):
        add(database, session, text, "user" if i % 2 == 0 else "assistant")
    return session


def add(database: Database, session: Session, text: str, role: Role = "user") -> Message:
    message = Message(0, session.head_id, role, text)
    database.add_message(session.id, message)
    session.append(message)
    return message


def titles(infos: list[SessionInfo]) -> list[str]:
    return [info.title for info in infos]


# ---- the list


def test_pinned_sessions_come_first_and_each_part_is_newest_first(database: Database) -> None:
    ids = {title: make(database, title).id for title in "abcd"}
    database.set_flags(ids["a"], pinned=True)
    database.set_flags(ids["c"], pinned=True)
    assert titles(database.list_sessions()) == ["c", "a", "d", "b"]
    assert [info.pinned for info in database.list_sessions()] == [True, True, False, False]
    assert titles(database.list_sessions(2, 1)) == ["a", "d"]
    assert database.latest() == ids["d"]
    database.set_flags(ids["c"], pinned=False)
    assert titles(database.list_sessions()) == ["a", "d", "c", "b"]


def test_what_is_archived_is_listed_apart_and_found_by_name(database: Database) -> None:
    old, new = make(database, "old"), make(database, "new")
    database.set_flags(new.id, archived=True)
    assert titles(database.list_sessions()) == ["old"]
    assert titles(database.list_sessions(archived=True)) == ["new"]
    assert titles(database.list_sessions(archived=None)) == ["new", "old"]
    counts = [database.count_sessions(archived=a) for a in (False, True, None)]
    assert counts == [1, 1, 2] and database.count() == 2
    assert database.latest() == old.id
    assert database.resolve("new") == new.id
    assert database.info(new.id).archived and not database.info(new.id).pinned
    database.set_flags(new.id)
    assert database.load_session(new.id).archived


def test_tags_are_cleaned_kept_and_looked_for_as_a_whole(database: Database) -> None:
    one, other = make(database, "one"), make(database, "other")
    given = ["#work", " Two\nwords ", "WORK", "", "x" * 60, "wörk%_"]
    kept = ["work", "Two words", "x" * 40, "wörk%_"]
    assert database.set_tags(one.id, given) == kept
    database.set_tags(other.id, ["working"])
    assert database.info(one.id).tags == tuple(kept)
    assert database.load_session(one.id).tags == kept
    assert titles(database.list_sessions(tag="work")) == ["one"]
    assert titles(database.list_sessions(tag="wörk%_")) == ["one"]
    assert titles(database.list_sessions(tag="%")) == titles(database.list_sessions(tag="wor")) == []
    assert database.count_sessions(tag="working") == 1
    assert database.all_tags() == ["Two words", "work", "working", "wörk%_", "x" * 40]
    database.trash(other.id)
    database.set_tags(one.id, [])
    assert database.all_tags() == [] and database.load_session(one.id).tags == []


def test_a_draft_a_summary_and_a_system_prompt_are_kept_valid(database: Database) -> None:
    session = make(database, "one")
    database.set_draft(session.id, "half a\x00 \ud800thought\r\n")
    database.set_summary(session.id, "short\r")
    database.set_system(session.id, "Be\x00 brief.")
    loaded = database.load_session(session.id)
    assert (loaded.draft, loaded.summary, loaded.system) == ("half a \ufffdthought\n", "short\n", "Be brief.")


def test_what_is_stored_of_a_session_is_in_its_row(database: Database) -> None:
    session, bare = make(database, "one"), make(database, "bare")
    database.record_span(session.id, "aa", 0, 512, "cold", 100)
    database.record_span(session.id, "bb", 512, 700, "idle", 50)
    assert (database.info(session.id).stored_tokens, database.info(session.id).stored_bytes) == (700, 150)
    assert (database.info(bare.id).stored_tokens, database.info(bare.id).stored_bytes) == (0, 0)


def test_a_created_session_keeps_all_of_it(database: Database) -> None:
    session = Session("", title="t", summary="s", pinned=True, archived=True, tags=["a", "b"], draft="d")
    session.append(Message(1, None, "user", "x"))
    session.append(Message(2, 1, "assistant", "y", hidden=True))
    database.create_session(session)
    assert database.load_session(session.id) == session


INDEXED = "SEARCH s USING INDEX sessions_listed (trashed=? AND archived=?)"


def plans(database: Database, tables: str, call: str) -> list[str]:
    """How SQLite goes about the queries of a call, as far as they are about some tables."""
    queries: list[str] = []
    database._db.raw.set_trace_callback(queries.append)
    eval(call, {"db": database})
    database._db.raw.set_trace_callback(None)
    rows = [row for query in queries for row in database._db.all(f"EXPLAIN QUERY PLAN {query}")]
    return [row[3] for row in rows if f" {tables}" in row[3] or "TEMP B-TREE" in row[3]]


def test_of_10_000_sessions_a_page_is_read_by_an_index_and_not_sorted(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        with database._db.write() as db:
            db.executemany(
                "INSERT INTO sessions VALUES (?, ?, '', '', 0, ?, ?, NULL, 0, 0, ?, ?, 0, '', '{}', '', '', '')",
                [(f"{i:08x}", f"t{i}", i, i + 1, i % 1000 == 0, i % 5 == 1) for i in range(10_000)],
            )
            db.executemany(
                "INSERT INTO messages VALUES (?, ?, NULL, 1, 'user', 'complete', 0, '', '', '{}', 'x', x'', 0)",
                [(i + 1, f"{i:08x}") for i in range(10_000)],
            )
        for call in (
            "db.list_sessions(100)",
            "db.list_sessions(100, 5000)",
            "db.list_sessions(9, archived=True)",
        ):
            assert plans(database, "s ", call) == [INDEXED], call
        assert "COVERING INDEX sessions_listed" in plans(database, "s ", "db.count_sessions()")[0]
        latest = plans(database, "sessions ", "db.latest()")
        assert latest == ["SCAN sessions USING INDEX sessions_by_update"]
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        database._db.raw.set_progress_handler(count, 100)
        page = database.list_sessions(100)
        assert [i.pinned for i in page] == [True] * 10 + [False] * 90
        assert titles(page[:2]) == ["t9000", "t8000"] and titles(page[10:12]) == ["t9999", "t9998"]
        # Counted by the hundred: some hundred steps of SQLite's machine for each row, and none for the others.
        assert steps < 200


# ---- hidden messages


def test_hidden_messages_leave_the_path_and_come_back(database: Database) -> None:
    session = make(database, "one", "q1", "a1", "q2", "a2", "q3", "a3")
    ids = [m.id for m in session.path()]
    database.set_hidden(ids[2:4], True)
    loaded = database.load_session(session.id)
    assert [m.text for m in loaded.path()] == ["q1", "a1", "q3", "a3"]
    assert [m.text for m in loaded.lineage()] == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert database.info(session.id).messages == database.list_sessions()[0].messages == 4
    database.set_hidden(ids[4:], True)
    assert database.info(session.id).messages == 2
    database.set_hidden(ids, False)
    assert database.load_session(session.id).messages == session.messages
    assert database.info(session.id).messages == 6


def test_siblings_leaves_and_window_pass_over_what_is_hidden() -> None:
    session = Session("1a2b3c4d")
    parents = {1: None, 2: 1, 3: 1, 4: 3, 5: 4, 6: 4, 7: 3}
    for id_, parent in parents.items():
        session.append(Message(id_, parent, "user", str(id_)))
    assert session.newest_leaf(1) == 7
    session.messages[7].hidden = True
    assert session.newest_leaf(1) == 6, "nothing is to be seen below the newest child"
    session.messages[6].hidden = session.messages[4].hidden = True
    assert session.newest_leaf(1) == 5, "what hangs on a hidden message is there"
    session.messages[5].hidden = True
    assert session.newest_leaf(1) == 3 and session.newest_leaf(4) == 4
    session.messages[5].hidden = False
    assert [m.id for m in session.siblings(5)] == [5]
    assert [m.id for m in session.siblings(2)] == [2, 3]
    session.head_id, session.window_start_id = 5, 4
    assert [m.id for m in session.path()] == [1, 3, 5]
    assert [m.id for m in session.window()] == [5], "the window begins behind its hidden first message"


def test_a_session_cut_to_its_path_stands_without_what_is_hidden(database: Database) -> None:
    session = make(database, "one", "q1", "a1", "q2", "a2")
    for message in session.path()[:2]:
        message.hidden = True
    session.window_start_id = next(iter(session.messages))
    assert [m.text for m in session.keep_path()] == ["q2", "a2"]
    assert session.window_start_id == session.path()[0].id
    session.id = ""
    database.create_session(session)
    loaded = database.load_session(session.id)
    assert [m.text for m in loaded.path()] == [m.text for m in loaded.messages.values()] == ["q2", "a2"]
    assert session.keep_path(session.path()[0].id) == [session.messages[session.path()[0].id]]


# ---- the trash


def test_the_trash_is_nowhere_and_gives_back_everything(database: Database) -> None:
    session = make(database, "Rome", "where?", "there")
    database.set_flags(session.id, pinned=True)
    database.set_tags(session.id, ["travel"])
    database.record_span(session.id, "aa", 0, 512, "cold", 100)
    before = database.load_session(session.id)
    database.trash(session.id)
    assert database.list_sessions() == database.list_sessions(archived=None) == []
    assert database.count() == 0 and database.latest() is None and database.all_tags() == []
    assert database.search("where") == [] and database.has(session.id)
    for name in (session.id, session.id[:4], "Rome"):
        with pytest.raises(SessionNotFoundError):
            database.resolve(name)
    assert database.all_spans() == ["aa"] and database.trashed() == [session.id]
    database.untrash(session.id)
    assert database.load_session(session.id) == before
    assert titles(database.list_sessions(tag="travel")) == ["Rome"]
    assert len(database.search("where")) == 1 and database.trashed() == []


def test_purging_deletes_what_lies_there_long_enough(database: Database) -> None:
    early, late, kept = make(database, "early"), make(database, "late"), make(database, "kept")
    for session, sha1 in ((early, "aa"), (late, "bb"), (kept, "cc")):
        database.record_span(session.id, sha1, 0, 9, "cold", 1)
        database.record_span(session.id, "shared", 0, 5, "cold", 1)
    database.trash(early.id)
    moment = database._clock()
    database.trash(late.id)
    assert database.purge_trash(moment) == {early.id: ["aa"]}
    assert database.purge_trash(moment) == {}
    assert database.trashed() == [late.id]
    assert database.purge_trash(10**9, only=[kept.id]) == {}, "what is not in the trash is not purged"
    assert database.purge_trash(10**9, only=[late.id]) == {late.id: ["bb"]}
    assert titles(database.list_sessions()) == ["kept"]
    with pytest.raises(SessionNotFoundError):
        database.load_session(early.id)


@pytest.mark.parametrize(
    "call",
    [
        "db.trash('deadbeef')",
        "db.untrash('deadbeef')",
        "db.set_flags('deadbeef', pinned=True)",
        "db.set_tags('deadbeef', [])",
        "db.set_draft('deadbeef', '')",
        "db.set_summary('deadbeef', '')",
        "db.set_system('deadbeef', '')",
    ],
)
def test_a_session_that_is_gone_is_told(database: Database, call: str) -> None:
    with pytest.raises(SessionNotFoundError):
        eval(call, {"db": database})


def test_of_several_deletions_all_or_none_happen(database: Database) -> None:
    session = make(database, "one")
    with pytest.raises(SessionNotFoundError):
        database.delete_all([session.id, "deadbeef"])
    assert database.has(session.id)
    assert database.delete_all([session.id]) == [] and not database.has(session.id)


# ---- from the first schema


def test_a_database_of_the_first_schema_keeps_all_and_can_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    db = sqlite3.connect(path, isolation_level=None)
    monkeypatch.setattr(migrations, "MIGRATIONS", (migrations.m001_initial,))
    migrations.migrate(db, 1.0)
    monkeypatch.undo()
    for id_, updated in (("00000002", 9.0), ("00000001", 9.0), ("00000003", 10.0)):
        db.execute(
            "INSERT INTO sessions VALUES (?, 'Rome', 'Smol', '/m', 5, ?, 2, 1, 1, 77, '{\"seed\":3}', 'Be brief.')",
            (id_, updated),
        )
    db.execute("UPDATE sessions SET head_id = NULL, window_start_id = NULL WHERE id <> '00000001'")
    db.execute(
        "INSERT INTO messages VALUES"
        " (1, '00000001', NULL, 1, 'user', 'complete', 6, '', '', '{}', 'where to go?', x'')"
    )
    db.execute(
        "INSERT INTO messages VALUES (2, '00000001', 1, 2, 'assistant', 'streaming', 7, 'ff', 'Smol', '{\"x\":1}',"
        " 'to the Forum', x'01000000')"
    )
    db.execute("INSERT INTO spans VALUES ('00000001', 'aa', 0, 9, 'cold', 3, 4.5)")
    db.close()
    with Database(path) as database:
        session = database.load_session("00000001")
        assert session == Session(
            "00000001",
            "Rome",
            "Be brief.",
            "Smol",
            "/m",
            5.0,
            9.0,
            2,
            1,
            True,
            {
                1: Message(1, None, "user", "where to go?", created=6.0),
                2: Message(2, 1, "assistant", "to the Forum", "streaming", [1], "ff", "Smol", 7.0, {"x": 1}),
            },
            77,
            {"seed": 3},
        )
        assert [i.id for i in database.list_sessions()] == ["00000003", "00000001", "00000002"]
        assert [s.sha1 for s in database.spans_of("00000001")] == ["aa"]
        assert [h.message_id for h in database.search("to")] == [1]
        database.recover("00000001")
        assert [h.message_id for h in database.search("to")] == [2, 1]
        third = database.add_message("00000001", Message(0, 2, "user", "thanks"))
        assert third == 3 and database._db.all("PRAGMA foreign_key_check") == []
        with pytest.raises(SessionNotFoundError):
            database.add_message("deadbeef", Message(0, None, "user", "x"))
        names = {row[0] for row in database._db.all("SELECT name FROM sqlite_master WHERE type = 'index'")}
        assert {"sessions_by_update", "messages_by_session", "spans_by_sha1"} <= names
    Database(path).close()
