"""Files that bring the engine down: the second time, they are set aside.

Promises that a file is judged by its content: one that was written again starts with a clean record. It must
not know how the engine's end is noticed.

The first time leaves a mark `<sha1>.kv.strike` that holds the file's checksum; the second renames the file to
`<sha1>.kv.bad`. No lookup sees it there. It counts towards the budget, and goes before anything else.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ds4chat.checkpoints.directory import BAD, STRIKE
from ds4chat.checkpoints.format import read_header
from ds4chat.errors import CheckpointError
from ds4chat.files import read_limited, write_private

log = logging.getLogger(__name__)


def strike(path: Path) -> bool:
    """The engine aborted or segfaulted while it took in this file; whether it is set aside now. Hold the
    directory's lock. Raises `OSError`."""
    mark = path.with_name(path.name + STRIKE)
    try:
        header, _ = read_header(path)
    except (CheckpointError, FileNotFoundError):
        return False
    seal = f"{header.fixed_hash:016x}{header.payload_hash:016x}"
    if not _is_marked(mark, seal):
        # Replaced, not written into: a link of that name leads elsewhere.
        write_private(mark, seal)
        log.warning("the engine ended while it took in %s", path)
        return False
    path.replace(path.with_name(path.name + BAD))
    mark.unlink()
    log.warning("the engine ended again while it took in %s: it is set aside", path)
    return True


def _is_marked(mark: Path, seal: str) -> bool:
    try:
        return read_limited(mark, len(seal)) == seal.encode("ascii")
    except OSError:
        return False
