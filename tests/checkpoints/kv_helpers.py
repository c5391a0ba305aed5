"""Small conversations to store: text and tokens made up, payload bytes that tell tokens apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ds4chat.checkpoints.format import Trailer, token_hash
from ds4chat.checkpoints.prefix import ROOT, key_offsets, sha1
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, Outcome, SpanDraft, SpanInfo
from ds4chat.checkpoints.store import Store

IDENTITY = Identity("llama-test", b"variant1", b"fingerprint-0001", 16, 1)
PAYLOAD_PER_TOKEN = 100


class Clock:
    """Seconds since 1970 that pass when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Talk:
    """A conversation: token `i` is rendered as its id and a blank, ids above 900 are control tokens."""

    def __init__(self, tokens: Sequence[int], salt: bytes = b"") -> None:
        self.tokens = list(tokens)
        pieces = [(t, None if t > 900 else b"%d " % t) for t in self.tokens]
        self.key, self.offsets = key_offsets(pieces)
        self.salt = salt

    def key_len(self, end: int) -> int:
        return self.offsets[end - 1] if end else 0

    def name(self, end: int) -> bytes:
        return sha1(self.key[: self.key_len(end)]) if end else ROOT

    def payload(self, start: int, end: int) -> bytes:
        return bytes(
            (t + i + len(self.salt)) % 256 for t in self.tokens[start:end] for i in range(PAYLOAD_PER_TOKEN)
        )

    def draft(
        self,
        start: int,
        end: int,
        reason: Reason = Reason.CONTINUED,
        cost_us: int = 1000,
        trailers: tuple[Trailer, ...] = (),
        **changes: object,
    ) -> SpanDraft:
        fields: dict[str, object] = {
            "parent": self.name(start),
            "sha1": self.name(end),
            "start": start,
            "end": end,
            "context_size": 4096,
            "reason": reason,
            "text": self.key[self.key_len(start) : self.key_len(end)],
            "tokens": self.tokens[start:end],
            "start_hash": token_hash(self.tokens[:start]),
            "end_hash": token_hash(self.tokens[:end]),
            "key_len": self.key_len(end),
            "payload": self.payload(start, end),
            "cost_us": cost_us,
            "trailers": trailers,
        }
        return SpanDraft(**{**fields, **changes})  # type: ignore[arg-type]

    def put(self, store: Store, *ends: int, reason: Reason = Reason.CONTINUED) -> list[SpanInfo]:
        """Store a chain of spans that end here; each must be stored."""
        spans: list[SpanInfo] = []
        start = 0
        for end in ends:
            result = store.put(self.draft(start, end, reason))
            assert result.outcome is Outcome.STORED, result
            assert result.span is not None
            spans.append(result.span)
            start = end
        return spans

    def find(self, store: Store, max_tokens: int = 10**6, n_ctx: int = 10**6) -> list[int]:
        """Ends of the chain the store finds for it."""
        return [span.end for span in store.find(self.key, max_tokens, n_ctx)]


def open_store(root: Path, clock: Clock | None = None, budget_bytes: int = 0, **more: object) -> Store:
    """A store with a budget in bytes, which `Store.open` takes in MB."""
    store = Store.open(root, IDENTITY, budget_mb=0, clock=clock or Clock(), **more)  # type: ignore[arg-type]
    store._budget = budget_bytes
    return store


def load_chain(store: Store, talk: Talk) -> tuple[list[int], bytes]:
    """Tokens and payloads of the chain a store finds, all verified."""
    tokens: list[int] = []
    payload = b""
    parent: SpanInfo | None = None
    for span in store.find(talk.key, 10**6, 10**6):
        with store.load(span, parent, talk.key) as loaded:
            tokens += loaded.tokens
            payload += bytes(loaded.payload)
        parent = span
    return tokens, payload


def span_files(root: Path) -> list[Path]:
    """All span files below a root."""
    return sorted(root.glob("*/*/*.kv"))
