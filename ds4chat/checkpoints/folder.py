"""The spans of one variant's folder: an index in memory, kept up with what is on disk.

Promises that only spans the model can use come out of it, and that a span which was refused stays out until its file
is another one. It must not know budgets, leases or other folders. Not safe for use from several threads at once:
the store holds its lock around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from ds4chat.checkpoints.directory import Directory, FileId, Listing, open_folder, pausing_gc
from ds4chat.checkpoints.format import HEADER_BYTES, LoadedSpan, open_span, read_raw, unpack_listed
from ds4chat.checkpoints.index import Index, Raw
from ds4chat.checkpoints.prefix import deepest_chain
from ds4chat.checkpoints.span import (
    SUFFIX,
    Identity,
    Outcome,
    PutResult,
    SpanDraft,
    SpanInfo,
    discontinuity,
    mismatch,
)
from ds4chat.errors import CheckpointError

log = logging.getLogger(__name__)


class SpanFolder:
    """One variant's spans.

    Attributes:
        identity: whose they are.
        path: the folder, which need not exist.
    """

    def __init__(self, directory: Directory, identity: Identity) -> None:
        self.identity = identity
        self.path = directory.root / identity.folder
        self.index = Index(self._read)
        self._directory = directory
        self._listing: Listing | None = None
        self._refused: dict[bytes, int] = {}
        self._unlisted: set[bytes] = set()

    def refresh(self) -> None:
        """Bring the index up to what is on disk; cheap when nothing changed."""
        listing = self._directory.listing(self.path)
        # A span added here since the last listing may be gone again before the first that shows it.
        for name in self._unlisted - listing.files.keys():
            self.index.drop(name)
        self._unlisted.clear()
        if self._listing is not None and listing.files is self._listing.files:
            return
        self._listing = listing
        index, refused = self.index, self._refused
        for name in [name for name in index if name not in listing.files]:
            index.drop(name)
        news = listing.files.items()
        if len(index) or refused:
            news = {n: f for n, f in news if index.inode(n) != f.inode != refused.get(n)}.items()
        with pausing_gc():
            index.add_raw(self._headers(news))

    def _headers(self, files: Iterable[tuple[bytes, FileId]]) -> Iterator[tuple[bytes, Raw]]:
        """Read the first bytes of these files; one that has too few is refused."""
        with suppress(OSError), open_folder(self.path) as folder:
            for name, (inode, size) in files:
                try:
                    header = read_raw(name.hex() + SUFFIX, folder)
                except OSError as error:
                    self._refuse(name, inode, str(error))
                    continue
                if len(header) == HEADER_BYTES:
                    yield name, (header, size, inode)
                else:
                    self._refuse(name, inode, "it has no header")

    def _read(self, name: bytes, raw: Raw) -> SpanInfo | None:
        """A span that a look-up met, if the model can use it."""
        data, size, inode = raw
        try:
            header = unpack_listed(data, size)
            reason = mismatch(header, self.identity)
        except CheckpointError as error:
            reason = str(error)
        if reason is not None:
            self._refuse(name, inode, reason)
            return None
        return SpanInfo(self.path, name, header, size, inode)

    def _refuse(self, name: bytes, inode: int, reason: str) -> None:
        log.info("checkpoint %s is not usable: %s", name.hex(), reason)
        self.index.drop(name)
        self._refused[name] = inode

    def find(self, key: bytes, limit: int) -> list[SpanInfo]:
        """The deepest whole chain along the key bytes that ends at `limit` tokens or before."""
        index = self.index
        return deepest_chain(
            key, index.lengths, index.get, lambda span: span.end <= limit and index.continues_parent(span)
        )

    def add(self, span: SpanInfo) -> None:
        """A span was written: whatever was refused under its name is gone."""
        self._refused.pop(span.sha1, None)
        self._unlisted.add(span.sha1)
        self.index.add(span)

    def forget(self, span: SpanInfo) -> None:
        """Give this file to no lookup any more."""
        self.index.drop(span.sha1)
        self._refused[span.sha1] = span.inode

    def used(self, name: bytes, hits: int, last_used: int) -> None:
        """A restore was counted in a span's header."""
        known = self.index.get(name)
        if known is not None:
            self.index.add(replace(known, header=replace(known.header, hits=hits, last_used=last_used)))

    def settled(self, name: bytes, end_hash: int) -> PutResult | None:
        """The result where a whole chain to this prefix is on disk; None where one is to be written."""
        chain = self.index.chain(name)
        if not chain or not all(_is_there(span) for span in chain):
            return None
        if chain[-1].header.end_hash != end_hash:
            return PutResult(
                Outcome.TOKENS_DIFFER, chain[-1], message="the same text is stored with other tokens"
            )
        return PutResult(Outcome.STANDS, chain[-1])

    def gap(self, draft: SpanDraft) -> str | None:
        """Why a draft cannot continue its parent; None when it can."""
        chain = self.index.chain(draft.parent)
        if chain is None or not all(_is_there(span) for span in chain):
            return "the span it continues is not on disk"
        return discontinuity(draft.header(self.identity, 0), chain[-1] if chain else None)


def load_span(span: SpanInfo, parent: SpanInfo | None, key: bytes | None, identity: Identity) -> LoadedSpan:
    """Map a span's file and verify all of it, see `Store.load`. Raises `CheckpointError`."""
    loaded = open_span(span.path)
    header = loaded.header
    try:
        reason = mismatch(header, identity) or discontinuity(header, parent)
        if reason is None and (header.end, header.key_len) != (span.end, span.key_len):
            reason = "it was replaced by another"
        if reason is None and key is not None:
            expected = key[header.key_len - header.text_bytes : header.key_len]
            reason = None if loaded.text == expected else "its text is not what its name says"
        if reason is not None:
            raise CheckpointError(reason)
        loaded.verify()
    except CheckpointError:
        loaded.close()
        raise
    return loaded


def _is_there(span: SpanInfo) -> bool:
    try:
        status = span.path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_ino) == (span.size, span.inode)
