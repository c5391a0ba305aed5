"""SQLite databases of other programs to import."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.fuzz_parts.foreign import ROLES, web_chat
from benchmarks.fuzz_parts.imports import Import
from benchmarks.fuzz_parts.mutate import json_bytes, mutate_bytes, scalar, string, value


class DatabaseImport(Import):
    """SQLite databases of oterm, elia, llm and Open WebUI: pages damaged, rows and columns of any type, a journal."""

    name = "import database"
    shown_one_in = 4
    journal = b"\0journal\0"

    def examples(self) -> None:
        made = self.folder / "made"
        made.mkdir()
        self.files = [_database(_script(program), 512) for program in sorted(SCHEMAS)]
        self.pair = _with_journal(made / "wal.db", _script("oterm"))

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 3:
            content = self._damaged(draw, draw.choice(self.files))
        elif kind == 3:
            content = self.journal.join(
                mutate_bytes(draw, part) if draw.random() < 0.5 else part for part in self.pair
            )
        else:
            content = _random_database(draw)
            if draw.random() < 0.1:
                content = self._damaged(draw, content)
        return self.named(draw, content, ".db")

    @staticmethod
    def _damaged(draw: random.Random, data: bytes) -> bytes:
        """Pages changed, swapped or gone; the beginning mostly stays, or all would end there."""
        if draw.random() < 0.3:
            return data[:100] + mutate_bytes(draw, data[100:])
        pages = [data[i : i + 512] for i in range(0, len(data), 512)]
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(len(pages))
            page = bytearray(pages[at])
            for _ in range(draw.choice((1, 3, 20))):
                page[draw.randrange(100 if at == 0 else 0, len(page))] = draw.choice(
                    (0, 1, 255, draw.randrange(256))
                )
            other = pages[draw.randrange(len(pages))]
            pages[at] = draw.choice((bytes(page), bytes(page), bytes(page), other, bytes(512)))
        return b"".join(pages)

    def lay_down(self, path: Path, content: bytes) -> None:
        content, beside, journal = content.partition(self.journal)
        path.write_bytes(content)
        if beside and len(path.name) < 100:
            path.with_name(path.name + "-wal").write_bytes(journal)


SCHEMAS: dict[str, dict[str, dict[str, Any]]] = {
    "oterm": {
        "chat": {"id": 1, "name": "Ferns", "model": "llama3", "system": "Be kind."},
        "message": {"id": 1, "chat_id": 1, "author": "user", "text": "What is a frond?", "images": '["aGk="]'},
    },
    "elia": {
        "chat": {"id": 1, "model": "gpt", "title": "Lichens", "started_at": "2024-06-03 07:33:20", "archived": 0},
        "message": {
            "id": 1, "chat_id": 1, "role": "user", "content": "What are they?", "timestamp": "2024-06-03 07:33:21",
            "parent_id": None, "model": "gpt",
        },
    },
    "llm": {
        "conversations": {"id": "c", "name": "Rings", "model": "gpt"},
        "responses": {
            "id": "r", "model": "gpt", "prompt": "How old?", "system": "You know trees.", "response": "Ninety.",
            "conversation_id": "c", "datetime_utc": "2024-06-03T07:33:20+00:00",
        },
        "fragments": {"id": 1, "content": "A cut trunk."},
        "prompt_fragments": {"response_id": "r", "fragment_id": 1, "order": 0},
        "system_fragments": {"response_id": "r", "fragment_id": 1, "order": 0},
        "prompt_attachments": {"response_id": "r"},
        "tool_calls": {"response_id": "r"},
    },
    "open-webui": {
        "chat": {
            "id": "o", "title": "Tides", "created_at": 1718000000, "updated_at": 1718000030, "archived": 0, "pinned": 1,
            "chat": '{"history":{"messages":{"a":{"id":"a","role":"user","content":"hi"}},"currentId":"a"}}',
            "meta": '{"tags": ["sea"]}',
        },
    },
}  # fmt: skip
"""Tables with a row each, of values that fit."""

Script = list[tuple[str, tuple[Any, ...]]]


def _script(program: str) -> Script:
    script: Script = []
    for table, columns in SCHEMAS[program].items():
        script.append((f'CREATE TABLE "{table}" ({_quoted(columns)})', ()))
        script.append((f'INSERT INTO "{table}" VALUES ({_marks(columns)})', tuple(columns.values())))
    return script


def _quoted(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _marks(values: Any) -> str:
    return ", ".join("?" * len(values))


def _database(script: Script, page: int) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("BEGIN")
        for statement, values in script:
            db.execute(statement, values)
        db.execute("COMMIT")
        return db.serialize()


def _with_journal(path: Path, script: Script) -> tuple[bytes, bytes]:
    """A database file and the journal beside it, which has all of its rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA page_size = 512")
        db.execute("PRAGMA journal_mode = WAL")
        for statement, values in script:
            db.execute(statement, values)
        return path.read_bytes(), path.with_name(path.name + "-wal").read_bytes()


def _random_database(draw: random.Random) -> bytes:
    """Rows of any type, columns that are missing or of another kind, keys that are NULL or there twice."""
    program = draw.choice(sorted(SCHEMAS))
    script: Script = []
    for table, columns in SCHEMAS[program].items():
        names = [name for name in columns if draw.random() > 0.02]
        kinds = ("", "TEXT", "BLOB", "INTEGER", "REAL", "JSON", "DATETIME", "NUMERIC")
        kept = [f'"{name}" {draw.choice(kinds)}' for name in names] or ["x"]
        if names and draw.random() < 0.05:
            kept[0] += draw.choice((" PRIMARY KEY", " UNIQUE", " COLLATE NOCASE"))
        if draw.random() < 0.03:
            kept.append(f"extra GENERATED ALWAYS AS ({draw.choice(('1', 'abs(-9223372036854775808)', 'x'))})")
        if draw.random() < 0.1:
            script.append(
                (
                    f'CREATE TABLE "{string(draw)[:20]}x" (a, b)'.replace("\0", "")
                    .encode("utf-8", "replace")
                    .decode(),
                    (),
                )
            )
        script.append((f'CREATE TABLE "{table}" ({", ".join(kept)})', ()))
        if not names:
            continue
        for i in range(draw.choice((0, 1, 1, 2, 5) * 6 + (300,))):
            row = [_cell(draw, columns[name], name, i) for name in names]
            script.append(
                (f'INSERT OR IGNORE INTO "{table}" ({_quoted(names)}) VALUES ({_marks(row)})', tuple(row))
            )
    try:
        return _database(script, draw.choice((512, 4096)))
    except sqlite3.Error:
        # A script that SQLite itself refuses: what it has to say of the plain one.
        return _database(_script(program), 1024)


def _cell(draw: random.Random, example: Any, name: str, i: int) -> Any:
    if name == "chat" and draw.random() < 0.4:
        tree = web_chat(draw) if draw.random() < 0.5 else value(draw)
        return json_bytes(draw, tree).decode("utf-8", "replace")
    if draw.random() > 0.15:
        if name in ("author", "role"):
            return ROLES[i % 2]
        return i + 1 if name == "id" and isinstance(example, int) else example
    if name in ("images", "meta") and draw.random() < 0.6:
        depth = draw.choice((5, 600, 20_000))
        nested = "[" * depth + "]" * depth
        return draw.choice((nested, json_bytes(draw, value(draw)).decode("utf-8", "replace")))
    made = scalar(draw)
    if isinstance(made, int) and not -(2**63) <= made < 2**63:
        made = float(made) if abs(made) < 2**1000 else str(made)
    if isinstance(made, str):
        made = made.encode("utf-8", "replace").decode()
    if not isinstance(made, str | int | float | None):
        made = str(made)
    return draw.choice((made, made, draw.randbytes(5), None))
