"""Telling exact weights apart by their file alone, with no engine loaded. Must not know: llama.cpp."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import xxhash

_BLOCKS, _BLOCK_BYTES = 64, 65_536


def weights_hash(path: Path) -> bytes:
    """16 bytes that tell exact weights apart: XXH3-128 over the file's size and 64 blocks spread over it.

    All of the file would take seconds for a large model; a changed quantization or finetune touches every block.
    Remembered by path, size and time of the last change. Raises `OSError`.
    """
    status = path.stat()
    return _sampled(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _sampled(path: Path, size: int, _mtime_ns: int) -> bytes:
    digest = xxhash.xxh3_128()
    digest.update(struct.pack("<Q", size))
    with path.open("rb") as file:
        for i in range(_BLOCKS):
            file.seek(max(0, (size - _BLOCK_BYTES) * i // (_BLOCKS - 1)))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.digest()
