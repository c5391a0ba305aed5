"""Places that cannot be written: disks of a small size, folders that are read-only, also for root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own; the test is skipped where none can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder nothing can be written in. Root is stopped by no mode, so it gets a read-only mount."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        try:
            yield folder
        finally:
            folder.chmod(0o700)
        return
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield folder
    finally:
        _unmount(folder)


def fill_up(folder: Path, name: str = "ballast") -> Path:
    """Use all room there is; delete the file to have it back."""
    ballast = folder / name
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 65536) == 65536:
            pass
        while file.write(b"\0" * 512):
            pass
    return ballast


def why_not_written(folder: Path) -> str:
    """What the system says of a file made in `read_only`."""
    try:
        (folder / "probe").touch()
    except OSError as error:
        return error.strerror or ""
    raise AssertionError(f"{folder} can be written")


def _mount(*args: str) -> None:
    done = subprocess.run(["mount", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
