"""The command line with folders of its own, and a home without models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import line

__all__ = ["home", "line"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a current folder that are empty."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    for name in (
        *("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_HUB_CACHE"),
        *("LLAMA_CACHE", "OLLAMA_MODELS", "JAN_DATA_FOLDER"),
    ):
        monkeypatch.delenv(name, raising=False)
    return home
