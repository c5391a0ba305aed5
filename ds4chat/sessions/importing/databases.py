"""Chats in the SQLite databases of oterm, elia, llm and Open WebUI, by the schemas they publish.

Promises: the file is never written to, nor is anything put beside it. One with a journal that is not worked in yet is
read from a copy of both.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing import open_webui
from ds4chat.sessions.importing.chats import (
    ATTACHMENT_ONLY,
    MAX_TEXT,
    ForeignChat,
    role_of,
    seconds,
    text_of,
    unknown_role,
)
from ds4chat.validation import short

MAGIC = b"SQLite format 3\0"

DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What comes of a database that is not whole: its complaint may hold bytes that are no text."""

Program = Literal["oterm", "elia", "llm", "open-webui"]

NAMES: dict[Program, str] = {
    "oterm": "oterm database",
    "elia": "elia database",
    "llm": "llm database",
    "open-webui": "Open WebUI database",
}

_TABLES: dict[Program, dict[str, set[str]]] = {
    "open-webui": {"chat": {"id", "title", "chat", "created_at", "updated_at"}},
    "oterm": {"chat": {"id", "name", "model"}, "message": {"chat_id", "author", "text"}},
    "elia": {"chat": {"id", "title", "started_at"}, "message": {"id", "chat_id", "role", "content"}},
    "llm": {
        "conversations": {"id", "name", "model"},
        "responses": {"id", "prompt", "response", "conversation_id"},
    },
}
"""What tells them apart: tables, and some of their columns."""

Chats = Iterator[Callable[[], ForeignChat]]
"""Each reads one chat, and raises InterchangeError or one of `DAMAGED` for it alone."""


class ForeignDatabase:
    """A database of another program, open for reading. Close it, or use it as a context manager.

    Attributes:
        program: whose it is.
        count: how many chats it holds.
    """

    def __init__(self, path: Path) -> None:
        """Raises InterchangeError when it cannot be read, or is of no program that is known."""
        self._stack = contextlib.ExitStack()
        try:
            self._db = self._stack.enter_context(_opened(path))
            self._columns = _columns(self._db)
            self.program = self._whose()
            self.count = self._count()
        except DAMAGED as error:
            self.close()
            raise InterchangeError(f"it is a damaged SQLite database ({short(str(error))})") from None
        except OSError as error:
            self.close()
            raise InterchangeError(f"it cannot be copied to be read ({error.strerror or error})") from None
        except BaseException:
            self.close()
            raise

    def _whose(self) -> Program:
        for program, tables in _TABLES.items():
            if all(columns <= self._columns.get(table, set()) for table, columns in tables.items()):
                return program
        if {"sessions", "messages", "migrations"} <= self._columns.keys():
            raise InterchangeError(
                "it is a database of ds4chat itself: use its folder with --data-dir, and `ds4chat export` there"
            )
        raise InterchangeError(
            "it is an SQLite database of a program that is not known: "
            "those of oterm, elia, llm and Open WebUI can be read"
        )

    def _count(self) -> int:
        query = "SELECT COUNT(*) FROM chat"
        if self.program == "llm":
            query = (
                "SELECT (SELECT COUNT(*) FROM conversations)"
                " + (SELECT COUNT(*) FROM responses WHERE conversation_id IS NULL)"
            )
        return int(self._db.execute(query).fetchone()[0])

    def chats(self) -> Chats:
        """What reads each chat, in the order they were begun."""
        match self.program:
            case "open-webui":
                return self._open_webui()
            case "oterm":
                return self._oterm()
            case "elia":
                return self._elia()
            case _:
                return self._llm()

    def close(self) -> None:
        """Close it; again does nothing."""
        self._stack.close()

    def __enter__(self) -> ForeignDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- programs ----

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self._db.execute(query, values).fetchall()

    def _row(self, query: str, id_: Any) -> sqlite3.Row:
        """The row of an id. Raises InterchangeError where it leads to none, as NULL does."""
        row: sqlite3.Row | None = self._db.execute(query, (id_,)).fetchone()
        if row is None:
            raise InterchangeError("its row has no id to be found by")
        return row

    def _ids(self, query: str) -> list[Any]:
        return [row[0] for row in self._db.execute(query)]

    def _has(self, table: str, column: str) -> bool:
        return column in self._columns.get(table, set())

    def _open_webui(self) -> Chats:
        names = ("id", "title", "created_at", "updated_at", "archived", "pinned", "meta")
        there = [name for name in names if self._has("chat", name)]

        def one(id_: Any) -> ForeignChat:
            row = self._row(f"SELECT chat, {', '.join(there)} FROM chat WHERE id = ?", id_)
            columns = {name: row[name] for name in there}
            with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError, RecursionError):
                columns["meta"] = msgspec.json.decode(columns["meta"])
            return open_webui.read_row(text_of(row["chat"]).encode(), **columns)

        for id_ in self._ids("SELECT id FROM chat ORDER BY created_at, id"):
            yield partial(one, id_)

    def _oterm(self) -> Chats:
        images = "images" if self._has("message", "images") else "'[]'"

        def one(id_: Any) -> ForeignChat:
            row = self._row("SELECT * FROM chat WHERE id = ?", id_)
            chat = ForeignChat("oterm", title=text_of(row["name"]), model=text_of(row["model"]))
            chat.instruct(text_of(_cell(row, "system")))
            query = f"SELECT author, text, {images} AS images FROM message WHERE chat_id = ? ORDER BY rowid"
            for said in self._rows(query, id_):
                pictures = _length(said["images"])
                chat.leave_out("images", pictures)
                _follow(chat, said["author"], said["text"], lost=pictures)
            return _named(chat, id_)

        for id_ in self._ids("SELECT id FROM chat ORDER BY id"):
            yield partial(one, id_)

    def _elia(self) -> Chats:
        parent = "parent_id" if self._has("message", "parent_id") else "NULL"
        time = "timestamp" if self._has("message", "timestamp") else "NULL"
        model = "model" if self._has("message", "model") else "NULL"

        def one(id_: Any) -> ForeignChat:
            row = self._row("SELECT * FROM chat WHERE id = ?", id_)
            chat = ForeignChat("elia", title=text_of(row["title"]), created=seconds(row["started_at"]))
            chat.model = text_of(_cell(row, "model"))
            chat.archived = _cell(row, "archived") == 1
            said = self._rows(
                f"SELECT id, role, content, {parent} AS parent, {time} AS time, {model} AS model FROM message"
                " WHERE chat_id = ? ORDER BY id",
                id_,
            )
            keys = {str(message["id"]) for message in said}
            before: str | None = None
            for message in said:
                key, above = str(message["id"]), str(message["parent"])
                _follow(
                    chat,
                    message["role"],
                    message["content"],
                    key=key,
                    parent=above if above in keys else before,
                    created=seconds(message["time"]),
                    model=text_of(message["model"]),
                )
                before = key
            return _named(chat, id_, row["started_at"])

        for id_ in self._ids("SELECT id FROM chat ORDER BY id"):
            yield partial(one, id_)

    def _llm(self) -> Chats:
        time = "datetime_utc, " if self._has("responses", "datetime_utc") else ""

        def conversation(id_: Any) -> ForeignChat:
            row = self._row("SELECT * FROM conversations WHERE id = ?", id_)
            chat = ForeignChat("llm", str(id_), text_of(row["name"]), model=text_of(row["model"]))
            query = f"SELECT * FROM responses WHERE conversation_id = ? ORDER BY {time}rowid"
            for response in self._rows(query, id_):
                self._respond(chat, response)
            return chat

        def alone(id_: Any) -> ForeignChat:
            chat = ForeignChat("llm", f"response {id_}")
            self._respond(chat, self._row("SELECT * FROM responses WHERE id = ?", id_))
            return chat

        for id_ in self._ids("SELECT id FROM conversations ORDER BY rowid"):
            yield partial(conversation, id_)
        for id_ in self._ids("SELECT id FROM responses WHERE conversation_id IS NULL ORDER BY rowid"):
            yield partial(alone, id_)

    def _respond(self, chat: ForeignChat, row: sqlite3.Row) -> None:
        """One question and its answer."""
        id_ = row["id"]
        fragments = self._fragments("prompt_fragments", id_)
        system = [*self._fragments("system_fragments", id_), text_of(_cell(row, "system"))]
        chat.instruct("\n\n".join(part for part in system if part.strip()))
        files = 0
        if self._has("prompt_attachments", "response_id"):
            query = "SELECT COUNT(*) FROM prompt_attachments WHERE response_id = ?"
            files = int(self._rows(query, id_)[0][0])
            chat.leave_out("files", files)
        if self._has("tool_calls", "response_id"):
            calls = "SELECT COUNT(*) FROM tool_calls WHERE response_id = ?"
            chat.leave_out("tool calls and results", int(self._rows(calls, id_)[0][0]))
        prompt = "\n\n".join(part for part in (*fragments, text_of(row["prompt"])) if part.strip())
        created, model = seconds(_cell(row, "datetime_utc")), text_of(_cell(row, "model"))
        _follow(chat, "user", prompt, lost=files, created=created)
        _follow(chat, "assistant", row["response"], created=created, model=model)

    def _fragments(self, table: str, response_id: Any) -> list[str]:
        if not self._has(table, "fragment_id") or not self._has("fragments", "content"):
            return []
        query = (
            f"SELECT f.content FROM {table} p JOIN fragments f ON f.id = p.fragment_id"
            ' WHERE p.response_id = ? ORDER BY p."order"'
        )
        return [text_of(row[0]) for row in self._rows(query, response_id)]


def _cell(row: sqlite3.Row, column: str) -> Any:
    """A value of a column that not every version has."""
    return row[column] if column in row.keys() else None  # noqa: SIM118  (a row contains its values)


def _follow(
    chat: ForeignChat,
    said: Any,
    text: Any,
    *,
    key: str = "",
    parent: str | None = None,
    lost: int = 0,
    created: float = 0.0,
    model: str = "",
) -> None:
    """A message; without a key it follows the last one."""
    if not key:
        key, parent = chat.follow()
    text = text_of(text)
    if text_of(said) == "system":
        chat.instruct(text)
        chat.pass_over(key, parent)
        return
    role = role_of(said)
    if role is None:
        chat.pass_over(key, parent, unknown_role(said))
        return
    if role == "user" and not text.strip() and lost:
        text = ATTACHMENT_ONLY
    chat.add(key, parent, role, text, created=created, model=model)


def _named(chat: ForeignChat, *parts: Any) -> ForeignChat:
    """The chat with a key of its own, where its program only counts: other databases count as well."""
    sums = hashlib.blake2b(digest_size=8)
    sums.update(chat.first_text().encode("utf-8", "replace"))
    chat.key = " ".join([*(str(part) for part in parts), sums.hexdigest()])
    return chat


def _length(images: Any) -> int:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        found = msgspec.json.decode(text_of(images) or "[]")
        return len(found) if isinstance(found, list) else 0
    return 0


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database for reading; a copy, where it has a journal."""
    with contextlib.ExitStack() as stack:
        journals = [path.with_name(path.name + ending) for ending in ("-wal", "-journal")]
        journals = [journal for journal in journals if journal.is_file() and journal.stat().st_size]
        mode = "mode=ro&immutable=1"
        if journals:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ds4chat-")))
            for file in (path, *journals):
                shutil.copyfile(file, folder / ("copy.db" + file.name.removeprefix(path.name)))
            path, mode = folder / "copy.db", "mode=rw"
        db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        stack.callback(db.close)
        db.row_factory = sqlite3.Row
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA query_only = ON")
        yield db


def _columns(db: sqlite3.Connection) -> dict[str, set[str]]:
    """By table; views are none."""
    tables = [
        str(row[0])
        for row in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
    ]
    return {
        table: {str(row[1]) for row in db.execute("SELECT * FROM pragma_table_info(?)", (table,))}
        for table in tables
    }
