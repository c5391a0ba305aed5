"""One session, one writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat.errors import DatabaseError, SessionLockedError
from ds4chat.sessions.locks import holder, lock_session

HOLD = """
import sys
from pathlib import Path
from ds4chat.sessions.locks import lock_session
lock = lock_session(Path(sys.argv[1]), "1a2b3c4d")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_lock_is_refused_in_one_sentence_that_names_session_and_holder(tmp_path: Path) -> None:
    with lock_session(tmp_path, "1a2b3c4d"):
        for _ in range(2):  # the refusal itself must not wipe out the holder's name
            with pytest.raises(SessionLockedError) as caught:
                lock_session(tmp_path, "1a2b3c4d", "Trip to Rome")
            assert str(caught.value) == (
                f'Session 1a2b3c4d "Trip to Rome" is open in another ds4chat (process {os.getpid()}): '
                "close it there, or open it here read-only or as a fork."
            )
        lock_session(tmp_path, "ffffffff").release()


def test_a_released_lock_can_be_taken_again_and_leaves_no_holder(tmp_path: Path) -> None:
    lock = lock_session(tmp_path, "1a2b3c4d")
    lock.release()
    lock.release()
    assert holder(tmp_path, "1a2b3c4d") is None
    lock_session(tmp_path, "1a2b3c4d").release(remove=True)
    assert list((tmp_path / "locks").iterdir()) == []


def test_folder_and_file_are_for_the_owner_alone(tmp_path: Path) -> None:
    with lock_session(tmp_path / "data", "1a2b3c4d"):
        assert (tmp_path / "data" / "locks").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "data" / "locks" / "1a2b3c4d.lock").stat().st_mode & 0o077 == 0


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        assert holder(tmp_path, "1a2b3c4d") == child.pid
        with pytest.raises(SessionLockedError, match=f"process {child.pid}"):
            lock_session(tmp_path, "1a2b3c4d")
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    lock_session(tmp_path, "1a2b3c4d").release()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("in the way")
    with pytest.raises(DatabaseError, match=r"lock file .* cannot be written .*--data-dir"):
        lock_session(tmp_path, "1a2b3c4d")
