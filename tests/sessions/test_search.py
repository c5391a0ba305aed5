"""Search: what a query says, what it finds, the line and the marks of a hit, and what the index keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import DatabaseError
from ds4chat.sessions import search_index
from ds4chat.sessions.database import Database
from ds4chat.sessions.search import (
    LINE,
    MAX_TERM,
    SearchHit,
    ascii_places,
    locate,
    parse,
    places,
    spans,
    terms,
)
from ds4chat.sessions.session import Message, MessageState, Session, clean_text


@pytest.fixture(params=["index", "no FTS5"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    if request.param == "no FTS5":
        monkeypatch.setattr(search_index, "has_fts5", lambda db: False)
    with Database(":memory:") as database:
        assert search_index.has_index(database._db.raw) == (request.param == "index")
        yield database


def chat(database: Database, *texts: str, title: str = "t", state: MessageState = "complete") -> Session:
    session = Session("", title=title)
    database.create_session(session)
    for text in texts:
        message = Message(0, session.head_id, "user", text, state)
        database.add_message(session.id, message)
        session.append(message)
    return session


def marked(hit: SearchHit) -> list[str]:
    return [hit.line[start:end] for start, end in hit.marks]


def whole(database: Database) -> None:
    """Assert that the index holds what the messages say, no more and no less."""
    database._db.raw.execute("INSERT INTO message_index (message_index) VALUES ('integrity-check')")


# ---- what is found

FOUND = {
    "a word": ("bread", "I bake Bread.", ["Bread"]),
    "the beginning of a word": ("bre", "I bake bread.", ["bread"]),
    "words in any order": ("loaf bake", "Bake a loaf", ["Bake", "loaf"]),
    "a phrase": ('"a loaf"', "loaf, a loaf", ["a loaf"]),
    "a phrase over punctuation": ('"rise why"', "It did not rise. Why?", ["rise. Why"]),
    "a phrase that is being typed": ('"flat lo', "a flat loaf", ["flat loaf"]),
    "a phrase and a word": ('"my loaf" flat', "my loaf is flat", ["my loaf", "flat"]),
    "typographic quotes": ("“a loaf”", "a loaf", ["a loaf"]),
    "accents": ("cafe", "Le Café", ["Café"]),
    "accents that are typed": ("CAFÉ", "le cafe", ["cafe"]),
    "accents in two characters": ("café", "Le Cafe\u0301s", ["Cafe\u0301s"]),
    "sharp s": ("STRASSE", "die Straße", ["Straße"]),
    "another alphabet": ("привет", "Привет, мир", ["Привет"]),
    "two ideographs of a run": ("東京", "私は東京に住んでいます", ["東京"]),
    "one ideograph": ("都", "東京都", ["都"]),
    "hiragana and katakana": ("ラーメン", "おいしいラーメンです", ["ラーメン"]),
    "voiced kana are letters of their own": ("ば", "はば", ["ば"]),
    "the inside of a Korean word": ("국어", "한국어를", ["국어"]),
    "Thai, without spaces": ("ภาษา", "เรียนภาษาไทย", ["ภาษา"]),
    "Hindi with its vowel signs": ("हिन्दी", "वह हिन्दी बोलता है", ["हिन्दी"]),
    "Arabic with and without vowels": ("كتاب", "هٰذَا كِتَابٌ", ["كِتَابٌ"]),
    "full width": ("abc", "ＡＢＣ", ["ＡＢＣ"]),
    "an emoji": ("🍞", "I like🍞!", ["🍞"]),
    "an emoji without its colour": ("👍", "ok 👍🏽", ["👍"]),
    "a family": ("👩‍👩‍👧", "the 👩‍👩‍👧 eats", ["👩‍👩‍👧"]),
    "an identifier": ("foo_bar", "call foo_bar(1)", ["foo_bar"]),
    "a part of an identifier": ("bar", "call foo_bar(1)", ["bar"]),
    "an address": ("me@example.com", "write to me@example.com", ["me@example.com"]),
    "digits": ("3.14", "pi is 3.14159", ["3.14159"]),
    "signs alone": ("->", "x -> y", ["->"]),
    "signs alone, as they are": (" ?! ", "what?!", ["?!"]),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_query_finds(database: Database, name: str) -> None:
    query, text, parts = FOUND[name]
    chat(database, "nothing of it", text, "nor here")
    (hit,) = database.search(query)
    assert hit.line == text and marked(hit) == parts


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("bread butter", "bread"),
        ('"loaf a"', "a loaf"),
        ('"brea" x', "bread x"),
        ("read", "bread"),
        ("京東", "東京"),
        ("はし", "ばし"),
        ("😀", "😁"),
        ("->", "- >"),
    ],
)
def test_what_a_query_does_not_find(database: Database, query: str, text: str) -> None:
    chat(database, text)
    assert database.search(query) == []


OPERATORS = [
    "a AND b",
    "a OR",
    "NOT a",
    "AND",
    "a NEAR b",
    "NEAR(a b, 2)",
    "a*",
    "*",
    "^a",
    "terms:a",
    "-a",
    "+a",
    "{a b}: c",
    "(a",
    ")",
    '"',
    '""',
    '"""',
    "'",
    "a'; DROP TABLE messages --",
    "a\x00b",
    "%",
    "_",
    "\\",
    "",
    " \n",
    "\ud800",
    "x" * 100_000,
    "a " * 5000,
    "日" * 5000,
    '"' * 3001,
]


@pytest.mark.parametrize("query", OPERATORS, ids=range(len(OPERATORS)))
def test_operators_and_signs_of_the_index_mean_nothing(database: Database, query: str) -> None:
    chat(database, "and or not near terms a b c 2")
    for hit in database.search(query):
        assert hit.marks
    chat(database, clean_text(query)[:900])
    if any(c.isalnum() for c in query):
        assert database.search(query[:900])


def test_a_word_that_is_an_operator_elsewhere_is_a_word(database: Database) -> None:
    chat(database, "a or b", "a b")
    assert [h.line for h in database.search("a OR b")] == ["a or b"]


def test_hits_are_newest_first_and_as_many_as_asked_for(database: Database) -> None:
    session = chat(database, *(f"number {i}" for i in range(20)), title="numbers")
    hits = database.search("number", 3)
    assert [hit.line for hit in hits] == ["number 19", "number 18", "number 17"]
    assert {(h.session_id, h.title, h.role, h.archived) for h in hits} == {
        (session.id, "numbers", "user", False)
    }
    last = session.path()[-1]
    assert (hits[0].message_id, hits[0].created) == (last.id, last.created)
    database.set_flags(session.id, archived=True)
    assert database.search("number", 1)[0].archived
    assert database.search("number", 0) == []


def test_the_trash_and_hidden_messages_are_not_found(database: Database) -> None:
    session = chat(database, "bread", "butter bread")
    database.set_hidden([session.path()[0].id], True)
    assert [h.line for h in database.search("bread")] == ["butter bread"]
    database.trash(session.id)
    assert database.search("bread") == []
    database.untrash(session.id)
    database.set_hidden([session.path()[0].id], False)
    assert len(database.search("bread")) == 2
    database.delete(session.id)
    assert database.search("bread") == []


def test_a_reply_is_found_when_it_has_ended_and_as_it_ended(database: Database) -> None:
    session = chat(database, "q")
    reply = Message(0, session.head_id, "assistant", "", "streaming")
    database.add_message(session.id, reply)
    database.update_reply(reply.id, "bread and", [], "streaming")
    assert database.search("bread") == []
    database.update_reply(reply.id, "bread and butter", [], "stopped")
    assert [h.role for h in database.search("butter")] == ["assistant"]
    database.update_reply(reply.id, "bread and butter", [], "streaming")
    assert database.search("butter") == []
    database.update_reply(reply.id, "bread and jam", [], "complete")
    assert database.search("butter") == [] and len(database.search("jam")) == 1
    database.update_reply(reply.id, "honey", [], "complete")
    assert database.search("jam") == [] and len(database.search("honey")) == 1
    if search_index.has_index(database._db.raw):
        whole(database)


# ---- the line


def test_the_line_is_the_one_with_most_of_the_query(database: Database) -> None:
    chat(database, "flour here\nthe flour and the yeast\nyeast and flour again")
    (hit,) = database.search("flour yeast")
    assert hit.line == "the flour and the yeast" and marked(hit) == ["flour", "yeast"]


def test_a_phrase_over_a_line_end_is_marked_as_far_as_its_line(database: Database) -> None:
    chat(database, "a flat\nloaf")
    (hit,) = database.search('"flat loaf"')
    assert (hit.line, marked(hit)) == ("a flat", ["flat"])


def test_a_long_line_is_cut_around_the_hit() -> None:
    text = "word " * 1000 + "needle " + "word " * 1000
    line, ((start, end),) = located(text, "needle")
    assert line[start:end] == "needle" and line[0] == line[-1] == "…"
    assert LINE - 40 <= len(line) <= LINE + 2
    assert set(line[1:-1].split()) == {"word", "needle"}, "cut between words"
    line, ((start, end),) = located("x" * 500 + "漢" + "y" * 100_000, "漢")
    assert line[start:end] == "漢" and len(line) <= LINE + 2
    line, ((start, end),) = located("y" * 10_000, "yyy")
    assert len(line) <= LINE + 2 and (start, end) == (0, LINE)
    assert located("    indented needle  ", "needle") == ("indented needle", ((9, 15),))


def test_a_megabyte_on_one_line_has_a_short_line(database: Database) -> None:
    chat(database, "é" * 500_000 + " needle " + "z" * 500_000)
    (hit,) = database.search("needle")
    assert marked(hit) == ["needle"] and len(hit.line) <= LINE + 2


def test_nothing_in_a_line_acts_on_a_terminal() -> None:
    line, marks = located("a\tneedle\x1b[31m\x07 b\u2028c\x9b", "needle")
    assert line == "a needle [31m  b c" and marks == ((2, 8),)


def located(text: str, query: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    found = locate(text, query)
    assert found is not None
    return found


letters = st.text(st.sampled_from("abé漢か゛\u3099\u0301👍🏽 \n\"'-_.ßﬁİ½㍿"), max_size=30)


@given(letters | st.text(max_size=40))
def test_any_part_of_a_text_that_is_made_of_its_words_is_found_and_marked(text: str) -> None:
    text = clean_text(text)
    words = list(spans(text))
    if not words:
        return
    first, last = words[len(words) // 3], words[-1]
    part = text[first[1] : last[2]]
    line, marks = located(text, '"' + re.sub(r'["“”„]', " ", part) + '"')
    assert marks and list(marks) == sorted(marks)
    assert all(0 <= start < end <= len(line) for start, end in marks)
    assert all(a[1] < b[0] for a, b in pairwise(marks))
    assert "\n" not in line


@given(letters, letters)
def test_the_index_finds_what_reading_every_message_finds(text: str, query: str) -> None:
    with Database(":memory:") as database:
        chat(database, text)
        found = database.search(query)
        place = locate(clean_text(text), clean_text(query))
        assert [(h.line, h.marks) for h in found] == ([] if place is None else [place])


@given(st.text("ab1-\n ", max_size=20), st.text('ab1-\n "', max_size=8))
def test_the_short_way_through_ascii_finds_the_same(text: str, query: str) -> None:
    # A word of the longest length that counts, and of a greater one, is told by its beginning.
    for long in (text, text.replace("1", "b" * MAX_TERM), text.replace("1", "b" * (MAX_TERM + 1))):
        for needles in (parse(query), parse(query.replace("1", "b" * MAX_TERM))):
            assert ascii_places(long, needles) == places(long, needles)


@given(st.text())
def test_words_hold_nothing_the_index_would_cut(text: str) -> None:
    for word, start, end in spans(text):
        assert start < end and not re.search(r"[\x00-/:-@\[-`{-\x7f]", word)
    assert terms(text).split(" ") == [word for word, _, _ in spans(text)] or not terms(text)


def test_a_query_is_taken_apart() -> None:
    assert [(n.words, n.prefix) for n in parse('Flat "my loaf" x-y flat "a')] == [
        (("flat",), True),
        (("my", "loaf"), False),
        (("x", "y"), True),
        (("a",), True),
    ]


# ---- the index


def test_the_index_is_asked_in_its_own_order_and_stops_early(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        queries: list[str] = []
        chat(database, "bread")
        database._db.raw.set_trace_callback(queries.append)
        database.search("bread")
        database._db.raw.set_trace_callback(None)
        (query,) = [q for q in queries if "MATCH" in q]
        plan = [row[3] for row in database._db.all(f"EXPLAIN QUERY PLAN {query}")]
        assert not any("TEMP B-TREE" in step for step in plan), plan
        assert plan[0].startswith("SCAN message_index VIRTUAL TABLE INDEX"), plan
        assert plan[1].startswith("SEARCH m USING INTEGER PRIMARY KEY"), plan


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("way", ["delete", "purge"])
def test_nothing_of_a_deleted_session_stays_in_the_file_while_it_is_open(tmp_path: Path, way: str) -> None:
    with Database(tmp_path / "sessions.db") as database:
        for i in range(30):
            chat(database, f"secretaries keep {i} secrets", "sesame " * 50, title=f"kept {i}")
        session = chat(database, "My DEEPESTSECRETWORD", "geheimniskrämerei 秘密の", title="hush")
        database.set_draft(session.id, "draftysecret")
        for i in range(30):
            chat(database, f"deep thoughts of {i}", title=f"later {i}")
        assert len(database.search("deepestsecretword")) == 1
        before = contents(tmp_path)
        traces = [
            b"DEEPESTSECRETWORD",
            b"pestsecretword",
            b"heimniskr",
            "密".encode(),
            b"draftysecret",
            b"hush",
        ]
        assert all(trace in before for trace in traces), "else this test would show nothing"
        if way == "delete":
            database.delete(session.id)
        else:
            database.trash(session.id)
            assert len(database.purge_trash(10**12)) == 1
        after = contents(tmp_path)
        assert [trace for trace in traces if trace in after] == []
        whole(database)
        assert len(database.search("secretaries sesame")) == 0 and len(database.search("sesame")) == 30


def test_a_database_may_move_between_pythons_with_and_without_fts5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    with Database(path) as database:
        gone, kept = chat(database, "a verysecretword"), chat(database, "bread")
    with monkeypatch.context() as without:
        without.setattr(search_index, "has_fts5", lambda db: False)
        with Database(path) as database:
            assert len(database.search("bread")) == 1
            chat(database, "more bread")
            database.delete(gone.id)
            assert not search_index.has_index(database._db.raw)
            assert b"verysecretword" not in contents(tmp_path)
    with Database(path) as database:
        assert search_index.has_index(database._db.raw)
        assert [h.line for h in database.search("bread")] == ["more bread", "bread"]
        whole(database)
        database.rename(kept.id, "kept")
    with Database(path) as database:
        assert database.info(kept.id).title == "kept"


def test_a_write_that_fails_leaves_index_and_messages_alike(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = chat(database, "bread")
        with pytest.raises(DatabaseError), database._db.write() as db:
            db.execute("UPDATE messages SET text = 'butter'")
            db.execute("INSERT INTO messages (id) VALUES (NULL)")
        assert database.load_session(session.id).path()[0].text == "bread"
        assert len(database.search("bread")) == 1 and database.search("butter") == []
        whole(database)
