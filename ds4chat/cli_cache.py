"""The commands on checkpoints: `cache ls`, `stats`, `verify`, `prune`, `clear`, `pin`, `unpin`, `path`.

They work on the files alone, with no model loaded and no engine. Imports wait until a command runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ds4chat.cli_completion import complete_sessions
from ds4chat.errors import Ds4chatError, UsageError

if TYPE_CHECKING:
    from ds4chat.cli_setup import Setup
    from ds4chat.sessions.session import SessionInfo

Command = TypeVar("Command", bound=Callable[..., Any])

MB = 10**6


def _common(command: Command) -> Command:
    for option in (
        click.option(
            "--kv-disk-dir", "--kv-dir", "kv_dir", metavar="DIR", help="Where checkpoints are kept."
        ),
        click.option("--data-dir", metavar="DIR", help="Where sessions are kept."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    ):
        command = option(command)
    return click.pass_obj(command)  # type: ignore[return-value]


def _setup(flags: dict[str, Any], data_dir: str | None, kv_dir: str | None) -> Setup:
    from ds4chat.cli_setup import Setup

    return Setup.from_flags(
        {**flags, "data_dir": data_dir or flags["data_dir"], "kv_dir": kv_dir or flags["kv_dir"]}
    )


@click.group("cache")
def cache() -> None:
    """Look at the checkpoints on disk, and tidy them up."""


# ---- ls ----------------------------------------------------------------------------------------------------


@cache.command("ls")
@_common
def list_command(flags: dict[str, Any], as_json: bool, data_dir: str | None, kv_dir: str | None) -> None:
    """List what each session has on disk, and whether the model it would use now can use it."""
    from ds4chat import cache_report
    from ds4chat.checkpoints.inventory import take_stock

    setup = _setup(flags, data_dir, kv_dir)
    with setup.database() as database:
        rows = cache_report.rows(setup, flags["model"], database, take_stock(setup.paths.kv_dir))
    if as_json:
        _print_json(rows)
        return
    if not rows:
        click.echo(f"There are no checkpoints in {setup.paths.kv_dir} yet.", err=True)
        return
    columns = [
        ("Session", 8),
        ("Title", 0),
        (">Tokens", 6),
        (">MB", 3),
        ("Last used", 16),
        ("Pinned", 6),
        ("Reusable", 0),
    ]
    cells = [
        (
            row["session"] or "",
            row["title"],
            f"{row['tokens']:,}",
            _mb(row["bytes"]),
            _local(row["last_used"]),
            "yes" if row["pinned"] else "",
            f"{row['reusable_tokens']:,} tokens" if row["reusable"] else row["reason"],
        )
        for row in rows
    ]
    _print_table(columns, cells)


# ---- stats -------------------------------------------------------------------------------------------------


@cache.command("stats")
@_common
def stats_command(flags: dict[str, Any], as_json: bool, data_dir: str | None, kv_dir: str | None) -> None:
    """Sum up what is on disk: by model, by reason, and against the budget."""
    from ds4chat import cache_report
    from ds4chat.checkpoints.inventory import take_stock

    setup = _setup(flags, data_dir, kv_dir)
    stats = cache_report.stats(setup, take_stock(setup.paths.kv_dir))
    if as_json:
        _print_json(stats)
        return
    budget = f"{_mb(stats['budget_bytes'])} MB" if stats["budget_bytes"] else "no limit"
    click.echo(
        f"{setup.paths.kv_dir}: {stats['files']:,} files, {_mb(stats['bytes'])} MB (budget: {budget}), "
        f"{stats['hits']:,} hits, {stats['pinned']:,} pins; {stats['unusable_files']:,} files "
        f"({_mb(stats['unusable_bytes'])} MB) cannot be used."
    )
    numbers = [(">Files", 5), (">Tokens", 6), (">MB", 3), (">Hits", 4)]
    for title, key in (("Model", "variants"), ("Reason", "reasons")):
        if stats[key]:
            click.echo()
            head = [(title, 0), *([("Variant", 16), ("KV type", 7)] if key == "variants" else []), *numbers]
            _print_table(head, [_stats_cells(row) for row in stats[key]])


def _stats_cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = (
        (row["reason"],)
        if "reason" in row
        else (row["model"] or row["family"], row["variant"], row["kv_type"])
    )
    return (*name, f"{row['files']:,}", f"{row['tokens']:,}", _mb(row["bytes"]), f"{row['hits']:,}")


# ---- verify, prune, clear ----------------------------------------------------------------------------------


@cache.command("verify")
@click.option("--delete", is_flag=True, help="Delete what is damaged, and what continues it.")
@_common
def verify_command(
    flags: dict[str, Any], delete: bool, as_json: bool, data_dir: str | None, kv_dir: str | None
) -> int:
    """Read all files and check them: sums, names, chains. Exit code 1 when a damaged one stays."""
    from ds4chat.checkpoints.inventory import delete_faults, verify

    root = _setup(flags, data_dir, kv_dir).paths.kv_dir
    verdict = verify(root)
    with _disk(root):
        gone = set(delete_faults(root, verdict.faults)) if delete and verdict.faults else set()
    if as_json:
        faults = [
            {"path": str(f.path), "reason": f.reason, "bytes": f.nbytes, "deleted": f.path in gone}
            for f in verdict.faults
        ]
        _print_json({"files": verdict.files, "bytes": verdict.nbytes, "faults": faults})
    else:
        if verdict.faults:
            cells = [(str(f.path.relative_to(root)), _mb(f.nbytes), f.reason) for f in verdict.faults]
            _print_table([("File", 0), (">MB", 3), ("Fault", 0)], cells)
        deleted = f" {len(gone):,} were deleted." if delete and verdict.faults else ""
        click.echo(
            f"{verdict.files:,} files ({_mb(verdict.nbytes)} MB) were read, {len(verdict.faults):,} cannot be used."
            f"{deleted}"
        )
    return 1 if len(gone) < len(verdict.faults) else 0


@cache.command("prune")
@click.option("--to", "to_mb", type=click.IntRange(min=0), metavar="MB", help="Instead of the budget.")
@_common
def prune_command(
    flags: dict[str, Any], to_mb: int | None, as_json: bool, data_dir: str | None, kv_dir: str | None
) -> None:
    """Delete what is worth least until the rest fits the budget; what cannot be used goes first."""
    from ds4chat import cache_report
    from ds4chat.checkpoints.directory import Directory
    from ds4chat.checkpoints.inventory import prune

    setup = _setup(flags, data_dir, kv_dir)
    root = setup.paths.kv_dir
    budget = cache_report.budget(setup) if to_mb is None else to_mb * MB
    if to_mb is None and budget == 0:
        raise UsageError(
            "There is no budget to prune to (--kv-disk-space-mb is 0): say how many MB with --to."
        )
    with _disk(root):
        gone, nbytes = prune(root, budget, time.time(), setup.config.kv.hit_half_life_seconds)
    _tell(as_json, len(gone), nbytes, Directory(root).total_bytes(), budget)


@cache.command("clear")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_common
def clear_command(
    flags: dict[str, Any], yes: bool, as_json: bool, data_dir: str | None, kv_dir: str | None
) -> None:
    """Delete all checkpoints, pinned ones too. Sessions stay; their past is computed again when needed."""
    from ds4chat.checkpoints.directory import Directory
    from ds4chat.checkpoints.inventory import clear

    root = _setup(flags, data_dir, kv_dir).paths.kv_dir
    before = Directory(root).total_bytes()
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Clearing asks first, and there is no terminal to ask on: add -y.")
        if not click.confirm(f"Delete all checkpoints in {root} ({_mb(before)} MB)?", err=True):
            click.echo("Nothing was deleted.", err=True)
            raise click.exceptions.Exit(1)
    with _disk(root):
        gone, stay = clear(root)
    left = Directory(root).total_bytes()
    _tell(as_json, len(gone), before - left, left)
    if stay and not as_json:
        click.echo(f"ds4chat: {stay:,} of them stay: a running ds4chat stands on them.", err=True)


def _tell(as_json: bool, files: int, nbytes: int, left: int, budget: int | None = None) -> None:
    if as_json:
        _print_json({"deleted_files": files, "deleted_bytes": nbytes, "bytes": left})
        return
    click.echo(
        f"Deleted {files:,} file{'' if files == 1 else 's'} ({_mb(nbytes)} MB); {_mb(left)} MB are left."
    )
    if budget is not None and left > budget:
        click.echo("ds4chat: What is left is pinned, or a running ds4chat stands on it.", err=True)


# ---- pin, unpin, path --------------------------------------------------------------------------------------


@cache.command("pin")
@click.argument("session", metavar="ID", shell_complete=complete_sessions)
@_common
def pin_command(
    flags: dict[str, Any], session: str, as_json: bool, data_dir: str | None, kv_dir: str | None
) -> None:
    """Keep a session's checkpoints, and those it adds to them, whatever space is needed."""
    from ds4chat.checkpoints.inventory import take_stock
    from ds4chat.checkpoints.pins import pin

    setup = _setup(flags, data_dir, kv_dir)
    root = setup.paths.kv_dir
    info, names = _names(setup, session)
    stocks = take_stock(root)
    here = [{name for name in names if name in stock.spans} for stock in stocks]
    leaves = {
        name
        for stock, present in zip(stocks, here, strict=True)
        for name in present - {stock.spans[child].parent for child in present}
    }
    if not leaves:
        raise UsageError(f"Session {info.id} has no checkpoints on disk: open it once, then pin it.")
    with _disk(root):
        pin(root, leaves)
    _tell_pins(info, len(set().union(*here)), as_json, pinned=True)


@cache.command("unpin")
@click.argument("session", metavar="ID", shell_complete=complete_sessions)
@_common
def unpin_command(
    flags: dict[str, Any], session: str, as_json: bool, data_dir: str | None, kv_dir: str | None
) -> None:
    """Let a session's checkpoints go again when space is needed."""
    from ds4chat.checkpoints.pins import unpin

    setup = _setup(flags, data_dir, kv_dir)
    info, names = _names(setup, session)
    with _disk(setup.paths.kv_dir):
        unpin(setup.paths.kv_dir, names)
    _tell_pins(info, 0, as_json, pinned=False)


@cache.command("path")
@_common
def path_command(flags: dict[str, Any], as_json: bool, data_dir: str | None, kv_dir: str | None) -> None:
    """Print where checkpoints are kept."""
    root = _setup(flags, data_dir, kv_dir).paths.kv_dir
    if as_json:
        _print_json({"path": str(root), "exists": root.is_dir()})
    else:
        click.echo(root)


def _names(setup: Setup, session: str) -> tuple[SessionInfo, set[bytes]]:
    with setup.database() as database:
        info = database.info(database.resolve(session))
        return info, {bytes.fromhex(span.sha1) for span in database.spans_of(info.id)}


def _tell_pins(info: SessionInfo, spans: int, as_json: bool, *, pinned: bool) -> None:
    from ds4chat.printing import shown

    if as_json:
        _print_json({"session": info.id, "title": info.title, "pinned": pinned, "checkpoints": spans})
    elif pinned:
        click.echo(shown(f"Pinned {info.id}  {info.title} ({spans:,} checkpoints)"))
    else:
        click.echo(shown(f"Unpinned {info.id}  {info.title}"))


# ---- printing ----------------------------------------------------------------------------------------------


@contextmanager
def _disk(root: Path) -> Iterator[None]:
    """Failures of the disk as a sentence for the user."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "another ds4chat keeps it busy"
        raise Ds4chatError(
            f"The checkpoints in {root} cannot be changed ({reason}): see to it and try again."
        ) from error


def _print_json(value: object) -> None:
    from ds4chat.printing import dump_json

    click.echo(dump_json(value, sys.stdout, indent=2))


def _print_table(columns: list[tuple[str, int]], rows: Sequence[tuple[str, ...]]) -> None:
    """`columns` are titles, a ">" before those of numbers, and least widths (0: may be cut off)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ds4chat.printing import shown

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, least in columns:
        table.add_column(
            title.lstrip(">"),
            justify="right" if title.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=least or 5,
            ratio=None if least else 1,
        )
    for row in rows:
        # Text, because a string's square brackets would be taken for markup.
        table.add_row(*(Text(" ".join(shown(cell).split())) for cell in row))
    Console(width=None if sys.stdout.isatty() else 400, soft_wrap=False).print(table)


def _mb(nbytes: int) -> str:
    return f"{nbytes / MB:,.1f}"


def _local(seconds: int) -> str:
    from ds4chat.cli_sessions import local_time

    return local_time(seconds) if seconds else ""
