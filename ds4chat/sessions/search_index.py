"""The full-text index over all messages: an FTS5 table beside them, kept by triggers, and how it is asked.

It holds `search.terms` of every message that is not being written: a growing reply enters it when it ends, so that
saving one twice a second costs nothing here. Its content is the view `message_terms`, so no text is stored twice.

Where SQLite has no FTS5 there is no index and a search reads every message, with the same result. A database that
moves between such a Python and another loses and gets the index when it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from ds4chat.sessions.search import SearchHit, expression, locate, parse, terms

FUNCTION = "ds4chat_terms"
INDEX = "message_index"

_VIEW = f"CREATE VIEW message_terms AS SELECT id, {FUNCTION}(text) AS terms FROM messages WHERE state <> 'streaming'"

_TABLE = (
    # The words come folded and apart; the tokenizer "ascii" takes any other character for a letter.
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5"
    "(terms, content = 'message_terms', content_rowid = 'id', tokenize = 'ascii', columnsize = 0)"
)

_ADD = f"INSERT INTO {INDEX} (rowid, terms) VALUES (new.id, {FUNCTION}(new.text));"
_REMOVE = f"INSERT INTO {INDEX} ({INDEX}, rowid, terms) VALUES ('delete', old.id, {FUNCTION}(old.text));"

_TRIGGERS = {
    # Each change meets one of them: in which order several would run is not defined.
    "indexed_insert": f"AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN {_ADD} END",
    "indexed_delete": f"AFTER DELETE ON messages WHEN old.state <> 'streaming' BEGIN {_REMOVE} END",
    "indexed_start": "AFTER UPDATE OF state, text ON messages WHEN old.state <> 'streaming'"
    f" AND new.state = 'streaming' BEGIN {_REMOVE} END",
    "indexed_end": "AFTER UPDATE OF state, text ON messages WHEN old.state = 'streaming'"
    f" AND new.state <> 'streaming' BEGIN {_ADD} END",
    "indexed_change": "AFTER UPDATE OF state, text ON messages WHEN old.state <> 'streaming'"
    f" AND new.state <> 'streaming' AND old.text <> new.text BEGIN {_REMOVE} {_ADD} END",
}

_HITS = (
    "SELECT m.session_id, s.title, m.id, m.role, m.text, m.created, s.archived FROM {source}"
    " CROSS JOIN sessions s ON s.id = m.session_id WHERE {where} AND m.hidden = 0 AND s.trashed = 0"
    " ORDER BY {order} DESC"
)


def has_fts5(db: sqlite3.Connection) -> bool:
    """Whether this SQLite was built with full-text search."""
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def register(db: sqlite3.Connection) -> None:
    """Give the connection the function that the triggers call. Needed before any write to messages."""
    db.create_function(FUNCTION, 1, terms, deterministic=True)


def build(db: sqlite3.Connection) -> None:
    """Make the index and fill it from the messages there are; nothing without FTS5. In the caller's transaction."""
    register(db)
    if not has_fts5(db):
        return
    db.execute(_VIEW)
    db.execute(_TABLE)
    db.execute(f"INSERT INTO {INDEX} ({INDEX}) VALUES ('rebuild')")
    for name, body in _TRIGGERS.items():
        db.execute(f"CREATE TRIGGER {name} {body}")


def attend(db: sqlite3.Connection) -> None:
    """Make the index fit this SQLite when a database is opened, after its migrations."""
    register(db)
    if has_index(db) == has_fts5(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if not has_fts5(db):
            _leave(db)
        elif not has_index(db):
            _forget(db)
            build(db)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def has_index(db: sqlite3.Connection) -> bool:
    """Whether the index is there and kept."""
    query = (
        "SELECT COUNT(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'indexed\\_%' ESCAPE '\\'"
    )
    return bool(db.execute(query).fetchone()[0] == len(_TRIGGERS))


def _leave(db: sqlite3.Connection) -> None:
    """Stop keeping an index that this SQLite cannot write, and empty it: it would hold on to what is deleted later."""
    for name in _TRIGGERS:
        db.execute(f"DROP TRIGGER IF EXISTS {name}")
    # What FTS5 keeps in tables of its own becomes what it keeps of nothing, so that it can open and drop them later.
    db.execute(f"DELETE FROM {INDEX}_idx")
    db.execute(f"DELETE FROM {INDEX}_data WHERE id NOT IN (1, 10)")
    db.execute(f"UPDATE {INDEX}_data SET block = CASE id WHEN 1 THEN x'' ELSE zeroblob(7) END")


def _forget(db: sqlite3.Connection) -> None:
    for name in _TRIGGERS:
        db.execute(f"DROP TRIGGER IF EXISTS {name}")
    db.execute(f"DROP TABLE IF EXISTS {INDEX}")
    db.execute("DROP VIEW IF EXISTS message_terms")


def scrub(db: sqlite3.Connection) -> None:
    """Take the words of deleted messages out of the index for good, in the caller's transaction.

    A deletion alone only marks them: they go when the parts of the index are merged into one.
    """
    if has_index(db):
        db.execute(f"INSERT INTO {INDEX} ({INDEX}) VALUES ('optimize')")


def search(db: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """The messages that fit a query, newest first; those of sessions in the trash and hidden ones left out."""
    hits: list[SearchHit] = []
    for session_id, title, message_id, role, text, created, archived in _candidates(db, query):
        if len(hits) >= limit:
            break
        if (place := locate(text, query)) is not None:
            line, marks = place
            hits.append(SearchHit(session_id, title, message_id, role, line, marks, created, bool(archived)))
    return hits


def _candidates(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    needles = parse(query)
    if not needles and not query.strip():
        return iter(())
    if not needles:
        everything = _HITS.format(source="messages m", where="instr(m.text, ?)", order="m.id")
        return db.execute(everything, (query.strip(),))
    if not has_index(db):
        return db.execute(_HITS.format(source="messages m", where="m.state <> 'streaming'", order="m.id"))
    indexed = _HITS.format(
        source=f"{INDEX} CROSS JOIN messages m ON m.id = {INDEX}.rowid",
        where=f"{INDEX} MATCH ?",
        order=f"{INDEX}.rowid",
    )
    return db.execute(indexed, (expression(needles),))
