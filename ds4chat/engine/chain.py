"""The chain of checkpoints a live state stands on: its links, and reading those of a stored one ahead of the engine.

Promises: what `ReadAhead` gives was verified, all of it. Must not know: prompts, turns, what is live.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import ParamSpec, TypeVar

import xxhash

from ds4chat.checkpoints.format import LoadedSpan, hash_tokens
from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.span import SpanInfo
from ds4chat.checkpoints.store import Store
from ds4chat.engine.llama import Context
from ds4chat.errors import CheckpointError

P = ParamSpec("P")
T = TypeVar("T")

SPANS_AHEAD = 2
"""Spans read and verified while llama.cpp takes in the one before them; more would only hide a slow disk."""


@dataclass
class Link:
    """One stored end of the live chain, with the hashes of everything up to it.

    `stored` and `failed` are set from the writer thread: the span was on disk then, or is not, so that nothing may
    stand on it.
    """

    end: int
    key_length: int
    sha1: hashlib._Hash
    token_hash: xxhash.xxh3_64
    stored: bool = False
    failed: bool = False

    @classmethod
    def root(cls) -> Link:
        return cls(0, 0, hashlib.sha1(), xxhash.xxh3_64())

    def extended(self, key: bytes, tokens: list[int]) -> Link:
        """The link `len(tokens)` tokens further."""
        sha1, token_hash = self.sha1.copy(), self.token_hash.copy()
        sha1.update(key)
        hash_tokens(tokens, token_hash)
        return Link(self.end + len(tokens), self.key_length + len(key), sha1, token_hash)

    @property
    def name(self) -> bytes:
        """SHA-1 of all key bytes up to the end; zeros at the root, as a parent is written."""
        return self.sha1.digest() if self.end else ROOT


class ReadAhead:
    """One thread beside the engine's.

    All that takes Python's lock happens there, while the engine thread is inside of llama.cpp: what is left for it
    between two spans is next to nothing. Files are mapped, with all their pages at once, and not read: a read into
    warm memory takes longer than hashing and copying the page cache in place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")

    def close(self) -> None:
        """Take no more work."""
        self._thread.shutdown(wait=False)

    def later(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do this too, in the order it was asked for."""
        return self._thread.submit(work, *args, **kwargs)

    def read(
        self,
        store: Store,
        spans: Sequence[SpanInfo],
        keys: Sequence[bytes | None],
        meanwhile: Callable[[], object],
    ) -> Iterator[tuple[LoadedSpan, list[int]]]:
        """Begin at once; each span comes verified, with its tokens. Whoever takes a span closes it.

        The first is verified on the caller's thread, which could only wait for it, and so is what the other thread has
        not begun yet: on a busy machine a thread may wait for a processor longer than a span takes. The iterator
        raises CheckpointError in place of a span that cannot be used, and has then ended.

        Args:
            keys: for each span, the key bytes it was found with, None where its text need not be part of any.
            meanwhile: called on the other thread, and done before the first span is given.
        """

        def verified(
            info: SpanInfo, parent: SpanInfo | None, key: bytes | None
        ) -> tuple[LoadedSpan, list[int]]:
            span = store.load(info, parent, key)
            try:
                self._context.check_payload(span.payload, span.header.start, span.header.end)
            except CheckpointError:
                span.close()
                raise
            return span, list(span.tokens)

        jobs = zip(spans, [None, *spans[:-1]], keys, strict=True)
        pending: deque[
            tuple[Future[tuple[LoadedSpan, list[int]]], tuple[SpanInfo, SpanInfo | None, bytes | None]]
        ] = deque()

        def submit(count: int) -> None:
            pending.extend((self._thread.submit(verified, *job), job) for job in islice(jobs, count))

        def results() -> Iterator[tuple[LoadedSpan, list[int]]]:
            if first is None:
                return
            try:
                span = verified(*first)
            finally:
                done.result()
            yield span
            while pending:
                future, job = pending.popleft()
                submit(1)
                yield verified(*job) if future.cancel() else future.result()

        first = next(jobs, None)
        done = self._thread.submit(meanwhile)
        submit(SPANS_AHEAD)
        return results()
