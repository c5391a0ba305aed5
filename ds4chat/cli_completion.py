"""`ds4chat completion` prints a script for the shell, and what completes options and arguments: ids of sessions with
their titles, names of models, themes and settings.

Runs at each press of Tab: it is quick, reads and never writes, and what goes wrong completes nothing. Must not know:
Textual, llama.cpp.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from ds4chat.paths import Paths

COMPLETE_VARIABLE = "_DS4CHAT_COMPLETE"
"""Asks the program for completions instead of a run; the scripts set it."""

SHELLS = ("bash", "zsh", "fish")

HOW = {
    "bash": 'eval "$(ds4chat completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(ds4chat completion zsh)"    # in ~/.zshrc, below compinit',
    "fish": "ds4chat completion fish > ~/.config/fish/completions/ds4chat.fish",
}

MOST = 200
"""Sessions that are offered, the ones used last."""

# Names of models have colons in them, at which bash would otherwise begin another word.
_BASH_COLONS = "\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets the shell complete commands, options, sessions and models."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "ds4chat", COMPLETE_VARIABLE).source()
    click.echo(script + (_BASH_COLONS if shell == "bash" else ""))
    if sys.stdout.isatty():
        click.echo(f"To have it at each start: {HOW[shell]}", err=True)


# ---- sessions ----------------------------------------------------------------------------------------------


def complete_sessions(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Ids with their titles; what is typed may be the beginning of an id or a part of the title."""
    with _quietly():
        given = ctx.params.get(param.name or "")
        named = {str(name) for name in given} if isinstance(given, tuple) else set()
        rows = [row for row in _sessions(_paths(ctx).database) if row[0] not in named]
        found = [row for row in rows if row[0].startswith(incomplete.lower())]
        if not found:
            found = [row for row in rows if incomplete.casefold() in row[1].casefold()]
            # Fish offers only what begins as what was typed.
            if os.environ.get(COMPLETE_VARIABLE, "").startswith("fish"):
                return [CompletionItem(title, help=id_) for id_, title in found if "," not in title]
        return [CompletionItem(id_, help=title or "(no title)") for id_, title in found[:MOST]]
    return []


def _sessions(path: Path) -> list[tuple[str, str]]:
    """Ids and titles, those used last first. The file is read as it is: neither made nor brought up to date."""
    if not path.is_file():
        return []
    import sqlite3
    from urllib.parse import quote

    from ds4chat.safe_text import one_line

    # Without this SQLite leaves two files beside one that nobody has open.
    still = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    uri = f"file:{quote(str(path))}?mode=ro{still}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as db:
        rows = db.execute("SELECT id, title FROM sessions WHERE trashed = 0 ORDER BY updated DESC").fetchall()
    return [(str(id_), one_line(str(title))) for id_, title in rows]


# ---- models, themes, settings ------------------------------------------------------------------------------


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of models with their places; a path is left to the shell."""
    if incomplete.startswith(("/", ".", "~")):
        return [CompletionItem(incomplete, type="file")]
    with _quietly():
        from ds4chat import paths
        from ds4chat.config import load_config, model_folders
        from ds4chat.errors import Ds4chatError
        from ds4chat.model_places import find_models
        from ds4chat.safe_text import one_line

        where, folders = _paths(ctx), []
        with contextlib.suppress(Ds4chatError):
            folders = model_folders(load_config(where.config_file), where)
        found = find_models(where.models_dir, paths.starter_model(), folders=folders)
        wanted = incomplete.casefold()
        names = {
            one_line(item.title): item.place for item in found if item.title.casefold().startswith(wanted)
        }
        return [CompletionItem(name, help=place) for name, place in names.items()]
    return []


def complete_engines(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of engines of config.toml, with where they are."""
    with _quietly():
        from ds4chat.engine_settings import LOCAL, load_engines

        places = {engine.name: engine.url or engine.ssh for engine in load_engines(_paths(ctx).config_file)}
        names = {LOCAL: "this machine's own"} | places
        return [
            CompletionItem(name, help=place) for name, place in names.items() if name.startswith(incomplete)
        ]
    return []


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Files, which the shell itself lists."""
    return [CompletionItem(incomplete, type="file")]


def complete_themes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of the themes that are shipped and of the user's own."""
    with _quietly():
        from ds4chat import paths
        from ds4chat.safe_text import one_line

        folders = {"ds4chat": paths.shipped("themes"), "your own": _paths(ctx).config_dir / "themes"}
        names = {
            one_line(name): place
            for place, folder in folders.items()
            for name in map(_theme_name, sorted(folder.glob("*.toml"))[:MOST])
            if name.casefold().startswith(incomplete.casefold())
        }
        return [CompletionItem(name, help=place) for name, place in sorted(names.items())]
    return []


def _theme_name(path: Path) -> str:
    from ds4chat.files import read_limited
    from ds4chat.toml_text import parse_toml

    try:
        name = parse_toml(read_limited(path, 200_000).decode("utf-8-sig")).get("name")
    except (OSError, ValueError):
        name = None
    return name if isinstance(name, str) else path.stem


def complete_settings(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Keys of config.toml, with what they may be."""
    with _quietly():
        from ds4chat.config import allowed_values

        keys = {at.removeprefix("$."): what for at, what in allowed_values().items() if at.count(".") == 2}
        return [
            CompletionItem(key, help=what)
            for key, what in keys.items()
            if key.startswith(incomplete.lower()) and "[" not in key
        ]
    return []


# ---- what all need -----------------------------------------------------------------------------------------


def _quietly() -> contextlib.suppress:
    """A traceback between two words of a command line helps nobody."""
    return contextlib.suppress(Exception)


def _paths(ctx: click.Context) -> Paths:
    """The paths of this command line: of the command's own `--data-dir`, or that of `ds4chat`."""
    from ds4chat import paths

    chosen: str | None = None
    at: click.Context | None = ctx
    while at is not None and not chosen:
        chosen, at = at.params.get("data_dir"), at.parent
    return paths.resolve(data_dir=chosen)
