"""What a process holds in memory and has written, sampled while it works."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 3.0
MB = 2**20
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Sample:
    """Bytes of a process at a time in seconds since the start: resident, its share of it, its alone."""

    at: float
    rss: int
    pss: int
    private: int


def take(pid: int, at: float) -> Sample | None:
    """A sample now, None when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    private = kib["Private_Clean"] + kib["Private_Dirty"]
    return Sample(at, kib["Rss"] * 1024, kib["Pss"] * 1024, private * 1024)


def written(pid: int) -> int:
    """Bytes the process has caused to be written to a disk so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


class Sampler(threading.Thread):
    """Samples processes every few seconds until it is stopped."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._pids, self._over = pids, threading.Event()
        self.began = time.monotonic()
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            for name, pid in self._pids.items():
                if (sample := take(pid, self.seconds)) is not None:
                    self.samples[name].append(sample)

    def stop(self) -> None:
        self._over.set()
        self.join()


def quarters(samples: Sequence[Sample], seconds: float) -> list[list[Sample]]:
    """The samples of each quarter of the time."""
    return [
        [s for s in samples if quarter * seconds / 4 <= s.at < (quarter + 1) * seconds / 4]
        for quarter in range(4)
    ]


def median_mb(samples: Sequence[Sample], what: str) -> float:
    """The median of a measure, MB of 2**20 bytes; 0 without samples."""
    return statistics.median(getattr(s, what) for s in samples) / MB if samples else 0.0


def plot(samples: Sequence[Sample], what: str, width: int = 60) -> str:
    """A line of bars over time, from the least to the most there was."""
    if not samples:
        return ""
    values = [getattr(s, what) / MB for s in samples]
    width = min(width, len(values))
    cells = [
        statistics.mean(values[i * len(values) // width : (i + 1) * len(values) // width])
        for i in range(width)
    ]
    low, high = min(cells), max(cells)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return f"{low:7.1f} {''.join(BARS[round((cell - low) * scale)] for cell in cells)} {high:.1f} MB"
