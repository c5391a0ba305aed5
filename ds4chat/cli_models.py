"""The commands on models: `models` lists them, `info` tells what one is, `use` makes one the default, `pull` gets one.

They work on files alone; no model is loaded, and only `pull` uses the network. Imports wait until a command runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ds4chat.cli_completion import complete_models
from ds4chat.errors import UsageError

if TYPE_CHECKING:
    from ds4chat.cli_setup import Setup
    from ds4chat.gguf_file import Value
    from ds4chat.models.listing import Entry

Command = TypeVar("Command", bound=Callable[..., Any])

TEMPLATE_LINES = 12
"""Of a chat template that `info` prints."""


def _data_dir(command: Command) -> Command:
    option = click.option("--data-dir", metavar="DIR", help="Whose folder `models` is meant.")
    return click.pass_obj(option(command))  # type: ignore[return-value]


def _setup(flags: dict[str, Any], data_dir: str | None) -> Setup:
    from ds4chat.cli_setup import Setup

    return Setup.from_flags({**flags, "data_dir": data_dir or flags["data_dir"]})


@click.group("models", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@_data_dir
@click.pass_context
def models(ctx: click.Context, /, flags: dict[str, Any], as_json: bool, data_dir: str | None) -> None:
    """List the models on this machine, or look at one, choose one, get one."""
    if ctx.invoked_subcommand is None:
        _list(_setup(flags, data_dir), flags["model"], as_json=as_json)
    elif data_dir:
        flags["data_dir"] = data_dir


# ---- the list ----------------------------------------------------------------------------------------------


def _list(setup: Setup, flag: str | None, *, as_json: bool) -> None:
    from ds4chat.models.listing import known_models, look

    found, current = known_models(setup.config, setup.paths, flag)
    entries = [look(item, setup.config, current) for item in found]
    entries = [entry for entry in entries if not entry.is_projector]
    if as_json:
        _print_json([_row(entry) for entry in entries])
    elif not entries:
        click.echo(
            f"There are no models yet: put a GGUF file into {setup.paths.models_dir}, or get one with "
            "`ds4chat models pull hf:ORG/REPO`.",
            err=True,
        )
    else:
        _print_table(entries)
        if sys.stdout.isatty() and any(entry.current for entry in entries):
            click.echo("* in use by new chats", err=True)


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.found.title,
        "path": str(entry.found.path),
        "place": entry.found.place,
        "current": entry.current,
        "architecture": entry.contents.kind,
        "quantization": entry.header.quantization,
        "parameters": entry.contents.parameters,
        "context": entry.header.context,
        "size_bytes": entry.size_bytes,
        "memory_bytes": entry.memory_bytes,
        "memory_context": entry.n_ctx,
        "chat_template": bool(entry.template),
        "files": [str(path) for path in entry.found.files],
        "fault": entry.fault.what if entry.fault else "",
    }


def _print_table(entries: list[Entry]) -> None:
    from rich.cells import cell_len

    from ds4chat.models.listing import amount, size_words
    from ds4chat.printing import shown

    head = ("", "Name", "Quant", ">Params", ">Context", ">Size", ">Memory", "Template", "Place")
    rows = []
    for entry in entries:
        fault = f"{entry.found.place}: {entry.fault.what}" if entry.fault else entry.found.place
        rows.append(
            (
                "*" if entry.current else "✗" if entry.fault else "",
                entry.found.title,
                entry.header.quantization,
                amount(entry.contents.parameters),
                f"{entry.header.context:,}" if entry.header.context else "",
                size_words(entry.size_bytes) if entry.size_bytes else "",
                size_words(entry.memory_bytes) if entry.memory_bytes else "",
                "yes" if entry.template else "no" if entry.contents.values else "",
                fault,
            )
        )
    cells = [
        [" ".join(shown(cell).split()) for cell in row] for row in [tuple(t.lstrip(">") for t in head), *rows]
    ]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        padded = [
            " " * (width - cell_len(cell)) + cell
            if title.startswith(">")
            else cell + " " * (width - cell_len(cell))
            for title, cell, width in zip(head, row, widths, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _print_json(value: object) -> None:
    from ds4chat.printing import dump_json

    click.echo(dump_json(value, sys.stdout, indent=2))


# ---- info --------------------------------------------------------------------------------------------------


@models.command("info")
@click.argument("model", metavar="NAME|PATH", shell_complete=complete_models)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@_data_dir
def info_command(flags: dict[str, Any], model: str, as_json: bool, data_dir: str | None) -> int:
    """Print what a model's file says of it: architecture, layers, heads, vocabulary, template, licence, tensors."""
    setup = _setup(flags, data_dir)
    entry = _entry(setup, flags, model)
    if not entry.contents.values and entry.fault is not None:
        raise UsageError(f"{entry.found.path} {entry.fault.what}: {entry.fault.way_out}.")
    if as_json:
        _print_json({**_row(entry), **_more(entry)})
    else:
        _print_info(entry)
    return 0


def _entry(setup: Setup, flags: dict[str, Any], name: str) -> Entry:
    from ds4chat.models.listing import find_one, known_models, look

    found, current = known_models(setup.config, setup.paths, flags["model"])
    return look(find_one(name, found), setup.config, current)


def _more(entry: Entry) -> dict[str, Any]:
    from ds4chat.models.listing import tensor_types

    values, kind = entry.contents.values, entry.contents.kind

    def number(name: str) -> int | list[int] | None:
        value = values.get(f"{kind}.{name}")
        return value if isinstance(value, int | list) else None

    def text(*names: str) -> str:
        return next(
            (str(v) for name in names if isinstance(v := values.get(f"general.{name}"), str) and v), ""
        )

    return {
        "title": text("name"),
        "organization": text("organization", "author"),
        "license": text("license"),
        "license_link": text("license.link"),
        "source": text("source.url", "url", "source.huggingface.repository"),
        "layers": number("block_count"),
        "embedding": number("embedding_length"),
        "heads": number("attention.head_count"),
        "kv_heads": number("attention.head_count_kv"),
        "feed_forward": number("feed_forward_length"),
        "experts": number("expert_count"),
        "experts_used": number("expert_used_count"),
        "sliding_window": number("attention.sliding_window"),
        "vocabulary": entry.contents.vocabulary,
        "tokenizer": " ".join(
            str(values[key]) for key in ("tokenizer.ggml.model", "tokenizer.ggml.pre") if values.get(key)
        ),
        "tensors": tensor_types(entry.contents),
        "kv_bytes_per_token": entry.need.per_token if entry.need else 0,
        "template": entry.template,
    }


def _print_info(entry: Entry) -> None:
    from ds4chat.models.listing import amount, size_words
    from ds4chat.printing import visible

    more, row = _more(entry), _row(entry)
    experts = (
        f", {more['experts']} experts of which {more['experts_used']} compute" if more["experts"] else ""
    )
    lines: list[tuple[str, str]] = [
        ("Name", row["name"] + (f" ({more['title']})" if more["title"] else "")),
        ("By", more["organization"]),
        ("Licence", " ".join(filter(None, (more["license"], more["license_link"])))),
        ("From", more["source"]),
        ("Architecture", row["architecture"] + experts),
        ("Parameters", amount(row["parameters"])),
        ("Quantization", row["quantization"]),
        ("Layers", _numbers(more["layers"])),
        ("Width", _numbers(more["embedding"])),
        (
            "Heads",
            _numbers(more["heads"]) + (f", of KV {_numbers(more['kv_heads'])}" if more["kv_heads"] else ""),
        ),
        ("Feed-forward", _numbers(more["feed_forward"])),
        ("Context", f"{row['context']:,} tokens" if row["context"] else ""),
        ("Window", f"{_numbers(more['sliding_window'])} tokens" if more["sliding_window"] else ""),
        ("Vocabulary", f"{more['vocabulary']:,} tokens ({more['tokenizer']})" if more["vocabulary"] else ""),
        ("Tensors", ", ".join(f"{count} {name}" for name, count in more["tensors"].items())),
        ("Memory", _memory(entry)),
        ("In use", "by new chats" if entry.current else ""),
        ("Place", row["place"]),
    ]
    for path in entry.found.files:
        size = size_words(path.stat().st_size) if path.is_file() else "not there"
        lines.append(("File", f"{path}  {size}"))
    width = max(len(title) for title, text in lines if text)
    for title, text in lines:
        if text:
            click.echo(visible(f"{title:<{width}}  {' '.join(text.split())}"))
    template = more["template"].splitlines()
    if not template:
        click.echo(f"{'Template':<{width}}  none: chats are written as ChatML")
    else:
        click.echo(f"{'Template':<{width}}  {len(more['template']):,} characters")
        for line in template[:TEMPLATE_LINES]:
            click.echo(visible(f"  {line[:200]}{'…' if len(line) > 200 else ''}"))
        if len(template) > TEMPLATE_LINES:
            click.echo(f"  … {len(template) - TEMPLATE_LINES} more lines (--json has them all)")
    if entry.fault is not None:
        click.echo(visible(f"It cannot be chatted with: it {entry.fault.what}; {entry.fault.way_out}."))


def _numbers(value: Value) -> str:
    if isinstance(value, list):
        return (
            f"{value[0]:,}"
            if len(set(value)) == 1
            else f"{min(value):,} to {max(value):,} by layer"
            if value
            else ""
        )
    return f"{value:,}" if isinstance(value, int) else ""


def _memory(entry: Entry) -> str:
    from ds4chat.models.listing import size_words

    if entry.need is None:
        return ""
    context = size_words(entry.need.context(entry.n_ctx))
    return (
        f"{size_words(entry.memory_bytes)}: {size_words(entry.need.weights)} of weights, {context} for a context of "
        f"{entry.n_ctx:,} tokens"
    )


# ---- use ---------------------------------------------------------------------------------------------------


@models.command("use")
@click.argument("model", metavar="NAME|PATH", shell_complete=complete_models)
@_data_dir
def use_command(flags: dict[str, Any], model: str, data_dir: str | None) -> None:
    """Make a model the one that new chats use: written into config.toml."""
    from ds4chat.config_environment import given, variable
    from ds4chat.config_file import save_setting
    from ds4chat.paths import absolute
    from ds4chat.printing import shown

    setup = _setup(flags, data_dir)
    entry = _entry(setup, flags, model)
    if entry.fault is not None:
        raise UsageError(f"{entry.found.path} {entry.fault.what}: {entry.fault.way_out}.")
    path, file = absolute(entry.found.path), setup.paths.config_file
    save_setting(file, "model", "path", str(path))
    click.echo(shown(f"{file}: model.path = {path}"))
    if given("model", "path"):
        click.echo(f"{variable('model', 'path')} is set and wins over it.", err=True)


# ---- pull --------------------------------------------------------------------------------------------------


@models.command("pull")
@click.argument("source", metavar="hf:ORG/REPO[:FILE]")
@_data_dir
def pull_command(flags: dict[str, Any], source: str, data_dir: str | None) -> None:
    """Download a model from the Hugging Face hub into the models folder. The same command goes on where it stopped.

    Without FILE, which may be a quantization too, Q4_K_M is taken, or what comes next to it.
    """
    from ds4chat.cli_setup import resolve_paths
    from ds4chat.models.hub import Hub
    from ds4chat.models.pull import choose, others_in_words, parse_source, pull
    from ds4chat.printing import shown

    name, wanted = parse_source(source)
    folder = resolve_paths(data_dir or flags["data_dir"], flags["kv_dir"]).models_dir
    hub = Hub()
    repository = hub.repository(name)
    chosen, others = choose(repository, wanted)
    if others and not wanted:
        click.echo(
            shown(
                f"{chosen} is taken; there are also {others_in_words(others)} (hf:{name}:QUANT).", sys.stderr
            ),
            err=True,
        )
    bar = ProgressLine()
    try:
        paths = pull(hub, repository, chosen, folder, bar)
    except KeyboardInterrupt:
        bar.end()
        click.echo("Stopped; the same command goes on where it stopped.", err=True)
        raise
    finally:
        bar.end()
    click.echo(shown(str(paths[0])))
    _tell_faults(paths[0])
    if sys.stderr.isatty():
        click.echo(
            f"Chat with it: `ds4chat -m {paths[0].stem}`; for good: `ds4chat models use {paths[0].stem}`.",
            err=True,
        )


def _tell_faults(path: Path) -> None:
    from ds4chat.gguf_file import FaultError, read_contents

    try:
        read_contents(path)
    except FaultError as error:
        click.echo(f"It is whole, but {error.fault.what}: {error.fault.way_out}.", err=True)


class ProgressLine:
    """How far a download is, on standard error: one line that changes on a terminal, else a line each tenth."""

    EVERY = 0.2
    """Seconds between two changes of the line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._terminal = clock, sys.stderr.isatty()
        self._what, self._began, self._from, self._drawn, self._tenth = "", 0.0, 0, -self.EVERY, -1
        self._open = False

    def __call__(self, what: str, done: int, total: int) -> None:
        from ds4chat.models.listing import size_words

        now = self._clock()
        if what != self._what:
            self.end()
            self._what, self._began, self._from, self._drawn, self._tenth = (
                what,
                now,
                done,
                now - self.EVERY,
                -1,
            )
        tenth = done * 10 // total if total else -1
        whole = bool(total) and done >= total
        if not self._terminal:
            if tenth > self._tenth and (tenth > 0 or whole):
                self._write(f"{what}: {size_words(done)} of {size_words(total)}\n")
            self._tenth = max(self._tenth, tenth)
            return
        if now - self._drawn < self.EVERY and not whole:
            return
        self._drawn = now
        speed = (done - self._from) / (now - self._began) if now > self._began else 0.0
        of = f" of {size_words(total)}, {done * 100 // total} %" if total else ""
        left = f", {_time_words((total - done) / speed)} left" if total and speed and not whole else ""
        rate = f", {speed / 1e6:,.1f} MB/s" if speed else ""
        self._write(f"\r\x1b[K{what}: {size_words(done)}{of}{rate}{left}")
        self._open = True

    def end(self) -> None:
        """Leave the line as it is and begin another."""
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _time_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
