"""Pins: spans to keep whatever happens, as empty files `<root>/pins/<sha1>`.

A pin names a prefix of a conversation, not a file: it holds under every model, before the span is written and
after the directory was copied elsewhere. It must not know what a pin is for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = "pins"

_NAME = re.compile(r"[0-9a-f]{40}")


def pinned(root: Path) -> frozenset[bytes]:
    """SHA-1s of all pinned spans; none when the directory cannot be read."""
    try:
        names = os.listdir(root / FOLDER)  # noqa: PTH208 - only names are needed
    except OSError:
        return frozenset()
    return frozenset(bytes.fromhex(name) for name in names if _NAME.fullmatch(name))


def pin(root: Path, names: Iterable[bytes]) -> None:
    """Pin spans; those pinned already stay so. Raises `OSError`."""
    for name in names:
        (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path := root / FOLDER / name.hex()):
            path.touch(mode=0o600)


def unpin(root: Path, names: Iterable[bytes]) -> int:
    """Take pins away; how many there were. Raises `OSError`."""
    count = 0
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):
            (root / FOLDER / name.hex()).unlink()
            count += 1
    return count
