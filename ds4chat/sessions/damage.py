"""Signs that a session database is damaged, and where a salvage puts its files.

Promises: looking is cheap, unless damage was met before. Must not know: how a damaged file is read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

import msgspec

from ds4chat.sessions import migrations, search_index

log = logging.getLogger(__name__)

_MAGIC = b"SQLite format 3\0"


def beside(path: Path, word: str) -> Path:
    """A file beside the database."""
    return path.with_name(f"{path.stem}.{word}{path.suffix}")


def salvaged(path: Path) -> Path:
    """The new database, whole, before it takes the damaged one's place."""
    return beside(path, "salvaged")


def damaged_files(path: Path) -> list[Path]:
    """The damaged files that were kept beside a database."""
    return sorted(path.parent.glob(f"{path.stem}.damaged-*{path.suffix}*"))


def journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def size_of(path: Path) -> int:
    """In bytes, 0 for what is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def finish_salvage(path: Path) -> None:
    """Do the rest of a salvage that was interrupted, if there is one. Raises DatabaseError."""
    if salvaged(path).exists():
        from ds4chat.sessions.salvage import finish

        finish(path)


def marker(path: Path) -> Path:
    """A file that says that SQLite has met damage: the next start looks at the whole database."""
    return path.with_name(f"{path.name}.damaged")


def mark_damaged(path: Path) -> None:
    """Make the marker. Never raises."""
    with contextlib.suppress(OSError):
        os.close(os.open(marker(path), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def look(path: Path) -> None:
    """What SQLite itself does not notice when it opens the file. Cheap, unless there is a marker. Raises
    sqlite3.DatabaseError with the reason for a salvage."""
    if not path.is_file():
        return
    if size_of(path) == 0:
        if size_of(journal(path)):
            # SQLite would throw the journal away, and with it what may be left.
            raise sqlite3.DatabaseError("the file is empty, its journal is not")
        return
    if _is_cut_off(path):
        raise sqlite3.DatabaseError("the file is cut off")
    if marker(path).exists():
        fault = find_fault(path)
        if fault:
            raise sqlite3.DatabaseError(fault)
        marker(path).unlink(missing_ok=True)


def _is_cut_off(path: Path) -> bool:
    if size_of(journal(path)):
        # What is missing may be there.
        return False
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            header = file.read(100)
        # The count of pages is valid when the last to write was a SQLite that keeps it.
        if not header.startswith(_MAGIC) or header[24:28] != header[92:96]:
            return False
        page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
        # Asked last: another program may be bringing its journal into the file.
        return size_of(path) < pages * (65536 if page == 1 else page) and not size_of(journal(path))
    return False


_CONTRADICTIONS = (
    "SELECT 1 FROM messages m WHERE m.parent_id IS NOT NULL AND NOT EXISTS"
    " (SELECT 1 FROM messages p WHERE p.id = m.parent_id AND p.session_id = m.session_id)",
    "SELECT 1 FROM sessions s WHERE s.head_id IS NOT NULL AND NOT EXISTS"
    " (SELECT 1 FROM messages m WHERE m.id = s.head_id AND m.session_id = s.id)",
    "SELECT 1 FROM messages WHERE length(tokens) % 4",
)
_OBJECTS = (
    "SELECT DISTINCT stats FROM messages",
    "SELECT DISTINCT params FROM sessions",
)
_TEXTS = (
    "SELECT text, role, state, model, fingerprint FROM messages",
    "SELECT id, title, model, model_path, tags, draft, summary, system FROM sessions",
)


def find_fault(path: Path) -> str:
    """Read the whole database and say what is wrong with it, "" for nothing. Takes as long as reading it."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            search_index.register(db)
            (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if said != "ok":
                return str(said).splitlines()[-1]
            if not migrations.applied(db) or migrations.unknown(db):
                return ""
            if search_index.has_fts5(db) and search_index.has_index(db):
                index = search_index.INDEX
                db.execute(f"INSERT INTO {index} ({index}) VALUES ('integrity-check')")
            for query in _CONTRADICTIONS:
                if db.execute(query + " LIMIT 1").fetchone() is not None:
                    return "what it holds contradicts itself"
            for query in _TEXTS:
                for _ in db.execute(query):
                    pass  # that it can be read is the test
            for query in _OBJECTS:
                for (text,) in db.execute(query):
                    if not is_object(text):
                        return "what it holds contradicts itself"
    except sqlite3.OperationalError as error:
        if not hasattr(error, "sqlite_errorcode"):
            return str(error)  # text that is none
        # Busy, not readable: no damage.
        log.info("%s could not be checked: %s", path, error)
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""


def is_object(text: object) -> bool:
    """Whether a text is a JSON object as the database has them."""
    try:
        return isinstance(text, str) and isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False
