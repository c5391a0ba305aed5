"""The manager every test of the screen starts with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ds4chat.ui import clipboard
from tests.ui import shortcuts
from tests.ui.fake_manager import FakeManager


@pytest.fixture(autouse=True, scope="session")
def swift_textual() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        shortcuts.take(monkeypatch)
        yield


@pytest.fixture(autouse=True)
def no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clipboard of whoever runs the tests stays as it is; nor does their tmux change what is sent."""
    monkeypatch.setattr(clipboard, "system_copy", lambda text: False)
    for name in ("TMUX", "STY", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()
