"""How quick the chat screen is: `python benchmarks/screen.py [--json] [--only start|stream|long] [--no-minimal]`.

Drives the program itself in a pseudo-terminal with a scripted engine child (`screen_parts/engine.py`), beside a minimal
Textual app (a Markdown widget and a TextArea, `screen_parts/minimal.py`) in the same run, by turns:

- start: from the start of the process to the first typed character on the screen.
- stream: a Markdown reply of 20,000 characters with code and tables at 100 tokens a second: processor time of the
  screen's process, how far what is shown is behind what arrived, and how long a typed character takes.
- long: a session of 5,000 messages: the time to its last message against an empty session's first character, and
  the memory it takes more.

Exit code 1 when a claim does not hold (see `CLAIMS`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

PARTS = Path(__file__).resolve().parent / "screen_parts"
sys.path.insert(0, str(PARTS))

from pty_run import Running  # noqa: E402
from text import LAST_WORDS, MARK  # noqa: E402

CLAIMS = {
    "start_over_minimal": 1.5,
    "stream_cpu_seconds": 12.0,
    "behind_first_quarter_p95": 0.3,
    "behind_last_quarter_p95": 0.3,
    "key_p95": 0.05,
    "long_over_empty": 2.0,
    "long_more_mb": 60.0,
}
"""The most each measure may be: ratios, seconds, MB of 2**20 bytes."""

MESSAGES = 5_000
READY = "§"
KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
"""Characters that nothing else writes, to see a typed key on the screen."""


@dataclass(frozen=True)
class Stream:
    """Seconds. `behind`: 95th percentile over the marks of a quarter of the reply."""

    cpu_seconds: float
    wall_seconds: float
    behind_first_quarter_p95: float
    behind_last_quarter_p95: float
    key_median: float
    key_p95: float
    written_mb: float


def percentile(values: Sequence[float], percent: int) -> float:
    """Of a sample: the smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)]


class Bench:
    """Runs over one temporary home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log = home / "marks.log"
        # Installed programs have their byte code: where it may not be written, each start would compile all modules.
        unwanted = ("DS4CHAT_", "PYTHONDONTWRITEBYTECODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        self._env = kept | {
            "DS4CHAT_DATA_DIR": str(home / "data"),
            "DS4CHAT_KV_DIR": str(home / "kv"),
            "DS4CHAT_LOG_DIR": str(home / "log"),
            "DS4CHAT_CONFIG": str(home / "config.toml"),
            "PYTHONPATH": str(PARTS),
            "SCREEN_LOG": str(self._log),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }

    @contextmanager
    def _running(self, script: str, *args: str) -> Iterator[Running]:
        running = Running([sys.executable, str(PARTS / script), *args], self._env)
        try:
            yield running
        finally:
            running.end()

    def start(self, script: str, *args: str) -> tuple[float, float]:
        """Seconds to the first typed character on the screen, and the memory then."""
        with self._running(script, *args) as running:
            return running.until_takes_keys(READY), running.memory_mb

    def to_text(self, text: str, *args: str) -> tuple[float, float]:
        """Seconds from the start to a text on the screen (`READY` is typed), and the memory a second later."""
        with self._running("program.py", *args) as running:
            took = running.until_takes_keys(READY) if text == READY else running.until_shown(text)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                running.read(0.05)
            return took, running.memory_mb

    def stream(self, script: str, *args: str) -> Stream:
        """One whole reply."""
        with self._running(script, *args) as running:
            if script == "program.py":
                running.until_takes_keys(READY)
                running.type("\r")
            running.until(lambda: MARK.search(running.output) is not None, 30, "the reply")
            began, cpu = time.monotonic(), running.cpu_seconds
            keys = self._type_along(running)
            wall, cpu = time.monotonic() - began, running.cpu_seconds - cpu
            behind = self._behind(running)
            quarter = len(behind) // 4
            return Stream(
                cpu_seconds=cpu,
                wall_seconds=wall,
                behind_first_quarter_p95=percentile(behind[:quarter], 95),
                behind_last_quarter_p95=percentile(behind[-quarter:], 95),
                key_median=statistics.median(keys),
                key_p95=percentile(keys, 95),
                written_mb=len(running.output) / 2**20,
            )

    def _type_along(self, running: Running) -> list[float]:
        """A key each second until the reply's last words are shown; seconds to see each."""
        took: list[float] = []
        last = LAST_WORDS.encode()
        pressed, key, since, number = 0.0, b"", 0, 0
        deadline = time.monotonic() + 240
        while running.output.find(last, max(0, len(running.output) - (1 << 20))) < 0:
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError("the reply did not end")
            if not key and now - pressed >= 1.0:
                key, since = KEYS[number % len(KEYS)].encode(), len(running.output)
                number, pressed = number + 1, time.monotonic()
                running.type(key.decode())
            running.read(0.005)
            if key and running.output.find(key, since) >= 0:
                took.append(running.time_of(running.output.find(key, since)) - pressed)
                key = b""
        return took

    def _behind(self, running: Running) -> list[float]:
        """For each mark, oldest first: seconds from when it left the engine to when it, or a later one, was shown."""
        shown: dict[int, float] = {}
        chunk = 0
        for found in MARK.finditer(running.output):
            while running.chunks[chunk][0] < found.end():
                chunk += 1
            shown.setdefault(int(found[1]), running.chunks[chunk][1])
        left = [line.split() for line in self._log.read_text().splitlines()]
        marks = [(int(number), float(when)) for number, when in left if number != "end"]
        result: list[float] = []
        soonest = float("inf")
        for number, when in reversed(marks):
            soonest = min(soonest, shown.get(number, float("inf")))
            if soonest != float("inf"):
                result.append(soonest - when)
        return result[::-1]


def fill(data_dir: Path) -> str:
    """A session of 5,000 messages; its id."""
    from ds4chat.sessions.database import Database
    from ds4chat.sessions.session import Message, Session

    session = Session(id="", title="Five thousand")
    question = "What about number {0}, and *why* is it so? A question of some length, as people write them."
    answer = (
        "## About {0}\n\nIt is **so** because of `reason_{0}`:\n\n- first this, in a sentence of a usual length\n"
        "- then that, which follows\n\n```python\nvalue = {0} * 2\n```\n\nAnd that is all about it."
    )
    for number in range(1, MESSAGES):
        role, text = ("user", question) if number % 2 else ("assistant", answer)
        session.append(Message(number, number - 1 or None, role, text.format(number), created=float(number)))  # type: ignore[arg-type]
    session.append(Message(MESSAGES, MESSAGES - 1, "assistant", f"The last: mk{MESSAGES}x", created=1e9))
    data_dir.mkdir(parents=True, exist_ok=True)
    with Database(data_dir / "sessions.db") as database:
        database.create_session(session)
    return session.id


def measure(parts: Sequence[str], rounds: int, minimal: bool) -> dict[str, object]:
    """All parts that are asked for."""
    report: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="ds4chat-screen-") as home:
        bench = Bench(Path(home))
        # The first start compiles byte code and reads files that are not cached yet.
        bench.start("program.py")
        bench.start("minimal.py")
        if "start" in parts:
            pairs = [(bench.start("program.py")[0], bench.start("minimal.py")[0]) for _ in range(rounds)]
            report["start_seconds"] = statistics.median(own for own, _ in pairs)
            report["minimal_start_seconds"] = statistics.median(other for _, other in pairs)
            report["start_over_minimal"] = statistics.median(own / other for own, other in pairs)
        if "long" in parts:
            session = fill(Path(home) / "data")
            last = f"mk{MESSAGES}x"
            runs = [(bench.to_text(last, "--resume", session), bench.to_text(READY)) for _ in range(rounds)]
            report["long_seconds"] = statistics.median(long[0] for long, _ in runs)
            report["empty_seconds"] = statistics.median(empty[0] for _, empty in runs)
            report["long_over_empty"] = statistics.median(long[0] / empty[0] for long, empty in runs)
            report["long_more_mb"] = statistics.median(long[1] - empty[1] for long, empty in runs)
        if "stream" in parts:
            own = bench.stream("program.py")
            report["stream"] = asdict(own)
            report["stream_cpu_seconds"] = own.cpu_seconds
            report["behind_first_quarter_p95"] = own.behind_first_quarter_p95
            report["behind_last_quarter_p95"] = own.behind_last_quarter_p95
            report["key_p95"] = own.key_p95
            if minimal:
                report["minimal_stream"] = asdict(bench.stream("minimal.py", "stream"))
    return report


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="How quick the chat screen is.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only", action="append", choices=("start", "stream", "long"), help="may be repeated"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="starts of each kind; 7 by default"
    )
    parser.add_argument("--no-minimal", action="store_true", help="do not stream through the minimal app")
    args = parser.parse_args()
    report = measure(args.only or ("start", "stream", "long"), args.rounds, not args.no_minimal)
    failed = [name for name, most in CLAIMS.items() if name in report and float(str(report[name])) > most]
    if args.json:
        print(json.dumps(report | {"failed": failed}, indent=2))
    else:
        for name, value in report.items():
            if isinstance(value, dict):
                print(name, *(f"  {key:28} {number:10.3f}" for key, number in value.items()), sep="\n")
            else:
                most = f"at most {CLAIMS[name]:g}" if name in CLAIMS else ""
                print(f"{name:28} {value:10.3f}  {most}{'  FAILED' if name in failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
