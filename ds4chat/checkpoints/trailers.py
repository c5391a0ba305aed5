"""What may follow a span's payload: tagged records that other parts of the program, or later versions, put
there.

Promises that a reader passes over what it does not know, and that damage to one record makes that record
unusable and not the span. It must not know what any tag means. They are written with the file and never
changed.

A record is `tag u8[4], version u32, length u64, bytes, XXH3 u64`, little-endian; the checksum covers all
before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from ds4chat.errors import CheckpointError

_HEAD = struct.Struct("<4sIQ")
_HASH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Trailer:
    """One record: `tag` is four bytes, `version` says how its owner reads `data`."""

    tag: bytes
    version: int
    data: bytes


def pack_trailers(trailers: Iterable[Trailer]) -> bytes:
    """The bytes to put behind a payload. Raises `CheckpointError` for a tag that is not four bytes."""
    parts: list[bytes] = []
    for trailer in trailers:
        if len(trailer.tag) != 4:
            raise CheckpointError(f"trailer tag {trailer.tag!r} is not four bytes")
        try:
            record = _HEAD.pack(trailer.tag, trailer.version, len(trailer.data)) + trailer.data
        except struct.error as error:
            raise CheckpointError(f"trailer {trailer.tag!r} cannot be written: {error}") from error
        parts += (record, _HASH.pack(xxhash.xxh3_64_intdigest(record)))
    return b"".join(parts)


def unpack_trailers(data: memoryview) -> list[Trailer]:
    """The undamaged records in `data`, the part of a file behind its payload. Never raises.

    A record with a wrong checksum is left out and the next one read; a length that leads past the end of the
    file ends the reading, since nothing says where the next record would begin.
    """
    found: list[Trailer] = []
    position = 0
    while len(data) - position >= _HEAD.size + _HASH.size:
        tag, version, length = _HEAD.unpack_from(data, position)
        end = position + _HEAD.size + length
        if end + _HASH.size > len(data):
            break
        (stored,) = _HASH.unpack_from(data, end)
        if stored == xxhash.xxh3_64_intdigest(data[position:end]):
            found.append(Trailer(tag, version, bytes(data[position + _HEAD.size : end])))
        position = end + _HASH.size
    return found
