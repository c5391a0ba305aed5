"""Telling exact weights apart by their file alone, with no engine loaded. Must not know: llama.cpp."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import xxhash

from ds4chat.engine.memo import read_memo, write_memo

log = logging.getLogger(__name__)

_PIECE_BYTES = 8 << 20

_MEMORIES = 64
"""Files that a memo remembers: enough for anybody's models, and still read at once."""


def weights_hash(path: Path, memo: Path | None = None, beat: Callable[[], object] = bool) -> bytes:
    """16 bytes that tell exact weights apart: XXH3-128 over all of the file.

    All of it, because a sample misses what was changed between its blocks, and weights that differ in one tensor give
    other rows of KV. That takes as long as reading the file, once: it is remembered by path, size, inode and
    times of the last changes, in `memo` (a small JSON file) beyond this process. `beat` is called
    as the reading goes on. Raises `OSError`.
    """
    path = Path(os.path.realpath(path))
    status = path.stat()
    known = (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    found = _found.get((path, known, memo))
    if found is None:
        found = _found[path, known, memo] = _hash(path, known, memo, beat)
    return found


_found: dict[tuple[Path, tuple[int, ...], Path | None], bytes] = {}


def _hash(path: Path, known: tuple[int, ...], memo: Path | None, beat: Callable[[], object]) -> bytes:
    name, memories = str(path), read_memo(memo)
    kept = memories.get(name)
    if isinstance(kept, dict) and kept.get("known") == list(known):
        try:
            digest = bytes.fromhex(kept["hash"])
            if len(digest) == 16:
                return digest
        except (KeyError, TypeError, ValueError):
            log.info("%s says nothing usable of %s", memo, path)
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            state.update(piece)
            beat()
    memories.pop(name, None)
    memories[name] = {"known": list(known), "hash": state.hexdigest()}
    write_memo(memo, dict(list(memories.items())[-_MEMORIES:]))
    return state.digest()
