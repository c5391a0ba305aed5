"""The chat screen on a fake manager as a process of its own, for tests that end it from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from ds4chat.ui.app import run
from tests.ui.fake_manager import FakeManager

BURSTS = {signal.SIGUSR1: signal.SIGTERM, signal.SIGUSR2: signal.SIGHUP}
"""What comes in the middle of a burst of callbacks from other threads, when the process gets the first of each pair."""


def burst(number: int, _: object) -> None:
    """More callbacks at once than the pipe takes that wakes the event loop, then the signal."""
    loop = asyncio.get_running_loop()
    for _ in range(10_000):
        loop.call_soon_threadsafe(int)
    os.kill(os.getpid(), BURSTS[signal.Signals(number)])


if __name__ == "__main__":
    for usual in BURSTS:
        signal.signal(usual, burst)
    manager = FakeManager()
    session = manager.make("Kept", ["a question", "an answer"])
    marker = Path(sys.argv[1])
    result = run(manager, session_id=session.id, pick=False, theme=None, config_dir=marker.parent)  # type: ignore[arg-type]
    marker.write_text(f"{result} {manager.closed}")
    print("left", result)
