"""A model for tests in which the program counts and not what the model says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kill_homes import write_wordy_model


@pytest.fixture(scope="session")
def wordy(tmp_path_factory: pytest.TempPathFactory, starter: Path) -> Path:
    """A tiny model that says words, some hundreds a second, and never ends by itself."""
    return write_wordy_model(tmp_path_factory.mktemp("wordy") / "wordy.gguf", starter, layers=96)
