"""How fast a long chat opens again: `python benchmarks/resume.py [SESSION.toml] [--json]`.

Runs the program itself in processes of its own over a temporary home: one that computes the session's prompt, then
others that restore it from checkpoints. Beside each restore the same files are read into one warm buffer, so that
the two can be compared in the same moment of the same machine.

Exit code 1 when the claim does not hold: a restore must take at most 1/200 of the prefill's time, and leave fewer
than 64 tokens to compute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parents[1] / "sample_sessions" / "lighthouse.toml"
QUESTION = "Name one thing from this chat."

MAX_RATIO = 1 / 200
"""Restore time over prefill time."""

MAX_PREFILLED = 64
"""Tokens a resumed chat may still compute: the new question with its markers, and the pending token."""

TIMEOUT_SECONDS = 3600


class ProgramError(Exception):
    """A run of the program failed; the text is its own."""


@dataclass(frozen=True)
class Result:
    """Medians over the restores. Times are milliseconds, sizes bytes, lengths tokens."""

    model: str
    prompt_tokens: int
    prefill_ms: float
    restored_tokens: int
    restore_ms: float
    plain_read_ms: float
    prefilled_tokens: int
    files: int
    bytes_on_disk: int
    restores: int

    @property
    def restore_over_prefill(self) -> float:
        return self.restore_ms / self.prefill_ms if self.prefill_ms else float("inf")

    @property
    def restore_over_read(self) -> float:
        return self.restore_ms / self.plain_read_ms if self.plain_read_ms else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the claim does."""
        return (
            self.restored_tokens > 0
            and self.restore_over_prefill <= MAX_RATIO
            and self.prefilled_tokens < MAX_PREFILLED
        )


class Program:
    """`ds4chat` over one folder."""

    def __init__(self, home: Path, options: Sequence[str]) -> None:
        self._options = list(options)
        self.kv_dir = home / "kv"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DS4CHAT_")}
        self._env = kept | {
            "DS4CHAT_DATA_DIR": str(home / "data"),
            "DS4CHAT_KV_DIR": str(self.kv_dir),
            "DS4CHAT_LOG_DIR": str(home / "log"),
            "DS4CHAT_CONFIG": str(home / "config.toml"),
        }

    def run(self, *arguments: str) -> str:
        """Standard output. Raises ProgramError."""
        done = subprocess.run(
            [sys.executable, "-m", "ds4chat", *arguments],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise ProgramError(done.stderr.strip() or f"exit code {done.returncode}")
        return done.stdout

    def ask(self, session_id: str) -> dict[str, Any]:
        """One question in a process of its own; the object it prints. Raises ProgramError."""
        options = ["--temperature", "0", "--max-tokens", "4", "--kv-disk-space-mb", "0", *self._options]
        result: dict[str, Any] = json.loads(
            self.run("-p", QUESTION, "-r", session_id, "--output-format", "json", *options)
        )
        return result

    def checkpoints(self) -> list[Path]:
        return sorted(self.kv_dir.rglob("*.kv"))


def read_ms(files: Sequence[Path], buffer: bytearray) -> float:
    """Time to read all files, one after the other, into the front of `buffer`; milliseconds."""
    view = memoryview(buffer)
    began = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            size, at = len(buffer), 0
            while count := file.readinto(view[at:size]):
                at += count
    return (time.perf_counter() - began) * 1000


def plain_read_ms(files: Sequence[Path]) -> float:
    """`read_ms` into a buffer whose memory has been touched before."""
    buffer = bytearray(max(path.stat().st_size for path in files) + 1)
    read_ms(files, buffer)
    return read_ms(files, buffer)


def measure(session: Path, restores: int, options: Sequence[str]) -> Result:
    """Prefill once, restore `restores` times. Raises ProgramError."""
    with tempfile.TemporaryDirectory(prefix="ds4chat-bench-") as folder:
        program = Program(Path(folder), options)
        session_id = program.run("import", str(session)).split()[0]
        first = program.ask(session_id)
        after_first = program.checkpoints()
        if not after_first:
            raise ProgramError("the first process stored no checkpoints")
        size = sum(path.stat().st_size for path in after_first)
        restore, read, prefilled, restored = [], [], [], []
        for _ in range(restores):
            files = program.checkpoints()
            answer = program.ask(session_id)
            restore.append(float(answer["restore_ms"]))
            prefilled.append(int(answer["prefilled_tokens"]))
            restored.append(int(answer["cached_tokens"]))
            read.append(plain_read_ms(files))
    return Result(
        model=str(first["model"]),
        prompt_tokens=int(first["prompt_tokens"]),
        prefill_ms=float(first["prefill_ms"]),
        restored_tokens=min(restored),
        restore_ms=statistics.median(restore),
        plain_read_ms=statistics.median(read),
        prefilled_tokens=max(prefilled),
        files=len(after_first),
        bytes_on_disk=size,
        restores=restores,
    )


def table(result: Result) -> str:
    """The result for people."""
    per_token = result.bytes_on_disk / max(result.restored_tokens, 1)
    prefill_rate = 1000 * result.prompt_tokens / result.prefill_ms if result.prefill_ms else 0.0
    rows = [
        ("model", result.model),
        ("prompt tokens", f"{result.prompt_tokens:,}"),
        ("prefill, first process", f"{result.prefill_ms:,.1f} ms  ({prefill_rate:,.0f} tokens/s)"),
        ("restored tokens", f"{result.restored_tokens:,}"),
        (f"restore, median of {result.restores}", f"{result.restore_ms:,.1f} ms"),
        ("plain read of the same files", f"{result.plain_read_ms:,.1f} ms"),
        ("restore / prefill", f"1/{1 / result.restore_over_prefill:,.0f}" if result.restore_ms else "-"),
        ("restore / plain read", f"{result.restore_over_read:.2f}"),
        ("prefilled tokens, resumed", f"{result.prefilled_tokens}"),
        ("on disk", f"{result.bytes_on_disk:,} bytes in {result.files} files, {per_token:,.0f} a token"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    limits = (
        f"restore / prefill at most 1/{round(1 / MAX_RATIO)}, fewer than {MAX_PREFILLED} tokens prefilled"
    )
    lines.append(f"{'holds' if result.holds else 'DOES NOT HOLD'}: {limits}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 when the claim does not hold or the program failed."""
    parser = argparse.ArgumentParser(description="Prefill a long chat once, restore it, compare.")
    parser.add_argument("session", nargs="?", type=Path, default=SAMPLE, help="a session in TOML")
    parser.add_argument("--restores", type=int, default=3, metavar="N", help="processes that restore (3)")
    parser.add_argument("--model", metavar="PATH", help="a GGUF file instead of the starter model")
    parser.add_argument("--ctx", metavar="N", help="context length, tokens")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    if args.restores < 1:
        parser.error("--restores must be at least 1")
    given = (("--model", args.model), ("--ctx", args.ctx))
    options = [part for name, value in given if value is not None for part in (name, value)]
    try:
        result = measure(args.session, args.restores, options)
    except (ProgramError, subprocess.TimeoutExpired) as error:
        print(f"resume.py: {error}", file=sys.stderr)
        return 1
    if args.json:
        ratios = {
            "restore_over_prefill": result.restore_over_prefill,
            "restore_over_read": result.restore_over_read,
            "holds": result.holds,
        }
        print(json.dumps(asdict(result) | ratios, indent=2))
    else:
        print(table(result))
    return 0 if result.holds else 1


if __name__ == "__main__":
    sys.exit(main())
