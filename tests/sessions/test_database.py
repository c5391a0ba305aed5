"""What the session database keeps, finds and gives back."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import DatabaseError, SessionNotFoundError, UsageError
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Role, Session


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(":memory:", clock=itertools.count(1000).__next__) as database:
        yield database


def make(database: Database, title: str = "", *, id_: str = "", texts: tuple[str, ...] = ()) -> Session:
    session = Session(id_, title=title)
    database.create_session(session)
    for i, text in enumerate(texts):
        add(database, session, text, "user" if i % 2 == 0 else "assistant")
    return session


def add(
    database: Database, session: Session, text: str, role: Role = "user", parent: int | None = -1
) -> Message:
    message = Message(0, session.head_id if parent == -1 else parent, role, text)
    database.add_message(session.id, message)
    session.append(message)
    return message


# ---- sessions and their trees ----


def test_a_session_comes_back_as_it_was(database: Database) -> None:
    session = make(database, "Rome", texts=("hello", "hi"))
    session.system, session.params = "", {"temperature": 0.5, "seed": None}
    database.set_params(session.id, session.params)
    database.set_model(session.id, "Smol", "/m/smol.gguf")
    database.set_cold_done(session.id)
    database.set_tokens(session.id, 123)
    loaded = database.load_session(session.id)
    assert (loaded.model, loaded.model_path, loaded.cold_done, loaded.tokens) == (
        "Smol",
        "/m/smol.gguf",
        True,
        123,
    )
    assert loaded.params == {"temperature": 0.5, "seed": None}
    assert loaded.messages == session.messages
    assert loaded.head_id == session.head_id
    assert [m.text for m in loaded.path()] == ["hello", "hi"]
    assert database.model_path(session.id) == "/m/smol.gguf"


def test_branches_survive_and_the_head_says_which_is_seen(database: Database) -> None:
    session = make(database, texts=("question", "first answer"))
    question = session.path()[0]
    other = add(database, session, "second answer", "assistant", parent=question.id)
    edited = add(database, session, "another question", parent=None)
    loaded = database.load_session(session.id)
    assert [m.text for m in loaded.path()] == ["another question"]
    assert [m.text for m in loaded.path(other.id)] == ["question", "second answer"]
    assert [m.text for m in loaded.siblings(other.id)] == ["first answer", "second answer"]
    assert loaded.siblings(edited.id) == [loaded.messages[question.id], loaded.messages[edited.id]]
    database.set_head(session.id, other.id)
    assert [m.text for m in database.load_session(session.id).path()] == ["question", "second answer"]
    assert database.info(session.id).messages == 2


def test_ids_of_messages_grow_and_are_never_used_again(database: Database) -> None:
    session = make(database, texts=("a", "b"))
    last = session.head_id
    assert last is not None
    database.delete(session.id)
    assert add(database, make(database), "c").id > last


def test_a_parent_of_another_session_is_refused(database: Database) -> None:
    other = make(database, texts=("a",))
    session = make(database)
    with pytest.raises(ValueError):
        database.add_message(session.id, Message(0, other.head_id, "user", "b"))
    assert database.load_session(session.id).messages == {}


def test_create_stores_a_whole_tree_under_new_ids(database: Database) -> None:
    make(database, texts=("takes", "some", "ids"))
    copy = Session("", title="fork", created=5.0)
    for id_, parent, text in ((10, None, "a"), (20, 10, "b"), (30, 10, "c")):
        copy.append(Message(id_, parent, "user", text))
    copy.head_id, copy.window_start_id = 20, 10
    database.create_session(copy)
    loaded = database.load_session(copy.id)
    assert loaded == copy
    assert [m.text for m in loaded.path()] == ["a", "b"]
    assert [m.text for m in loaded.window()] == ["a", "b"]
    assert 10 not in loaded.messages


def test_ids_are_8_hex_characters_and_a_taken_one_is_drawn_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(make(database).id) <= set("0123456789abcdef") and len(make(database).id) == 8
    make(database, id_="00000001")
    draws = iter(["00000001", "00000001", "00000002"])
    monkeypatch.setattr(secrets, "token_hex", lambda n: next(draws))
    assert database.new_id() == "00000002"


def test_rename_and_delete(database: Database) -> None:
    session = make(database, "old", texts=("a",))
    assert database.rename(session.id, "  new\n \x1b[31mtitle\x07 ") == "new title"
    assert database.load_session(session.id).title == "new title"
    with pytest.raises(UsageError, match="blank"):
        database.rename(session.id, " \n\x00")
    assert database.delete(session.id) == []
    with pytest.raises(SessionNotFoundError, match="ds4chat ls"):
        database.load_session(session.id)


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.delete("deadbeef"),
        lambda db: db.rename("deadbeef", "x"),
        lambda db: db.set_head("deadbeef", 1),
        lambda db: db.add_message("deadbeef", Message(0, None, "user", "x")),
        lambda db: db.record_span("deadbeef", "a" * 40, 0, 1, "cold", 1),
        lambda db: db.info("deadbeef"),
        lambda db: db.model_path("deadbeef"),
    ],
)
def test_a_session_that_is_gone_is_told(database: Database, call: object) -> None:
    assert callable(call)
    with pytest.raises(SessionNotFoundError, match='No session goes by "deadbeef": `ds4chat ls`'):
        call(database)


# ---- replies ----


def test_a_streaming_reply_is_saved_as_far_as_it_came(database: Database) -> None:
    session = make(database, texts=("q",))
    reply = Message(0, session.head_id, "assistant", "", "streaming", fingerprint="ab", model="m")
    database.add_message(session.id, reply)
    database.update_reply(reply.id, "Hel", [1, 2**32 - 1], "streaming")
    half = database.load_session(session.id).messages[reply.id]
    assert (half.text, half.tokens, half.state, half.fingerprint) == (
        "Hel",
        [1, 2**32 - 1],
        "streaming",
        "ab",
    )
    database.update_reply(
        reply.id, "Hello", [1, 2, 3], "complete", {"generated_tokens": 3, "stop_reason": "stop"}
    )
    database.update_reply(reply.id, "Hello", [1, 2, 3], "complete")
    whole = database.load_session(session.id).messages[reply.id]
    assert (whole.text, whole.state) == ("Hello", "complete")
    assert whole.stats == {"generated_tokens": 3, "stop_reason": "stop"}
    database.set_author(reply.id, "cd", "other")
    assert database.load_session(session.id).messages[reply.id].fingerprint == "cd"


def test_tokens_are_stored_little_endian(database: Database) -> None:
    session = make(database, texts=("q",))
    reply = add(database, session, "", "assistant")
    database.update_reply(reply.id, "x", [1, 258], "complete")
    assert database._db.one("SELECT tokens FROM messages WHERE id = ?", reply.id) == (b"\1\0\0\0\2\1\0\0",)


def test_a_reply_of_a_deleted_session_cannot_be_saved(database: Database) -> None:
    with pytest.raises(DatabaseError, match="deleted elsewhere"):
        database.update_reply(99, "x", [], "streaming")


def test_recover_marks_what_a_kill_left(database: Database) -> None:
    session, other = make(database, texts=("q",)), make(database, texts=("q",))
    states = {}
    for role, state in (
        ("assistant", "streaming"),
        ("user", "queued"),
        ("assistant", "stopped"),
        ("assistant", "complete"),
        ("user", "complete"),
    ):
        states[database.add_message(session.id, Message(0, session.head_id, role, "x", state))] = state  # type: ignore[arg-type]
    untouched = database.add_message(other.id, Message(0, other.head_id, "assistant", "x", "streaming"))
    assert database.recover(session.id) == 2
    loaded = database.load_session(session.id)
    assert [loaded.messages[i].state for i in states] == [
        "cut",
        "complete",
        "stopped",
        "complete",
        "complete",
    ]
    assert database.load_session(other.id).messages[untouched].state == "streaming"
    assert database.recover(session.id) == 0


# ---- the list, and names ----


def test_the_list_is_newest_first_with_counts_of_the_path(database: Database) -> None:
    old, new = make(database, "old"), make(database, "new", texts=("a", "b", "c"))
    add(database, new, "d", parent=new.path()[0].id)
    assert [(i.title, i.messages) for i in database.list_sessions()] == [("new", 2), ("old", 0)]
    add(database, old, "moves to the top")
    assert [i.title for i in database.list_sessions()] == ["old", "new"]
    assert database.latest() == old.id
    assert [i.title for i in database.list_sessions(limit=1, offset=1)] == ["new"]
    assert database.count() == 2
    assert database.info(new.id) == database.list_sessions()[1]


def test_without_sessions_there_is_no_latest(database: Database) -> None:
    assert database.latest() is None
    assert database.list_sessions() == []


def test_500_sessions_with_a_huge_one_are_listed_by_few_page_reads(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        with database._db.write() as db:
            for i in range(500):
                db.execute(
                    "INSERT INTO sessions VALUES"
                    " (?, ?, '', '', 0, ?, ?, NULL, 0, 0, 0, 0, 0, '', '{}', '', '', ?)",
                    (f"{i:08x}", f"title {i}", i, i + 1, "s" * 2000),
                )
                size = 600_000 if i == 250 else 3_000
                db.execute(
                    "INSERT INTO messages VALUES (?, ?, NULL, 1, 'user', 'complete', 0, '', '', '{}', ?, x'', 0)",
                    (i + 1, f"{i:08x}", "m" * size),
                )
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        database._db._db.set_progress_handler(count, 100)
        infos = database.list_sessions()
        assert [i.title for i in infos[:2]] == ["title 499", "title 498"]
        assert len(infos) == 500 and all(i.messages == 1 for i in infos)
        # A sort or a walk through the messages would take ten times the steps of the virtual machine.
        assert steps < 500
        assert len(database.load_session("000000fa").path()[0].text) == 600_000


def test_resolve_by_id_prefix_and_title(database: Database) -> None:
    make(database, "Rome", id_="1a2b3c4d")
    make(database, "Bread", id_="1a2bffff")
    assert database.resolve("1a2b3c4d") == "1a2b3c4d"
    assert database.resolve("1a2b3") == "1a2b3c4d"
    assert database.resolve("1A2BF") == "1a2bffff"
    assert database.resolve("Rome") == "1a2b3c4d"
    assert database.resolve("rome") == "1a2b3c4d"
    assert database.resolve(" bREAD ") == "1a2bffff"


def test_the_case_of_a_title_decides_before_case_is_ignored(database: Database) -> None:
    make(database, "rome", id_="00000001")
    make(database, "Rome", id_="00000002")
    assert database.resolve("rome") == "00000001"
    assert database.resolve("Rome") == "00000002"
    with pytest.raises(SessionNotFoundError, match='"ROME" fits 2 sessions'):
        database.resolve("ROME")


def test_folding_goes_beyond_ascii(database: Database) -> None:
    make(database, "Straße nach Ägypten", id_="00000001")
    assert database.resolve("STRASSE NACH ÄGYPTEN") == "00000001"


def test_an_ambiguous_name_lists_the_matches(database: Database) -> None:
    for i in range(7):
        make(database, f"number {i}", id_=f"abc0000{i}")
    with pytest.raises(SessionNotFoundError) as caught:
        database.resolve("abc")
    sentence = str(caught.value)
    assert sentence.startswith('"abc" fits 7 sessions, abc00006 "number 6", ')
    assert sentence.endswith("and 2 more: give more of the id.")
    assert sentence.count("number") == 5


def test_a_title_that_is_also_a_prefix_is_ambiguous_and_a_whole_id_never_is(database: Database) -> None:
    make(database, "bad", id_="00000001")
    make(database, "00000001", id_="bad00000")
    with pytest.raises(SessionNotFoundError, match="fits 2 sessions"):
        database.resolve("bad")
    assert database.resolve("00000001") == "00000001"


@pytest.mark.parametrize("name", ["nothing", "123456789", "%", "_", "' OR 1=1 --", "\x1b[31m"])
def test_an_unknown_name_tells_the_way_out(database: Database, name: str) -> None:
    make(database, "Rome", id_="00000001")
    with pytest.raises(SessionNotFoundError, match="`ds4chat ls` lists them") as caught:
        database.resolve(name)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "  ", "\x00"])
def test_a_blank_name_fits_nothing(database: Database, name: str) -> None:
    make(database, "", id_="00000001")
    with pytest.raises(SessionNotFoundError, match="must not be blank"):
        database.resolve(name)


# ---- spans ----


def test_spans_only_one_session_stands_on_are_given_back_by_delete(database: Database) -> None:
    a, b = make(database), make(database)
    database.record_span(a.id, "aa", 0, 512, "cold", 100)
    database.record_span(a.id, "bb", 512, 700, "idle", 50)
    database.record_span(a.id, "bb", 512, 700, "shutdown", 60)
    database.copy_spans(a.id, b.id)
    database.record_span(a.id, "cc", 700, 800, "evict", 70)
    assert [(s.sha1, s.start, s.end, s.reason, s.bytes) for s in database.spans_of(a.id)] == [
        ("aa", 0, 512, "cold", 100),
        ("bb", 512, 700, "shutdown", 60),
        ("cc", 700, 800, "evict", 70),
    ]
    assert database.delete(a.id) == ["cc"]
    assert sorted(database.all_spans()) == ["aa", "bb"]
    assert database.delete(b.id) == ["bb", "aa"]
    assert database.spans_of(b.id) == []


# ---- hostile text ----

HOSTILE = {
    "nul": ("a\x00b", "ab"),
    "lone surrogates": ("\ud800x\udfff", "\ufffdx\ufffd"),
    "line separator": ("a\u2028b\u2029c\x85d", "a\u2028b\u2029c\x85d"),
    "ansi": ("\x1b[31mred\x1b[0m \x9b31m", "\x1b[31mred\x1b[0m \x9b31m"),
    "one long line": ("x" * 1_000_000, "x" * 1_000_000),
    "carriage returns": ("a\r\nb\rc", "a\nb\nc"),
    "byte order mark": ("\ufeffa", "\ufeffa"),
    "emoji": ("👩‍👩‍👧 \u202eabc", "👩‍👩‍👧 \u202eabc"),
    "markup": ("[/INST] [bold] A=b, <|im_end|>", "[/INST] [bold] A=b, <|im_end|>"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_comes_back_valid(database: Database, name: str) -> None:
    text, kept = HOSTILE[name]
    session = Session("", system=text)
    database.create_session(session)
    message = add(database, session, text)
    reply = add(database, session, "", "assistant")
    database.update_reply(reply.id, text, [], "complete")
    loaded = database.load_session(session.id)
    assert loaded.system == loaded.messages[message.id].text == loaded.messages[reply.id].text == kept
    assert message.text == kept


def test_a_hostile_title_becomes_one_harmless_line(database: Database) -> None:
    session = make(database, "\ud800 a\x1b[2J\x00\n\u2028b\x9b")
    assert session.title == database.list_sessions()[0].title == "\ufffd a b"


@given(st.text(st.characters(exclude_categories=())), st.lists(st.integers(0, 2**32 - 1)))
def test_any_text_and_tokens_survive(text: str, tokens: list[int]) -> None:
    with Database(":memory:") as database:
        session = make(database)
        reply = add(database, session, "", "assistant")
        database.update_reply(reply.id, text, tokens, "complete")
        loaded = database.load_session(session.id).messages[reply.id]
        assert loaded.tokens == tokens
        assert "\x00" not in loaded.text and "\r" not in loaded.text
        loaded.text.encode()
        database.update_reply(reply.id, loaded.text, tokens, "complete")
        assert database.load_session(session.id).messages[reply.id].text == loaded.text
