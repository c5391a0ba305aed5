"""Spans of a deleted conversation that nobody wrote down: found by what they continue, and by their text.

A process that is killed may have stored spans that no session is known to stand on. A conversation that is deleted must
not live on in them. Promises: what others stand on is never among them; a span too many costs time and nothing else.
Must not know: sessions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ds4chat.checkpoints.inventory import Stock, take_stock
from ds4chat.checkpoints.span import SpanInfo

MAX_NEEDLE = 256
"""Bytes at the beginning of a text that tell it from others: where a span ends in the middle of a text, that much of
it is rarely cut off."""


def traces(root: Path, names: Iterable[bytes], texts: Iterable[str], keep: Iterable[bytes]) -> set[bytes]:
    """Names of spans that nobody in `keep` stands on and that continue one of `names`, or hold one of the texts.

    Args:
        texts: what was said in the deleted conversation.
    """
    names, keep = set(names), set(keep)
    needles = {data[:MAX_NEEDLE] for text in texts if (data := text.strip().encode())}
    found: set[bytes] = set()
    for stock in take_stock(root):
        kept = stock.line(keep)
        free = {name: span for name, span in stock.spans.items() if name not in kept}
        found |= _below(free, names) | (_holding(stock, free, needles) if needles else set())
    return found


def _below(spans: Mapping[bytes, SpanInfo], names: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for name, span in sorted(spans.items(), key=lambda item: item[1].end):
        if span.parent in names or span.parent in found:
            found.add(name)
    return found


def _holding(stock: Stock, spans: Mapping[bytes, SpanInfo], needles: set[bytes]) -> set[bytes]:
    """Those whose text, with what they stand on, has one of the needles in it."""
    texts: dict[bytes, bytes] = {}
    found: set[bytes] = set()
    for name, span in sorted(stock.spans.items(), key=lambda item: item[1].end):
        # Of what it continues only as much as a needle may lie across.
        texts[name] = text = texts.get(span.parent, b"")[-MAX_NEEDLE:] + _text_of(span)
        if name in spans and (span.parent in found or any(needle in text for needle in needles)):
            found.add(name)
    return found


def _text_of(span: SpanInfo) -> bytes:
    """Its key bytes, without a look at the rest; none where they cannot be read."""
    header = span.header
    try:
        fd = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, header.tokens_at - header.text_at, header.text_at)
        finally:
            os.close(fd)
    except OSError:
        return b""
