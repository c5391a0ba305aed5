"""`ds4chat bench`: what to measure from the command line, and the results as a table, as JSON, as a picture."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from ds4chat import paths as locations
from ds4chat.bench.plot import check_plot, write_plot
from ds4chat.bench.report import Progress, Report, Request
from ds4chat.bench.run import run_bench
from ds4chat.cli_setup import Setup
from ds4chat.engine.protocol import ChatMessage
from ds4chat.errors import UsageError
from ds4chat.printing import dump_json
from ds4chat.sessions import interchange

SAMPLE = "lighthouse.toml"
MIN_TOKENS, MAX_TOKENS = 64, 10**6


def bench(flags: Mapping[str, Any], tokens: str, *, as_json: bool, plot: str | None) -> None:
    """Measure and print. `flags` are those of the chat. Raises UsageError, ModelError, EngineError."""
    lengths = parse_tokens(tokens)
    picture = Path(plot).expanduser() if plot is not None else None
    if picture is not None:
        check_plot(picture)
    setup = Setup.from_flags(flags)
    options = setup.engine_options(flags)
    memo = setup.paths.data_dir / "engine.json"
    request = Request(load=options.load_command(True, ""), lengths=lengths, chat=_sample())
    with _Meter() as meter:
        report = run_bench(
            request, meter.show, beside=setup.paths.kv_dir, memo=memo, log_path=setup.paths.engine_log
        )
    if picture is not None:
        write_plot(report, picture)
    if as_json:
        click.echo(dump_json(msgspec.to_builtins(report), sys.stdout, indent=2))
    else:
        _print(report)


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


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 400, highlight=False)
    console.print(
        Text(
            f"{report.model}: {report.memory} memory, {report.kv_type} KV, context {report.n_ctx:,}, "
            f"{report.kv_bytes_per_token:,} bytes a token, {report.cores} cores, llama-cpp-python {report.build}"
        )
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Tokens", no_wrap=True)
    for length in report.lengths:
        table.add_column(f"{length.tokens:,}", justify="right", no_wrap=True)
    rows = (
        ("prefill", [_ms(length.prefill_ms) for length in report.lengths]),
        ("restore", [_ms(length.restore_ms) for length in report.lengths]),
        ("XXH3 over the same files, mapped", [_ms(length.xxh3_ms) for length in report.lengths]),
        ("plain read of the same files", [_ms(length.read_ms) for length in report.lengths]),
        ("whole state, load (unverified)", [_ms(length.whole_load_ms) for length in report.lengths]),
        ("whole state, save", [_ms(length.whole_save_ms) for length in report.lengths]),
        ("on disk", [f"{_mb(length.file_bytes)} in {length.spans}" for length in report.lengths]),
        ("KV", [_mb(length.whole_bytes) for length in report.lengths]),
        ("prefill / restore", [f"{length.prefill_over_restore:,.0f}" for length in report.lengths]),
        ("restore / XXH3", [f"{length.restore_over_xxh3:.2f}" for length in report.lengths]),
        ("restore / plain read", [f"{length.restore_over_read:.2f}" for length in report.lengths]),
        ("restore / whole state", [f"{length.restore_over_whole_load:.2f}" for length in report.lengths]),
    )
    for name, cells in rows:
        table.add_row(name, *cells)
    console.print(table)
    growth, generation = report.growth, report.generation
    console.print(
        Text(
            f"A chat grown to {growth.tokens:,} tokens in {growth.turns} turns wrote {_mb(growth.written_bytes)} in "
            f"{growth.stores} spans, {growth.written_over_kv:.3f} times its KV; whole states at the same points would "
            f"have been {_mb(growth.whole_bytes)}, {growth.whole_over_kv:.1f} times."
        )
    )
    console.print(
        Text(
            f"Generation: {generation.plain_per_second:.1f} tokens/s, with storing "
            f"{generation.storing_per_second:.1f}; {generation.storing_over_plain:.3f} of it (median of "
            f"{generation.pairs} pairs of {generation.tokens} tokens)."
        )
    )


def _ms(value: float) -> str:
    return f"{value / 1000:,.1f} s" if value >= 10_000 else f"{value:,.1f} ms"


def _mb(value: int) -> str:
    return f"{value / 1e6:,.1f} MB"
