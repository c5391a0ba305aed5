"""Forks share their past on disk. `benchmarks/forks.py` shows it at full length on the starter model."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.forks import MAX_RATIO, measure
from tests.support.engine_room import SMALL


def test_three_forks_of_one_session_take_little_more_than_the_one(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    """A quarter of 6,000 tokens, turns of 100, and spans of 512."""
    kv = msgspec.structs.replace(SMALL, continued_interval_tokens=128, boundary_align_tokens=128)
    result = measure(tiny["dense"], tmp_path, 1500, 25, kv, n_ctx=2048, threads=1)
    assert 1400 < result.tokens < 1600
    assert all(20 <= turn <= 30 for turn in result.turn_tokens)
    assert 1 < result.ratio <= MAX_RATIO
