"""The commands on config.toml: `config path`, `show`, `init`, `edit` and `check`. Imports wait until a command runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ds4chat.cli_completion import complete_settings
from ds4chat.errors import Ds4chatError, UsageError

ABOUT = {
    "model.path": "The model of new chats: the path of a GGUF file, or a name that `ds4chat models` lists.",
    "model.ctx": "Context length in tokens. Left out: the model's own, at most 16,384 and a quarter of the memory.",
    "model.threads": "Threads for prompts. Left out: all cores.",
    "model.gpu_layers": "Layers on the GPU. Left out: all that fit.",
    "model.kv_type": "Type of the KV cache. Smaller ones need less memory and less disk, and are less exact.",
    "model.flash_attention": "false: without flash attention, for models and GPUs that cannot have it.",
    "model.folders": "Further folders where models lie. Relative ones begin at the folder of this file.",
    "sampling.temperature": "0 always takes the likeliest token. What is left out here depends on the model.",
    "sampling.top_p": "Sample from the likeliest tokens that add up to this.",
    "sampling.top_k": "Sample from so many of the likeliest tokens; 0: from all.",
    "sampling.min_p": "Drop tokens below so many times the likeliest.",
    "sampling.repeat_penalty": "1 means none.",
    "sampling.seed": "Makes sampling repeatable. Left out: drawn for each reply.",
    "sampling.max_tokens": "At which a reply ends. Left out: at the end of the context.",
    "chat.system": "System prompt of new chats.",
    "chat.persona": "Persona of new chats; its system prompt wins over `system`.",
    "chat.bell": "true: ring the terminal's bell when a reply has ended and nobody looks.",
    "chat.theme": "How the screen looks; `ds4chat themes` lists them.",
    "kv.enabled": "false: neither store nor read checkpoints.",
    "kv.dir": "Where checkpoints are kept. Empty: in the cache folder of the platform.",
    "kv.space_mb": "Most space for all checkpoints. Left out: a tenth of the free disk, at most 32,000.",
    "kv.min_tokens": "Shortest first prompt that is stored before generation.",
    "kv.cold_max_tokens": "How far into a first prompt spans count as its beginning.",
    "kv.continued_interval_tokens": "Distance of spans.",
    "kv.boundary_trim_tokens": "Tokens kept off the end of a first prompt.",
    "kv.boundary_align_tokens": "What ends of spans in a first prompt are multiples of.",
    "kv.hit_half_life_seconds": "After so long a use of a checkpoint counts half.",
    "kv.accept_different_quant": "true: also use checkpoints that another quantization of the model computed.",
    "tools.enabled": "true: models may call tools in chats that do not say otherwise. Each call is asked for.",
    "tools.builtin": "Tools that are built in: read_file, time, calculator.",
    "tools.folders": "Folders that read_file may read in. Relative ones begin at the folder of this file.",
    "tools.seconds": "A call may take so long.",
    "keys.preset": "`default` or `vim`. Below it, keys by the id of an action; docs/keys.md has them all.",
}
"""What stands above a key in a new file."""

EXAMPLES: dict[str, object] = {
    "model.path": "~/models/some-model-q4_k_m.gguf",
    "model.ctx": 8192,
    "model.threads": 4,
    "model.gpu_layers": -1,
    "model.folders": ["~/models"],
    "sampling.temperature": 0.8,
    "sampling.top_p": 0.95,
    "sampling.top_k": 40,
    "sampling.min_p": 0.05,
    "sampling.repeat_penalty": 1.0,
    "sampling.seed": 42,
    "sampling.max_tokens": 1000,
    "chat.system": "Answer in one sentence.",
    "chat.persona": "Teacher",
    "chat.theme": "harbor",
    "kv.dir": "~/ds4chat-kv",
    "kv.space_mb": 10_000,
    "keys.preset": "default",
    "tools.builtin": ["time", "calculator"],
    "tools.folders": ["~/notes"],
}
"""Values to begin with, for keys whose default is to be left out."""

HEAD = """\
# Settings of ds4chat. A line that begins with "# " and a key is switched off. It shows the default, or an example where
# the default is to leave the key out. A flag wins over a variable such as DS4CHAT_SAMPLING_TEMPERATURE, and that over
# this file. `ds4chat config check` looks for faults in it, `ds4chat config show` tells what is in use.
"""


@click.group("config")
def config() -> None:
    """Look at the settings, and change and check config.toml."""


@config.command("path")
def path_command() -> None:
    """Print the path of config.toml, whether it is there or not."""
    click.echo(str(_file()))


def _file() -> Path:
    from ds4chat import paths

    return paths.resolve().config_file


# ---- show --------------------------------------------------------------------------------------------------


@config.command("show")
@click.argument("key", required=False, shell_complete=complete_settings)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_obj
def show_command(flags: dict[str, Any], key: str | None, as_json: bool) -> None:
    """Print the settings in use, or those of a section or one KEY, and where each is from."""
    from ds4chat.cli_setup import Setup
    from ds4chat.config import allowed_values
    from ds4chat.config_environment import variable
    from ds4chat.desk import FileDesk
    from ds4chat.engine_settings import load_engines
    from ds4chat.key_settings import load_key_settings
    from ds4chat.printing import dump_json, shown
    from ds4chat.ui.desk import ConfigRow

    rows = FileDesk(Setup.from_flags(flags), flags).config_rows()
    keys = load_key_settings(_file()).keys
    rows += [ConfigRow("keys", id, text, "config.toml", "names of keys") for id, text in keys.items()]
    rows += [
        ConfigRow(
            "engine", e.name, e.url or e.ssh or " ".join(e.command), "config.toml", "see docs/engines.md"
        )
        for e in load_engines(_file())
    ]
    if key is not None:
        wanted = key.strip().strip("[]").lower()
        rows = [row for row in rows if wanted in (row.section, f"{row.section}.{row.key}", row.key)]
        if not rows:
            raise UsageError(
                f'There is no setting "{key}": give a key such as sampling.top_k, or {allowed_values()["$"]}.'
            )
    if as_json:
        listed = [
            {
                "key": f"{row.section}.{row.key}",
                "value": row.value,
                "source": row.source,
                "variable": variable(row.section, row.key) if "." not in row.key else "",
                "allowed": row.allowed,
            }
            for row in rows
        ]
        click.echo(dump_json(listed, sys.stdout, indent=2))
        return
    names = [f"{row.section}.{row.key}" for row in rows]
    values = [" ".join(shown(row.value).split()) or "-" for row in rows]
    if key is None and sys.stdout.isatty():
        values = [value if len(value) <= 60 else f"{value[:59]}…" for value in values]
    for name, value, row in zip(names, values, rows, strict=True):
        click.echo(f"{name:<{max(map(len, names))}}  {value:<{max(map(len, values))}}  {row.source}")


# ---- init, edit --------------------------------------------------------------------------------------------


@config.command("init")
def init_command() -> None:
    """Write a config.toml in which every setting is explained and switched off; one that is there stays."""
    path = _file()
    if not _write_new(path):
        raise UsageError(f"{path} is there already: edit it, or move it away first.")
    click.echo(str(path))


def _write_new(path: Path) -> bool:
    """Whether there was no file; then there is one now. Raises Ds4chatError."""
    from ds4chat.files import write_private

    if os.path.lexists(path):
        return False
    try:
        write_private(path, default_text())
    except OSError as error:
        raise Ds4chatError(
            f"{path} cannot be written ({error.strerror or error}): see to its folder."
        ) from error
    return True


def default_text() -> str:
    """A config.toml that changes nothing, with every key, what it does, and what it may be."""
    import msgspec
    import tomli_w

    from ds4chat.config import Config, allowed_values

    allowed = allowed_values()
    lines = [HEAD]
    for section in Config.__struct_fields__:
        lines.append(f"[{section}]")
        for key, default in msgspec.structs.asdict(getattr(Config(), section)).items():
            name = f"{section}.{key}"
            value = EXAMPLES.get(name, default)
            lines.append(f"# {ABOUT[name]} ({allowed[f'$.{name}']})")
            lines.append("".join(f"# {line}\n" for line in tomli_w.dumps({key: value}).splitlines()))
    return "\n".join(lines)


@config.command("edit")
@click.pass_context
def edit_command(ctx: click.Context) -> int:
    """Open config.toml in your editor ($VISUAL or $EDITOR) and check it afterwards; what you wrote stays."""
    from ds4chat.files import users_umask
    from ds4chat.ui.editor import find_editor, keys_are_the_editors

    path = _file()
    command = find_editor(os.environ)
    _write_new(path)
    sys.stdout.flush()
    with keys_are_the_editors():
        try:
            code = subprocess.call([*command, str(path)], umask=users_umask())
        except OSError as error:
            raise UsageError(f"The editor {command[0]} cannot be started ({error.strerror}).") from error
    if code:
        click.echo(f"ds4chat: The editor ended with {code}.", err=True)
    checked: int = ctx.invoke(check_command)
    return checked or (1 if code else 0)


# ---- check -------------------------------------------------------------------------------------------------


@config.command("check")
def check_command() -> int:
    """Read config.toml and the variables, and say all that is wrong, with what is allowed. Exit code 2 then."""
    from ds4chat.cli import complain

    path = _file()
    found = faults(path)
    for fault in found:
        complain(fault)
    if found:
        return UsageError.exit_code
    click.echo(
        f"{path}: nothing wrong with it" if path.exists() else f"{path}: not there, so the defaults hold"
    )
    return 0


def faults(path: Path) -> list[str]:
    """A sentence for each thing that is wrong with the settings: those of the file, then those of the environment."""
    from ds4chat import config_environment
    from ds4chat.config import read_tree

    try:
        _, tree = read_tree(path)
    except UsageError as error:
        return [str(error)]
    found = [f"The configuration {path} has a fault: {fault}." for fault in _faults_of(tree)]
    found += config_environment.faults()
    return found or _deeper_faults(path)


def _faults_of(tree: dict[str, Any]) -> list[str]:
    """Each key by itself, since reading all at once ends at the first fault."""
    import typing

    import msgspec

    from ds4chat.config import LISTS, Config, allowed_values
    from ds4chat.engine_settings import engine_faults
    from ds4chat.tool_settings import server_fault
    from ds4chat.validation import explain

    allowed, found = allowed_values(), []
    structs = typing.get_type_hints(Config)
    if fault := server_fault(tree):
        found.append(fault)
    found += engine_faults(tree)
    for section, table in tree.items():
        if section in LISTS:
            continue
        keys = table if section in structs and isinstance(table, dict) else {None: table}
        for key, value in keys.items():
            part = {section: value if key is None else {key: value}}
            try:
                msgspec.convert(part, Config)
            except msgspec.ValidationError as error:
                found.append(explain(error, allowed))
            except RecursionError:
                found.append(f"{section} is nested too deeply")
    return found


def _deeper_faults(path: Path) -> list[str]:
    """What only those who use a setting can tell: of keys, theme, persona and model."""
    from ds4chat import paths
    from ds4chat.cli_setup import resolve_paths
    from ds4chat.config import choose_model, load_config
    from ds4chat.key_settings import load_key_settings
    from ds4chat.personas import find
    from ds4chat.ui.keymap import resolve

    config, found = load_config(path), []

    @contextlib.contextmanager
    def told(what: str = "") -> Iterator[None]:
        try:
            yield
        except Ds4chatError as error:
            found.append(f"The configuration {path} has a fault: {what}: {error}" if what else str(error))

    with told():
        resolve(load_key_settings(path))
    if config.chat.persona:
        with told("chat.persona"):
            find(path.parent / "personas", config.chat.persona)
    if config.chat.theme:
        with told("chat.theme"):
            _check_theme(path, config.chat.theme)
    if config.model.path:
        with told():
            choose_model(None, "", config, resolve_paths(None, None, config), starter=paths.starter_model())
    return found


def _check_theme(path: Path, name: str) -> None:
    """Raises UsageError when there is no such theme."""
    from textual.theme import BUILTIN_THEMES

    from ds4chat.ui.themes import ThemeShelf, theme_directories
    from ds4chat.validation import short

    shelf = ThemeShelf(theme_directories(path.parent))
    shelf.reload()
    if name not in shelf.themes and name not in BUILTIN_THEMES:
        raise UsageError(f'There is no theme "{short(name)}": `ds4chat themes` lists them.')
