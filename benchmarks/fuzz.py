"""Hostile inputs by the ten thousand: `python benchmarks/fuzz.py [--count 20000] [--seed 0] [--only KIND]`.

What comes from outside is fed to what reads it: checkpoint files and folders of them, session files and bundles to
import, config.toml, personas, themes, and the lines of the pipe between the chat and its engine. Inputs are examples
that were changed (bits, pieces, lengths, types) and structures made at random, hostile names and values among them.

An input may be accepted, or refused with one sentence. What counts as uncaught: any other exception, a sentence with a
control character in it, more than 2 seconds of processor time, more than 1.5 GB, a file written outside of the folder
the input may touch, a database that a refused import changed, and the end of the process, which is the kind's own.

Each failure is printed with its index and written to a file. `--only KIND --index N` makes that input again.

Exit code 1 when something was uncaught.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fuzz_parts import TARGETS
from benchmarks.fuzz_parts.target import OutOfTime, draw_for, limit_memory, run_one

COLUMNS = ("inputs", "accepted", "refused", "uncaught", "slowest ms", "at index")

_STATE = struct.Struct("<4QdQ")
"""Of a child: the index it is at, how many were accepted, refused, uncaught, the slowest one's seconds and index."""

STALLED_SECONDS = 60
"""Without a step of a child, which then is ended: what does not hear a signal is uncaught too."""


@dataclass
class Result:
    """What became of the inputs of a kind."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    uncaught: int = 0
    slowest_ms: float = 0.0
    slowest_index: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)


def child(name: str, seed: int, start: int, stop: int, home: Path, state: Path, keep: Path) -> None:
    """Feed the inputs `start` to `stop`; beside `home`, a line in the file `failures` for each that is uncaught."""
    # Imported before memory is limited, and with nowhere else to put temporary files.
    os.environ["TMPDIR"] = tempfile.tempdir = str(home)
    target = TARGETS[name](home)
    target.prepare()
    limit_memory()
    fd = os.open(state, os.O_RDWR | os.O_CREAT, 0o600)
    accepted = refused = uncaught = slowest_index = 0
    slowest = 0.0
    for index in range(start, stop):
        os.pwrite(fd, _STATE.pack(index, accepted, refused, uncaught, slowest, slowest_index), 0)
        data = target.make(draw_for(seed, name, index))
        try:
            outcome, seconds = run_one(target, data)
        except (Exception, OutOfTime) as error:
            uncaught += 1
            path = keep / f"{name.replace(' ', '-')}-{seed}-{index}"
            path.write_bytes(data)
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = {
                "kind": name,
                "index": index,
                "error": f"{type(error).__name__}: {error}"[:300],
                "where": f"{Path(where.filename).name}:{where.lineno}",
                "file": str(path),
            }
            with (home.parent / "failures").open("a") as file:
                file.write(json.dumps(told) + "\n")
            continue
        accepted += outcome == "accepted"
        refused += outcome == "refused"
        if seconds > slowest:
            slowest, slowest_index = seconds, index
    os.pwrite(fd, _STATE.pack(stop, accepted, refused, uncaught, slowest, slowest_index), 0)
    os.close(fd)
    target.close()


def run(name: str, count: int, seed: int, keep: Path, first: int = 0) -> Result:
    """Feed a kind, in a process of its own; one that ends is begun anew behind the input that ended it."""
    result = Result(inputs=count)
    start, stop = first, first + count
    while start < stop:
        with tempfile.TemporaryDirectory(prefix="ds4chat-fuzz-", dir=_fast_folder()) as folder:
            home, state = Path(folder) / "home", Path(folder) / "state"
            home.mkdir()
            arguments = ["--child", name, str(seed), str(start), str(stop), str(home), str(state), str(keep)]
            with (keep / "errors.log").open("ab") as log:
                process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=log, stderr=log)
            _wait(process, state)
            told_in = Path(folder) / "failures"
            for line in told_in.read_text().splitlines() if told_in.exists() else ():
                failure = json.loads(line)
                result.failures.append(failure)
                print(
                    f"{name}, index {failure['index']}: {failure['error']} ({failure['where']}); {failure['file']}",
                    file=sys.stderr,
                )
            if not state.exists():
                raise SystemExit(f"{name} did not begin; see {keep / 'errors.log'}")
            index, accepted, refused, uncaught, slowest, at = _STATE.unpack(state.read_bytes())
        result.accepted += accepted
        result.refused += refused
        result.uncaught += uncaught
        if slowest * 1000 > result.slowest_ms:
            result.slowest_ms, result.slowest_index = round(slowest * 1000, 1), at
        if index < stop:
            result.uncaught += 1
            told = {"kind": name, "index": index, "error": f"the process ended (code {process.returncode})"}
            result.failures.append(told)
            print(f"{name}, index {index}: {told['error']}", file=sys.stderr)
        start = index + 1
    return result


def _wait(process: subprocess.Popen[bytes], state: Path) -> None:
    """Until the child ends, or makes no step for too long."""
    last, since = b"", time.monotonic()
    while process.poll() is None:
        now = state.read_bytes() if state.exists() else b""
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            process.kill()
        time.sleep(0.05)


def _fast_folder() -> str | None:
    """A folder in memory, where there is one: the disk's syncs are not what is tested."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000, help="inputs of each kind; 20,000 by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(TARGETS), action="append", help="this kind; may be repeated")
    parser.add_argument("--index", type=int, help="only the input of this index")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where failing inputs go")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, seed, start, stop, home, state, keep = options.child
        child(name, int(seed), int(start), int(stop), Path(home), Path(state), Path(keep))
        return 0
    keep = options.keep or Path(tempfile.mkdtemp(prefix="ds4chat-fuzz-failures-"))
    keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    first, count = (0, options.count) if options.index is None else (options.index, 1)
    results: dict[str, Result] = {}
    for name in options.only or TARGETS:
        results[name] = run(name, count, options.seed, keep, first)
    if options.json:
        print(json.dumps({name: vars(result) for name, result in results.items()}, indent=2))
    else:
        print(f"{'':20}" + "".join(f"{column:>12}" for column in COLUMNS))
        for name, r in results.items():
            numbers = (r.inputs, r.accepted, r.refused, r.uncaught)
            print(
                f"{name:20}"
                + "".join(f"{number:>12,}" for number in numbers)
                + f"{r.slowest_ms:>12,.1f}{r.slowest_index:>12}"
            )
        print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(result.uncaught for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
