"""The spans of one variant as a tree in memory.

Promises fast answers about parents and children, and a cheap beginning: of a hundred thousand headers only those that
a look-up meets are read as such, the others stay 144 bytes each. It must know no files: the store tells it what is on
disk. Not safe for use from several threads at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from ds4chat.checkpoints.format import peek_key_len, peek_last_used, peek_parent
from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.span import SpanInfo, discontinuity

Raw = tuple[bytes, int, int]
"""A header not yet read, with the size and the inode of its file."""


class Index:
    """Spans by name and by parent."""

    def __init__(self, read: Callable[[bytes, Raw], SpanInfo | None] | None = None) -> None:
        """`read` makes a span of a name and what `add_raw` took; None from it means the span is not usable."""
        self._read = read
        self._raw: dict[bytes, Raw] = {}
        self._spans: dict[bytes, SpanInfo] = {}
        self._parents: dict[bytes, bytes] = {}
        self._children: dict[bytes, set[bytes]] = {}
        self._lengths: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, name: object) -> bool:
        return name in self._parents

    def __iter__(self) -> Iterator[bytes]:
        """The names of all spans."""
        return iter(self._parents)

    def inode(self, name: bytes) -> int | None:
        """Of the span's file; None without the span."""
        raw = self._raw.get(name)
        if raw is not None:
            return raw[2]
        span = self._spans.get(name)
        return span.inode if span is not None else None

    def get(self, name: bytes) -> SpanInfo | None:
        """The span of this SHA-1, whatever its chain."""
        span = self._spans.get(name)
        if span is None and name in self._raw:
            assert self._read is not None
            span = self._read(name, self._raw[name])
            if span is None:
                self.drop(name)
            else:
                del self._raw[name]
                self._spans[name] = span
        return span

    def children(self, name: bytes, most: int | None = None) -> list[SpanInfo]:
        """Spans that name this one as their parent (`ROOT`: those at token 0), of more than `most` those used last; the
        last used first."""
        names = self._children.get(name, ())
        chosen = heapq.nlargest(len(names) if most is None else most, names, self._last_used)
        return [span for span in map(self.get, chosen) if span is not None]

    def lengths(self, name: bytes) -> Sequence[int]:
        """The key lengths of its children, ascending, each once."""
        known = self._lengths.get(name)
        if known is None:
            known = sorted({self._key_len(child) for child in self._children.get(name, ())})
            self._lengths[name] = known
        return known

    def add(self, span: SpanInfo) -> None:
        """Take a span in, in place of one of the same name."""
        self._link(span.sha1, span.parent)
        self._spans[span.sha1] = span

    def add_raw(self, entries: Iterable[tuple[bytes, Raw]]) -> None:
        """Take spans in, in place of those of the same names, whose headers are read when they are asked for. They
        need not be any, but must be long enough."""
        parents, children, everything = self._parents, self._children, self._raw
        for name, raw in entries:
            if name in parents:
                self.drop(name)
            parent = peek_parent(raw[0])
            parents[name] = parent
            if parent in children:
                children[parent].add(name)
            else:
                children[parent] = {name}
            everything[name] = raw
        self._lengths.clear()

    def drop(self, name: bytes) -> None:
        """Forget a span. What continues it stays and is out of reach until the name comes back."""
        parent = self._parents.pop(name, None)
        if parent is None:
            return
        self._raw.pop(name, None)
        self._spans.pop(name, None)
        siblings = self._children[parent]
        siblings.discard(name)
        if not siblings:
            del self._children[parent]
        self._lengths.pop(parent, None)

    def continues_parent(self, span: SpanInfo) -> bool:
        """Whether its parent is here (or it begins at token 0) and it fits where that ends."""
        if span.parent == ROOT:
            return discontinuity(span.header, None) is None
        parent = self.get(span.parent)
        return parent is not None and discontinuity(span.header, parent) is None

    def chain(self, name: bytes) -> list[SpanInfo] | None:
        """All spans from token 0 to the end of this one; None when one is missing or does not fit."""
        chain: list[SpanInfo] = []
        while name != ROOT:
            span = self.get(name)
            # Ends strictly fall towards the root, or a crafted cycle would never end.
            if span is None or not self.continues_parent(span) or (chain and span.end >= chain[-1].end):
                return None
            chain.append(span)
            name = span.parent
        chain.reverse()
        return chain

    def _link(self, name: bytes, parent: bytes) -> None:
        if name in self._parents:
            self.drop(name)
        self._parents[name] = parent
        siblings = self._children.get(parent)
        if siblings is None:
            self._children[parent] = {name}
        else:
            siblings.add(name)
        if parent in self._lengths:
            del self._lengths[parent]

    def _key_len(self, name: bytes) -> int:
        raw = self._raw.get(name)
        return peek_key_len(raw[0]) if raw is not None else self._spans[name].key_len

    def _last_used(self, name: bytes) -> int:
        raw = self._raw.get(name)
        return peek_last_used(raw[0]) if raw is not None else self._spans[name].header.last_used
