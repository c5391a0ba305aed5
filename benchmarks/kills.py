"""Nothing is lost to a kill: `python benchmarks/kills.py [--kills 300] [--seed 0] [--only WAY/MOMENT]`.

Types into the real program, with its real engine, in a pseudo-terminal, and kills it at random moments in every way
there is (see `tests/support/kills.py`). After each kill everything is looked at: the database and its index, each
message that was on the screen (but for the last half second), the checkpoints, the terminal, engines left behind. The
next kill begins with a start over what this one left. A quarter of the homes run the starter model, the others a tiny
one.

Exit code 1 when anything was lost, damaged or left behind.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.kill_homes import Template, write_template, write_wordy_model
from tests.support.kills import FAULTS, MOMENTS, WAYS, Home, Outcome
from tests.support.tiny_models import starter_model

KILLS_A_HOME = 6
STARTER_EVERY = 4
"""So many homes share one with the starter model."""


def plan(kills: int, seed: int, only: tuple[str, str]) -> list[list[tuple[str, str]]]:
    """(way, moment) of each kill by homes; every pair comes up as often as every other one."""
    pairs = [(w, m) for w in WAYS for m in MOMENTS if only[0] in ("", w) and only[1] in ("", m)]
    rng = random.Random(seed)
    drawn: list[tuple[str, str]] = []
    while len(drawn) < kills:
        rng.shuffle(pairs)
        drawn += pairs
    drawn = drawn[:kills]
    homes = [drawn[i : i + KILLS_A_HOME] for i in range(0, kills, KILLS_A_HOME)]
    # With an old database the home has other chats, and no checkpoints of them.
    return [sorted(home, key=lambda pair: pair[1] == "migrating") for home in homes]


def run_home(number: int, seed: int, kills: Sequence[tuple[str, str]], template: Template) -> list[Outcome]:
    """All kills of one home, and a start at the end that has to go well."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix=f"ds4chat-kills-{number}-") as folder:
        home = Home(Path(folder) / "home", template, random.Random(f"{seed}/{number}"))
        for way, moment in kills:
            outcome = home.kill(way, moment)
            outcomes.append(outcome)
            print(
                f"{number:3}  {way}/{moment:11} {outcome.seconds:5.1f} s"
                f"{'' if outcome.landed else '  (beside the moment)'}"
                + "".join(f"\n     {kind.upper()}: {text}" for kind, text in outcome.faults),
                file=sys.stderr,
                flush=True,
            )
    return outcomes


def repeat_with(args: argparse.Namespace, number: int) -> str:
    """The command that runs one home again."""
    words = [f"--kills {args.kills}", f"--seed {args.seed}", f"--home {number}"]
    words += [f"--only {args.only}"] if args.only else []
    words += [f"--model {args.model}"] if args.model else []
    return f"python benchmarks/kills.py {' '.join(words)}"


def run(args: argparse.Namespace, only: tuple[str, str]) -> Iterator[tuple[int, list[Outcome]]]:
    """The outcomes by home."""
    homes = list(enumerate(plan(args.kills, args.seed, only)))
    if args.home is not None:
        homes = [home for home in homes if home[0] == args.home]
    starter = starter_model()
    if starter is None:
        sys.exit("The starter model is not installed: run `make test`.")
    with tempfile.TemporaryDirectory(prefix="ds4chat-kills-") as folder:
        tiny = write_wordy_model(Path(folder) / "tiny.gguf", starter)
        templates = [write_template(Path(folder) / "tiny", tiny, slow=False)]
        if any(number % STARTER_EVERY == 0 for number, _ in homes):
            model = Path(args.model).absolute() if args.model else starter
            templates.append(write_template(Path(folder) / "starter", model, slow=True))
        with ProcessPoolExecutor(args.jobs) as pool:
            futures = {
                number: pool.submit(
                    run_home, number, args.seed, kills, templates[-1 if number % STARTER_EVERY == 0 else 0]
                )
                for number, kills in homes
            }
            for number, future in futures.items():
                yield number, future.result()


def table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Way, moment, kills, those that met the moment, and how many kills each fault came with."""
    rows = [["way", "moment", "kills", "met", *FAULTS]]
    for way in WAYS:
        for moment in MOMENTS:
            own = [o for o in outcomes if (o.way, o.moment) == (way, moment)]
            if own:
                rows.append([way, moment, *_counts(own)])
    return [*rows, ["all", "", *_counts(outcomes)]]


def _counts(outcomes: Sequence[Outcome]) -> list[str]:
    faults = Counter(kind for o in outcomes for kind in {kind for kind, _ in o.faults})
    numbers = [len(outcomes), sum(o.landed for o in outcomes), *(faults[kind] for kind in FAULTS)]
    return [str(number) for number in numbers]


def main() -> int:
    """Kill, print, judge."""
    parser = argparse.ArgumentParser(description="Nothing is lost to a kill.")
    parser.add_argument("--kills", type=int, default=300, metavar="N", help="300 by default")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--model", metavar="GGUF", help="in place of the starter model")
    parser.add_argument(
        "--only", default="", metavar="WAY/MOMENT", help="either may be left out: all/ or /storing"
    )
    parser.add_argument("--home", type=int, metavar="N", help="only the kills of this home")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="homes at once; 2 by default")
    parser.add_argument(
        "--log", metavar="FILE", help="kills with faults; in the folder for temporary files by default"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    way, _, moment = args.only.partition("/")
    if way not in ("", *WAYS) or moment not in ("", *MOMENTS):
        parser.error(f"--only takes one of {', '.join(WAYS)} / one of {', '.join(MOMENTS)}")
    log = Path(args.log or Path(tempfile.gettempdir()) / f"ds4chat-kills-{os.getpid()}.log")
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for number, some in run(args, (way, moment)):
        outcomes += some
        for outcome in some:
            if outcome.faults:
                with log.open("a", encoding="utf-8") as file:
                    more = {"home": number, "repeat": repeat_with(args, number)}
                    file.write(json.dumps(more | dataclasses.asdict(outcome), ensure_ascii=False) + "\n")
    rows = table(outcomes)
    waited = [o.engine_seconds for o in outcomes if o.way in ("screen", "all")]
    if args.json:
        report = {
            "kills": len(outcomes),
            "seconds": round(time.monotonic() - began, 1),
            "table": [dict(zip(rows[0], row, strict=True)) for row in rows[1:]],
            "engine_outlives_screen_seconds": max(waited, default=0),
        }
        print(json.dumps(report, indent=2))
    else:
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            cells = [
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            print("  ".join(cells))
        if waited:
            print(
                f"An engine outlived its killed screen by {statistics.median(waited):.2f} s (median), "
                f"{max(waited):.2f} s (most)."
            )
    failed = [o for o in outcomes if o.faults]
    if failed:
        print(f"{len(failed)} kills with faults: {log}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
