"""A seeded handful of what `benchmarks/fuzz.py` does twenty thousand times."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fuzz_parts import TARGETS
from benchmarks.fuzz_parts.target import draw_for, run_one

COUNTS = {"checkpoint folder": 40, "import toml": 150, "import json": 150, "import bundle": 100} | {
    f"import {kind}": 60
    for kind in ("chatgpt", "claude", "open-webui", "openai", "jsonl", "markdown", "export zip", "database")
}
"""Fewer of those that go to the disk, and 300 of the others."""


@pytest.fixture(autouse=True)
def log_again() -> Iterator[None]:
    """The targets switch the log off, which would be full of what they do."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_a_hostile_input_is_taken_or_refused_with_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    target = TARGETS[name](tmp_path)
    target.prepare()
    outcomes = set()
    for index in range(COUNTS.get(name, 300)):
        data = target.make(draw_for(1, name, index))
        outcome, _ = run_one(target, data)
        outcomes.add(outcome)
    target.close()
    # Inputs that are all refused at the first byte would test nothing.
    assert outcomes == {"accepted", "refused"}


def test_an_input_can_be_made_again_from_its_seed(tmp_path: Path) -> None:
    for name, kind in TARGETS.items():
        (tmp_path / name).mkdir()
        target = kind(tmp_path / name)
        target.prepare()
        assert target.make(draw_for(5, name, 3)) == target.make(draw_for(5, name, 3))
        target.close()
