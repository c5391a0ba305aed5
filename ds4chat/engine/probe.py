"""What a loaded model can do with its state, found out by trying: the kind of a model promises, its numbers decide.

A few tokens are computed, stored, brought back and compared bit for bit. The answer is remembered in a small file, by
everything that changes it (see `Model.variant`). Must not know: sessions, checkpoint files.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ds4chat.engine.llama import Context, DecodeError
from ds4chat.engine.memo import read_memo, write_memo
from ds4chat.errors import CheckpointError

log = logging.getLogger(__name__)

Storing = Literal["spans", "snapshots", "none"]

STEP = 8
"""Tokens of a span in the probe; three of them make a chain."""


class Ability(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        storing: chains of spans, else whole-state snapshots, else nothing comes back bit for bit.
        rewinds: a cut back gives what a fresh computation gives; how far, `Context.can_rewind` knows.
    """

    storing: Storing
    rewinds: bool


def ability(context: Context, key: str, memo: Path | None) -> Ability:
    """The model's ability: as remembered under `key`, else by probing. The context is empty afterwards."""
    known = read_memo(memo)
    abilities = known.get("abilities")
    abilities = abilities if isinstance(abilities, dict) else {}
    try:
        return msgspec.convert(abilities[key], Ability)
    except (KeyError, msgspec.ValidationError):
        began = time.perf_counter()
        found = probe(context)
        log.info("probed in %.0f ms: %s", 1000 * (time.perf_counter() - began), found)
        write_memo(memo, known | {"abilities": abilities | {key: msgspec.to_builtins(found)}})
        return found


def probe(context: Context) -> Ability:
    """Try spans, then a whole state, then a cut back. The context is empty before and after."""
    tokens = _tokens(context)
    try:
        fresh, spans, whole = _run(context, tokens)
        if _comes_back(context, tokens, spans, fresh):
            storing: Storing = "spans"
        elif _comes_back(context, tokens, [whole], fresh):
            storing = "snapshots"
        else:
            storing = "none"
        return Ability(storing, _rewinds(context, tokens, fresh))
    except (CheckpointError, DecodeError) as error:
        log.warning("the probe failed, nothing is stored for this model: %s", error)
        return Ability("none", False)
    finally:
        context.clear()


Blob = tuple[bytes, int, int]
"""A payload and the span it holds."""


def _tokens(context: Context) -> list[int]:
    """Ordinary tokens, well spread over the vocabulary."""
    model = context.model
    plain = (
        t for t in (7919 * i % model.n_vocab for i in range(1, model.n_vocab)) if not model.is_control(t)
    )
    return [token for token, _ in zip(plain, range(3 * STEP + 1), strict=False)]


def _capture(context: Context, start: int, end: int) -> Blob:
    size = context.open_span(start, end)
    try:
        buffer = ctypes.create_string_buffer(size)
        if context.read_span(ctypes.addressof(buffer), size) != size:
            raise CheckpointError(f"span {start}..{end} of {size} bytes could not be read")
        return buffer.raw, start, end
    finally:
        context.close_span()


def _decode(context: Context, tokens: Sequence[int], start: int) -> None:
    """From `start` on to the last but one token, in steps, then the last one alone."""
    for at in range(start, 3 * STEP, STEP):
        context.decode(tokens[at : at + STEP], at, logits=False)
    context.decode(tokens[3 * STEP :], 3 * STEP, logits=True)


def _run(context: Context, tokens: Sequence[int]) -> tuple[bytes, list[Blob], Blob]:
    """The uninterrupted run: its last logits, its spans, its whole state."""
    spans = []
    for at in range(0, 3 * STEP, STEP):
        context.decode(tokens[at : at + STEP], at, logits=False)
        spans.append(_capture(context, at, at + STEP))
    whole = _capture(context, 0, 3 * STEP)
    context.decode(tokens[3 * STEP :], 3 * STEP, logits=True)
    return context.logits(), spans, whole


def _comes_back(context: Context, tokens: Sequence[int], blobs: Sequence[Blob], fresh: bytes) -> bool:
    context.clear()
    try:
        for blob, start, end in blobs:
            context.check_payload(memoryview(blob), start, end)
            buffer = ctypes.create_string_buffer(blob, len(blob))
            context.restore(ctypes.addressof(buffer), len(blob), start, end)
        context.decode(tokens[3 * STEP :], 3 * STEP, logits=True)
    except (CheckpointError, DecodeError) as error:
        log.info("the probe's state did not come back: %s", error)
        return False
    return context.logits() == fresh


def _rewinds(context: Context, tokens: Sequence[int], fresh: bytes) -> bool:
    context.clear()
    _decode(context, tokens, 0)
    if not context.can_rewind(3 * STEP + 1, 2 * STEP):
        return False
    try:
        context.rewind(2 * STEP)
        _decode(context, tokens, 2 * STEP)
    except (CheckpointError, DecodeError) as error:
        log.info("the probe's state was not cut back: %s", error)
        return False
    return context.logits() == fresh
