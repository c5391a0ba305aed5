"""How values lie in the columns of the session database, and what is said of a session that is not there."""

from __future__ import annotations

import sqlite3
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ds4chat.errors import SessionNotFoundError
from ds4chat.sessions.connection import Connection
from ds4chat.sessions.session import clean_title

Params = Mapping[str, float | int | str | bool | None]
Stats = Mapping[str, float | int | str]


class Rows:
    """What the parts of `Database` stand on."""

    _db: Connection
    _clock: Callable[[], float]

    def _set(self, session_id: str, **columns: object) -> None:
        assignments = ", ".join(f"{name} = ?" for name in columns)
        with self._db.write() as db:
            query = f"UPDATE sessions SET {assignments} WHERE id = ?"
            if db.execute(query, (*columns.values(), session_id)).rowcount == 0:
                raise unknown(session_id)


def unknown(name: str) -> SessionNotFoundError:
    """The error for a name that no session goes by."""
    return SessionNotFoundError(f'No session goes by "{clean_title(name)}": `ds4chat ls` lists them.')


def to_json(value: Params | Stats) -> str:
    return msgspec.json.encode(value).decode()


def from_json(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def to_lines(tags: Sequence[str]) -> str:
    """Each tag on a line of its own, between line ends, so that a whole one can be looked for; "" for none."""
    return "".join(f"\n{tag}" for tag in tags) + "\n" if tags else ""


def from_lines(text: str) -> list[str]:
    return text.split("\n")[1:-1]


def pack(tokens: Sequence[int]) -> bytes:
    """Token ids as unsigned 32-bit little-endian integers."""
    ids = array("I", tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def unpack(blob: bytes) -> list[int]:
    if len(blob) % 4:
        raise sqlite3.DatabaseError("a reply's tokens are cut off")
    ids = array("I", blob)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()
