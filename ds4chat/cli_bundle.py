"""Checkpoints on their way into a bundle and out of one.

Promises that what goes in or comes out is verified to the last byte along its chain: checksums, that each span
continues its parent, that its text is what its name says. Whatever is wrong with a checkpoint leaves that one out,
and what stands on it; nothing here raises for its sake. It must not know sessions, nor how a file is shown or named.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from ds4chat.checkpoints.directory import Directory
from ds4chat.checkpoints.format import (
    HEADER_BYTES,
    Header,
    LoadedSpan,
    hash_tokens,
    open_span,
    read_header,
    write_span,
)
from ds4chat.checkpoints.policy import over_budget
from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, Outcome, SpanDraft, SpanInfo, discontinuity, span_path
from ds4chat.checkpoints.store import Store
from ds4chat.errors import CheckpointError, InterchangeError
from ds4chat.sessions.bundle import NOTE, Bundle, BundleWriter, PackedSpan, can_hold
from ds4chat.sessions.database import Span

log = logging.getLogger(__name__)

Advance = Callable[[int], None]
"""Is told how many more bytes are done."""


class _Chains:
    """The spans of one folder that were verified, each from the root on."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self._known: dict[bytes, tuple[SpanInfo | None, hashlib._Hash, xxhash.xxh3_64]] = {
            ROOT: (None, hashlib.sha1(usedforsecurity=False), xxhash.xxh3_64())
        }

    def accept(self, span: SpanInfo, loaded: LoadedSpan) -> None:
        """Verify a span, after its parent was. Raises `CheckpointError`."""
        header = loaded.header
        known = self._known.get(header.parent)
        if known is None:
            raise CheckpointError("the span it continues is not there")
        parent, key, tokens = known
        reason = discontinuity(header, parent)
        key, tokens = key.copy(), hash_tokens(loaded.tokens, tokens.copy())
        key.update(loaded.text)
        if header.variant.hex() != self._variant:
            reason = "it lies in the folder of another variant"
        elif key.digest() != span.sha1:
            reason = "its text is not what its name says"
        elif tokens.intdigest() != header.end_hash:
            reason = "its tokens are not what its hash says"
        if reason is not None:
            raise CheckpointError(reason)
        loaded.verify()
        self._known[span.sha1] = (span, key, tokens)


# ---- out of the store ------------------------------------------------------------------------------------------------


@dataclass
class Packed:
    """What went into a bundle: spans, their bytes, and how many could not be read whole."""

    spans: int = 0
    bytes: int = 0
    damaged: int = 0


def on_disk(root: Path, names: set[bytes]) -> list[list[SpanInfo]]:
    """The spans of these names and all they stand on, by folder, parents first: under whatever model they lie."""
    found: list[list[SpanInfo]] = []
    directory = Directory(root)
    for folder in directory.folders():
        if not can_hold(folder.parent.name, folder.name):
            continue
        wanted = names & directory.listing(folder).files.keys()
        spans: dict[bytes, SpanInfo] = {}
        while wanted:
            name = wanted.pop()
            if name == ROOT or name in spans:
                continue
            try:
                header, size = read_header(span_path(folder, name))
            except (CheckpointError, OSError) as error:
                log.info("checkpoint %s cannot be read: %s", name.hex(), error)
                continue
            spans[name] = SpanInfo(folder, name, header, size)
            wanted.add(header.parent)
        if spans:
            found.append(sorted(spans.values(), key=lambda span: span.end))
    return found


def pack(bundle: BundleWriter, folders: list[list[SpanInfo]], advance: Advance) -> Packed:
    """Write spans, as `on_disk` gives them, into a bundle. What is gone, or another file, meanwhile stays out."""
    packed = Packed()
    for spans in folders:
        folder = spans[0].folder
        family, variant = folder.parent.name, folder.name
        chains = _Chains(variant)
        before = packed.spans
        for span in spans:
            try:
                with open_span(span.path) as loaded:
                    chains.accept(span, loaded)
                    with bundle.span(PackedSpan(family, variant, span.sha1.hex(), loaded.size)) as file:
                        # Part by part from the mapping that was verified: the name may be another file's by now.
                        parts = loaded.text, loaded.tokens, loaded.payload, loaded.trailers
                        write_span(file, loaded.header, *parts)
                    packed.spans += 1
                    packed.bytes += loaded.size
            except CheckpointError as error:
                packed.damaged += 1
                log.warning("checkpoint %s is not packed: %s", span.path, error)
            advance(span.size)
        if packed.spans > before:
            with contextlib.suppress(OSError):
                bundle.add_note(family, variant, (folder / NOTE).read_bytes())
    return packed


# ---- into the store --------------------------------------------------------------------------------------------------


@dataclass
class Unpacked:
    """What became of a bundle's checkpoints.

    Attributes:
        spans: those on disk now, whether they came in or were there.
        stored: how many came in.
        beyond_budget: how many stayed out for want of space, by the budget.
        unusable: how many are damaged, or continue nothing that is here.
        failure: why the disk did not take one, "" when it took all.
    """

    spans: list[Span] = field(default_factory=list)
    stored: int = 0
    beyond_budget: int = 0
    unusable: int = 0
    failure: str = ""


def unpack(bundle: Bundle, root: Path, budget_mb: int | None, advance: Advance) -> Unpacked:
    """Put a bundle's checkpoints into the store below `root`, as far as its budget goes; none is deleted for them."""
    done = Unpacked()
    folders: dict[tuple[str, str], list[PackedSpan]] = {}
    for span in bundle.spans:
        folders.setdefault((span.family, span.variant), []).append(span)
    try:
        with tempfile.TemporaryDirectory(prefix="ds4chat-") as staging:
            for (family, variant), spans in folders.items():
                unpacker = _Unpacker(bundle, root / family / variant, budget_mb, Path(staging) / "span", done)
                unpacker.run(spans, advance)
    except OSError as error:
        log.warning("checkpoints of %s stay out", bundle.path, exc_info=True)
        done.failure = error.strerror or str(error)
    return done


class _Unpacker:
    """The checkpoints of one folder; `staged` is where one at a time is unpacked to be looked at."""

    def __init__(
        self, bundle: Bundle, folder: Path, budget_mb: int | None, staged: Path, done: Unpacked
    ) -> None:
        self._bundle, self._folder, self._budget_mb = bundle, folder, budget_mb
        self._staged, self._done = staged, done
        self._chains = _Chains(folder.name)
        self._store: Store | None = None
        self._no_room: set[bytes] = set()

    def run(self, spans: list[PackedSpan], advance: Advance) -> None:
        """Parents first. Raises `OSError` where no file can be staged."""
        ends: list[tuple[int, PackedSpan]] = []
        for span in spans:
            try:
                ends.append((Header.unpack(self._bundle.head(span, HEADER_BYTES)).end, span))
            except (CheckpointError, InterchangeError) as error:
                self._leave_out(span, error)
        for _, span in sorted(ends, key=lambda pair: pair[0]):
            try:
                with self._staged.open("wb") as file:
                    self._bundle.copy(span, file)
                with open_span(self._staged) as loaded:
                    self._take(span, loaded)
            except (CheckpointError, InterchangeError) as error:
                self._leave_out(span, error)
            advance(span.size)

    def _leave_out(self, span: PackedSpan, error: Exception) -> None:
        self._done.unusable += 1
        log.warning("checkpoint %s of %s stays out: %s", span.entry, self._bundle.path, error)

    def _take(self, packed: PackedSpan, loaded: LoadedSpan) -> None:
        header = loaded.header
        span = SpanInfo(self._folder, bytes.fromhex(packed.sha1), header, loaded.size)
        self._chains.accept(span, loaded)
        draft = _draft(span, loaded)
        draft.check()
        store = self._store = self._store or self._open(header)
        identity = store.identity
        assert identity is not None
        if (header.fingerprint, header.payload_abi) != (identity.fingerprint, identity.payload_abi):
            raise CheckpointError("the spans of one folder are of several models")
        if header.parent in self._no_room or self._exceeds_budget(store, draft):
            self._no_room.add(span.sha1)
            self._done.beyond_budget += 1
            return
        self._put(store, draft)

    def _open(self, header: Header) -> Store:
        """The store of the model this header is of, made if need be."""
        root, family = self._folder.parents[1], self._folder.parent.name
        Directory(root).ensure(self._folder)
        note = self._bundle.note(family, self._folder.name)
        if note is not None and not (self._folder / NOTE).exists():
            temp = self._folder / f".{NOTE}.{secrets.token_hex(4)}"
            with os.fdopen(os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(note)
            temp.replace(self._folder / NOTE)
        identity = Identity(family, header.variant, header.fingerprint, header.quant_bits, header.payload_abi)
        return Store.open(root, identity, budget_mb=self._budget_mb)

    @staticmethod
    def _exceeds_budget(store: Store, draft: SpanDraft) -> bool:
        return store.standing(draft.sha1, draft.end_hash) is None and over_budget(
            store.total_bytes + draft.size, store.budget_bytes
        )

    def _put(self, store: Store, draft: SpanDraft) -> None:
        result = store.put(draft)
        if result.outcome is Outcome.STANDS and result.span is not None and not _is_whole(result.span):
            store.forget(result.span)
            result = store.put(draft)
        match result.outcome:
            case Outcome.STORED | Outcome.STANDS:
                self._done.stored += result.outcome is Outcome.STORED
                reason = Reason(draft.reason).label
                self._done.spans.append(Span(draft.sha1.hex(), draft.start, draft.end, reason, result.nbytes))
            case Outcome.NO_ROOM | Outcome.TOO_LARGE:
                self._no_room.add(draft.sha1)
                self._done.beyond_budget += 1
            case Outcome.TOKENS_DIFFER | Outcome.PARENT_GONE:
                raise CheckpointError(result.message)
            case _:
                raise OSError(result.message)


def _draft(span: SpanInfo, loaded: LoadedSpan) -> SpanDraft:
    header = loaded.header
    return SpanDraft(
        parent=header.parent,
        sha1=span.sha1,
        start=header.start,
        end=header.end,
        context_size=header.context_size,
        reason=header.reason,
        text=loaded.text,
        tokens=loaded.tokens,
        start_hash=header.start_hash,
        end_hash=header.end_hash,
        key_len=header.key_len,
        payload=loaded.payload,
        cost_us=header.cost_us,
        flags=header.flags,
        trailers=tuple(loaded.trailers),
    )


def _is_whole(span: SpanInfo) -> bool:
    """Whether the file that is here already is undamaged."""
    try:
        with open_span(span.path) as loaded:
            loaded.verify()
    except CheckpointError:
        return False
    return True
