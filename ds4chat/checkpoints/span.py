"""What the store and its callers hand each other: identities, spans on disk, drafts of spans, results.

Promises plain values and the rules that bind a span to its parent and to a model. It must know neither
directory nor engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ds4chat.checkpoints.format import (
    EMPTY_TOKEN_HASH,
    MAX_TOKENS,
    Bytes,
    Flag,
    Header,
    Trailer,
    file_bytes,
    token_hash,
)
from ds4chat.checkpoints.prefix import ROOT, sha1
from ds4chat.checkpoints.reason import Reason
from ds4chat.errors import CheckpointError

SUFFIX = ".kv"

SUPPORTED_FLAGS = int(Flag.SNAPSHOT)
"""Files with other flag bits stay on disk and are left alone by this build. A plain number, because the complement
of an `IntFlag` has the bits it knows alone."""


@dataclass(frozen=True)
class Identity:
    """Which checkpoints a loaded model can use.

    Attributes:
        family: architecture, shapes and tokenizer, as a name for the folder; characters a file name should
            not have are replaced.
        variant: 8 bytes over exact weights, KV types, flash attention, engine build, LoRA and rope choice.
        fingerprint: 16 bytes over the exact weights.
        quant_bits: bits a weight, for information.
        payload_abi: version of the payload's layout.
        loose: 8 bytes over the variant's parts but the weights, and the model's names: models that share it
            differ in quantization only. b"" where nothing tells.
        about: for people, "model", "kv_type", "build" among it.
    """

    family: str
    variant: bytes
    fingerprint: bytes
    quant_bits: int
    payload_abi: int
    loose: bytes = b""
    about: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if len(self.variant) != 8 or len(self.fingerprint) != 16 or len(self.loose) not in (0, 8):
            raise ValueError("a variant has 8 bytes and a fingerprint 16")

    @property
    def folder(self) -> Path:
        """Where its spans lie, relative to the root: `<family>/<variant in hex>`."""
        family = re.sub(r"[^A-Za-z0-9._+-]", "-", self.family).lstrip(".")[:100]
        return Path(family or "model") / self.variant.hex()


@dataclass(frozen=True, slots=True)
class SpanInfo:
    """One span on disk as its header describes it.

    Attributes:
        folder: the directory it lies in.
        sha1: SHA-1 of all key bytes up to its end, 20 bytes: its name.
        size: of the file, bytes.
        inode: tells a replaced file from the one that was read.
    """

    folder: Path
    sha1: bytes
    header: Header
    size: int
    inode: int = 0

    @property
    def path(self) -> Path:
        """The file."""
        return span_path(self.folder, self.sha1)

    @property
    def parent(self) -> bytes:
        """SHA-1 of the key bytes up to its start, zeros at the root."""
        return self.header.parent

    @property
    def start(self) -> int:
        """First token of the span."""
        return self.header.start

    @property
    def end(self) -> int:
        """Tokens of the conversation up to the span's end."""
        return self.header.end

    @property
    def key_len(self) -> int:
        """Key bytes of the conversation up to the span's end."""
        return self.header.key_len


def span_path(folder: Path, name: bytes) -> Path:
    """The file of the span with this SHA-1."""
    return folder / (name.hex() + SUFFIX)


def discontinuity(header: Header, parent: SpanInfo | None) -> str | None:
    """Why a span does not continue `parent` (None at the root); None when it does.

    The same bytes can be tokenized in two ways, and KV follows the tokens: hence the token hash beside the
    SHA-1.
    """
    name, end, key_len, end_hash = ROOT, 0, 0, EMPTY_TOKEN_HASH
    if parent is not None:
        name, end = parent.sha1, parent.end
        key_len, end_hash = parent.key_len, parent.header.end_hash
    if header.parent != name:
        return "it names another parent"
    if header.start != end:
        return f"it starts at {header.start}, its parent ends at {end}"
    if header.key_len - header.text_bytes != key_len:
        return "its text does not begin where its parent's ends"
    if header.start_hash != end_hash:
        return "its parent holds other tokens"
    return None


def mismatch(header: Header, identity: Identity) -> str | None:
    """Why a model cannot use a span; None when it can."""
    if header.payload_abi != identity.payload_abi:
        return f"payload version {header.payload_abi}, not {identity.payload_abi}"
    if header.fingerprint != identity.fingerprint:
        return "other weights"
    if header.variant != identity.variant:
        return "another variant"
    if header.flags & ~SUPPORTED_FLAGS:
        return f"unknown flags {header.flags:#x}"
    if header.flags & Flag.SNAPSHOT and header.start:
        return "a whole state that does not begin at token 0"
    return None


@dataclass(frozen=True)
class SpanDraft:
    """A span to be stored.

    Attributes:
        parent: SHA-1 of the key bytes up to `start`; `prefix.ROOT` (zeros) when `start` is 0.
        sha1: of all key bytes up to `end`.
        start, end: tokens `start..end-1`.
        context_size: of the engine, tokens.
        text: key bytes of the span.
        tokens: its ids.
        start_hash, end_hash: XXH3 of all ids up to start and end (`format.hash_tokens`).
        key_len: key bytes of the conversation up to `end`.
        payload: KV rows; must not change until the put is done.
        cost_us: measured prefill time, microseconds a token.
    """

    parent: bytes
    sha1: bytes
    start: int
    end: int
    context_size: int
    reason: Reason
    text: bytes
    tokens: Sequence[int]
    start_hash: int
    end_hash: int
    key_len: int
    payload: Bytes
    cost_us: int = 0
    flags: int = 0
    trailers: tuple[Trailer, ...] = ()

    @property
    def size(self) -> int:
        """Of the file it makes, bytes."""
        return file_bytes(self.text, len(self.tokens), self.payload, self.trailers)

    def header(self, identity: Identity, now: int) -> Header:
        """The header it gets, sizes and checksums not yet filled in; `now` in seconds since 1970."""
        return Header(
            quant_bits=identity.quant_bits,
            reason=self.reason,
            flags=self.flags,
            payload_abi=identity.payload_abi,
            end=self.end,
            context_size=self.context_size,
            start=self.start,
            created=now,
            last_used=now,
            parent=self.parent,
            cost_us=min(max(self.cost_us, 0), 2**32 - 1),
            fingerprint=identity.fingerprint,
            variant=identity.variant,
            key_len=self.key_len,
            start_hash=self.start_hash,
            end_hash=self.end_hash,
            text_bytes=len(self.text),
            token_count=len(self.tokens),
        )

    def check(self) -> None:
        """Raises `CheckpointError` when the parts contradict each other, as far as that shows without the
        parent."""
        if not 0 <= self.start < self.end <= MAX_TOKENS or self.end - self.start != len(self.tokens):
            raise CheckpointError(f"{len(self.tokens)} tokens cannot be span {self.start}..{self.end}")
        if len(self.sha1) != 20 or len(self.parent) != 20 or (self.start == 0) != (self.parent == ROOT):
            raise CheckpointError("a draft names its end, and a parent just when it begins behind token 0")
        if self.flags & ~SUPPORTED_FLAGS:
            raise CheckpointError(f"unknown flags {self.flags:#x}")
        if self.flags & Flag.SNAPSHOT and self.start:
            raise CheckpointError("a whole state begins at token 0")
        if self.start == 0 and (self.sha1 != sha1(self.text) or self.end_hash != token_hash(self.tokens)):
            raise CheckpointError("a draft at the root has other text or tokens than its hashes say")


class Outcome(Enum):
    """What became of a draft."""

    STORED = "stored"
    STANDS = "stands"
    """The same prefix with the same tokens is on disk with its whole chain: go on from there."""
    TOKENS_DIFFER = "tokens differ"
    """The same prefix is on disk with other tokens: the span is left open and ends at the next frontier."""
    PARENT_GONE = "parent gone"
    """The span it continues is not on disk (any more), or its chain is broken: find the chain again."""
    TOO_LARGE = "too large"
    """Larger than the whole budget; nothing was deleted."""
    NO_ROOM = "no room"
    """All that could be deleted would not make room; nothing was deleted."""
    DISABLED = "disabled"
    """Storing is off."""
    FAILED = "failed"
    """Not written; `message` says why. Storing goes off when the directory or the disk is the cause."""


@dataclass(frozen=True)
class PutResult:
    """The answer to one `Store.put`.

    Attributes:
        span: on disk now, for STORED, STANDS and (with other tokens) TOKENS_DIFFER.
        evicted: how many files were deleted to make room.
        message: for the log.
    """

    outcome: Outcome
    span: SpanInfo | None = None
    evicted: int = 0
    message: str = ""

    @property
    def nbytes(self) -> int:
        """Size of the file on disk, 0 without one."""
        return self.span.size if self.span is not None else 0

    @property
    def is_on_disk(self) -> bool:
        """Whether a span to the draft's end, with its tokens, can be the next one's parent."""
        return self.outcome in (Outcome.STORED, Outcome.STANDS)
