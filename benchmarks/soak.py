"""A long run at one screen: `python benchmarks/soak.py [--minutes N] [--model PATH] [--json]`.

The program itself runs in a pseudo-terminal over a temporary home. Chats are begun, talked in, gone to and deleted, the
same in every quarter of the time, while what both processes hold in memory is sampled.

Exit code 1 when a claim does not hold: the median resident memory of the last quarter is at most 1.05 times that of the
second one, in both processes; the engine writes at most 1.3 times the KV rows and the text of what was said; no error
is shown, logged, or found in the database and the checkpoints afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.soak_parts.memory import MB, Sample, Sampler, median_mb, plot, quarters, written
from benchmarks.soak_parts.spans import Parts, parts
from benchmarks.soak_parts.work import Work
from tests.support.interplay import Interplay
from tests.support.program import Program
from tests.support.screens import Screens, log_faults
from tests.support.terminal import ctrl
from tests.support.tiny_models import starter_model, write_tiny_model

MAX_GROWTH = 1.05
"""Resident memory of the last quarter over that of the second."""

MAX_WRITTEN = 1.3
"""Bytes the engine writes over KV rows and text."""

LEAST = 300
"""Turns and switches."""

CONFIG = """[model]
path = "{model}"
ctx = 2048
[sampling]
temperature = 0.0
max_tokens = {max_tokens}
[kv]
space_mb = {budget}
"""

PARTS = {
    "once": "KV rows, for the first time",
    "again": "KV rows that another file of the chat has already, or had",
    "around": "headers, text and token ids of these files",
    "beside": "leases, hits that are counted, the log; evicted files written again as they were",
}

WHAT = {"rss": "resident", "pss": "its share", "private": "private"}


@dataclass
class Result:
    """Of one run. Bytes, but for the medians by quarter, which are MB of 2**20 bytes."""

    model: str
    minutes: float
    turns: int
    switches: int
    chats_made: int
    chats_deleted: int
    tokens: int
    kv_bytes_per_token: int
    text_bytes: int
    engine_written: int
    parts: Parts
    screen_written: int
    database_bytes: int
    medians: dict[str, dict[str, list[float]]]
    faults: list[str] = field(default_factory=list)

    @property
    def said_bytes(self) -> int:
        return self.tokens * self.kv_bytes_per_token + self.text_bytes

    @property
    def written_ratio(self) -> float:
        return self.engine_written / self.said_bytes if self.said_bytes else float("inf")

    def growth(self, process: str) -> float:
        rss = self.medians[process]["rss"]
        return rss[3] / rss[1] if rss[1] else float("inf")

    @property
    def broken(self) -> list[str]:
        """The claims that do not hold."""
        claims = [
            (self.turns + self.switches >= LEAST, f"fewer than {LEAST} turns and switches"),
            *((self.growth(name) <= MAX_GROWTH, f"the {name} process grows") for name in self.medians),
            (self.written_ratio <= MAX_WRITTEN, "the engine writes too much"),
            (not self.faults, "something went wrong"),
        ]
        return [words for holds, words in claims if not holds]


def kv_bytes_per_token(model: Path) -> int:
    """Of a model with full attention and f16 rows."""
    from gguf import GGUFReader

    reader = GGUFReader(model)
    name = str(reader.fields["general.architecture"].contents())

    def value(key: str) -> int:
        return int(reader.fields[f"{name}.{key}"].contents())

    head = value("embedding_length") // value("attention.head_count")
    return value("block_count") * value("attention.head_count_kv") * head * 2 * 2


def soak(model: Path, minutes: float, max_tokens: int, budget: int) -> tuple[Result, dict[str, list[Sample]]]:
    """Work for so many minutes, and until enough was done."""
    with tempfile.TemporaryDirectory(prefix="ds4chat-soak-") as folder:
        home = Path(folder)
        (home / "config.toml").write_text(
            CONFIG.format(model=model, max_tokens=max_tokens, budget=budget), encoding="utf-8"
        )
        with Screens(Program(home)) as screens:
            play = Interplay(screens)
            seat = play.sit_down()
            pids = {"screen": int(seat.screen.process.pid), "engine": seat.screen.engine}
            before = {name: written(pid) for name, pid in pids.items()}
            work = Work(play, seat, random.Random(1))
            sampler = Sampler(pids)
            sampler.start()
            while sampler.seconds < 60 * minutes or work.done < LEAST:
                work.round()
            seconds = sampler.seconds
            sampler.stop()
            # The tail of the last chat is stored when it has been idle for a while.
            screens.read(4)
            for name in play.said:
                work.count(name)
            spans = play.saved.all('SELECT session_id, sha1, start, "end", bytes FROM spans')
            after = {name: written(pid) for name, pid in pids.items()}
            database = sum(path.stat().st_size for path in (home / "data").glob("sessions.db*"))
            faults = [*play.faults(), *seat.screen.faults]
            seat.screen.type(ctrl("q"))
            if (code := seat.screen.wait_end()) != 0:
                faults.append(f"exit code {code}")
        faults += log_faults(home)
        checked = Program(home).run("cache", "verify")
        if checked.returncode != 0:
            faults.append(checked.stdout.strip() or checked.stderr.strip())
    medians = {
        name: {
            what: [round(median_mb(quarter, what), 2) for quarter in quarters(samples, seconds)]
            for what in WHAT
        }
        for name, samples in sampler.samples.items()
    }
    row_bytes, engine_written = kv_bytes_per_token(model), after["engine"] - before["engine"]
    result = Result(
        model=model.name.removesuffix(".gguf"),
        minutes=round(seconds / 60, 2),
        turns=work.turns,
        switches=work.switches,
        chats_made=work.made,
        chats_deleted=work.deleted,
        tokens=work.tokens,
        kv_bytes_per_token=row_bytes,
        text_bytes=work.text_bytes,
        engine_written=engine_written,
        parts=parts(spans, row_bytes, engine_written),
        screen_written=after["screen"] - before["screen"],
        database_bytes=database,
        medians=medians,
        faults=faults,
    )
    return result, sampler.samples


def table(result: Result, samples: dict[str, list[Sample]]) -> str:
    """The result for people."""
    lines = [
        f"{result.model}: {result.minutes:.1f} minutes, {result.turns} turns, {result.switches} switches, "
        f"{result.chats_made} chats made, {result.chats_deleted} deleted",
        "",
        f"{'median, MB':<22}{'1st':>9}{'2nd':>9}{'3rd':>9}{'4th':>9}{'4th/2nd':>10}",
    ]
    for name, measures in result.medians.items():
        for what, words in WHAT.items():
            row = measures[what]
            cells = "".join(f"{value:9.1f}" for value in row)
            ratio = row[3] / row[1] if row[1] else 0.0
            lines.append(f"{name + ', ' + words:<22}{cells}{ratio:10.3f}")
    lines.append("")
    lines += [f"{name:<7}{plot(taken, 'rss')}" for name, taken in samples.items()]
    lines += [
        "",
        f"said                  {result.tokens:,} tokens: {result.said_bytes / MB:,.1f} MB of KV rows and text",
        f"the engine wrote      {result.engine_written / MB:,.1f} MB, {result.written_ratio:.2f} times that:",
        *(f"{'':22}{getattr(result.parts, name) / MB:8,.1f} MB  {words}" for name, words in PARTS.items()),
        f"the screen wrote      {result.screen_written / MB:,.1f} MB to the database, its journal and its log; "
        f"the database has {result.database_bytes / MB:,.1f} MB",
    ]
    lines += [f"went wrong            {fault}" for fault in result.faults]
    limits = (
        f"4th/2nd quarter resident at most {MAX_GROWTH}, written at most {MAX_WRITTEN} times what was said"
    )
    lines.append(
        f"{'DOES NOT HOLD (' + '; '.join(result.broken) + ')' if result.broken else 'holds'}: {limits}"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description="A long run at one screen: memory and bytes written.")
    parser.add_argument("--minutes", type=float, default=15.0, metavar="N", help="15")
    parser.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file with full attention")
    parser.add_argument("--tiny", action="store_true", help="a tiny random model: many more turns")
    parser.add_argument("--max-tokens", type=int, default=16, metavar="N", help="of a reply (16)")
    parser.add_argument("--budget", type=int, default=64, metavar="MB", help="for checkpoints (64)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    starter = starter_model()
    if starter is None:
        print("soak.py: the starter model is not installed: run `make test`.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ds4chat-soak-model-") as folder:
        model = given.model or starter
        if given.tiny:
            model = write_tiny_model("dense", Path(folder) / "tiny.gguf", starter)
        result, samples = soak(model, given.minutes, given.max_tokens, given.budget)
    if given.json:
        more = {
            "said_bytes": result.said_bytes,
            "written_ratio": result.written_ratio,
            "broken": result.broken,
        }
        print(json.dumps(asdict(result) | more, indent=2))
    else:
        print(table(result, samples))
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
