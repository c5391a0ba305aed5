"""Key bytes, and the deepest whole chain of spans along them.

Promises one pass over the key: a single incremental SHA-1, whatever the shape of the tree. It must know
neither files nor the engine; nodes are whatever has a name, a parent and a key length, and the caller says
which of them count.

Key bytes are the rendered text as UTF-8, each control token as 0xFF and its id in four little-endian bytes.
0xFF never occurs in UTF-8, so nothing a user types equals a control token.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from ds4chat.errors import CheckpointError

ROOT = bytes(20)
"""Stands for the parent's SHA-1 where a span begins at token 0."""

CONTROL = 0xFF


class Node(Protocol):
    """One span as the search sees it."""

    @property
    def sha1(self) -> bytes:
        """SHA-1 of all key bytes up to the span's end, 20 bytes."""

    @property
    def parent(self) -> bytes:
        """SHA-1 of those up to its start; `ROOT` at the root."""

    @property
    def key_len(self) -> int:
        """How many key bytes lead up to its end."""


N = TypeVar("N", bound=Node)


def control_key(token: int) -> bytes:
    """Key bytes of one control token."""
    return bytes((CONTROL,)) + token.to_bytes(4, "little")


def key_bytes(pieces: Iterable[tuple[int, bytes | None]]) -> bytes:
    """Key bytes of a token sequence, given as (id, text of the token; None for a control token)."""
    return b"".join(control_key(token) if piece is None else piece for token, piece in pieces)


def key_offsets(pieces: Iterable[tuple[int, bytes | None]]) -> tuple[bytes, list[int]]:
    """Key bytes, and for each token where its own end: token `i` lies in `key[offsets[i - 1]:offsets[i]]`
    (from 0 for the first). A span `[start, end)` has key length `offsets[end - 1]`."""
    parts: list[bytes] = []
    offsets: list[int] = []
    length = 0
    for token, piece in pieces:
        part = control_key(token) if piece is None else piece
        parts.append(part)
        length += len(part)
        offsets.append(length)
    return b"".join(parts), offsets


def sha1(key: bytes) -> bytes:
    """The name of the span whose end has these key bytes before it, 20 bytes."""
    return hashlib.sha1(key, usedforsecurity=False).digest()


def deepest_chain(
    key: bytes,
    lengths_of: Callable[[bytes], Sequence[int]],
    node_of: Callable[[bytes], N | None],
    accept: Callable[[N], bool],
) -> list[N]:
    """The chain of spans from the root that ends furthest along `key`, in order; empty when none matches.

    All spans that match are prefixes of the one key. So candidate lengths are taken in ascending order, wherever
    in the tree they come from, and the hash only ever moves forward. A child that matches and leads nowhere does
    not hide a sibling that goes deeper. However many children a span has, only their different lengths count.

    Args:
        key: the key bytes to match.
        lengths_of: the key lengths of a span's children, by its SHA-1 (`ROOT` for the roots), ascending, each
            once.
        node_of: the span of a SHA-1, None for none.
        accept: a span it refuses is left out with all that continues it.
    """
    view = memoryview(key)
    hasher = hashlib.sha1(usedforsecurity=False)
    hashed = 0
    matched: dict[bytes, N] = {}
    deepest: N | None = None
    # One entry a matched span: its next candidate length. The counter keeps the heap from comparing the lists.
    heap: list[tuple[int, int, Sequence[int], int]] = []
    opened = 0

    def push(lengths: Sequence[int], position: int, number: int) -> None:
        if position < len(lengths) and lengths[position] <= len(key):
            heapq.heappush(heap, (lengths[position], number, lengths, position))

    push(lengths_of(ROOT), 0, opened)
    while heap:
        length, number, lengths, position = heapq.heappop(heap)
        push(lengths, position + 1, number)
        if length <= hashed:
            continue
        hasher.update(view[hashed:length])
        hashed = length
        node = node_of(hasher.digest())
        if node is None or node.key_len != length:
            continue
        # The parent was met before, at a smaller length, or it does not lie on this key.
        if (node.parent != ROOT and node.parent not in matched) or not accept(node):
            continue
        matched[node.sha1] = deepest = node
        opened += 1
        push(lengths_of(node.sha1), 0, opened)

    chain: list[N] = []
    while deepest is not None:
        chain.append(deepest)
        deepest = matched.get(deepest.parent)
    chain.reverse()
    return chain


def agreement(stored: Sequence[int], incoming: Sequence[int]) -> int:
    """How many leading token ids two sequences share."""
    limit = min(len(stored), len(incoming))
    for position in range(limit):
        if stored[position] != incoming[position]:
            return position
    return limit


def partial_child(
    incoming: Sequence[int],
    children: Iterable[N],
    tokens_of: Callable[[N], Sequence[int]],
) -> tuple[N, int] | None:
    """The child whose tokens agree furthest with `incoming`, the ids behind the end of the chain, and how
    many do.

    None when no child shares even the first one. Among equals the first wins. A child whose tokens cannot be
    read (`tokens_of` raises `CheckpointError`) is passed over.
    """
    best: tuple[N, int] | None = None
    for child in children:
        try:
            agreed = agreement(tokens_of(child), incoming)
        except CheckpointError:
            continue
        if agreed > (best[1] if best is not None else 0):
            best = (child, agreed)
    return best
