"""The spans of one variant as a tree in memory.

Promises fast answers about parents and children. It must know no files: the store tells it what is on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.span import SpanInfo, discontinuity


class Index:
    """Spans by name and by parent. Not safe for use from several threads at once."""

    def __init__(self) -> None:
        self._spans: dict[bytes, SpanInfo] = {}
        self._children: dict[bytes, dict[bytes, SpanInfo]] = {}
        self._lengths: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[SpanInfo]:
        return iter(self._spans.values())

    def get(self, name: bytes) -> SpanInfo | None:
        """The span of this SHA-1, whatever its chain."""
        return self._spans.get(name)

    def children(self, name: bytes) -> Collection[SpanInfo]:
        """Spans that name this one as their parent (`ROOT`: those at token 0)."""
        return self._children.get(name, {}).values()

    def lengths(self, name: bytes) -> Sequence[int]:
        """The key lengths of these, ascending, each once."""
        known = self._lengths.get(name)
        if known is None:
            known = sorted({span.key_len for span in self.children(name)})
            self._lengths[name] = known
        return known

    def add(self, span: SpanInfo) -> None:
        """Take a span in, in place of one of the same name."""
        known = self._spans.get(span.sha1)
        if known is not None and (known.parent, known.key_len) != (span.parent, span.key_len):
            self.drop(span.sha1)
        self._spans[span.sha1] = span
        self._children.setdefault(span.parent, {})[span.sha1] = span
        if known is None:
            self._lengths.pop(span.parent, None)

    def drop(self, name: bytes) -> None:
        """Forget a span. What continues it stays and is out of reach until the name comes back."""
        span = self._spans.pop(name, None)
        if span is None:
            return
        siblings = self._children[span.parent]
        del siblings[name]
        if not siblings:
            del self._children[span.parent]
        self._lengths.pop(span.parent, None)

    def continues_parent(self, span: SpanInfo) -> bool:
        """Whether its parent is here (or it begins at token 0) and it fits where that ends."""
        if span.parent == ROOT:
            return discontinuity(span.header, None) is None
        parent = self._spans.get(span.parent)
        return parent is not None and discontinuity(span.header, parent) is None

    def chain(self, name: bytes) -> list[SpanInfo] | None:
        """All spans from token 0 to the end of this one; None when one is missing or does not fit."""
        chain: list[SpanInfo] = []
        while name != ROOT:
            span = self._spans.get(name)
            # Ends strictly fall towards the root, or a crafted cycle would never end.
            if span is None or not self.continues_parent(span) or (chain and span.end >= chain[-1].end):
                return None
            chain.append(span)
            name = span.parent
        chain.reverse()
        return chain
