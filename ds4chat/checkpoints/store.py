"""The checkpoint store: finds, loads, writes and deletes spans for one loaded model.

Promises that nothing it is asked to do ends a chat: a damaged file is passed over (`CheckpointError`, which
callers log and recompute), a full or read-only disk switches storing off with one notice while lookups go on.
It must know neither llama.cpp nor the sessions; a payload is bytes to it.

All methods may be called from any thread. The index has one lock, which is not held while a file is written;
what several processes must not do at once runs under `<root>/.lock`. What this process stands on is in its
lease (`leases`), which others spare.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from filelock import Timeout

from ds4chat.checkpoints import leases, pins, quarantine, upkeep
from ds4chat.checkpoints.directory import Directory, Temp
from ds4chat.checkpoints.folder import SpanFolder, load_span
from ds4chat.checkpoints.format import LoadedSpan, read_header, read_tokens, write_span, write_use
from ds4chat.checkpoints.leases import Lease
from ds4chat.checkpoints.policy import Policy, fits_budget
from ds4chat.checkpoints.prefix import ROOT, partial_child
from ds4chat.checkpoints.span import (
    Identity,
    Outcome,
    PutResult,
    SpanDraft,
    SpanInfo,
    span_path,
)
from ds4chat.checkpoints.variants import siblings, write_variant
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

MAX_BEHIND = 64
"""Children of a chain that are looked at, for a partial match say: each costs one small read."""

FOREIGN_WORTH = 512
"""Tokens by which another quantization's chain must go further than the model's own: nothing that follows it is
stored."""

_OPEN_LOCK_SECONDS = 2.0
"""Opening does not wait longer for another process: that one is tidying up already."""

_LEASE_LOCK_SECONDS = 0.25
"""Nor does the engine, to be sure that what it wants to stand on is not just being deleted."""


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
        self._own = SpanFolder(self._directory, identity) if identity is not None else None
        self._siblings: list[SpanFolder] = []
        self._mutex = threading.RLock()
        self._lease = Lease(root)
        self._live: frozenset[Path] = frozenset()
        self._wanted: frozenset[Path] = frozenset()
        self._expendable: frozenset[bytes] = frozenset()
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
        *,
        accept_different_quant: bool = False,
        crashed_pid: int = 0,
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
            accept_different_quant: also find chains of variants whose weights differ in quantization only.
            crashed_pid: of an engine that aborted or segfaulted; the file it was taking in then is to blame.
        """
        if budget_mb is not None and budget_mb < 0:
            raise UsageError(f"--kv-disk-space-mb must be 0 (no limit) or more MB, not {budget_mb}.")
        budget = None if budget_mb is None else budget_mb * MB
        store = cls(Path(root), identity, policy or Policy(), budget, clock, on_notice)
        if identity is not None and store._own is not None:
            store._tidy(store._own, crashed_pid)
            if accept_different_quant:
                store._siblings = [SpanFolder(store._directory, i) for i in siblings(store.root, identity)]
            with store._mutex:
                for folder in store._folders():
                    folder.refresh()
        return store

    def close(self) -> None:
        """Give up the lease; nothing else needs it."""
        self._lease.close()

    def _folders(self) -> list[SpanFolder]:
        return [self._own, *self._siblings] if self._own is not None else []

    def _folder_of(self, span: SpanInfo) -> SpanFolder | None:
        return next((folder for folder in self._folders() if folder.path == span.folder), None)

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
        best: list[SpanInfo] = []
        with self._mutex:
            for folder in self._folders():
                folder.refresh()
                chain = folder.find(key, limit)
                more = 0 if folder is self._own else FOREIGN_WORTH - 1
                if chain and chain[-1].end > (best[-1].end if best else 0) + more:
                    best = chain
        return best

    def is_foreign(self, span: SpanInfo) -> bool:
        """Whether another quantization computed it: what follows it is not this model's to store."""
        return self._own is None or span.folder != self._own.path

    def holds(self, name: bytes) -> bool:
        """Whether a whole chain of this model to this prefix is on disk, so that a span may continue it."""
        if self._own is None:
            return False
        with self._mutex:
            self._own.refresh()
            return self._own.index.chain(name) is not None

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
        end = chain[-1].end if chain else 0
        found = partial_child(tokens[end:], self.behind(chain, n_ctx), _tokens_of)
        return (found[0], end + found[1]) if found is not None else None

    def behind(self, chain: Sequence[SpanInfo], n_ctx: int) -> list[SpanInfo]:
        """The spans that continue `chain` (empty: those at the root) and fit, last used first, at most
        `MAX_BEHIND`."""
        folder = self._folder_of(chain[-1]) if chain else self._own
        if folder is None:
            return []
        with self._mutex:
            folder.refresh()
            index, name = folder.index, chain[-1].sha1 if chain else ROOT
            spans = index.children(name, MAX_BEHIND)
            return [span for span in spans if span.end <= n_ctx and index.continues_parent(span)]

    def roots_along(self, key: bytes) -> list[SpanInfo]:
        """The spans at the root whose text `key` begins with, shallowest first: of a conversation kept as whole
        states, the states."""
        if self._own is None:
            return []
        found: list[SpanInfo] = []
        hashed, at = hashlib.sha1(usedforsecurity=False), 0
        with self._mutex:
            self._own.refresh()
            index = self._own.index
            for length in index.lengths(ROOT):
                if length > len(key):
                    break
                hashed.update(key[at:length])
                at = length
                span = index.get(hashed.digest())
                if span is not None and span.parent == ROOT and span.key_len == length:
                    found.append(span)
        return found

    def standing(self, name: bytes, end_hash: int) -> Outcome | None:
        """What `put` would find at this prefix: STANDS, TOKENS_DIFFER, or None where it would write. Ask
        before copying KV out of the engine."""
        if self._own is None:
            return None
        with self._mutex:
            self._own.refresh()
            settled = self._own.settled(name, end_hash)
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
        folder = self._folder_of(span)
        try:
            return load_span(span, parent, key, folder.identity if folder is not None else self.identity)
        except CheckpointError as error:
            log.warning("checkpoint %s is passed over: %s", span.path, error)
            self.forget(span)
            raise

    def forget(self, span: SpanInfo) -> None:
        """Give this span, and what continues it, to no lookup any more (its payload was refused, say); a
        `put` of the same prefix replaces it."""
        folder = self._folder_of(span)
        if folder is not None:
            with self._mutex:
                folder.forget(span)

    @contextlib.contextmanager
    def handing(self) -> Iterator[Callable[[SpanInfo], None]]:
        """Around a restore: what it gives is called with each span before its payload goes to the engine. Should
        that end the process, the file is known."""
        try:
            yield lambda span: self._lease.handing(span.path)
        finally:
            self._lease.handing(None)

    def touch(self, chain: Iterable[SpanInfo]) -> None:
        """Count a restore: one hit more and the present time in each header. Never raises."""
        now = int(self._clock())
        for span in chain:
            try:
                header, _ = read_header(span.path)
                hits = min(header.hits + 1, 2**32 - 1)
                fd = os.open(span.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    write_use(fd, hits, now)
                finally:
                    os.close(fd)
            except (OSError, CheckpointError) as error:
                log.warning("cannot count a hit in %s: %s", span.path, error)
                continue
            folder = self._folder_of(span)
            if folder is not None:
                with self._mutex:
                    folder.used(span.sha1, hits, now)

    # ---- storing
    # -----------------------------------------------------------------------------------------------

    def set_live_chain(self, names: Iterable[bytes], foreign: Path | None = None) -> None:
        """The spans the engine's live state stands on, by SHA-1: no eviction, of whichever process, takes them or
        what they stand on. Name them before they are loaded, or written. Never raises.

        Args:
            foreign: the folder they lie in, when it is another quantization's.
        """
        folder = foreign if foreign is not None else self._own.path if self._own is not None else self.root
        spans = [span_path(folder, name) for name in names]
        if self._live == (live := frozenset(spans)):
            return
        news = live - self._live
        self._live = live
        # What is on disk and was spared by nobody may just be chosen for deletion; what is yet to be written is not.
        if any(path.exists() for path in news):
            with contextlib.suppress(OSError), self._directory.lock(_LEASE_LOCK_SECONDS):
                self._lease.stand_on(spans)
                return
        self._lease.stand_on(spans)

    def spare(self, chain: Iterable[SpanInfo]) -> None:
        """What this store is about to load: room is not made by deleting it. Replaces what was named before."""
        self._wanted = frozenset(span.path for span in chain)

    def set_expendable(self, names: Iterable[bytes]) -> None:
        """The spans that go first when room is made, by SHA-1. Replaces what was named before."""
        self._expendable = frozenset(names)

    def put(self, draft: SpanDraft) -> PutResult:
        """Store a span, after making room for it. Blocks until it is durable; the disk never makes it raise."""
        if self._own is None or not self._writable:
            return PutResult(Outcome.DISABLED, message="storing is off")
        try:
            result = self._put(draft, self._own)
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

    def _put(self, draft: SpanDraft, folder: SpanFolder) -> PutResult:
        draft.check()
        size = draft.size
        if not fits_budget(size, self._budget):
            return PutResult(Outcome.TOO_LARGE, message=f"{size} bytes exceed the budget of {self._budget}")
        with self._mutex:
            folder.refresh()
            settled = folder.settled(draft.sha1, draft.end_hash)
        if settled is not None:
            return settled

        now = self._clock()
        header = draft.header(folder.identity, int(now))
        self._directory.ensure(folder.path)
        with self._directory.lock():
            write_variant(folder.path, folder.identity, int(now))
            self._lease.ensure()
            with self._mutex:
                folder.refresh()
                gap = folder.gap(draft)
            if gap is not None:
                return PutResult(Outcome.PARENT_GONE, message=gap)
            evicted = self._make_room(folder, size, now, (draft.parent,))
            if evicted is None:
                return PutResult(Outcome.NO_ROOM, message=f"nothing that may go makes room for {size} bytes")
            temp = Temp(folder.path, draft.sha1, size)
        try:
            header = write_span(temp.file, header, draft.text, draft.tokens, draft.payload, draft.trailers)
            file = temp.commit()
        except BaseException:
            temp.discard()
            raise
        span = SpanInfo(folder.path, draft.sha1, header, file.size, file.inode)
        with self._mutex:
            folder.add(span)
        return PutResult(Outcome.STORED, span, len(evicted))

    def remove(
        self, names: Iterable[bytes], keep: Iterable[bytes] = (), *, pinned_too: bool = False
    ) -> list[Path]:
        """Delete these spans (a session's leaves) and then those they stand on, up to the first that
        something else continues; under every model. `keep`, pinned spans and what a running process stands on
        stay, with their ancestors; `pinned_too` first takes away the pins of the spans named. Raises
        `OSError`."""
        if not self.root.is_dir():
            return []
        names = set(names)
        with self._directory.lock(), self._mutex:
            if pinned_too:
                pins.unpin(self.root, names)
            removed = upkeep.remove_spans(self._directory, names, keep)
            for folder in self._folders():
                folder.refresh()
        return removed

    # ---- the directory
    # -----------------------------------------------------------------------------------------

    def _tidy(self, folder: SpanFolder, crashed_pid: int) -> None:
        """Make the folder and the lease, sweep, set aside what brings the engine down, and bring the directory
        within its budget."""
        try:
            self._directory.ensure(folder.path)
            self._lease.ensure()
            with self._directory.lock(_OPEN_LOCK_SECONDS):
                write_variant(folder.path, folder.identity, int(self._clock()))
                for path in leases.sweep(self.root, crashed_pid):
                    quarantine.strike(path)
                swept = self._directory.sweep()
                self._make_room(folder, 0, self._clock(), all_or_nothing=False)
        except Timeout:
            log.info("another process tidies %s", self.root)
        except OSError as error:
            self._switch_off(error)
        else:
            if swept:
                log.info("swept %d temp files", swept)

    def _make_room(
        self,
        folder: SpanFolder,
        need: int,
        now: float,
        names: Collection[bytes] = (),
        all_or_nothing: bool = True,
    ) -> list[Path] | None:
        """`upkeep.make_room`, sparing the live chain, the next one, and `names`; the caller holds the directory's
        lock."""
        evicted = upkeep.make_room(
            self._directory,
            folder.identity,
            need,
            self._budget,
            now,
            self.policy.half_life_seconds,
            protected={*self._live, *self._wanted, *(span_path(folder.path, name) for name in names)},
            expendable=self._expendable,
            all_or_nothing=all_or_nothing,
        )
        with self._mutex:
            for path in evicted or ():
                for mine in self._folders():
                    if path.parent == mine.path:
                        mine.index.drop(bytes.fromhex(path.name[:40]))
        return evicted

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
    """`Store.remove` of a deleted session's spans, pinned or not, with no model loaded. Raises `OSError`."""
    return Store.open(root, None).remove(names, keep, pinned_too=True)


def _tokens_of(span: SpanInfo) -> Sequence[int]:
    try:
        return read_tokens(span.path)
    except OSError as error:
        raise CheckpointError(f"{span.path.name} cannot be read: {error}") from error
