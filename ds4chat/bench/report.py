"""What the bench and its child process say to each other, and what comes out of it.

Times are milliseconds and sizes bytes, all of them medians where there are several rounds. A ratio is the median of
the ratios of the rounds, because both sides of one were measured right after each other: on a busy machine only that
means something. Must not know the engine.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ds4chat.engine.protocol import ChatMessage, Load, MemoryKind

Part = Literal["lengths", "generation", "growth"]
PARTS: tuple[Part, ...] = ("lengths", "generation", "growth")
"""What there is to measure, in the order it is done."""


class Request(msgspec.Struct, frozen=True):
    """What the child is asked to do; one line on its standard input, which stays open while it is wanted.

    Attributes:
        load: the model, and in `load.kv` an empty directory for the checkpoints, which the child removes when its
            input ends before it is done.
        lengths: where to measure, tokens, ascending.
        chat: a conversation to compute; it is repeated until it is long enough.
        parts: what to measure.
        rounds: restores at each length.
        pairs: runs of generation with and without storing.
        generated: tokens of each run.
    """

    load: Load
    lengths: list[int]
    chat: list[ChatMessage]
    parts: list[Part] = msgspec.field(default_factory=lambda: list(PARTS))
    rounds: int = 9
    pairs: int = 21
    generated: int = 64


class Length(msgspec.Struct, frozen=True):
    """One length.

    Attributes:
        tokens: of the chat.
        spans, file_bytes: of the chain that holds it.
        prefill_ms: to compute it, storing included.
        restore_ms: to find, read, verify and take in its chain, as an opened session does.
        xxh3_ms: to map the same files one after the other and hash all of each.
        read_ms: to read the same files into one buffer that is warm.
        whole_bytes: of the whole state as llama.cpp gives it, the KV bytes of the chat.
        whole_save_ms: the same into a warm buffer and from there into one file, without waiting for the disk.
        whole_load_ms: back from that file, unverified.
    """

    tokens: int
    spans: int
    file_bytes: int
    prefill_ms: float
    restore_ms: float
    xxh3_ms: float
    read_ms: float
    whole_bytes: int
    whole_save_ms: float
    whole_load_ms: float
    restore_over_xxh3: float
    restore_over_read: float
    restore_over_whole_load: float
    prefill_over_restore: float


class Growth(msgspec.Struct, frozen=True):
    """What a chat writes that grows turn by turn.

    Attributes:
        tokens, turns: of the chat in the end.
        stores: how often something was stored.
        kv_bytes: of the whole state in the end.
        written_bytes: of all files written.
        whole_bytes: what storing the whole state at the same points would have written.
    """

    tokens: int
    turns: int
    stores: int
    kv_bytes: int
    written_bytes: int
    whole_bytes: int
    written_over_kv: float
    whole_over_kv: float


class Generation(msgspec.Struct, frozen=True):
    """Tokens a second with and without storing; each run with it stores one span.

    Attributes:
        tokens: of each run, at most the interval of spans: a chat stores no more often than these runs.
        storing_over_plain: the speed with storing over that without, median of the pairs.
    """

    pairs: int
    tokens: int
    plain_per_second: float
    storing_per_second: float
    storing_over_plain: float


class Report(msgspec.Struct, frozen=True, tag="report"):
    """All that was measured; a part that was not asked for is empty."""

    model: str
    architecture: str
    memory: MemoryKind
    kv_type: str
    n_ctx: int
    kv_bytes_per_token: int
    build: str
    cores: int
    rounds: int
    lengths: list[Length]
    growth: Growth | None
    generation: Generation | None


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """What is being done, `done` of `total`."""

    what: str
    done: int
    total: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It cannot be done; one sentence for the user."""

    message: str


Answer = Progress | Report | Refused

_encoder = msgspec.json.Encoder()
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


def encode(message: Request | Answer) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_answer(line: bytes) -> Answer:
    """Raises `msgspec.DecodeError` for anything that is not one answer."""
    return _answers.decode(line)


def decode_request(line: bytes) -> Request:
    """Raises `msgspec.DecodeError` for anything that is not one request."""
    return _requests.decode(line)
