"""The commands on saved sessions: ls, show, rename, rm, import. They need neither model nor engine."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import click
import msgspec

from ds4chat.cli_setup import Setup
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.paths import Paths
from ds4chat.printing import dump_json, shown, visible
from ds4chat.sessions import interchange
from ds4chat.sessions.database import Database
from ds4chat.sessions.locks import lock_session
from ds4chat.sessions.session import Session, SessionInfo, speaker

log = logging.getLogger(__name__)

PINNED = "*"
"""Beside the title of a pinned session."""


def list_sessions(paths: Paths, *, as_json: bool, archived: bool = False) -> None:
    """Print the sessions, or those that were put away: a table, or a JSON list with times in seconds since the epoch.

    Pinned ones come first, then those last used.
    """
    with Database(paths.database) as database:
        infos = database.list_sessions(archived=archived)
    if as_json:
        click.echo(dump_json([_row(info) for info in infos], sys.stdout, indent=2))
    elif not infos:
        none = (
            "No session is archived." if archived else "There are no sessions yet: start one with `ds4chat`."
        )
        click.echo(none, err=True)
    else:
        _print_table(infos)


def show(paths: Paths, name: str, form: str) -> None:
    """Print a session as "text", "json", "markdown" or "toml"."""
    with Database(paths.database) as database:
        session = database.load_session(database.resolve(name))
    if form == "json":
        click.echo(dump_json(interchange.to_dict(session), sys.stdout, indent=2))
        return
    text = _transcript(session) if form == "text" else document(session, form)
    # Not by click, which takes escape sequences out of what it writes into a file.
    sys.stdout.write(shown(text))


def document(session: Session, form: str) -> str:
    """The conversation as "toml" or "markdown". Raises UsageError for an empty session in TOML."""
    if form == "markdown":
        return interchange.to_markdown(session)
    if not session.messages:
        raise UsageError(f"Session {session.id} has no messages to write as TOML: chat in it first.")
    return interchange.to_toml(session)


def rename(paths: Paths, name: str, title: str) -> None:
    """Give a session another title and print it."""
    with Database(paths.database) as database:
        session_id = database.resolve(name)
        click.echo(shown(f"{session_id}  {database.rename(session_id, title)}"))


def remove(paths: Paths, names: Sequence[str], *, yes: bool) -> None:
    """Delete sessions, all or none, and the checkpoints that no other session stands on. Asks unless `yes`.

    Raises:
        SessionNotFoundError: a name fits no session, or several.
        SessionLockedError: one of them is open.
    """
    with Database(paths.database) as database, contextlib.ExitStack() as locks:
        infos = [database.info(session_id) for session_id in dict.fromkeys(map(database.resolve, names))]
        held = [
            locks.enter_context(
                lock_session(paths.data_dir, info.id, info.title, way_out="close it there, then delete it")
            )
            for info in infos
        ]
        if not yes and not _confirm(infos):
            click.echo("Nothing was deleted.", err=True)
            raise click.exceptions.Exit(1)
        ids = [info.id for info in infos]
        texts = [text for said in database.said_in(ids).values() for text in said]
        orphans = database.delete_all(ids)
        for info, lock in zip(infos, held, strict=True):
            lock.release(remove=True)
            click.echo(shown(f"Deleted {info.id}  {info.title}"))
        keep = set(database.all_spans())
    _remove_spans(paths.kv_dir, [sha1 for sha1 in orphans if sha1 not in keep], texts, keep)


def import_files(setup: Setup, files: Sequence[str], complain: Callable[[str], None]) -> int:
    """`cli_import.import_files`; how many of the files could not be read."""
    from ds4chat import cli_import

    return sum(report.failed for report in cli_import.import_files(setup, files, complain))


def _row(info: SessionInfo) -> dict[str, object]:
    return msgspec.to_builtins(info)  # type: ignore[no-any-return]


def _print_table(infos: Sequence[SessionInfo]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("ID", no_wrap=True, min_width=8)
    marked = any(info.pinned for info in infos)
    if marked:
        table.add_column("", no_wrap=True, min_width=1)
    table.add_column("Title", overflow="ellipsis", no_wrap=True, ratio=3, min_width=5)
    table.add_column("Model", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("Messages", justify="right", no_wrap=True)
    table.add_column("Tokens", justify="right", no_wrap=True)
    table.add_column("Last used", no_wrap=True, min_width=16)
    for info in infos:
        # Text, because a string's square brackets would be taken for markup.
        cells = (
            info.id,
            *([PINNED if info.pinned else ""] if marked else []),
            " ".join(shown(info.title).split()),
            " ".join(shown(info.model).split()),
            f"{info.messages:,}",
            f"{info.tokens:,}",
            local_time(info.updated),
        )
        table.add_row(*map(Text, cells))
    # Without a terminal there is no width to fit in, and nothing may be cut off.
    Console(width=None if sys.stdout.isatty() else 400, soft_wrap=False).print(table)


def local_time(seconds: float) -> str:
    """A time as the user's clock shows it, "" for one beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def _transcript(session: Session) -> str:
    parts = [f"{session.id}  {session.title}".rstrip()]
    if session.system:
        parts.append(f"system:\n{session.system.strip()}")
    for message in session.path():
        name = speaker(message, "you", session.model or "assistant")
        mark = "" if message.state == "complete" else f" ({message.state})"
        parts.append(f"{name}{mark}:\n{message.text.strip()}")
    return "\n\n".join(parts) + "\n"


def _confirm(infos: Sequence[SessionInfo]) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("Deleting asks first, and there is no terminal to ask on: add -y.")
    listed = ", ".join(f'{info.id} "{info.title}"' for info in infos)
    what = "session" if len(infos) == 1 else f"{len(infos)} sessions"
    return click.confirm(visible(f"Delete {what} {listed} for good?"), err=True)


def _remove_spans(kv_dir: Path, sha1s: Sequence[str], texts: Sequence[str], keep: set[str]) -> None:
    """Delete checkpoints, and those that hold what was said and were never written down. A failure is told and does not
    undo the rest."""
    from ds4chat.checkpoints.store import remove_spans
    from ds4chat.checkpoints.traces import traces

    try:
        names, kept = {bytes.fromhex(sha1) for sha1 in sha1s}, {bytes.fromhex(sha1) for sha1 in keep}
        names |= traces(kv_dir, names, texts, kept)
        if not names:
            return
        remove_spans(kv_dir, names, kept)
        left = [path for path in kv_dir.glob("*/*/*.kv") if bytes.fromhex(path.stem) in names]
        if left:
            what = "One of its checkpoints is" if len(left) == 1 else f"{len(left)} of its checkpoints are"
            click.echo(
                f"ds4chat: {what} in use by a running ds4chat and not deleted: close it, then "
                "delete what belongs to no chat (Alt+K), or all (`ds4chat cache clear`).",
                err=True,
            )
    except (OSError, ValueError, Ds4chatError) as error:
        log.warning("checkpoints of a deleted session stay", exc_info=True)
        reason = getattr(error, "strerror", None) or str(error)
        click.echo(f"ds4chat: Its checkpoints in {kv_dir} could not be deleted ({reason}).", err=True)
