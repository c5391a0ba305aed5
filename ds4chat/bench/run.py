"""Starts the bench's child process, passes its progress on, and gives its report.

Promises: whatever happens, the child and its files are gone afterwards. Must not know: llama.cpp, tables, plots.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ds4chat.bench.report import Progress, Refused, Report, Request, decode_answer, encode
from ds4chat.engine.spawn import child_environment, is_plain, remember_plain
from ds4chat.errors import EngineError

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "ds4chat.engine.bench")


def run_bench(
    request: Request,
    on_progress: Callable[[Progress], None],
    *,
    beside: Path,
    memo: Path | None = None,
    log_path: Path | None = None,
) -> Report:
    """The child's report. Raises EngineError with a sentence when there is none.

    Args:
        beside: the checkpoints' folder: the bench writes to a temporary one next to it, so to the same disk.
        memo: of `spawn.is_plain`.
        log_path: what the child's standard error is added to.
    """
    plain = is_plain(memo)
    with _stopped_by_signals(), _folder(beside) as folder:
        code, report = _child(_with(request, folder, plain), on_progress, log_path)
        if code == -signal.SIGILL and not plain:
            remember_plain(memo)
            code, report = _child(_with(request, folder, True), on_progress, log_path)
    if report is None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise EngineError(
            f"The engine {how} before the bench was done: it may need more memory than there is; try a smaller --ctx, "
            f"smaller numbers with --tokens, or another --model."
        )
    return report


def _with(request: Request, folder: Path, plain: bool) -> Request:
    kv = msgspec.structs.replace(
        request.load.kv, enabled=True, read_only=False, directory=str(folder), budget_mb=0
    )
    load = msgspec.structs.replace(request.load, extra_buffers=not plain, kv=kv)
    return msgspec.structs.replace(request, load=load)


def _child(
    request: Request, on_progress: Callable[[Progress], None], log_path: Path | None
) -> tuple[int, Report | None]:
    """Run one child to its end: its exit code and what it reported. Raises EngineError when it refuses."""
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(_open_log(log_path))
        try:
            # A session of its own: Ctrl+C reaches the parent alone, which ends it.
            child = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=child_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f"The engine process could not be started ({error.strerror}): free some memory and try again."
            ) from error
        stack.enter_context(_ended(child))
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(encode(request))
            child.stdin.flush()
        report = None
        for line in child.stdout:
            match decode_answer(line):
                case Progress() as progress:
                    on_progress(progress)
                case Refused(message):
                    raise EngineError(message)
                case Report() as answer:
                    report = answer
        return child.wait(), report


@contextlib.contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def _folder(beside: Path) -> Iterator[Path]:
    """A temporary folder on the disk the checkpoints lie on. Raises EngineError."""
    try:
        beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="ds4chat-bench-", dir=beside.parent))
    except OSError as error:
        raise EngineError(
            f"The bench cannot write beside {beside} ({error.strerror}): give another directory with --kv-disk-dir."
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP leave through the same door as Ctrl+C, so that the files go."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_log(path: Path | None) -> BinaryIO:
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
        except OSError as error:
            log.warning("no engine log: %s", error)
    return Path(os.devnull).open("ab")
