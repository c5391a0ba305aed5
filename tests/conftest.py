"""Models for all tests: the starter model, and tiny ones of each memory type written once a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ds4chat import news
from tests.support.tiny_models import KINDS, starter_model, write_tiny_models

# A busy machine is no failure, and the suite has many properties: fewer examples than usual keep it short.
settings.register_profile("suite", max_examples=30, deadline=None)
settings.load_profile("suite")

# Each test of the screen leaves thousands of objects in cycles: collecting after every 700 new ones took a third of the
# time.
gc.set_threshold(100_000, 20, 50)


@pytest.fixture(autouse=True)
def no_news_of_another_test() -> Iterator[None]:
    """Sentences that a program prints at its end wait in the process, which tests share."""
    yield
    news.take()


@pytest.fixture(scope="session")
def starter() -> Path:
    """The starter model's GGUF. `make test` installs it, so that its absence is a failure and no skip."""
    path = starter_model()
    assert path is not None, "the starter model is not installed: run `make test`"
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, starter: Path) -> dict[str, Path]:
    """Tiny models by kind: dense, swa, hybrid, recurrent."""
    return write_tiny_models(tmp_path_factory.mktemp("models"), starter)


@pytest.fixture(params=KINDS)
def tiny_model(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Path:
    """One tiny model after the other."""
    return tiny[request.param]
