"""How the sessions of the database are listed, named, put in order, thrown away and searched.

What is in the trash is neither listed nor counted, named or found; it can be loaded by its whole id, and its
checkpoints count as used until it is purged.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ds4chat.errors import SessionNotFoundError, UsageError
from ds4chat.sessions import search_index
from ds4chat.sessions.rows import Rows, from_lines, to_lines, unknown
from ds4chat.sessions.search import SearchHit
from ds4chat.sessions.session import SessionInfo, clean_tags, clean_text, clean_title

DAY_SECONDS = 86_400.0

LISTED_MATCHES = 5
"""Matches that the sentence about an ambiguous name lists: more would not be read."""

_SHOWN = (
    "CASE WHEN NOT EXISTS (SELECT 1 FROM messages h WHERE h.session_id = s.id AND h.hidden = 1)"
    " THEN COALESCE(m.depth, 0) ELSE"
    " (WITH RECURSIVE path (parent_id, hidden) AS (SELECT m.parent_id, m.hidden UNION ALL"
    " SELECT p.parent_id, p.hidden FROM messages p JOIN path ON p.id = path.parent_id)"
    " SELECT COUNT(*) FROM path WHERE hidden = 0) END"
)
"""Messages on the path: its length, which the head knows, unless some of the session's are hidden."""

_LIST = (
    f"SELECT s.id, s.title, s.model, {_SHOWN}, s.tokens, s.created, s.updated, s.pinned, s.archived, s.tags,"
    ' COALESCE((SELECT MAX("end") FROM spans WHERE session_id = s.id), 0),'
    " COALESCE((SELECT SUM(bytes) FROM spans WHERE session_id = s.id), 0)"
    " FROM sessions s LEFT JOIN messages m ON m.id = s.head_id"
)
"""Rows of `SessionInfo`."""

_NEWEST = "updated DESC, rowid DESC"


class Organizing(Rows):
    """The part of `Database` that is about many sessions."""

    # -- the list

    def list_sessions(
        self, limit: int | None = None, offset: int = 0, *, archived: bool | None = False, tag: str = ""
    ) -> list[SessionInfo]:
        """The pinned sessions, then the others, each last used first; all of them when `limit` is None.

        `archived`: those that are put away, or None for those and the others. `tag`: only those that have it.
        """
        where, values = _listed(archived, tag)
        rows = self._db.all(
            f"{_LIST} WHERE {where} ORDER BY s.pinned DESC, s.updated DESC, s.rowid DESC LIMIT ? OFFSET ?",
            *values,
            -1 if limit is None else limit,
            offset,
        )
        return [_info(row) for row in rows]

    def count_sessions(self, *, archived: bool | None = False, tag: str = "") -> int:
        """How many sessions `list_sessions` has."""
        where, values = _listed(archived, tag)
        return int(self._db.all(f"SELECT COUNT(*) FROM sessions s WHERE {where}", *values)[0][0])

    def count(self) -> int:
        """How many sessions there are, archived ones too."""
        return self.count_sessions(archived=None)

    def has(self, session_id: str) -> bool:
        """Whether the id is taken, by a session in the trash too."""
        return self._db.one("SELECT 1 FROM sessions WHERE id = ?", session_id) is not None

    def all_tags(self) -> list[str]:
        """The tags that sessions have, in the order of the alphabet."""
        rows = self._db.all("SELECT DISTINCT tags FROM sessions WHERE tags <> '' AND trashed = 0")
        return sorted({tag for (tags,) in rows for tag in from_lines(tags)}, key=lambda t: (t.casefold(), t))

    def info(self, session_id: str) -> SessionInfo:
        """A session's row of the list. Raises SessionNotFoundError."""
        row = self._db.one(f"{_LIST} WHERE s.id = ?", session_id)
        if row is None:
            raise unknown(session_id)
        return _info(row)

    def model_paths(self, model: str) -> list[str]:
        """Paths that sessions used a model of this name from, last used first."""
        query = "SELECT model_path FROM sessions WHERE model = ? AND model_path <> '' ORDER BY updated DESC"
        return [str(row[0]) for row in self._db.all(query, model)]

    def latest(self) -> str | None:
        """The id of the session used last that is not archived, None without any."""
        # The plus signs keep SQLite from the index of the list, which is in another order.
        row = self._db.one(
            f"SELECT id FROM sessions WHERE +trashed = 0 AND +archived = 0 ORDER BY {_NEWEST} LIMIT 1"
        )
        return None if row is None else str(row[0])

    def search(self, query: str, limit: int = 100) -> list[SearchHit]:
        """Messages with all words of a query, the newest first; see `search` for what a query says.

        Messages of every branch and of archived sessions are found; hidden ones and the trash are not.
        """
        with self._db.errors():
            return search_index.search(self._db.raw, clean_text(query), limit)

    # -- names

    def prompt_history(self, limit: int) -> list[str]:
        """What users wrote in all sessions, newest first, each text once; not what is hidden or in the trash."""
        query = (
            "SELECT m.text FROM messages m JOIN sessions s ON s.id = m.session_id"
            " WHERE m.role = 'user' AND m.hidden = 0 AND s.trashed = 0 ORDER BY m.id DESC LIMIT ?"
        )
        # Some are said twice; to read all messages for the rest would take long.
        return list(dict.fromkeys(str(row[0]) for row in self._db.all(query, 2 * limit)))[:limit]

    def resolve(self, name: str) -> str:
        """The id of the session that goes by `name`: its id, the start of it, or its title.

        A whole id decides at once. Else ids that start with `name` and titles equal to it count alike, and
        only when there is none, titles that are equal in lower case. What is archived is found, what is in the trash
        is not.

        Raises:
            SessionNotFoundError: none does, or more than one (the sentence lists them).
        """
        name = clean_text(name).strip()
        if not name:
            raise SessionNotFoundError("A session's name must not be blank: `ds4chat ls` lists them.")
        rows = self._db.all(f"SELECT id, title FROM sessions WHERE trashed = 0 ORDER BY {_NEWEST}")
        titles: dict[str, str] = dict(rows)
        prefix = name.lower() if re.fullmatch(r"[0-9a-fA-F]{1,8}", name) else ""
        if prefix in titles:
            return prefix
        found = [i for i, t in titles.items() if t == name or (prefix and i.startswith(prefix))]
        if not found:
            found = [i for i, t in titles.items() if t.casefold() == name.casefold()]
        if not found:
            raise unknown(name)
        if len(found) > 1:
            listed = ", ".join(f'{i} "{titles[i]}"' for i in found[:LISTED_MATCHES])
            more = f" and {len(found) - LISTED_MATCHES} more" if len(found) > LISTED_MATCHES else ""
            raise SessionNotFoundError(
                f'"{name}" fits {len(found)} sessions, {listed}{more}: give more of the id.'
            )
        return found[0]

    def rename(self, session_id: str, title: str) -> str:
        """Set the title and return it as stored, on one line. Raises UsageError when nothing is left of
        it."""
        title = clean_title(title)
        if not title:
            raise UsageError("A session's title must not be blank: give it at least one visible character.")
        self._set(session_id, title=title)
        return title

    # -- order

    def set_flags(self, session_id: str, *, pinned: bool | None = None, archived: bool | None = None) -> None:
        """Pin a session to the top of the list, put it away, or undo that; None leaves a flag as it is."""
        flags = {"pinned": pinned, "archived": archived}
        given = {name: int(on) for name, on in flags.items() if on is not None}
        if given:
            self._set(session_id, **given)

    def set_tags(self, session_id: str, tags: Iterable[str]) -> list[str]:
        """Replace the tags and return them as stored (see `clean_tags`)."""
        kept = clean_tags(tags)
        self._set(session_id, tags=to_lines(kept))
        return kept

    def set_draft(self, session_id: str, text: str) -> None:
        """Keep what is typed and not sent; "" for nothing."""
        self._set(session_id, draft=clean_text(text))

    # -- the trash

    def trash(self, session_id: str) -> None:
        """Put a session into the trash. Nothing of it is deleted, and `untrash` brings it back as it was."""
        self._set(session_id, trashed=self._clock())

    def untrash(self, session_id: str) -> None:
        """Take a session out of the trash; one that is not there stays where it is."""
        self._set(session_id, trashed=0)

    def is_trashed(self, session_id: str) -> bool:
        """Whether a session is in the trash."""
        return self._db.one("SELECT 1 FROM sessions WHERE id = ? AND trashed > 0", session_id) is not None

    def trashed(self) -> list[str]:
        """Ids of the sessions in the trash, those that went there first before the others."""
        rows = self._db.all("SELECT id FROM sessions WHERE trashed > 0 ORDER BY trashed, rowid")
        return [str(row[0]) for row in rows]

    def purge_trash(self, before: float, only: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Delete for good what went into the trash before a time (seconds since the epoch), of `only` when given, and
        what went there later than a day from now: the clock was wrong then.

        Returns:
            By session id, the spans that no session stands on any more, as SHA-1 hex, deepest first.
        """
        rows = self._db.all(
            "SELECT id FROM sessions WHERE trashed > 0 AND (trashed < ? OR trashed > ?) ORDER BY trashed",
            before,
            self._clock() + DAY_SECONDS,
        )
        ids = [str(row[0]) for row in rows if only is None or row[0] in only]
        if not ids:
            return {}
        with self._db.erase() as db:
            # Asked again under the lock: another program may have taken it out, or deleted it.
            still = "SELECT 1 FROM sessions WHERE id = ? AND trashed > 0"
            return {i: _delete(db, i) for i in ids if db.execute(still, (i,)).fetchone() is not None}

    def said_in(self, session_ids: Iterable[str]) -> dict[str, list[str]]:
        """The texts of all messages of these sessions, by session."""
        return {
            id_: [
                str(row[0])
                for row in self._db.all("SELECT text FROM messages WHERE session_id = ? AND text <> ''", id_)
            ]
            for id_ in session_ids
        }

    def delete(self, session_id: str) -> list[str]:
        """Delete a session for good.

        Returns:
            The spans that no other session stands on, as SHA-1 hex, deepest first.
        """
        return self.delete_all([session_id])

    def delete_all(self, session_ids: Sequence[str]) -> list[str]:
        """Delete sessions for good, all or none; the spans that no other session stands on, as `delete`."""
        with self._db.erase() as db:
            return [sha1 for session_id in session_ids for sha1 in _delete(db, session_id)]


def _listed(archived: bool | None, tag: str) -> tuple[str, list[object]]:
    """What `list_sessions` asks for, as SQL and its values."""
    where, values = ["s.trashed = 0"], list[object]()
    if archived is not None:
        where.append("s.archived = ?")
        values.append(int(archived))
    if tag:
        where.append("instr(s.tags, ?) > 0")
        values.append(to_lines([tag]))
    return " AND ".join(where), values


def _info(row: tuple[Any, ...]) -> SessionInfo:
    id_, title, model, messages, tokens, created, updated, pinned, archived, tags, *stored = row
    info = SessionInfo(id_, title, model, messages, tokens, created, updated, bool(pinned), bool(archived))
    return replace(info, tags=tuple(from_lines(tags)), stored_tokens=stored[0], stored_bytes=stored[1])


def _delete(db: sqlite3.Connection, session_id: str) -> list[str]:
    spans = db.execute(
        "SELECT sha1 FROM spans s WHERE session_id = ? AND NOT EXISTS"
        " (SELECT 1 FROM spans o WHERE o.sha1 = s.sha1 AND o.session_id <> s.session_id)"
        ' ORDER BY "end" DESC',
        (session_id,),
    ).fetchall()
    for table in ("spans", "origins", "messages"):
        db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
    if db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount == 0:
        raise unknown(session_id)
    return [str(row[0]) for row in spans]
