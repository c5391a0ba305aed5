"""SQLite databases of other programs, made by the schemas they publish."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing import databases, reading
from tests.interchange.reading_room import SAMPLES, Steps, read, told, tree

OTERM = """
CREATE TABLE "chat" ("id" INTEGER, "name" TEXT, "model" TEXT NOT NULL, "system" TEXT, "format" TEXT,
    "parameters" TEXT DEFAULT "{}", "keep_alive" INTEGER DEFAULT 5, "tools" TEXT DEFAULT "[]",
    "type" TEXT DEFAULT "chat",
    PRIMARY KEY("id" AUTOINCREMENT));
CREATE TABLE "message" ("id" INTEGER, "chat_id" INTEGER NOT NULL, "author" TEXT NOT NULL, "text" TEXT NOT NULL,
    "images" TEXT DEFAULT "[]", PRIMARY KEY("id" AUTOINCREMENT));
INSERT INTO chat (name, model, system) VALUES ('Ferns', 'llama3:8b', 'You know plants.'), ('Empty', 'phi', NULL);
INSERT INTO message (chat_id, author, text, images) VALUES
    (1, 'user', 'What is a frond?', '[]'), (1, 'assistant', 'A leaf of a fern.', '[]'),
    (1, 'user', '', '["aGk="]'), (1, 'assistant', 'A moss.', '[]');
"""

OLD_OTERM = """
CREATE TABLE "chat" ("id" INTEGER, "name" TEXT, "model" TEXT NOT NULL, "context" TEXT NOT NULL, "system" TEXT,
    PRIMARY KEY("id" AUTOINCREMENT));
CREATE TABLE "message" ("chat_id" INTEGER NOT NULL, "author" TEXT NOT NULL, "text" TEXT NOT NULL);
INSERT INTO chat VALUES (1, 'Moss', 'orca', '[]', NULL);
INSERT INTO message VALUES (1, 'user', 'Is it soft?'), (1, 'assistant', 'Yes.');
"""

ELIA = """
CREATE TABLE chat (id INTEGER PRIMARY KEY, model VARCHAR NOT NULL, title VARCHAR,
    started_at DATETIME DEFAULT CURRENT_TIMESTAMP,
    archived BOOLEAN NOT NULL);
CREATE TABLE message (id INTEGER PRIMARY KEY, chat_id INTEGER, role VARCHAR NOT NULL, content VARCHAR NOT NULL,
    timestamp DATETIME DEFAULT CURRENT_TIMESTAMP, meta JSON, parent_id INTEGER, model VARCHAR);
INSERT INTO chat VALUES (1, 'gpt-4o', 'Lichens', '2024-06-03 07:33:20.000000', 0);
INSERT INTO message VALUES (1, 1, 'system', 'Be kind.', '2024-06-03 07:33:20', '{}', NULL, 'gpt-4o'),
    (2, 1, 'user', 'What are they?', '2024-06-03 07:33:21', '{}', NULL, 'gpt-4o'),
    (3, 1, 'assistant', 'Two in one.', '2024-06-03 07:33:22', '{}', NULL, 'gpt-4o'),
    (4, 1, 'assistant', 'A fungus and an alga.', '2024-06-03 07:33:25', '{}', 2, 'claude-3');
"""

LLM = """
CREATE TABLE [conversations] ([id] TEXT PRIMARY KEY, [name] TEXT, [model] TEXT);
CREATE TABLE [responses] ([id] TEXT PRIMARY KEY, [model] TEXT, [prompt] TEXT, [system] TEXT, [prompt_json] TEXT,
    [options_json] TEXT, [response] TEXT, [response_json] TEXT, [conversation_id] TEXT, [duration_ms] INTEGER,
    [datetime_utc] TEXT);
CREATE TABLE [fragments] ([id] INTEGER PRIMARY KEY, [hash] TEXT, [content] TEXT, [datetime_utc] TEXT, [source] TEXT);
CREATE TABLE [prompt_fragments] ([response_id] TEXT, [fragment_id] INTEGER, [order] INTEGER);
CREATE TABLE [prompt_attachments] ([response_id] TEXT, [attachment_id] TEXT, [order] INTEGER);
INSERT INTO conversations VALUES ('01h', 'Count the rings', 'gpt-4o-mini');
INSERT INTO responses VALUES
    ('r2', 'gpt-4o-mini', 'And the bark?', NULL, NULL, '{}', 'Cork.', NULL, '01h', 5, '2024-06-03T07:34:20.5+00:00'),
    ('r1', 'gpt-4o-mini', 'How old is it?', 'You know trees.', NULL, '{}', 'Ninety.', NULL, '01h', 5,
        '2024-06-03T07:33:20+00:00'),
    ('r3', 'gpt-4o', 'Alone?', NULL, NULL, '{}', 'Yes.', NULL, NULL, 5, '2024-06-03T07:35:20+00:00');
INSERT INTO fragments VALUES (1, 'h', 'A cut trunk.', '', NULL);
INSERT INTO prompt_fragments VALUES ('r1', 1, 0);
INSERT INTO prompt_attachments VALUES ('r2', 'x', 0);
"""

OPEN_WEBUI = """
CREATE TABLE "chat" (id VARCHAR(255) NOT NULL, user_id VARCHAR(255) NOT NULL, title TEXT NOT NULL,
    share_id VARCHAR(255),
    archived INTEGER NOT NULL, created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL, chat JSON, pinned BOOLEAN,
    meta JSON DEFAULT '{}' NOT NULL, folder_id TEXT);
"""


def make(path: Path, schema: str) -> Path:
    """A database of this schema, with its rows."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema)
    return path


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """No file in the folder is changed, made or deleted."""

    def state() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    before = state()
    yield
    assert state() == before


def test_oterm(tmp_path: Path) -> None:
    path = make(tmp_path / "store.db", OTERM)
    with unchanged(tmp_path):
        ferns, empty = read(path)
    session = ferns.session()
    assert told(session) == [
        ("user", "What is a frond?"),
        ("assistant", "A leaf of a fern."),
        ("user", "[attachment that was not imported]"),
        ("assistant", "A moss."),
    ]
    assert (session.title, session.system, session.model) == ("Ferns", "You know plants.", "llama3:8b")
    assert ferns.left_out == {"images": 1}
    assert not empty.session().messages
    (moss,) = read(make(tmp_path / "old.db", OLD_OTERM))
    assert told(moss.session())[1] == ("assistant", "Yes.")
    assert moss.key != ferns.key


def test_elia(tmp_path: Path) -> None:
    (chat,) = read(make(tmp_path / "elia.sqlite", ELIA))
    session = chat.session()
    assert tree(session) == {
        "What are they?": None,
        "Two in one.": "What are they?",
        "A fungus and an alga.": "What are they?",
    }
    assert (session.system, session.created) == ("Be kind.", 1717400000.0)
    assert [m.model for m in session.messages.values()] == ["", "gpt-4o", "claude-3"]


def test_llm(tmp_path: Path) -> None:
    rings, alone = read(make(tmp_path / "logs.db", LLM))
    session = rings.session()
    assert told(session) == [
        ("user", "A cut trunk.\n\nHow old is it?"),
        ("assistant", "Ninety."),
        ("user", "And the bark?"),
        ("assistant", "Cork."),
    ]
    assert (session.title, session.system, session.created) == (
        "Count the rings",
        "You know trees.",
        1717400000.0,
    )
    assert (rings.key, rings.left_out) == ("01h", {"files": 1})
    assert told(alone.session()) == [("user", "Alone?"), ("assistant", "Yes.")]


def open_webui(path: Path, *chats: str) -> Path:
    make(path, OPEN_WEBUI)
    with closing(sqlite3.connect(path)) as db, db:
        for i, chat in enumerate(chats):
            values = (
                f"ow-{i + 1}",
                "me",
                "Tides",
                1,
                1718000000 + i,
                1718000030,
                chat,
                0,
                '{"tags": ["sea"]}',
            )
            db.execute(
                "INSERT INTO chat (id, user_id, title, archived, created_at, updated_at, chat, pinned, meta)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
    return path


def test_open_webui_has_the_same_chat_as_its_export(tmp_path: Path) -> None:
    (exported,) = read(SAMPLES / "open-webui.json")
    chat = json.dumps(json.loads((SAMPLES / "open-webui.json").read_text())[0]["chat"])
    (stored,) = read(open_webui(tmp_path / "webui.db", chat))
    assert stored.session() == exported.session()
    assert (stored.source, stored.key) == (exported.source, exported.key)


def test_a_row_that_is_damaged_costs_its_chat_alone(tmp_path: Path) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    path = open_webui(tmp_path / "webui.db", "{broken", good)
    with databases.ForeignDatabase(path) as database:
        broken, whole = database.chats()
        with pytest.raises(InterchangeError, match="not valid JSON"):
            broken()
        assert told(whole().session()) == [("user", "hi")]


def test_a_journal_is_read_and_left_alone(tmp_path: Path) -> None:
    path = make(tmp_path / "store.db", OTERM)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO message (chat_id, author, text) VALUES (1, 'user', 'Only in the journal.')")
        # Open elsewhere, so that the journal stays.
        with unchanged(tmp_path):
            ferns, _ = read(path)
    assert told(ferns.session())[-1] == ("user", "Only in the journal.")


@pytest.mark.parametrize(
    ("schema", "told_"),
    [
        ("CREATE TABLE t (a); INSERT INTO t VALUES (1)", "a program that is not known"),
        (
            "CREATE TABLE sessions (a); CREATE TABLE messages (a); CREATE TABLE migrations (a)",
            "of ds4chat itself",
        ),
        ("CREATE VIEW chat AS SELECT 1 AS id, 2 AS name, 3 AS model", "a program that is not known"),
    ],
)
def test_databases_of_others(tmp_path: Path, schema: str, told_: str) -> None:
    with pytest.raises(InterchangeError, match=told_):
        databases.ForeignDatabase(make(tmp_path / "x.db", schema))


def test_a_damaged_database(tmp_path: Path) -> None:
    path = make(tmp_path / "store.db", OTERM)
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 5000)
    with pytest.raises(InterchangeError, match="it is a damaged SQLite database"):
        databases.ForeignDatabase(path)


def faults(path: Path) -> list[str]:
    """Why chats of a database are not read, "" for those that are."""
    return [found.fault for found in reading.chats(path, "database", Steps())]


@pytest.mark.parametrize(
    ("schema", "change"),
    [
        (
            OTERM.replace('"id" INTEGER', '"id"').replace("AUTOINCREMENT", ""),
            "UPDATE chat SET id = 2 WHERE name = 'Empty'",
        ),
        (ELIA.replace("id INTEGER PRIMARY KEY", "id"), "UPDATE chat SET id = NULL"),
        (LLM.replace("TEXT PRIMARY KEY", "TEXT"), "UPDATE conversations SET id = NULL"),
        (LLM.replace("TEXT PRIMARY KEY", "TEXT"), "UPDATE conversations SET id = CAST(x'80' AS TEXT)"),
        (
            LLM.replace("TEXT PRIMARY KEY", "TEXT"),
            "UPDATE responses SET id = NULL WHERE conversation_id IS NULL",
        ),
        (OPEN_WEBUI.replace(" NOT NULL", ""), "INSERT INTO chat (title, chat) VALUES ('a', '{}')"),
    ],
    ids=["oterm", "elia", "llm", "llm, no UTF-8", "llm, alone", "open-webui"],
)
def test_a_row_that_cannot_be_found_by_its_id_costs_its_chat_alone(
    tmp_path: Path, schema: str, change: str
) -> None:
    path = make(tmp_path / "chats.db", schema)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    found = faults(path)
    assert found.count("its row has no id to be found by") == 1


def test_what_is_nested_without_end_is_no_picture_and_no_tag(tmp_path: Path) -> None:
    deep = "[" * 100_000
    path = make(tmp_path / "store.db", OTERM + f"UPDATE message SET images = '{deep}';")
    (ferns, _) = read(path)
    assert told(ferns.session())[1] == ("assistant", "A leaf of a fern.\n\nA moss."), (
        "no picture was between them"
    )
    chat = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    web = open_webui(tmp_path / "webui.db", chat)
    with closing(sqlite3.connect(web)) as db, db:
        db.execute("UPDATE chat SET meta = ?", (deep,))
    assert [session.tags for session in (chat.session() for chat in read(web))] == [[]]


def test_columns_that_a_version_does_not_have_are_blank(tmp_path: Path) -> None:
    path = make(tmp_path / "logs.db", LLM)
    with closing(sqlite3.connect(path)) as db, db:
        for column in ("datetime_utc", "model", "system"):
            db.execute(f"ALTER TABLE responses DROP COLUMN {column}")
    rings, alone = read(path)
    assert len(told(rings.session())) == 4 and told(alone.session()) == [
        ("user", "Alone?"),
        ("assistant", "Yes."),
    ]


@pytest.mark.parametrize("name", ["chat", "x\N{SNOWMAN}"])
def test_damage_that_sqlite_cannot_even_name_is_told(tmp_path: Path, name: str) -> None:
    path = make(
        tmp_path / "store.db",
        OTERM.replace('TABLE "message"', f'TABLE "{name}2" (a); CREATE TABLE "message"'),
    )
    data = path.read_bytes()
    path.write_bytes(
        data.replace(f'TABLE "{name}2"'.encode(), b'TABLE "\xa5\xa5' + b"x" * (len(name.encode()) - 1) + b'"')
    )
    with pytest.raises(InterchangeError, match="damaged SQLite database"):
        faults(path)
