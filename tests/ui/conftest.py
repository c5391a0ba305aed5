"""The manager every test of the screen starts with."""

from __future__ import annotations

import pytest

from tests.ui.fake_manager import FakeManager


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()
