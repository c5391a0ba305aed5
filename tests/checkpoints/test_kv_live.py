"""The live state over a real store and an engine of paper: what is stored again, and what on top of what."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kv_helpers import IDENTITY, Clock, Talk, open_store, span_files

from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Outcome, PutResult, SpanDraft
from ds4chat.checkpoints.store import Store
from ds4chat.checkpoints.writer import Writer
from ds4chat.engine.live import LiveState
from ds4chat.engine.prompt import Prompt
from ds4chat.engine.protocol import Event, Stored

TALK = Talk(range(100, 200))


def prompt_of(talk: Talk, n: int) -> Prompt:
    return Prompt(talk.tokens[:n], talk.key[: talk.key_len(n)], talk.offsets[:n], [], 0)


class Engine:
    """Rows are four bytes a token. Plays `Context`, its `model` and the `PromptBuilder`."""

    n_ctx = 4096
    rewinds = True
    memory = "dense"
    n_swa = 0

    def __init__(self) -> None:
        self.model = self
        self.span = (0, 0)

    def piece(self, token: int) -> bytes:
        return b"%d " % token

    key_piece = piece

    def decode(self, tokens: list[int], position: int, *, logits: bool) -> None: ...

    def clear(self) -> None: ...

    def can_rewind(self, length: int, to: int) -> bool:
        return to >= length or self.rewinds

    def rewind(self, to: int) -> None: ...

    def open_span(self, start: int, end: int) -> int:
        self.span = (start, end)
        return 4 * (end - start)

    def read_span(self, address: int, size: int) -> int:
        ctypes.memmove(address, bytes(size), size)
        return size

    def close_span(self) -> None: ...

    def check_payload(self, payload: memoryview, start: int, end: int) -> None:
        assert len(payload) == 4 * (end - start)

    def restore(self, address: int, size: int, start: int, end: int) -> None: ...

    def realign(self, prompt: Prompt, stored: list[int]) -> Prompt:
        return prompt


class Failing:
    """A store whose next puts fail."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.fails = 0

    def put(self, draft: SpanDraft) -> PutResult:
        if self.fails:
            self.fails -= 1
            return PutResult(Outcome.FAILED, message="as told")
        return self.store.put(draft)


class Live:
    """A live state of `TALK`."""

    def __init__(self, root: Path, **store: object) -> None:
        self.root = root
        self.engine = Engine()
        self.events: list[Event] = []
        self.store = open_store(root, **store)  # type: ignore[arg-type]
        self.disk = Failing(self.store)
        self.writer = Writer(self.disk)
        self.state = LiveState(self.engine, self.engine, self.events.append, self.store, self.writer)  # type: ignore[arg-type]
        self.state.session = "s"

    def grow(self, to: int, reason: Reason | None = Reason.CONTINUED) -> None:
        self.state.decode(TALK.tokens[len(self.state) : to], logits=False)
        if reason is not None:
            self.state.store(reason)
            assert self.writer.flush(10)

    def take_up(self, tokens: int) -> int:
        return self.state.take_up("s", prompt_of(TALK, tokens)).cached

    @property
    def spans(self) -> list[tuple[int, int, Reason]]:
        headers = [read_header(path)[0] for path in span_files(self.root)]
        return sorted((h.start, h.end, h.reason) for h in headers)

    @property
    def stored(self) -> list[tuple[int, int]]:
        return [(e.start, e.end) for e in self.events if isinstance(e, Stored)]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.state.close()
    live.writer.close()


def test_cold_store_suppresses_the_duplicate_continued_boundary(live: Live) -> None:
    live.grow(32, Reason.COLD)
    live.grow(32, Reason.CONTINUED)
    assert live.spans == [(0, 32, Reason.COLD)]
    assert live.stored == [(0, 32)]
    live.grow(64, Reason.CONTINUED)
    assert live.spans == [(0, 32, Reason.COLD), (32, 64, Reason.CONTINUED)]


def test_cold_store_suppresses_the_duplicate_continued_boundary_but_not_when_its_write_failed(
    live: Live,
) -> None:
    live.disk.fails = 1
    live.grow(32, Reason.COLD)
    assert live.spans == []
    live.grow(32, Reason.CONTINUED)
    assert live.spans == [(0, 32, Reason.CONTINUED)]


def test_a_failed_span_is_part_of_the_next(live: Live) -> None:
    live.grow(20)
    live.disk.fails = 1
    live.grow(40)
    live.grow(60)
    assert [(start, end) for start, end, _ in live.spans] == [(0, 20), (20, 60)]


def names(live: Live, *ends: int) -> None:
    for end in ends:
        next(live.root.glob(f"*/*/{TALK.name(end).hex()}.kv")).unlink()


@pytest.mark.parametrize("gone", [(60,), (40, 60), (20, 40, 60), (20,), (40,)])
def test_what_vanished_is_written_again_from_rows_that_are_live(live: Live, gone: tuple[int, ...]) -> None:
    for end in (20, 40, 60):
        live.grow(end)
    names(live, *gone)
    live.grow(80)
    assert [(start, end) for start, end, _ in live.spans] == [(0, 20), (20, 40), (40, 60), (60, 80)]
    assert [span.end for span in live.store.find(TALK.key, 99, 99)] == [20, 40, 60, 80]


@pytest.mark.parametrize(("gone", "start"), [((60,), 40), ((40, 60), 20), ((20, 40, 60), 0), ((40,), 20)])
def test_the_next_span_starts_at_the_last_ancestor_that_is_on_disk(
    live: Live, gone: tuple[int, ...], start: int
) -> None:
    """Where a state of the past cannot be read any more, one span bridges the gap."""
    live.engine.rewinds, live.engine.memory = False, "hybrid"
    for end in (20, 40, 60):
        live.grow(end)
    names(live, *gone)
    live.grow(80)
    assert (start, 80) in [(start, end) for start, end, _ in live.spans]
    assert live.store.find(TALK.key, 99, 99)[-1].end == 80
    live.grow(90)
    assert live.store.find(TALK.key, 99, 99)[-1].end == 90


def test_a_chain_is_leased_from_when_it_is_loaded_until_it_is_left(live: Live) -> None:
    for end in (20, 40):
        live.grow(end)
    spans = {span.path for span in live.store.find(TALK.key, 99, 99)}
    assert live.store._live == spans
    live.state.clear()
    assert live.store._live == set()
    seen: list[frozenset[Path]] = []
    live.engine.restore = lambda *_: seen.append(live.store._live)  # type: ignore[method-assign]
    assert live.take_up(60) == 40
    assert seen == [spans, spans]
    assert live.store._live == spans
    live.state.forget("s")
    assert live.store._live == set()


def test_nothing_is_stored_on_top_of_another_quantization(tmp_path: Path) -> None:
    other = replace(IDENTITY, variant=b"variant2", fingerprint=b"fingerprint-0002", loose=b"loosely1")
    theirs = Store.open(tmp_path, other, budget_mb=0, clock=Clock())
    long = Talk(range(100, 1100))
    assert theirs.put(long.draft(0, 600, payload=bytes(4 * 600))).outcome is Outcome.STORED
    mine = replace(IDENTITY, loose=b"loosely1")
    live = Live(tmp_path)
    live.store = live.state._store = Store.open(
        tmp_path, mine, budget_mb=0, clock=Clock(), accept_different_quant=True
    )
    assert live.state.take_up("s", prompt_of(long, 700)).cached == 600
    live.state.decode(long.tokens[600:700], logits=False)
    live.state.store(Reason.CONTINUED)
    assert live.writer.flush(10)
    assert len(span_files(tmp_path)) == 1
    assert {path.parent.name for path in live.store._live} == {other.variant.hex()}
    live.state.clear()
    live.grow(20)
    assert len(span_files(tmp_path)) == 2, "what it computed all by itself it stores"
    live.state.close()
    live.writer.close()
