"""Files that are replaced as a whole. Imports nothing of the program."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file as a whole, so that a crash leaves the old one or the new one. Raises OSError."""
    # Not needed before the first file is written, and slow to import.
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
