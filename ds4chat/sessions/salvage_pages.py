"""The rows in the pages of a SQLite file, read without SQLite: what a damaged file still holds.

Promises: whatever the bytes, reading them gives rows and never fails; rows that were deleted are not among them. Must
not know: what the rows mean.

SQLite finds its pages through other pages, so that one damaged page hides all behind it. Each page says of itself
what it is, and a leaf holds its rows whole or names the pages they go on in: so every page is looked at for itself.
The layout is SQLite's "Database File Format", which has been the same since 2004.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"SQLite format 3\0"

_DEFAULT_PAGE = 4096
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
"""The first word of a journal tells the byte order of its checksums."""

_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE = 0x02, 0x0A, 0x0D

Value = None | int | float | bytes | str


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        rowid: None for a row of an index (or of a table without row ids).
        values: without those that are lost at the end; text is decoded as far as it goes.
        whole: none of it is lost.
    """

    rowid: int | None
    values: tuple[Value, ...]
    whole: bool


class Pages:
    """The pages of a database file, with the committed ones of its journal over them."""

    def __init__(self, file: BinaryIO, wal: BinaryIO | None = None) -> None:
        self._file = file
        header = _read(file, 0, 100)
        self.page_size = _page_size(header)
        journal: dict[int, int] = {}
        count = 0
        if wal is not None:
            size, journal, count = _committed(wal)
            self.page_size = size or self.page_size
        self._wal, self._journal = wal, journal
        file.seek(0, 2)
        self.count = count or -(-file.tell() // self.page_size)
        first = self.page(1)[:100]
        self.header = first if first.startswith(MAGIC) else header
        reserved = self.header[20] if self.header.startswith(MAGIC) else 0
        self._usable = self.page_size - reserved if reserved <= 32 else self.page_size

    def page(self, number: int) -> bytes:
        """A page, the first being 1; filled up with zeros where the file ends."""
        if number in self._journal and self._wal is not None:
            data = _read(self._wal, self._journal[number], self.page_size)
        else:
            data = _read(self._file, (number - 1) * self.page_size, self.page_size)
        return data.ljust(self.page_size, b"\0")

    def rows(self) -> Iterator[Row]:
        """All rows of all tables and indexes, page by page."""
        for number in range(1, self.count + 1):
            with suppress(OSError):
                yield from self._rows_of(self.page(number), 100 if number == 1 else 0)

    def _rows_of(self, page: bytes, at: int) -> Iterator[Row]:
        kind = page[at]
        if kind not in (_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE):
            return
        (cells,) = struct.unpack_from(">H", page, at + 3)
        pointers = at + (12 if kind == _INTERIOR_INDEX else 8)
        for i in range(min(cells, (self.page_size - pointers) // 2)):
            (start,) = struct.unpack_from(">H", page, pointers + 2 * i)
            if start < pointers + 2 * cells:
                continue
            # Whatever stands there in place of a row: it is none.
            with suppress(ValueError, IndexError, struct.error):
                yield self._cell(page, start, kind)

    def _cell(self, page: bytes, at: int, kind: int) -> Row:
        if kind == _INTERIOR_INDEX:
            at += 4
        size, at = _varint(page, at)
        rowid = None
        if kind == _LEAF_TABLE:
            rowid, at = _varint(page, at)
        usable = self._usable
        most = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if not 0 < size <= self.count * self.page_size:
            raise ValueError("no row is as large as that")
        if size <= most:
            payload = page[at : at + size]
        else:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (usable - 4)
            if local > most:
                local = least
            (following,) = struct.unpack_from(">I", page, at + local)
            payload = page[at : at + local] + self._overflow(following, size - local)
        return _record(rowid, payload, size)

    def _overflow(self, number: int, size: int) -> bytes:
        """What follows in other pages, as far as it can be found."""
        parts: list[bytes] = []
        seen: set[int] = set()
        while size > 0 and 1 < number <= self.count and number not in seen:
            seen.add(number)
            page = self.page(number)
            part = page[4 : min(4 + size, self._usable)]
            parts.append(part)
            size -= len(part)
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _page_size(header: bytes) -> int:
    if header.startswith(MAGIC):
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        if 512 <= size <= 65536 and size & (size - 1) == 0:
            return size
    return _DEFAULT_PAGE


def _committed(wal: BinaryIO) -> tuple[int, dict[int, int], int]:
    """Of a journal: the page size, where the last committed version of each page lies, and how many pages the
    database has then; zeros when it says nothing. It counts as far as its checksums fit, as for SQLite."""
    head = _read(wal, 0, _WAL_HEADER)
    if len(head) < _WAL_HEADER:
        return 0, {}, 0
    magic, _, size = struct.unpack_from(">III", head)
    order = _WAL_MAGIC.get(magic, "")
    if not order or not 512 <= size <= 65536 or size & (size - 1):
        return 0, {}, 0
    sums = _checksum(head[:24], (0, 0), order)
    if struct.pack(">II", *sums) != head[24:32]:
        return 0, {}, 0
    committed: dict[int, int] = {}
    pending: dict[int, int] = {}
    count, at = 0, _WAL_HEADER
    while True:
        frame = _read(wal, at, _FRAME_HEADER + size)
        if len(frame) < _FRAME_HEADER + size or frame[8:16] != head[16:24]:
            break
        sums = _checksum(frame[_FRAME_HEADER:], _checksum(frame[:8], sums, order), order)
        if struct.pack(">II", *sums) != frame[16:24]:
            break
        number, pages = struct.unpack_from(">II", frame)
        pending[number] = at + _FRAME_HEADER
        at += len(frame)
        if pages:
            committed |= pending
            pending, count = {}, pages
    return size, committed, count


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for i in range(0, len(words), 2):
        one = (one + words[i] + two) & 0xFFFFFFFF
        two = (two + words[i + 1] + one) & 0xFFFFFFFF
    return one, two


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends. Raises IndexError."""
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _record(rowid: int | None, payload: bytes, size: int) -> Row:
    """Raises ValueError or IndexError for what is no record."""
    header_size, at = _varint(payload, 0)
    if not at <= header_size <= len(payload):
        raise ValueError("the row has no header")
    types: list[int] = []
    while at < header_size:
        kind, at = _varint(payload, at)
        types.append(kind)
    if at != header_size or header_size + sum(map(_length, types)) != size:
        raise ValueError("the row is not as long as it says")
    values: list[Value] = []
    for kind in types:
        length = _length(kind)
        data = payload[at : at + length]
        if len(data) < length and kind < 12:
            break
        values.append(_value(kind, data))
        if len(data) < length:
            break
        at += length
    return Row(rowid, tuple(values), whole=len(payload) >= size)


def _length(kind: int) -> int:
    if kind < 0 or kind in (10, 11):
        raise ValueError("there is no such kind of value")
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGER_BYTES.get(kind, 0)


def _value(kind: int, data: bytes) -> Value:
    if kind == 0:
        return None
    if kind in _INTEGER_BYTES:
        return int.from_bytes(data, "big", signed=True)
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind in (8, 9):
        return kind - 8
    return data.decode("utf-8", "replace") if kind % 2 else data
