"""The checkpoint store: finds, loads, writes and deletes spans for one loaded model.

Promises that nothing it is asked to do ends a chat: a damaged file is passed over (`CheckpointError`, which
callers log and recompute), a full or read-only disk switches storing off with one notice while lookups go on.
It must know neither llama.cpp nor the sessions; a payload is bytes to it.

All methods may be called from any thread. The index has one lock, which is not held while a file is written;
what several processes must not do at once runs under `<root>/.lock`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import Timeout

from ds4chat.checkpoints import upkeep
from ds4chat.checkpoints.directory import Directory, Listing, Temp
from ds4chat.checkpoints.format import LoadedSpan, open_span, read_header, read_tokens, write_span, write_use
from ds4chat.checkpoints.index import Index
from ds4chat.checkpoints.policy import Policy, fits_budget
from ds4chat.checkpoints.prefix import ROOT, deepest_chain, partial_child
from ds4chat.checkpoints.span import (
    Identity,
    Outcome,
    PutResult,
    SpanDraft,
    SpanInfo,
    discontinuity,
    mismatch,
    span_path,
)
from ds4chat.errors import CheckpointError, UsageError

__all__ = [
    "Identity",
    "LoadedSpan",
    "Outcome",
    "PutResult",
    "SpanDraft",
    "SpanInfo",
    "Store",
    "remove_spans",
]

log = logging.getLogger(__name__)

MB = 10**6

MAX_PARTIAL_CANDIDATES = 64
"""Children whose token ids are compared for a partial match: each costs one small read."""

_OPEN_LOCK_SECONDS = 2.0
"""Opening does not wait longer for another process: that one is tidying up already."""


class Store:
    """Open one with `Store.open`."""

    def __init__(
        self,
        root: Path,
        identity: Identity | None,
        policy: Policy,
        budget_bytes: int | None,
        clock: Callable[[], float],
        on_notice: Callable[[str], None] | None,
    ) -> None:
        self.root = root
        self.identity = identity
        self.policy = policy
        self._clock = clock
        self._on_notice = on_notice
        self._directory = Directory(root)
        self._budget = self._directory.default_budget() if budget_bytes is None else budget_bytes
        self._folder = root / identity.folder if identity is not None else None
        self._index = Index()
        self._listing: Listing | None = None
        self._mutex = threading.RLock()
        self._refused: dict[bytes, int] = {}
        self._live: frozenset[bytes] = frozenset()
        self._pinned: frozenset[bytes] = frozenset()
        self._writable = identity is not None

    @classmethod
    def open(
        cls,
        root: str | Path,
        identity: Identity | None,
        policy: Policy | None = None,
        budget_mb: int | None = None,
        clock: Callable[[], float] = time.time,
        on_notice: Callable[[str], None] | None = None,
    ) -> Store:
        """The store below `root`: made if need be, swept, within its budget, scanned. Never raises for the
        disk's sake.

        Args:
            root: `kv/`; families and variants are folders below it.
            identity: of the loaded model; None for maintenance, when nothing is created, found or put.
            budget_mb: of all files below the root, in MB (10**6 bytes); None takes a tenth of the free disk,
                at most 32,000 MB; 0 is no limit.
            clock: seconds since 1970.
            on_notice: is called once, with one sentence for the user, should storing go off; from any thread.
        """
        if budget_mb is not None and budget_mb < 0:
            raise UsageError(f"--kv-disk-space-mb must be 0 (no limit) or more MB, not {budget_mb}.")
        budget = None if budget_mb is None else budget_mb * MB
        store = cls(Path(root), identity, policy or Policy(), budget, clock, on_notice)
        if store._folder is not None:
            store._tidy(store._folder)
            with store._mutex:
                store._refresh()
        return store

    @property
    def writable(self) -> bool:
        """Whether `put` still writes."""
        return self._writable

    @property
    def budget_bytes(self) -> int:
        """The budget in bytes, 0 for no limit."""
        return self._budget

    def fits(self, payload_bytes: int) -> bool:
        """Whether a span with such a payload is not larger than the whole budget; ask before copying it."""
        return fits_budget(payload_bytes, self._budget)

    @property
    def total_bytes(self) -> int:
        """Bytes of all spans below the root, of every model."""
        with self._mutex:
            return self._directory.total_bytes()

    # ---- lookup
    # ------------------------------------------------------------------------------------------------

    def find(self, key: bytes, max_tokens: int, n_ctx: int) -> list[SpanInfo]:
        """The deepest whole chain along the key bytes, first span first; empty when there is none.

        Only headers are looked at; `load` verifies. Spans other processes wrote are seen.

        Args:
            max_tokens: no span may end past this (a prompt's length less 1: its last token must be decoded).
            n_ctx: the engine's context, tokens. Spans stored under another context size are fine if they fit.
        """
        limit = min(max_tokens, n_ctx)
        with self._mutex:
            self._refresh()
            index = self._index
            return deepest_chain(
                key, index.children, lambda span: span.end <= limit and index.continues_parent(span)
            )

    def partial(
        self, chain: Sequence[SpanInfo], tokens: Sequence[int], n_ctx: int
    ) -> tuple[SpanInfo, int] | None:
        """The span behind `chain` whose token ids agree furthest with `tokens`, and how many of `tokens` are
        then covered, the chain's own included; None when none agrees at all. For models that can be cut back.

        Args:
            chain: from `find`; empty for the roots.
            tokens: ids of the whole prompt. All that agree count, so the last one may be covered too.
            n_ctx: the engine's context, tokens: a span is loaded whole before it is cut, and must fit.
        """
        name, end = (chain[-1].sha1, chain[-1].end) if chain else (ROOT, 0)
        with self._mutex:
            self._refresh()
            spans = [
                span
                for span in self._index.children(name)
                if span.end <= n_ctx and self._index.continues_parent(span)
            ]
        spans.sort(key=lambda span: span.header.last_used, reverse=True)
        found = partial_child(tokens[end:], spans[:MAX_PARTIAL_CANDIDATES], _tokens_of)
        return (found[0], end + found[1]) if found is not None else None

    def standing(self, name: bytes, end_hash: int) -> Outcome | None:
        """What `put` would find at this prefix: STANDS, TOKENS_DIFFER, or None where it would write. Ask
        before copying KV out of the engine."""
        with self._mutex:
            self._refresh()
            settled = self._settled(name, end_hash)
        return settled.outcome if settled is not None else None

    def load(self, span: SpanInfo, parent: SpanInfo | None, key: bytes | None = None) -> LoadedSpan:
        """Map a span's file and verify all of it: its sizes and checksums, that this model can use it, and
        that it continues `parent` (None at the root).

        Args:
            key: the key bytes `span` was found with; the file's text must be its part of them, which shows a
                file under a wrong name.

        Raises `CheckpointError`, and then no lookup gives the span or what continues it again; the file stays
        until it is replaced or evicted.
        """
        if self.identity is None:
            raise CheckpointError("no model is loaded")
        try:
            return self._load(span, parent, key, self.identity)
        except CheckpointError as error:
            log.warning("checkpoint %s is passed over: %s", span.path, error)
            self.forget(span)
            raise

    def forget(self, span: SpanInfo) -> None:
        """Give this span, and what continues it, to no lookup any more (its payload was refused, say); a
        `put` of the same prefix replaces it."""
        with self._mutex:
            self._index.drop(span.sha1)
            self._refused[span.sha1] = span.inode

    def _load(
        self, span: SpanInfo, parent: SpanInfo | None, key: bytes | None, identity: Identity
    ) -> LoadedSpan:
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

    def touch(self, chain: Iterable[SpanInfo]) -> None:
        """Count a restore: one hit more and the present time in each header. Never raises."""
        now = int(self._clock())
        for span in chain:
            try:
                header, _ = read_header(span.path)
                hits = min(header.hits + 1, 2**32 - 1)
                fd = os.open(span.path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    write_use(fd, hits, now)
                finally:
                    os.close(fd)
            except (OSError, CheckpointError) as error:
                log.warning("cannot count a hit in %s: %s", span.path, error)
                continue
            with self._mutex:
                known = self._index.get(span.sha1)
                if known is not None:
                    used = replace(known.header, hits=hits, last_used=now)
                    self._index.add(replace(known, header=used))

    # ---- storing
    # -----------------------------------------------------------------------------------------------

    def set_live_chain(self, names: Iterable[bytes]) -> None:
        """The spans the engine's live state stands on, by SHA-1: no eviction takes them or what they stand on."""
        self._live = frozenset(names)

    def set_pinned(self, names: Iterable[bytes]) -> None:
        """Spans to keep whatever happens, with their ancestors."""
        self._pinned = frozenset(names)

    def put(self, draft: SpanDraft) -> PutResult:
        """Store a span, after making room for it. Blocks until it is durable; the disk never makes it raise."""
        if self.identity is None or self._folder is None or not self._writable:
            return PutResult(Outcome.DISABLED, message="storing is off")
        try:
            result = self._put(draft, self.identity, self._folder)
        except CheckpointError as error:
            result = PutResult(Outcome.FAILED, message=str(error))
        except Timeout as error:
            result = PutResult(Outcome.FAILED, message=f"another process holds the directory: {error}")
        except OSError as error:
            self._switch_off(error)
            result = PutResult(Outcome.FAILED, message=str(error))
        if result.outcome not in (Outcome.STORED, Outcome.STANDS):
            log.warning("span %d..%d is not stored: %s", draft.start, draft.end, result.message)
        return result

    def _put(self, draft: SpanDraft, identity: Identity, folder: Path) -> PutResult:
        draft.check()
        size = draft.size
        if not fits_budget(size, self._budget):
            return PutResult(Outcome.TOO_LARGE, message=f"{size} bytes exceed the budget of {self._budget}")
        with self._mutex:
            self._refresh()
            settled = self._settled(draft.sha1, draft.end_hash)
        if settled is not None:
            return settled

        now = self._clock()
        header = draft.header(identity, int(now))
        self._directory.ensure(folder)
        with self._directory.lock():
            with self._mutex:
                self._refresh()
                gap = self._gap(draft)
            if gap is not None:
                return PutResult(Outcome.PARENT_GONE, message=gap)
            evicted = self._make_room(size, now, (draft.parent,))
            if evicted is None:
                return PutResult(Outcome.NO_ROOM, message=f"nothing that may go makes room for {size} bytes")
            temp = Temp(folder, draft.sha1)
        try:
            header = write_span(temp.file, header, draft.text, draft.tokens, draft.payload, draft.trailers)
            file = temp.commit()
        except BaseException:
            temp.discard()
            raise
        span = SpanInfo(folder, draft.sha1, header, file.size, file.inode)
        with self._mutex:
            self._refused.pop(draft.sha1, None)
            self._index.add(span)
        return PutResult(Outcome.STORED, span, len(evicted))

    def _settled(self, name: bytes, end_hash: int) -> PutResult | None:
        """The result where a whole chain to this prefix is on disk; None where one is to be written."""
        chain = self._index.chain(name)
        if not chain or not all(_is_there(span) for span in chain):
            return None
        if chain[-1].header.end_hash != end_hash:
            return PutResult(
                Outcome.TOKENS_DIFFER, chain[-1], message="the same text is stored with other tokens"
            )
        return PutResult(Outcome.STANDS, chain[-1])

    def _gap(self, draft: SpanDraft) -> str | None:
        """Why a draft cannot continue its parent; None when it can."""
        identity = self.identity
        assert identity is not None
        chain = self._index.chain(draft.parent)
        if chain is None or not all(_is_there(span) for span in chain):
            return "the span it continues is not on disk"
        return discontinuity(draft.header(identity, 0), chain[-1] if chain else None)

    def remove(self, names: Iterable[bytes], keep: Iterable[bytes] = ()) -> list[Path]:
        """Delete these spans (a session's leaves) and then those they stand on, up to the first that
        something else continues; under every model. `keep` and pinned spans stay, with their ancestors.
        Raises `OSError`."""
        if not self.root.is_dir():
            return []
        with self._directory.lock(), self._mutex:
            removed = upkeep.remove_spans(self._directory, names, {*keep, *self._pinned})
            self._refresh()
        return removed

    # ---- the directory
    # -----------------------------------------------------------------------------------------

    def _tidy(self, folder: Path) -> None:
        """Make the folder, sweep, and bring the directory within its budget."""
        try:
            self._directory.ensure(folder)
            with self._directory.lock(_OPEN_LOCK_SECONDS):
                swept = self._directory.sweep()
                self._make_room(0, self._clock(), all_or_nothing=False)
        except Timeout:
            log.info("another process tidies %s", self.root)
        except OSError as error:
            self._switch_off(error)
        else:
            if swept:
                log.info("swept %d temp files", swept)

    def _make_room(
        self, need: int, now: float, names: Collection[bytes] = (), all_or_nothing: bool = True
    ) -> list[Path] | None:
        """`upkeep.make_room`, sparing the live chain and `names`; the caller holds the directory's lock."""
        folder = self._folder
        assert folder is not None
        evicted = upkeep.make_room(
            self._directory,
            self.identity,
            need,
            self._budget,
            now,
            self.policy.half_life_seconds,
            protected={span_path(folder, name) for name in (*self._live, *names)},
            pinned={span_path(folder, name) for name in self._pinned},
            all_or_nothing=all_or_nothing,
        )
        with self._mutex:
            for path in evicted or ():
                if path.parent == folder:
                    self._index.drop(bytes.fromhex(path.stem))
        return evicted

    def _refresh(self) -> None:
        """Bring the index up to what is on disk; cheap when nothing changed. Hold the mutex."""
        if self._folder is None or self.identity is None:
            return
        listing = self._directory.listing(self._folder)
        if self._listing is not None and listing.files is self._listing.files:
            return
        self._listing = listing
        for span in list(self._index):
            if span.sha1 not in listing.files:
                self._index.drop(span.sha1)
        for name, file in listing.files.items():
            known = self._index.get(name)
            if (known is not None and known.inode == file.inode) or self._refused.get(name) == file.inode:
                continue
            self._index.drop(name)
            try:
                header, size = read_header(span_path(self._folder, name))
                reason = mismatch(header, self.identity)
            except (CheckpointError, OSError) as error:
                reason = str(error)
            if reason is not None:
                log.info("checkpoint %s is not usable: %s", name.hex(), reason)
                self._refused[name] = file.inode
                continue
            self._index.add(SpanInfo(self._folder, name, header, size, file.inode))

    def _switch_off(self, error: OSError) -> None:
        with self._mutex:
            was_on, self._writable = self._writable, False
        log.warning("storing is off: %s", error)
        if was_on and self._on_notice is not None:
            cause = error.strerror or str(error)
            self._on_notice(
                f"Checkpoints are not stored any more ({cause}: {self.root}); the chat goes on. "
                "Free some disk space or give another directory with --kv-disk-dir."
            )


def remove_spans(root: str | Path, names: Iterable[bytes], keep: Iterable[bytes] = ()) -> list[Path]:
    """`Store.remove` with no model loaded. Raises `OSError`."""
    return Store.open(root, None).remove(names, keep)


def _is_there(span: SpanInfo) -> bool:
    try:
        status = span.path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_ino) == (span.size, span.inode)


def _tokens_of(span: SpanInfo) -> Sequence[int]:
    try:
        return read_tokens(span.path)
    except OSError as error:
        raise CheckpointError(f"{span.path.name} cannot be read: {error}") from error
