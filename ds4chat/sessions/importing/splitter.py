"""The values of a large JSON file one by one, each found by its brackets without being understood.

Promises: memory for one value and never more than `MAX_VALUE`; a value that is damaged or too large is told, and those
behind it are still found. A top-level list is taken apart; values that stand one behind the other are each one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_VALUE = 64_000_000
"""Bytes of one chat; a longer one is passed over."""

BLOCK = 1 << 18

Read = Callable[[int], bytes]
"""Gives at most so many more bytes, none at the end."""

_SPACE = re.compile(rb"[\s,]*+")
_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:"(?:[^"\\]++|\\.)*+"[^"{}\[\]]*+)*+([{}\[\]])', re.DOTALL)
"""What reaches to the next bracket that stands in no string."""

_SCALAR = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"|[^\s,\[\]{}"]++)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Value:
    """A value, or why there is none.

    Attributes:
        start: of its first byte in the file.
        group: which of the file's top-level values it is or is part of, from 0.
        inside: it is one of a top-level list.
        fault: "" when `data` is there; a clause like "it ends in the middle".
        line: it stands alone in, from 1; 0 where lines do not count.
    """

    start: int
    group: int
    inside: bool
    data: bytes = b""
    fault: str = ""
    line: int = 0


class _Buffer:
    """A part of the file that slides on."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.data = bytearray()
        self.start = 0
        """Where `data` begins in the file."""
        self.ended = False

    def drop(self, upto: int) -> None:
        """Forget what lies before."""
        del self.data[:upto]
        self.start += upto

    def more(self, at: int) -> bool:
        """Read on; as much again as lies behind `at`, so that what is scanned again stays in proportion."""
        block = self._read(max(BLOCK, len(self.data) - at))
        self.ended = not block
        self.data += block
        return bool(block)


def values(read: Read, max_value: int = MAX_VALUE) -> Iterator[Value]:
    """The values of JSON text in UTF-8, in order."""
    buffer = _Buffer(read)
    while len(buffer.data) < 3 and buffer.more(0):
        pass
    if buffer.data.startswith(b"\xef\xbb\xbf"):
        buffer.drop(3)
    group, inside = 0, False
    while True:
        if not _skip_space(buffer):
            if inside:
                yield Value(buffer.start, group, inside, fault="the list is not closed: it was cut off")
            return
        first = bytes(buffer.data[:1])
        if inside and first == b"]":
            buffer.drop(1)
            inside, group = False, group + 1
        elif not inside and first == b"[":
            buffer.drop(1)
            inside = True
        elif first in (b"{", b"["):
            value = _bracketed(buffer, group, inside, max_value)
            yield value
            if value.fault and buffer.ended and not buffer.data:
                return
            group += not inside
        else:
            yield _scalar(buffer, group, inside)
            group += not inside


def _skip_space(buffer: _Buffer) -> bool:
    """Go to the next byte that says something; False at the end."""
    while True:
        match = _SPACE.match(buffer.data)
        buffer.drop(match.end() if match is not None else 0)
        if buffer.data:
            return True
        if not buffer.more(0):
            return False


def _bracketed(buffer: _Buffer, group: int, inside: bool, max_value: int) -> Value:
    start = buffer.start
    at = depth = 0
    too_large = False
    while True:
        match = _BRACKET.match(buffer.data, at)
        if match is None:
            if len(buffer.data) - at > max_value:
                # A string that never ends: nothing behind it can be told apart.
                while buffer.more(0):
                    buffer.drop(len(buffer.data))
                buffer.drop(len(buffer.data))
                return Value(start, group, inside, fault=f"it holds a text of more than {max_value:,} bytes")
            if not buffer.more(at):
                buffer.drop(len(buffer.data))
                return Value(start, group, inside, fault="it ends in the middle: the file was cut off")
            continue
        at = match.end()
        depth += 1 if match[1] in b"{[" else -1
        if depth <= 0:
            data = b"" if too_large else bytes(memoryview(buffer.data)[:at])
            buffer.drop(at)
            if too_large or len(data) > max_value:
                return Value(start, group, inside, fault=f"it is larger than {max_value // 10**6:,} MB")
            return Value(start, group, inside, data)
        if at > max_value or too_large:
            too_large = True
            buffer.drop(at)
            at = 0


def _scalar(buffer: _Buffer, group: int, inside: bool) -> Value:
    start = buffer.start
    while True:
        match = _SCALAR.match(buffer.data)
        unsure = match is None or match.end() == len(buffer.data)
        if unsure and len(buffer.data) <= BLOCK and buffer.more(0):
            continue
        # A bracket that closes nothing, or half a string.
        end = match.end() if match is not None else 1
        data = bytes(memoryview(buffer.data)[: min(end, 100)])
        buffer.drop(end)
        return Value(start, group, inside, data)
