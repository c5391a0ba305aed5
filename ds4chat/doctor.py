"""What the program keeps on disk: where, how much, whether it is whole, and whether others can read it.

Promises: looking changes nothing and makes nothing. Must not know: the command line.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ds4chat.paths import Paths
from ds4chat.sessions import migrations
from ds4chat.sessions.damage import damaged_files, find_fault, journal


class Place(msgspec.Struct, frozen=True):
    """Something that is kept.

    Attributes:
        holds: what is in it, in words.
        bytes: of all files.
        mode: of the file or folder, as `ls` shows it.
    """

    what: str
    path: str
    exists: bool
    holds: str
    bytes: int
    mode: str


class Report(msgspec.Struct, frozen=True):
    """All places, and a sentence for each fault with the way out."""

    places: list[Place]
    findings: list[str]


def examine(paths: Paths) -> Report:
    """Look at everything below the program's folders."""
    data, logs = paths.data_dir, paths.log_dir
    chats, fault = _chats(paths.database)
    memos = [data / name for name in ("engine.json", "models.json", "weights.json")]
    databases = [
        paths.database,
        *(paths.database.with_name(paths.database.name + e) for e in ("-wal", "-shm")),
    ]
    places = [
        _place("Settings", paths.config_file, [paths.config_file]),
        _place("Personas", paths.config_dir / "personas"),
        _place("Themes", paths.config_dir / "themes"),
        _place("Sessions", paths.database, databases, chats),
        *(_place("Damaged sessions", file, [file], "what a damaged database held, deleted chats too")
          for file in damaged_files(paths.database)),
        _place("Draft", data / "draft.txt", holds="what is typed in a new chat and not sent"),
        _place("Locks", data / "locks"),
        *(_place("Engine notes", memo, holds="what this machine can do") for memo in memos if memo.exists()),
        _place("Models", paths.models_dir),
        _place("Checkpoints", paths.kv_dir, holds=_checkpoints(paths.kv_dir)),
        _place("Logs", logs, holds=_count(sum(1 for _ in _files(logs)), "file")),
    ]  # fmt: skip
    findings = [fault] if fault else []
    for place in places:
        open_files = [path for path in _with_folders(Path(place.path)) if _is_readable(path)]
        if open_files:
            what = f"{place.path}" if len(open_files) == 1 else f"{len(open_files):,} files of {place.path}"
            findings.append(
                f"Other users can read {what}: close it to them with `chmod -R go= {place.path}`."
            )
    return Report(places, findings)


def _place(what: str, path: Path, files: Iterable[Path] | None = None, holds: str = "") -> Place:
    sizes = [_size(file) for file in (_files(path) if files is None else files)]
    try:
        status = path.stat()
    except OSError:
        return Place(what, str(path), False, "", 0, "")
    if not holds and stat.S_ISDIR(status.st_mode):
        holds = _count(len(sizes), "file")
    return Place(what, str(path), True, holds, sum(sizes), stat.filemode(status.st_mode))


def _chats(path: Path) -> tuple[str, str]:
    """What a session database holds, and what is wrong with it."""
    if not path.exists():
        return "", ""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
            if migrations.is_foreign(db):
                return "", f"{path} is a database of another program: move it away."
            if migrations.unknown(db):
                return "", f"{path} was written by a newer ds4chat: update ds4chat."
            if not migrations.applied(db):
                return "nothing yet", ""
            query = "SELECT COUNT(*), COALESCE(SUM(archived), 0), COALESCE(SUM(trashed > 0), 0) FROM sessions"
            sessions, archived, trashed = db.execute(query).fetchone()
            (messages,) = db.execute("SELECT COUNT(*) FROM messages").fetchone()
    except sqlite3.OperationalError as error:
        return "", f"The session database {path} cannot be read ({error}): see to it and try again."
    except sqlite3.DatabaseError as error:
        return "", _damaged(path, str(error))
    fault = find_fault(path)
    extra = [f"{archived:,} archived"] * bool(archived) + [f"{trashed:,} in the trash"] * bool(trashed)
    aside = f" ({', '.join(extra)})" if extra else ""
    holds = (
        f"{_count(sessions, 'chat')}{aside}, {_count(messages, 'message')}, what you sent before among them"
    )
    return holds, _damaged(path, fault) if fault else ""


def _damaged(path: Path, fault: str) -> str:
    kept = f"{path.stem}.damaged-...{path.suffix}"
    return (
        f"The session database {path} is damaged ({fault}): the next start of ds4chat puts what can be read into a new "
        f"one and keeps this one as {kept}."
    )


def _checkpoints(root: Path) -> str:
    from ds4chat.checkpoints import leases, pins
    from ds4chat.checkpoints.inventory import take_stock

    stocks = take_stock(root)
    spans = sum(len(stock.spans) for stock in stocks)
    if not root.exists():
        return ""
    words = [f"{_count(spans, 'span')} of {_count(len(stocks), 'model')}"]
    if pinned := len(pins.pinned(root)):
        words.append(f"{pinned:,} pinned")
    if leased := len(leases.leased(root)):
        words.append(f"{leased:,} in use now")
    return ", ".join(words)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def _with_folders(path: Path) -> Iterator[Path]:
    """The path, what belongs to it and lies beside it, and all below it."""
    yield path
    yield from (other for other in (journal(path), path.with_name(f"{path.name}-shm")) if other.exists())
    for folder, folders, names in os.walk(path):
        yield from (Path(folder, name) for name in (*folders, *names))


def _is_readable(path: Path) -> bool:
    """Whether another user can get at it: not when a folder above is closed to them."""
    try:
        mode = path.stat().st_mode
        return any(
            mode & bit and all(folder.stat().st_mode & enter for folder in path.absolute().parents)
            for bit, enter in ((0o004, 0o001), (0o040, 0o011))
        )
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
