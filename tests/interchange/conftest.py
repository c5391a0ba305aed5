"""The command line of `tests.cli`, and samples of what other programs write."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import line as line

SAMPLES = Path(__file__).parent / "samples"
