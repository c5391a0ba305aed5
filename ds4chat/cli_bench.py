"""`ds4chat bench`: what to measure from the command line, and the results as a table, as JSON, as a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from ds4chat import paths as locations
from ds4chat.bench.plot import check_plot, write_plot
from ds4chat.bench.report import PARTS, Length, Part, Progress, Report, Request
from ds4chat.bench.run import run_bench
from ds4chat.cli_setup import Setup
from ds4chat.engine.protocol import ChatMessage
from ds4chat.errors import UsageError
from ds4chat.printing import dump_json
from ds4chat.sessions import interchange

if TYPE_CHECKING:
    from rich.table import Table

SAMPLE = "lighthouse.toml"
MIN_TOKENS, MAX_TOKENS = 64, 10**6


def bench(
    flags: Mapping[str, Any], tokens: str, *, parts: Sequence[Part] = (), as_json: bool, plot: str | None
) -> None:
    """Measure and print. `flags` are those of the chat; no `parts` mean all. Raises UsageError, ModelError,
    EngineError."""
    lengths = parse_tokens(tokens)
    picture = Path(plot).expanduser() if plot is not None else None
    parts = parts or PARTS
    if picture is not None:
        if "lengths" not in parts:
            raise UsageError("--plot draws the lengths: add --only lengths, or leave --plot out.")
        check_plot(picture)
    report = _measure(flags, lengths, parts)
    if picture is not None:
        write_plot(report, picture)
    if as_json:
        click.echo(dump_json(msgspec.to_builtins(report), sys.stdout, indent=2))
    else:
        _print_report(report, sys.stdout)


def _measure(flags: Mapping[str, Any], lengths: list[int], parts: Sequence[Part]) -> Report:
    """Run the bench with progress on standard error. Raises UsageError, ModelError, EngineError."""
    setup = Setup.from_flags(flags)
    options = setup.engine_options(flags)
    request = Request(load=options.load_command(True, ""), lengths=lengths, chat=_sample(), parts=list(parts))
    where = setup.paths
    with _Meter() as meter:
        return run_bench(
            request,
            meter.show,
            beside=where.kv_dir,
            memo=where.data_dir / "engine.json",
            log_path=where.engine_log,
        )


def parse_tokens(text: str) -> list[int]:
    """Ascending lengths from "512,2048". Raises UsageError."""
    try:
        lengths = sorted({int(part) for part in text.replace("_", "").split(",")})
    except ValueError:
        lengths = []
    if not lengths or not MIN_TOKENS <= lengths[0] <= lengths[-1] <= MAX_TOKENS:
        raise UsageError(
            f"--tokens takes whole numbers from {MIN_TOKENS} to {MAX_TOKENS:,} with commas between them, not {text!r}."
        )
    return lengths


def _sample() -> list[ChatMessage]:
    session = interchange.import_file(locations.shipped("sample_sessions") / SAMPLE)
    system = [ChatMessage("system", session.system)] if session.system else []
    return [*system, *(ChatMessage(message.role, message.text) for message in session.path())]


class _Meter:
    """Progress on standard error: a line that changes on a terminal, a line for each step elsewhere."""

    def __enter__(self) -> _Meter:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")
        self._said = ""
        if self._console.is_terminal:
            self._status.start()
        return self

    def show(self, progress: Progress) -> None:
        """Say what is being done."""
        if self._console.is_terminal:
            share = 100 * progress.done // max(progress.total, 1)
            self._status.update(f"{progress.what}: {share} %")
        elif progress.what != self._said:
            self._said = progress.what
            self._console.print(f"{progress.what} ...", soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def _print_report(report: Report, out: TextIO) -> None:
    """The results for people."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, width=None if out.isatty() else 400, highlight=False)
    said = [
        f"{report.model}: {report.memory} memory, {report.kv_type} KV, context {report.n_ctx:,}, "
        f"{report.kv_bytes_per_token:,} bytes a token, {report.cores} cores, llama-cpp-python {report.build}"
    ]
    console.print(Text(said.pop()))
    if report.lengths:
        console.print(_table(report.lengths))
    if (growth := report.growth) is not None:
        said.append(
            f"A chat grown to {growth.tokens:,} tokens in {growth.turns} turns wrote {_mb(growth.written_bytes)} in "
            f"{growth.stores} spans, {growth.written_over_kv:.3f} times its KV; whole states at the same points would "
            f"have been {_mb(growth.whole_bytes)}, {growth.whole_over_kv:.1f} times."
        )
    if (generation := report.generation) is not None:
        said.append(
            f"Generation: {generation.plain_per_second:.1f} tokens/s, with storing "
            f"{generation.storing_per_second:.1f}; {generation.storing_over_plain:.3f} of it (median of "
            f"{generation.pairs} pairs of {generation.tokens} tokens)."
        )
    for line in said:
        console.print(Text(line))


def _table(lengths: Sequence[Length]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Tokens", no_wrap=True)
    for length in lengths:
        table.add_column(f"{length.tokens:,}", justify="right", no_wrap=True)
    rows: tuple[tuple[str, Callable[[Length], str]], ...] = (
        ("prefill", lambda length: _ms(length.prefill_ms)),
        ("restore", lambda length: _ms(length.restore_ms)),
        ("XXH3 over the same files, mapped", lambda length: _ms(length.xxh3_ms)),
        ("plain read of the same files", lambda length: _ms(length.read_ms)),
        ("whole state, load (unverified)", lambda length: _ms(length.whole_load_ms)),
        ("whole state, save", lambda length: _ms(length.whole_save_ms)),
        ("on disk", lambda length: f"{_mb(length.file_bytes)} in {length.spans}"),
        ("KV", lambda length: _mb(length.whole_bytes)),
        ("prefill / restore", lambda length: f"{length.prefill_over_restore:,.0f}"),
        ("restore / XXH3", lambda length: f"{length.restore_over_xxh3:.2f}"),
        ("restore / plain read", lambda length: f"{length.restore_over_read:.2f}"),
        ("restore / whole state", lambda length: f"{length.restore_over_whole_load:.2f}"),
    )
    for name, cell in rows:
        table.add_row(name, *map(cell, lengths))
    return table


def _ms(value: float) -> str:
    return f"{value / 1000:,.1f} s" if value >= 10_000 else f"{value:,.1f} ms"


def _mb(value: int) -> str:
    return f"{value / 1e6:,.1f} MB"
