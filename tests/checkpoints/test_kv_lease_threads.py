"""One lease used by two threads."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ds4chat.checkpoints import leases
from ds4chat.checkpoints.leases import Lease


def test_two_threads_make_the_lease_anew_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine names what it stands on while the writer stores, in a directory that was just deleted."""
    root = tmp_path / "kv"
    root.mkdir()
    lease = Lease(root)
    both, take = threading.Barrier(2), os.open

    def meet(*args: Any, **options: Any) -> int:
        # Where the lease is not guarded, both come here with one name.
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return take(*args, **options)

    monkeypatch.setattr(leases.os, "open", meet)
    threads = [threading.Thread(target=lease.ensure, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    monkeypatch.undo()
    assert len(list((root / "leases").glob("*.lock"))) == 1
    lease.close()
    assert not list((root / "leases").iterdir())
