"""The command `search`: messages of all sessions that have the words of a query. It needs neither model nor engine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ds4chat.errors import UsageError

if TYPE_CHECKING:
    from ds4chat.paths import Paths
    from ds4chat.sessions.search import SearchHit


@click.command("search")
@click.argument("query", metavar="QUERY...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, metavar="N", help="Most to list; 100 by default."
)
@click.option("--data-dir", metavar="DIR", help="Where sessions are kept.")
@click.pass_obj
def search(
    flags: dict[str, Any], query: tuple[str, ...], as_json: bool, limit: int, data_dir: str | None
) -> None:
    """Find messages with all words of QUERY, in their text or as beginnings of words; "..." is found as it is."""
    from ds4chat.cli_setup import resolve_paths

    words = " ".join(query)
    if not words.strip():
        raise UsageError("The query is blank: give a word to look for.")
    _print(resolve_paths(data_dir or flags["data_dir"], flags["kv_dir"]), words, limit, as_json=as_json)


def _print(paths: Paths, query: str, limit: int, *, as_json: bool) -> None:
    """The hits, newest first: below the title of their session, or as JSON."""
    from ds4chat.sessions.database import Database

    with Database(paths.database) as database:
        hits = database.search(query, limit)
    if as_json:
        import msgspec

        from ds4chat.printing import dump_json

        click.echo(dump_json(msgspec.to_builtins(hits), sys.stdout, indent=2))
        return
    if not hits:
        click.echo("No message has all of these words.", err=True)
    sessions: dict[str, list[SearchHit]] = {}
    for hit in hits:
        sessions.setdefault(hit.session_id, []).append(hit)
    styled = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for i, (session_id, found) in enumerate(sessions.items()):
        archived = " (archived)" if found[0].archived else ""
        click.echo("\n" * (i > 0) + f"{session_id}  {_clean(found[0].title)}{archived}")
        for hit in found:
            who = {"user": "you", "tool": "tool"}.get(hit.role, "reply")
            click.echo(f"  {who}: {_line(hit, styled)}")


def _line(hit: SearchHit, styled: bool) -> str:
    """The hit's line; on a terminal with what was found in bold and underlined."""
    parts, at = list[str](), 0
    for start, end in hit.marks:
        found = _clean(hit.line[start:end])
        parts += [
            _clean(hit.line[at:start]),
            click.style(found, bold=True, underline=True) if styled else found,
        ]
        at = end
    return "".join([*parts, _clean(hit.line[at:])])


def _clean(text: str) -> str:
    from ds4chat.printing import visible

    return visible(text)
