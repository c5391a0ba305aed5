"""The chat screen on a fake manager as a process of its own, for tests that end it from outside."""

from __future__ import annotations

import sys
from pathlib import Path

from ds4chat.ui.app import run
from tests.ui.fake_manager import FakeManager

if __name__ == "__main__":
    manager = FakeManager()
    session = manager.make("Kept", ["a question", "an answer"])
    marker = Path(sys.argv[1])
    result = run(manager, session_id=session.id, pick=False, theme=None, config_dir=marker.parent)  # type: ignore[arg-type]
    marker.write_text(f"{result} {manager.closed}")
    print("left", result)
