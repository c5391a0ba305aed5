"""The writer thread: order, answers, backpressure, and that nothing ends it but `close`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kv_helpers import Talk, load_chain, open_store

from ds4chat.checkpoints.span import Outcome, PutResult, SpanDraft
from ds4chat.checkpoints.writer import Writer
from ds4chat.errors import CheckpointError

TALK = Talk(range(100, 160))
SECONDS = 10.0


class Disk:
    """A store whose puts wait until they are let go."""

    def __init__(self, then: Callable[[SpanDraft], PutResult] | None = None) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.drafts: list[SpanDraft] = []
        self._then = then or (lambda draft: PutResult(Outcome.STORED))

    def put(self, draft: SpanDraft) -> PutResult:
        self.begun.set()
        assert self.go.wait(SECONDS)
        self.drafts.append(draft)
        return self._then(draft)


def test_buffers_are_written_through_their_address_and_stored(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    results: list[PutResult] = []
    with Writer(store) as writer:
        for start, end in [(0, 10), (10, 30), (30, 60)]:
            payload = TALK.payload(start, end)
            buffer = writer.acquire(len(payload))
            ctypes.memmove(buffer.address, payload, len(payload))
            draft = replace(TALK.draft(start, end), payload=buffer.view)
            writer.submit(draft, buffer, results.append)
        assert writer.flush(SECONDS)
        assert [result.outcome for result in results] == [Outcome.STORED] * 3
    assert load_chain(store, TALK) == (TALK.tokens, TALK.payload(0, 60))


def test_lookups_while_spans_are_written_see_whole_chains(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    results: list[PutResult] = []
    with Writer(store) as writer:
        for start in range(0, 60, 2):
            writer.submit(TALK.draft(start, start + 2), None, results.append)
        while not writer.flush(0):
            chain = store.find(TALK.key, 60, 60)
            assert [span.start for span in chain] == [0, *(span.end for span in chain)][: len(chain)]
            store.touch(chain[-1:])
            tokens, _ = load_chain(store, TALK)
            assert tokens == TALK.tokens[: len(tokens)]
            assert len(tokens) >= 2 * len(chain)
    assert [result.outcome for result in results] == [Outcome.STORED] * 30
    assert load_chain(store, TALK) == (TALK.tokens, TALK.payload(0, 60))


def test_flush_waits_for_the_write_and_its_answer() -> None:
    disk = Disk()
    answered: list[PutResult] = []
    with Writer(disk) as writer:
        assert writer.flush(SECONDS)
        writer.submit(TALK.draft(0, 10), None, answered.append)
        writer.submit(TALK.draft(10, 20), None, answered.append)
        assert disk.begun.wait(SECONDS)
        assert not writer.flush(0)
        assert answered == []
        disk.go.set()
        assert writer.flush(SECONDS)
        assert len(answered) == 2
    assert [draft.start for draft in disk.drafts] == [0, 10]


def test_acquire_waits_while_all_buffers_are_in_flight() -> None:
    disk = Disk()
    with Writer(disk, buffers=2) as writer:
        for _ in range(2):
            buffer = writer.acquire(10)
            writer.submit(replace(TALK.draft(0, 10), payload=buffer.view), buffer)
        with pytest.raises(CheckpointError, match="no buffer came free"):
            writer.acquire(10, timeout=0)
        waiting = threading.Thread(target=lambda: writer.acquire(10).release())
        waiting.start()
        disk.go.set()
        waiting.join(SECONDS)
        assert not waiting.is_alive()


def test_buffers_are_kept_and_grow_to_the_largest_size() -> None:
    with Writer(Disk(), buffers=1) as writer:
        buffer = writer.acquire(3 * 2**20)
        address = buffer.address
        assert len(buffer.view) == 3 * 2**20
        buffer.release()
        again = writer.acquire(100)
        assert again.address == address
        assert len(again.view) == 100
        again.release()
        again.release()
        larger = writer.acquire(4 * 2**20)
        larger.view[-1] = 7
        assert len(larger.view) == 4 * 2**20
        with pytest.raises(CheckpointError):
            writer.acquire(1, timeout=0)


def test_no_memory_is_a_checkpoint_error_and_the_buffer_stays_in_the_pool() -> None:
    with Writer(Disk(), buffers=1) as writer:
        for nbytes in (2**62, 2**80):
            with pytest.raises(CheckpointError, match="no memory"):
                writer.acquire(nbytes)
        assert len(writer.acquire(5).view) == 5


def test_a_failing_put_or_answer_ends_nothing() -> None:
    def fail(draft: SpanDraft) -> PutResult:
        if draft.start == 0:
            raise RuntimeError("surprise")
        return PutResult(Outcome.STORED)

    disk = Disk(fail)
    disk.go.set()
    results: list[PutResult] = []

    def refuse(result: PutResult) -> None:
        results.append(result)
        raise ValueError("not taken")

    with Writer(disk, buffers=1) as writer:
        for start in (0, 10, 20):
            writer.submit(TALK.draft(start, start + 10), writer.acquire(1, SECONDS), refuse)
        assert writer.flush(SECONDS)
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.STORED, Outcome.STORED]
    assert results[0].message == "surprise"


def test_close_writes_what_is_queued_and_then_takes_nothing() -> None:
    disk = Disk()
    writer = Writer(disk, buffers=1)
    results: list[PutResult] = []
    held = writer.acquire(1)
    writer.submit(TALK.draft(0, 10), held, results.append)
    writer.submit(TALK.draft(10, 20), None, results.append)
    assert not writer.close(timeout=0)
    with pytest.raises(CheckpointError, match="closed"):
        writer.acquire(1)
    disk.go.set()
    assert writer.close(SECONDS)
    assert len(disk.drafts) == 2
    writer.submit(TALK.draft(20, 30), None, results.append)
    assert [result.outcome for result in results] == [Outcome.STORED, Outcome.STORED, Outcome.DISABLED]
