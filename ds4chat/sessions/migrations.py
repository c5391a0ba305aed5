"""The schema of the session database, as numbered steps that each run once, in a transaction of their own.

A step never changes after it was released: what comes later is a new step. A database that knows a step
which is not listed here was written by a newer version and is left alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ds4chat.sessions import search_index

APPLICATION_ID = 0x64733463
"""In the header of the file ("ds4c"), so that a database of another program is not taken for ours."""

TABLE = "migrations"


def m001_initial(db: sqlite3.Connection) -> None:
    """Sessions, their trees of messages, and the checkpoint spans each session stands on.

    Long columns come last in their tables: SQLite then finds the short ones without walking a long text's
    pages. `depth` is the count of messages from the root to this one, so that the list needs no walk along
    the paths.
    """
    db.execute(
        """
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY NOT NULL,
            title TEXT NOT NULL,
            model TEXT NOT NULL,
            model_path TEXT NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            head_id INTEGER,
            window_start_id INTEGER,
            cold_done INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            params TEXT NOT NULL,
            system TEXT NOT NULL
        )
        """
    )
    db.execute("CREATE INDEX sessions_by_update ON sessions (updated)")
    db.execute(
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_id TEXT NOT NULL REFERENCES sessions (id),
            parent_id INTEGER,
            depth INTEGER NOT NULL,
            role TEXT NOT NULL,
            state TEXT NOT NULL,
            created REAL NOT NULL,
            fingerprint TEXT NOT NULL,
            model TEXT NOT NULL,
            stats TEXT NOT NULL,
            text TEXT NOT NULL,
            tokens BLOB NOT NULL
        )
        """
    )
    db.execute("CREATE INDEX messages_by_session ON messages (session_id)")
    db.execute(
        """
        CREATE TABLE spans (
            session_id TEXT NOT NULL REFERENCES sessions (id),
            sha1 TEXT NOT NULL,
            start INTEGER NOT NULL,
            "end" INTEGER NOT NULL,
            reason TEXT NOT NULL,
            bytes INTEGER NOT NULL,
            created REAL NOT NULL,
            PRIMARY KEY (session_id, sha1)
        ) WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX spans_by_sha1 ON spans (sha1)")


def m002_organizing(db: sqlite3.Connection) -> None:
    """Sessions on top of the list, put away or in the trash, with tags, a draft and a summary; messages hidden.

    `sessions` is made anew, because a column that is added comes behind the long ones. `tags` has each tag on a line
    of its own between line ends, "" for none; `trashed` is when it was put there, 0 when it is not.
    """
    db.execute(
        """
        CREATE TABLE sessions_new (
            id TEXT PRIMARY KEY NOT NULL,
            title TEXT NOT NULL,
            model TEXT NOT NULL,
            model_path TEXT NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            head_id INTEGER,
            window_start_id INTEGER,
            cold_done INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            pinned INTEGER NOT NULL,
            archived INTEGER NOT NULL,
            trashed REAL NOT NULL,
            tags TEXT NOT NULL,
            params TEXT NOT NULL,
            draft TEXT NOT NULL,
            summary TEXT NOT NULL,
            system TEXT NOT NULL
        )
        """
    )
    db.execute(
        "INSERT INTO sessions_new SELECT id, title, model, model_path, created, updated, head_id, window_start_id,"
        " cold_done, tokens, 0, 0, 0, '', params, '', '', system FROM sessions ORDER BY rowid"
    )
    db.execute("DROP TABLE sessions")
    db.execute("ALTER TABLE sessions_new RENAME TO sessions")
    db.execute("CREATE INDEX sessions_by_update ON sessions (updated)")
    db.execute("CREATE INDEX sessions_listed ON sessions (trashed, archived, pinned, updated)")
    db.execute("CREATE INDEX sessions_tagged ON sessions (tags) WHERE tags <> ''")
    db.execute("CREATE INDEX sessions_trashed ON sessions (trashed) WHERE trashed > 0")
    db.execute("ALTER TABLE messages ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0")
    db.execute("CREATE INDEX messages_hidden ON messages (session_id) WHERE hidden = 1")


def m003_search(db: sqlite3.Connection) -> None:
    """The full-text index over what messages say, where SQLite can keep one."""
    search_index.build(db)


def m004_origins(db: sqlite3.Connection) -> None:
    """What imported sessions were imported from."""
    db.execute(
        """
        CREATE TABLE origins (
            session_id TEXT PRIMARY KEY NOT NULL REFERENCES sessions (id),
            source TEXT NOT NULL,
            key TEXT NOT NULL,
            digest TEXT NOT NULL
        ) WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX origins_by_key ON origins (source, key)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    m001_initial,
    m002_organizing,
    m003_search,
    m004_origins,
)


def applied(db: sqlite3.Connection) -> list[str]:
    """Names of the steps that ran, oldest first; none in a database without the table."""
    found = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (TABLE,)).fetchone()
    if found is None:
        return []
    return [str(row[0]) for row in db.execute(f"SELECT name FROM {TABLE} ORDER BY number")]


def unknown(db: sqlite3.Connection) -> list[str]:
    """Names of the steps that ran and are not listed here."""
    known = {step.__name__ for step in MIGRATIONS}
    return [name for name in applied(db) if name not in known]


def is_foreign(db: sqlite3.Connection) -> bool:
    """Whether the database holds tables and is none of ours."""
    if db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
        return False
    return bool(db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID)


def migrate(db: sqlite3.Connection, now: float) -> None:
    """Run the steps that did not run yet. `now` is seconds since the epoch.

    `db` is in autocommit mode and does not enforce foreign keys: a table that is made anew is gone for a moment.
    """
    for number, step in enumerate(MIGRATIONS, start=1):
        if step.__name__ in applied(db):
            continue
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have run the step while this one waited for the lock.
            if step.__name__ not in applied(db):
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(
                    f"CREATE TABLE IF NOT EXISTS {TABLE} "
                    "(number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, applied REAL NOT NULL)"
                )
                step(db)
                db.execute(f"INSERT INTO {TABLE} VALUES (?, ?, ?)", (number, step.__name__, now))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
