"""Damaged checkpoint files by the thousand: `python benchmarks/mutations.py [--count 2000] [--seed 0]`.

For a dense and a hybrid model it stores some chats, changes their files in one way after the other (see
`tests/support/mutations.py`), and asks again on the real engine: twice, since what was damaged is stored anew. Greedy
tokens must be those of the directory as it was. The engine runs in a process of its own, so that a crash is counted and
the rest goes on.

Exit code 1 after a crash, a wrong token, or an answer that did not come.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.mutations import MUTATIONS, Bench
from tests.support.tiny_models import starter_model, write_tiny_model

MODELS = ("dense", "hybrid")
COLUMNS = (
    "mutations",
    "restored all",
    "restored in part",
    "computed again",
    "wrong tokens",
    "no answer",
    "crashes",
)
STALLED_SECONDS = 120


def plan(count: int, seed: int) -> list[tuple[str, str, int]]:
    """(model, kind of mutation, seed) of each, evenly over models and kinds."""
    kinds = list(MUTATIONS)
    return [
        (MODELS[i % len(MODELS)], kinds[i // len(MODELS) % len(kinds)], seed * 1_000_000 + i)
        for i in range(count)
    ]


def child(model: str, path: Path, folder: Path, jobs: list[tuple[str, int]]) -> None:
    """Work jobs off; a line for each before it begins and when it is done."""
    bench = Bench(path, folder)
    for number, (kind, seed) in enumerate(jobs):
        print(json.dumps({"begin": number}), flush=True)
        bench.mutate(kind, seed)
        first, again = bench.ask(), bench.ask()
        wrong = [a.tokens != bench.expected.tokens for a in (first, again) if a.done]
        print(
            json.dumps(
                {
                    "end": number,
                    "wrong": any(wrong),
                    "silent": len(wrong) < 2,
                    "restored": first.restored / bench.expected.restored,
                }
            ),
            flush=True,
        )
    bench.close()


def run(model: str, path: Path, folder: Path, jobs: list[tuple[str, int]]) -> list[str]:
    """What became of each job: one of the columns, in order. A crash begins the process anew behind it."""
    outcomes: list[str] = []
    starts = 0
    while len(outcomes) < len(jobs):
        starts += 1
        place = folder / f"{model}-{starts}"
        place.mkdir()
        rest = jobs[len(outcomes) :]
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", model, str(path), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(log := (place / "log").open("wb")),
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(rest))
        process.stdin.close()
        before = len(outcomes)
        for line in process.stdout:
            told = json.loads(line)
            if "end" in told:
                outcomes.append(_outcome(told))
        code = process.wait(STALLED_SECONDS)
        log.close()
        if len(outcomes) < len(jobs):
            kind, seed = jobs[len(outcomes)]
            print(
                f"crash (code {code}): {model}, {kind}, seed {seed}; log in {place / 'log'}", file=sys.stderr
            )
            if len(outcomes) == before and code == 1:
                raise SystemExit((place / "log").read_text()[-3000:])
            outcomes.append("crashes")
    return outcomes


def _outcome(told: dict[str, float]) -> str:
    if told["silent"]:
        return "no answer"
    if told["wrong"]:
        return "wrong tokens"
    share = told["restored"]
    return "restored all" if share >= 1 else "restored in part" if share > 0 else "computed again"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        logging.disable(logging.CRITICAL)
        child(options.child[0], Path(options.child[1]), Path(options.child[2]), json.load(sys.stdin))
        return 0
    source = starter_model()
    if source is None:
        raise SystemExit(
            "The starter model is not installed, whose vocabulary the tiny models have: run `make test`."
        )
    began = time.monotonic()
    table: dict[str, Counter[str]] = {kind: Counter() for kind in MUTATIONS}
    with tempfile.TemporaryDirectory(prefix="ds4chat-mutations-") as name:
        jobs = plan(options.count, options.seed)
        for model in MODELS:
            mine = [(kind, seed) for m, kind, seed in jobs if m == model]
            path = write_tiny_model(model, Path(name) / f"{model}.gguf", source)
            for (kind, _), outcome in zip(mine, run(model, path, Path(name), mine), strict=True):
                table[kind].update(("mutations", outcome))
    total: Counter[str] = sum(table.values(), Counter())
    if options.json:
        print(json.dumps({kind: dict(row) for kind, row in [*table.items(), ("all", total)]}, indent=2))
    else:
        print(f"{'':22}" + "".join(f"{column:>18}" for column in COLUMNS))
        for kind, row in [*table.items(), ("all", total)]:
            print(f"{kind:22}" + "".join(f"{row[column]:>18,}" for column in COLUMNS))
        print(f"{time.monotonic() - began:.0f} s")
    bad = total["wrong tokens"] + total["no answer"] + total["crashes"]
    return 1 if bad or total["mutations"] != options.count else 0


if __name__ == "__main__":
    sys.exit(main())
