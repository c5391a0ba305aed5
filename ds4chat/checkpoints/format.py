"""The `.kv` file: one span of a conversation, its text, its token ids and the KV rows of just those tokens.

Promises that whatever the bytes of a file, reading it gives either what was written or `CheckpointError`:
every number in a header is checked against the file's real length before it is used. It must not know the
directory the file lies in, the engine, nor what the payload means.

Little-endian, in this order: a header of 144 bytes, the span's key bytes ("text"), its token ids (u32 each),
the payload, trailers. Nothing is padded, so neither token ids nor payload are aligned. Two fields of the
header, `hits` and `last_used`, are rewritten in place and therefore under no checksum; nothing else of a file
ever changes.

Checksums are XXH3 (64 bits):
- `payload_hash` over the payload;
- `fixed_hash` over header bytes 0..11, 16..31 and 40..135 (all but `hits`, `last_used` and itself;
  `payload_hash` included), then the text, then the token ids as they lie in the file;
- `start_hash`, `end_hash` over all token ids of the conversation up to the span's start and end, four bytes
  each;
- one in each trailer.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from pathlib import Path
from typing import BinaryIO

import xxhash

from ds4chat.checkpoints.mapping import Mapping
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.trailers import Trailer, pack_trailers, unpack_trailers
from ds4chat.errors import CheckpointError

__all__ = [
    "EMPTY_TOKEN_HASH",
    "HEADER_BYTES",
    "MAGIC",
    "VERSION",
    "Bytes",
    "Flag",
    "Header",
    "LoadedSpan",
    "Reason",
    "Trailer",
    "file_bytes",
    "hash_tokens",
    "open_span",
    "peek_key_len",
    "peek_last_used",
    "peek_parent",
    "read_header",
    "read_raw",
    "read_tokens",
    "token_hash",
    "unpack_listed",
    "write_span",
    "write_use",
]

MAGIC = b"KVC"
VERSION = 1
HEADER_BYTES = 144
MAX_TEXT_BYTES = 2**28
MAX_SPAN_TOKENS = 2**24
"""Far above any real span: a crafted header must not make a reader allocate without measure."""
MAX_TOKENS = 2**31 - 1

Bytes = bytes | bytearray | memoryview

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe under a checkpoint's name must not be waited for."""

_HEADER = struct.Struct("<3s5B4I3Q20s3I16s8s5Q")
_HITS = struct.Struct("<I")
_LAST_USED = struct.Struct("<Q")
_HITS_AT = 12
_LAST_USED_AT = 32
_FIXED_HASH_AT = 136
_U32_MAX = 2**32 - 1
_REASONS: dict[int, Reason] = {int(reason): reason for reason in Reason}
_NO_PARENT = bytes(20)


class Flag(IntFlag):
    """Bits of the header's `flags`. A build uses no file that carries one it does not know."""

    NONE = 0
    SNAPSHOT = 1
    """The payload is the whole state at `end`, not only the rows of the span."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one span. Lengths are tokens or bytes as named, times are whole seconds since 1970.

    Attributes:
        start, end: the span is tokens `start..end-1` of the conversation.
        context_size: the engine's context when it was stored, tokens; for information.
        parent: SHA-1 of all key bytes up to `start`, zeros at the root.
        cost_us: measured prefill time, microseconds a token.
        key_len: key bytes of the whole conversation up to `end`.
    """

    quant_bits: int
    reason: Reason
    flags: int
    payload_abi: int
    end: int
    context_size: int
    start: int
    created: int
    last_used: int
    parent: bytes
    cost_us: int
    fingerprint: bytes
    variant: bytes
    key_len: int
    start_hash: int
    end_hash: int
    hits: int = 0
    text_bytes: int = 0
    token_count: int = 0
    payload_bytes: int = 0
    payload_hash: int = 0
    fixed_hash: int = 0

    @property
    def text_at(self) -> int:
        """Offset of the text in the file."""
        return HEADER_BYTES

    @property
    def tokens_at(self) -> int:
        """Offset of the token ids in the file."""
        return HEADER_BYTES + self.text_bytes

    @property
    def payload_at(self) -> int:
        """Offset of the payload in the file."""
        return self.tokens_at + 4 * self.token_count

    @property
    def trailers_at(self) -> int:
        """Offset of the first trailer, which is the length of a file without any."""
        return self.payload_at + self.payload_bytes

    def pack(self) -> bytes:
        """The 144 bytes. Raises `CheckpointError` for a number that does not fit its field."""
        if len(self.parent) != 20 or len(self.fingerprint) != 16 or len(self.variant) != 8:
            raise CheckpointError("parent, fingerprint and variant must be 20, 16 and 8 bytes")
        try:
            return _HEADER.pack(
                MAGIC,
                VERSION,
                self.quant_bits,
                self.reason,
                self.flags,
                self.payload_abi,
                self.end,
                self.hits,
                self.context_size,
                self.start,
                self.created,
                self.last_used,
                self.payload_bytes,
                self.parent,
                self.text_bytes,
                self.token_count,
                self.cost_us,
                self.fingerprint,
                self.variant,
                self.key_len,
                self.start_hash,
                self.end_hash,
                self.payload_hash,
                self.fixed_hash,
            )
        except struct.error as error:
            raise CheckpointError(f"a header field is out of range: {error}") from error

    @classmethod
    def unpack(cls, data: Bytes) -> Header:
        """Reads the first 144 bytes. Raises `CheckpointError` for what no span can have."""
        if len(data) < HEADER_BYTES:
            raise CheckpointError(f"{len(data)} bytes are no header")
        # One statement a field: a directory may have a hundred thousand of these.
        (magic, version, quant_bits, reason, flags, payload_abi, end, hits, context_size, start, created,
         last_used, payload_bytes, parent, text_bytes, token_count, cost_us, fingerprint, variant, key_len,
         start_hash, end_hash, payload_hash, fixed_hash) = _HEADER.unpack_from(data)  # fmt: skip
        if magic != MAGIC:
            raise CheckpointError("not a checkpoint file")
        if version != VERSION:
            raise CheckpointError(f"format version {version}, not {VERSION}")
        known = _REASONS.get(reason)
        if known is None:
            raise CheckpointError(f"unknown reason {reason}")
        if not start < end <= MAX_TOKENS or end - start != token_count or token_count > MAX_SPAN_TOKENS:
            raise CheckpointError(f"{token_count} tokens cannot be span {start}..{end}")
        if text_bytes > key_len or text_bytes > MAX_TEXT_BYTES:
            raise CheckpointError(f"{text_bytes} bytes of text cannot end at key byte {key_len}")
        if (start == 0) != (parent == _NO_PARENT):
            raise CheckpointError("a span has a parent just when it begins behind token 0")
        return cls(quant_bits, known, flags, payload_abi, end, context_size, start, created, last_used, parent,
                   cost_us, fingerprint, variant, key_len, start_hash, end_hash, hits, text_bytes, token_count,
                   payload_bytes, payload_hash, fixed_hash)  # fmt: skip


# ---- token ids ---------------------------------------------------------------------------------------------


def hash_tokens(tokens: Sequence[int], state: xxhash.xxh3_64 | None = None) -> xxhash.xxh3_64:
    """Append ids to the XXH3 of a growing conversation, four little-endian bytes each, in place; returns
    `state`, or a new one. `state.copy()` branches off, `state.intdigest()` is what headers hold.

    Raises `CheckpointError` for an id that is not in 0..2**32-1.
    """
    state = state if state is not None else xxhash.xxh3_64()
    state.update(_token_bytes(tokens))
    return state


EMPTY_TOKEN_HASH = xxhash.xxh3_64().intdigest()
"""`start_hash` of a span at the root."""


def token_hash(tokens: Sequence[int], state: xxhash.xxh3_64 | None = None) -> int:
    """The hash of the ids in `state` (none by default) followed by `tokens`; `state` stays as it is."""
    return hash_tokens(tokens, state.copy() if state is not None else None).intdigest()


def _token_bytes(tokens: Sequence[int]) -> bytes:
    try:
        ids = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise CheckpointError(f"not a token id: {error}") from error
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def _tokens_from(data: Bytes) -> array[int]:
    ids = array("I")
    ids.frombytes(data)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


# ---- writing -----------------------------------------------------------------------------------------------


def file_bytes(text: Bytes, token_count: int, payload: Bytes, trailers: Iterable[Trailer] = ()) -> int:
    """Size of the file that `write_span` makes of these."""
    return (
        HEADER_BYTES + len(text) + 4 * token_count + memoryview(payload).nbytes + len(pack_trailers(trailers))
    )


def write_span(
    file: BinaryIO,
    header: Header,
    text: Bytes,
    tokens: Sequence[int],
    payload: Bytes,
    trailers: Iterable[Trailer] = (),
) -> Header:
    """Write a whole file at the present position and return its header, sizes and checksums filled in.

    Raises `CheckpointError` before anything is written when the parts make no valid span; an `OSError` passes.
    """
    token_data = _token_bytes(tokens)
    body = memoryview(payload).cast("B")
    header = replace(
        header,
        text_bytes=len(text),
        token_count=len(tokens),
        payload_bytes=len(body),
        payload_hash=xxhash.xxh3_64_intdigest(body),
    )
    header = replace(header, fixed_hash=_fixed_hash(header.pack(), text, token_data))
    packed = header.pack()
    Header.unpack(packed)
    tail = pack_trailers(trailers)
    for part in (packed, text, token_data, body, tail):
        file.write(part)
    return header


def write_use(fd: int, hits: int, last_used: int) -> None:
    """Rewrite the two fields that change, in place. `hits` stays at the largest 32-bit number once there."""
    os.pwrite(fd, _HITS.pack(min(max(hits, 0), _U32_MAX)), _HITS_AT)
    os.pwrite(fd, _LAST_USED.pack(max(last_used, 0)), _LAST_USED_AT)


def _fixed_hash(header: Bytes, text: Bytes, token_data: Bytes) -> int:
    state = xxhash.xxh3_64()
    state.update(header[:_HITS_AT])
    state.update(header[_HITS_AT + _HITS.size : _LAST_USED_AT])
    state.update(header[_LAST_USED_AT + _LAST_USED.size : _FIXED_HASH_AT])
    state.update(text)
    state.update(token_data)
    return state.intdigest()


# ---- reading -----------------------------------------------------------------------------------------------


def read_header(path: str | Path) -> tuple[Header, int]:
    """The header of a file and the file's size, by one read of 144 bytes.

    Raises `CheckpointError` for what is no span, or shorter than its header says; an `OSError` passes.
    """
    fd = os.open(path, _READ)
    try:
        return _header_of(fd)
    finally:
        os.close(fd)


def read_raw(name: str, folder: int) -> bytes:
    """The first 144 bytes of a file, or fewer; `folder` is a descriptor. Raises `OSError`."""
    fd = os.open(name, _READ, dir_fd=folder)
    try:
        return os.pread(fd, HEADER_BYTES, 0)
    finally:
        os.close(fd)


def unpack_listed(data: bytes, size: int) -> Header:
    """The header in what `read_raw` gave, of a file of `size` bytes. Raises `CheckpointError`."""
    header = Header.unpack(data)
    _check_size(header, size)
    return header


def peek_parent(data: bytes) -> bytes:
    """The parent in a header's 144 bytes, without a look at the rest."""
    return data[48:68]


def peek_key_len(data: bytes) -> int:
    """The key length likewise."""
    return int.from_bytes(data[104:112], "little")


def peek_last_used(data: bytes) -> int:
    """The time of the last use likewise."""
    return int.from_bytes(data[32:40], "little")


def read_tokens(path: str | Path) -> array[int]:
    """Only the token ids of a file, not verified, without touching the payload. Raises as `read_header`
    does."""
    fd = os.open(path, _READ)
    try:
        header, _ = _header_of(fd)
        data = os.pread(fd, 4 * header.token_count, header.tokens_at)
    finally:
        os.close(fd)
    if len(data) != 4 * header.token_count:
        raise CheckpointError("the file is cut off")
    return _tokens_from(data)


def _header_of(fd: int) -> tuple[Header, int]:
    header = Header.unpack(os.pread(fd, HEADER_BYTES, 0))
    size = os.fstat(fd).st_size
    _check_size(header, size)
    return header, size


def _check_size(header: Header, size: int) -> None:
    if size < header.trailers_at:
        raise CheckpointError(f"the file has {size} bytes and should have {header.trailers_at}")


class LoadedSpan:
    """One file, mapped into memory. The payload is not copied; text and token ids are. Close it after use, or
    use it as a context manager.

    Attributes:
        header: as it was when the file was opened.
        size: of the file, bytes.
    """

    def __init__(self, path: Path, header: Header, size: int, mapping: Mapping) -> None:
        self.path = path
        self.header = header
        self.size = size
        self._mapping = mapping
        view = mapping.view
        self.text = bytes(view[header.text_at : header.tokens_at])
        """The span's key bytes."""
        self.tokens = _tokens_from(view[header.tokens_at : header.payload_at])
        """The span's token ids."""

    @property
    def payload(self) -> memoryview:
        """The KV rows, read-only, in place. Raises `ValueError` once closed."""
        return self._mapping.view[self.header.payload_at : self.header.trailers_at]

    @property
    def payload_address(self) -> int:
        """Address of the payload's first byte, for a C function that only reads. Valid until `close`."""
        return self._mapping.address + self.header.payload_at

    @property
    def payload_size(self) -> int:
        """Bytes of payload at `payload_address`."""
        return self.header.payload_bytes

    @property
    def trailers(self) -> list[Trailer]:
        """All undamaged trailers, those of unknown tags included."""
        return unpack_trailers(self._mapping.view[self.header.trailers_at :])

    def verify(self) -> None:
        """Check what the file says of itself: sizes, ranges (both when it was opened) and all checksums but
        those of trailers. That it continues its parent is the store's to check. Raises `CheckpointError` with
        the reason."""
        view = self._mapping.view
        header = self.header
        packed = view[:HEADER_BYTES]
        token_data = view[header.tokens_at : header.payload_at]
        if _fixed_hash(packed, self.text, token_data) != header.fixed_hash:
            raise CheckpointError("checksum of header, text and tokens does not fit")
        if xxhash.xxh3_64_intdigest(self.payload) != header.payload_hash:
            raise CheckpointError("checksum of the payload does not fit")
        if header.start == 0 and (
            header.start_hash != EMPTY_TOKEN_HASH or header.end_hash != token_hash(self.tokens)
        ):
            raise CheckpointError("token hash of a root span does not fit its tokens")

    def close(self) -> None:
        """Unmap the file. Views of the payload that are still about keep it mapped until they go."""
        self._mapping.close()

    def __enter__(self) -> LoadedSpan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_span(path: str | Path) -> LoadedSpan:
    """Map a file. Its sizes are checked against its length; `verify` checks the rest.

    Raises `CheckpointError` for anything that is no whole span, unreadable files included.
    """
    path = Path(path)
    try:
        fd = os.open(path, _READ)
        try:
            header, size = _header_of(fd)
            mapping = Mapping(fd, size)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from error
    return LoadedSpan(path, header, size, mapping)
