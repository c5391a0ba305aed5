"""The rows of a damaged session database put together again: pure but for writing the new file.

Promises: what comes out is a database like any other, each message below a parent that is there, each session on a
message of its own; no more is made up than that needs. Must not know: files but the one it writes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ds4chat.sessions import migrations
from ds4chat.sessions.damage import is_object
from ds4chat.sessions.salvage_pages import Pages, Row, Value
from ds4chat.sessions.session import MessageState, Role, clean_text, clean_title, title_from

# In the order of the tables.
# fmt: off
SESSION_COLUMNS = (
    "id", "title", "model", "model_path", "created", "updated", "head_id", "window_start_id", "cold_done", "tokens",
    "pinned", "archived", "trashed", "tags", "params", "draft", "summary", "system",
)
_FIRST_SESSION_COLUMNS = tuple(
    name
    for name in SESSION_COLUMNS
    if name not in ("pinned", "archived", "trashed", "tags", "draft", "summary")
)
"""Of a table that the second migration has not reached."""

MESSAGE_COLUMNS = (
    "id", "session_id", "parent_id", "depth", "role", "state", "created", "fingerprint", "model", "stats", "text",
    "tokens", "hidden",
)
# fmt: on
SPAN_COLUMNS = ("session_id", "sha1", "start", "end", "reason", "bytes", "created")
ORIGIN_COLUMNS = ("session_id", "source", "key", "digest")

_STEP = re.compile(r"m\d{3}_\w+")
"""Name of a migration."""

_ID = re.compile(r"[0-9a-f]{8}")
"""Of a session."""

_ROLES, _STATES = get_args(Role), get_args(MessageState)


@dataclass
class Found:
    """What could be read, by id (spans by session and name), and the migrations and the names of tables that
    the file tells of."""

    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    spans: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    migrations: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    in_part: int = 0


def gather(pages: Pages) -> Found:
    """All rows of ours, told apart by their columns."""
    found = Found()
    for row in pages.rows():
        with contextlib.suppress(TypeError, ValueError):
            if row.rowid is None:
                _take_span(found, row)
            else:
                _take_row(found, row)
    return found


def _take_span(found: Found, row: Row) -> None:
    values = row.values
    if row.whole and len(values) == len(ORIGIN_COLUMNS):
        texts = tuple(value for value in values if isinstance(value, str))
        if len(texts) == len(values) and _ID.fullmatch(texts[0]):
            found.origins[texts[0]] = texts
        return
    if len(values) != len(SPAN_COLUMNS) or not row.whole:
        return
    session_id, sha1, start, end, reason, size, created = values
    if isinstance(session_id, str) and isinstance(sha1, str) and isinstance(reason, str):
        bytes.fromhex(sha1)
        found.spans[session_id, sha1] = (
            session_id,
            sha1,
            _whole(start),
            _whole(end),
            reason,
            _whole(size),
            _real(created),
        )


def _take_row(found: Found, row: Row) -> None:
    values, rowid = row.values, row.rowid
    first = values[0] if values else b""
    if isinstance(first, str) and len(values) in (len(_FIRST_SESSION_COLUMNS), len(SESSION_COLUMNS)):
        columns = SESSION_COLUMNS if len(values) == len(SESSION_COLUMNS) else _FIRST_SESSION_COLUMNS
        found.sessions.setdefault(first, _session(dict(zip(columns, values, strict=True))))
    elif first is None and len(values) > 5 and isinstance(values[1], str) and values[4] in _ROLES:
        message = _message(dict(zip(MESSAGE_COLUMNS, values, strict=False)))
        message["id"] = rowid
        if rowid is not None and rowid > 0 and rowid not in found.messages:
            found.messages[rowid] = message
            found.in_part += not row.whole
    elif first is None and len(values) == 3 and isinstance(values[1], str) and _STEP.fullmatch(values[1]):
        found.migrations.add(values[1])
    elif first == "table" and len(values) == 5 and isinstance(values[1], str):
        found.tables.add(values[1])


def _session(row: dict[str, Value]) -> dict[str, Any]:
    """Its columns, made valid."""
    if not isinstance(row["updated"], int | float) or not isinstance(row["created"], int | float):
        raise ValueError("no session")
    return {
        "id": clean_text(_text(row["id"])),
        "title": clean_title(_text(row["title"])),
        "model": clean_text(_text(row["model"])),
        "model_path": clean_text(_text(row["model_path"])),
        "created": _real(row["created"]),
        "updated": _real(row["updated"]),
        "head_id": row["head_id"] if isinstance(row["head_id"], int) else None,
        "window_start_id": row["window_start_id"] if isinstance(row["window_start_id"], int) else None,
        "cold_done": int(bool(row["cold_done"])),
        "tokens": max(_whole(row["tokens"]), 0),
        "pinned": int(bool(row.get("pinned"))),
        "archived": int(bool(row.get("archived"))),
        "trashed": _real(row.get("trashed")),
        "tags": _text(row.get("tags")),
        "params": _json_object(row["params"]),
        "draft": clean_text(_text(row.get("draft"))),
        "summary": clean_text(_text(row.get("summary"))),
        "system": clean_text(_text(row["system"])),
    }


def _message(row: dict[str, Value]) -> dict[str, Any]:
    tokens = row.get("tokens")
    tokens = tokens if isinstance(tokens, bytes) else b""
    state, role = row["state"], row["role"]
    return {
        "session_id": row["session_id"],
        "parent_id": row["parent_id"] if isinstance(row["parent_id"], int) else None,
        "depth": 1,
        "role": role,
        "state": state if state in _STATES else "cut" if role == "assistant" else "complete",
        "created": _real(row.get("created")),
        "fingerprint": _text(row.get("fingerprint")),
        "model": clean_text(_text(row.get("model"))),
        "stats": _json_object(row.get("stats")),
        "text": clean_text(_text(row.get("text"))),
        "tokens": tokens[: len(tokens) // 4 * 4],
        "hidden": int(bool(row.get("hidden"))),
    }


def mend(found: Found) -> None:
    """Make one whole of what was found: each message has a parent that is there, each session a head."""
    of_session: dict[str, list[int]] = {}
    for id_ in sorted(found.messages):
        message = found.messages[id_]
        parent = found.messages.get(message["parent_id"] or 0)
        if message["session_id"] not in found.sessions and parent is not None and parent["id"] < id_:
            message["session_id"] = parent["session_id"]
        ids = of_session.setdefault(message["session_id"], [])
        # A child is younger than its parent.
        known = parent is not None and parent["session_id"] == message["session_id"] and parent["id"] < id_
        if not known and message["parent_id"] is not None:
            message["parent_id"] = ids[-1] if ids else None
        above = found.messages.get(message["parent_id"] or 0)
        message["depth"] = above["depth"] + 1 if above is not None else 1
        ids.append(id_)
    for session_id, ids in of_session.items():
        if session_id not in found.sessions:
            found.sessions[session_id] = _session_of(session_id, [found.messages[id_] for id_ in ids])
    for session_id, session in list(found.sessions.items()):
        ids = of_session.get(session_id, [])
        if session["trashed"] > 0:
            # It was deleted.
            del found.sessions[session_id]
            for id_ in ids:
                del found.messages[id_]
            continue
        if session["head_id"] not in ids:
            session["head_id"] = ids[-1] if ids else None
        if session["window_start_id"] not in ids:
            session["window_start_id"], session["summary"] = None, ""
    found.spans = {key: span for key, span in found.spans.items() if key[0] in found.sessions}
    found.origins = {id_: origin for id_, origin in found.origins.items() if id_ in found.sessions}


def _session_of(session_id: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A session of which only messages are left."""
    asked = next((m["text"] for m in messages if m["role"] == "user"), "")
    empty: dict[str, Value] = dict.fromkeys(SESSION_COLUMNS)
    session = _session(empty | {"id": session_id, "created": 0, "updated": 0})
    times = [m["created"] for m in messages]
    return session | {
        "title": title_from(asked) or "Untitled",
        "created": min(times),
        "updated": max(times),
    }


def build(path: Path, found: Found, now: float) -> None:
    """Write a new database."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA trusted_schema = ON")
        migrations.migrate(db, now)
        db.execute("BEGIN IMMEDIATE")
        _insert(db, "sessions", SESSION_COLUMNS, [tuple(s.values()) for s in found.sessions.values()])
        messages = [found.messages[id_] for id_ in sorted(found.messages)]
        rows = [tuple(message[name] for name in MESSAGE_COLUMNS) for message in messages]
        _insert(db, "messages", MESSAGE_COLUMNS, rows)
        columns = [f'"{name}"' for name in SPAN_COLUMNS]
        _insert(db, "spans", columns, list(found.spans.values()))
        _insert(db, "origins", ORIGIN_COLUMNS, list(found.origins.values()))
        db.execute("COMMIT")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _insert(db: sqlite3.Connection, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    places = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _real(value: Value) -> float:
    """A time, 0 for one that cannot be."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 253_402_300_000 else 0.0


def _json_object(value: Value) -> str:
    """The text when it is a JSON object, else an empty one."""
    return value if isinstance(value, str) and is_object(value) else "{}"
