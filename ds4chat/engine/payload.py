"""What a span's payload says of itself: its cells' positions, read before llama.cpp sees them.

llama.cpp accepts any positions (duplicates, negative ones), so a payload must show that it is exactly its span.
Layout of `llama_state_seq_get_data_ext` (little-endian): u32 magic, i32 sequence id, then the caches, see
`_attention` and `_recurrent`; a sliding-window model writes its full layers first, a hybrid one its attention
first. Must not know: llama_cpp, files.
"""

from __future__ import annotations

import struct

from ds4chat.engine.protocol import MemoryKind
from ds4chat.errors import CheckpointError

_MAGIC = 0xAF143CD8
CELL_BYTES = 12
"""i32 position, u32 count of sequence ids, i32 sequence id; models with positions in two dimensions add 8 bytes."""

_MOST_LAYERS = 4096
"""More than any model has (llama.cpp takes 512): a made-up count must not be worked off one by one."""


def check_payload(payload: memoryview, memory: MemoryKind, start: int, end: int, window: int = 0) -> None:
    """Raise CheckpointError unless the payload holds exactly the positions of the span `[start, end)`.

    Args:
        window: positions a sliding-window model's short layers look back over, tokens.
    """
    try:
        (magic,) = struct.unpack_from("<I", payload, 0)
        if magic != _MAGIC:
            raise CheckpointError("the payload is not a llama.cpp sequence state")
        at = 8
        if memory != "recurrent":
            at = _attention(payload, at, start, end)
        if memory == "sliding-window":
            at = _attention(payload, at, max(start, end - window), end)
        if memory in ("hybrid", "recurrent"):
            at = _recurrent(payload, at, end - 1)
    except struct.error as error:
        raise CheckpointError("the payload is too short") from error
    if at != len(payload):
        raise CheckpointError(f"the payload has {len(payload) - at} bytes more or less than its cells take")


def _attention(payload: memoryview, at: int, start: int, end: int) -> int:
    """One attention cache: u32 streams, u32 cells, the cells, u32 transposed, u32 layers, K then V of each layer.

    A layer is i32 type, u64 bytes a row, the rows; a transposed V is i32 type, u32 bytes an element, u32 rows,
    elements.
    """
    streams, cells = struct.unpack_from("<II", payload, at)
    if streams != 1 or cells != end - start:
        raise CheckpointError(f"the payload holds {cells} cells, not {end - start}")
    at += 8
    stride = next(
        (s for s in (CELL_BYTES, CELL_BYTES + 8) if _positions_fit(payload, at, s, start, cells)), None
    )
    if stride is None:
        raise CheckpointError(f"the payload's positions are not {start} to {end - 1}")
    at += stride * cells
    transposed, layers = struct.unpack_from("<II", payload, at)
    at += 8
    if transposed > 1 or layers > _MOST_LAYERS:
        raise CheckpointError("the payload is of an unknown layout")
    for i in range(2 * layers):
        if i >= layers and transposed:
            _type, element, rows = struct.unpack_from("<iII", payload, at)
            at = _behind(payload, at + 12 + cells * element * rows)
        else:
            _type, row = struct.unpack_from("<iQ", payload, at)
            at = _behind(payload, at + 12 + cells * row)
    return at


def _positions_fit(payload: memoryview, at: int, stride: int, start: int, cells: int) -> bool:
    if at + stride * cells > len(payload):
        return False
    numbers = memoryview(payload[at : at + stride * cells]).cast("i")
    step = stride // 4
    return list(numbers[0::step]) == list(range(start, start + cells)) and set(numbers[1::step]) == {1}


def _recurrent(payload: memoryview, at: int, position: int) -> int:
    """Recurrent state: u32 cells (one), i32 position, u32 0, u32 0, u32 layers, then type and row for each part."""
    cells, held, ids, transposed, layers = struct.unpack_from("<IiIII", payload, at)
    if cells != 1 or held != position or ids != 0 or transposed != 0:
        raise CheckpointError(f"the payload's state is at position {held}, not {position}")
    at += 20
    if layers > _MOST_LAYERS:
        raise CheckpointError("the payload is of an unknown layout")
    # Which layers have no state is not written, so the records run to the end, two a layer at most.
    for _ in range(2 * layers):
        if at == len(payload):
            break
        _type, row = struct.unpack_from("<iQ", payload, at)
        at = _behind(payload, at + 12 + row)
    return at


def _behind(payload: memoryview, at: int) -> int:
    """An offset that a size in the payload gave: sizes of 64 bits can lead anywhere."""
    if at > len(payload):
        raise CheckpointError("the payload is too short")
    return at
