"""A payload must show that it is exactly its span; no damage gets past but what llama.cpp itself refuses or ignores."""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ds4chat.checkpoints.writer import Buffer
from ds4chat.engine.llama import Context, ContextSettings, Model
from ds4chat.engine.payload import check_payload
from ds4chat.engine.protocol import MemoryKind
from ds4chat.errors import CheckpointError
from tests.support.tiny_models import KINDS

LENGTH = 100
"""Tokens computed, more than the sliding window (64)."""

SPANS = [(0, 1), (0, 64), (64, 65), (65, 100), (0, 100)]
MAGIC = struct.pack("<Ii", 0xAF143CD8, 1)
MEMORIES: tuple[MemoryKind, ...] = ("dense", "sliding-window", "hybrid", "recurrent")


@dataclass
class Bench:
    """A model with `LENGTH` tokens computed and, of each span, the payload captured when it was live."""

    context: Context
    payloads: dict[tuple[int, int], bytes]

    @property
    def memory(self) -> MemoryKind:
        return self.context.model.memory

    def check(self, payload: bytes, start: int, end: int) -> None:
        self.context.check_payload(memoryview(payload), start, end)

    def restored(self, payload: bytes, start: int, end: int) -> bytes | None:
        """What is in an empty cache once llama.cpp took the payload, None when it refuses. Only for what `check` let
        pass."""
        self.context.clear()
        buffer = Buffer(lambda _buffer: None)
        buffer._resize(len(payload))
        buffer.view[:] = payload
        try:
            self.context.restore(buffer.address, len(payload), start, end)
            return captured(self.context, start, end)
        except CheckpointError:
            return None
        finally:
            self.context.clear()


def captured(context: Context, start: int, end: int) -> bytes:
    size = context.open_span(start, end)
    buffer = Buffer(lambda _buffer: None)
    buffer._resize(size)
    assert context.read_span(buffer.address, size) == size
    context.close_span()
    return bytes(buffer.view)


def made(path: Path, kv_type: str, *, flash_attention: bool = True) -> Iterator[Bench]:
    model = Model.load(path, extra_buffers=False)
    settings = ContextSettings(256, kv_type=kv_type, threads=1, flash_attention=flash_attention)
    context = Context(model, settings)
    payloads = {}
    done = 0
    for end in sorted({end for _start, end in SPANS}):
        context.decode([5 + i % 50 for i in range(done, end)], done, logits=False)
        done = end
        for start, stop in SPANS:
            if stop == end:
                payloads[start, stop] = captured(context, start, stop)
    yield Bench(context, payloads)
    context.close()
    model.close()


@pytest.fixture(scope="module", params=[(kind, kv) for kind in KINDS for kv in ("f16", "q8_0")], ids="-".join)
def bench(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Iterator[Bench]:
    kind, kv_type = request.param
    yield from made(tiny[kind], kv_type)


@pytest.mark.parametrize("kind", ["dense", "swa", "hybrid"])
def test_without_flash_attention_values_are_stored_by_columns(kind: str, tiny: dict[str, Path]) -> None:
    for bench in made(tiny[kind], "f16", flash_attention=False):
        for (start, end), payload in bench.payloads.items():
            bench.check(payload, start, end)
            for cut in (*range(0, len(payload), 89), len(payload) - 1):
                with pytest.raises(CheckpointError):
                    bench.check(payload[:cut], start, end)
            with pytest.raises(CheckpointError):
                bench.check(payload, start + 1, end + 1)


def test_a_real_payload_passes_for_its_span(bench: Bench) -> None:
    for (start, end), payload in bench.payloads.items():
        bench.check(payload, start, end)


def test_and_for_no_other(bench: Bench) -> None:
    for (start, end), payload in bench.payloads.items():
        others = {
            (start + 1, end + 1),
            (start, end + 1),
            (start, end - 1),
            (0, 0),
            (start + 2**31, end + 2**31),
        }
        if start:
            others |= {(start - 1, end), (start - 1, end - 1), (0, end - start), (0, end)}
        if bench.memory == "recurrent":
            # A state has no beginning: it is all that came before its end.
            others = {(a, b) for a, b in others if b != end}
        for other in others - {(start, end)}:
            with pytest.raises(CheckpointError):
                bench.check(payload, *other)


def test_nor_for_another_kind_of_memory(bench: Bench) -> None:
    for (start, end), payload in bench.payloads.items():
        for memory in set(MEMORIES) - {bench.memory}:
            with pytest.raises(CheckpointError):
                check_payload(memoryview(payload), memory, start, end, 64)


def test_a_restored_span_is_captured_as_the_same_bytes(bench: Bench) -> None:
    for (start, end), payload in bench.payloads.items():
        assert bench.restored(payload, start, end) == payload


def test_every_truncation_and_every_longer_one_is_refused(bench: Bench) -> None:
    """Most of them here. A recurrent state does not say how many records it has, but llama.cpp knows and looks."""

    def refused(payload: bytes, start: int, end: int) -> bool:
        try:
            bench.check(payload, start, end)
        except CheckpointError:
            return True
        assert bench.memory in ("hybrid", "recurrent")
        return bench.restored(payload, start, end) is None

    for (start, end), payload in bench.payloads.items():
        cuts = {*range(min(2000, len(payload))), *range(0, len(payload), 97), len(payload) - 1}
        for cut in cuts - {len(payload)}:
            assert refused(payload[:cut], start, end), f"{cut} of {len(payload)} bytes of {start}..{end}"
        for more in (b"\0", b"\0" * 11, b"\0" * 12, b"\xff" * 12, payload):
            assert refused(payload + more, start, end), f"{len(more)} bytes more"


def rows(payload: bytes, at: int, cells: int) -> Iterator[range]:
    """The K and V rows of an attention cache that begins at `at`; then its end as an empty range."""
    at += 8 + 12 * cells
    transposed, layers = struct.unpack_from("<II", payload, at)
    assert transposed == 0
    at += 8
    for _ in range(2 * layers):
        _type, row = struct.unpack_from("<iQ", payload, at)
        yield range(at + 12, at + 12 + cells * row)
        at += 12 + cells * row
    yield range(at, at)


def numbers(payload: bytes, memory: MemoryKind, start: int, end: int) -> list[int]:
    """Offsets of all that is not a row of K, V or recurrent state."""
    at, data = 8, set()
    caches = []
    if memory != "recurrent":
        caches.append(end - start)
    if memory == "sliding-window":
        caches.append(end - max(start, end - 64))
    for cells in caches:
        for row in rows(payload, at, cells):
            data.update(row)
            at = row.stop
    if memory in ("hybrid", "recurrent"):
        at += 20
        while at < len(payload):
            _type, row = struct.unpack_from("<iQ", payload, at)
            data.update(range(at + 12, at + 12 + row))
            at += 12 + row
    return [i for i in range(len(payload)) if i not in data]


def test_every_changed_number_is_refused_here_or_by_llama_cpp_or_means_nothing(bench: Bench) -> None:
    """What passes both is a sequence id, which llama.cpp does not read: it puts the cells where it is told to."""
    start, end = 65, 100
    payload = bench.payloads[start, end]
    passed = []
    for at in numbers(payload, bench.memory, start, end):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(payload)
            changed[at] ^= flip
            try:
                bench.check(bytes(changed), start, end)
            except CheckpointError:
                continue
            taken = bench.restored(bytes(changed), start, end)
            if taken is not None:
                passed.append((at, flip))
                assert taken == payload
    harmless = set(range(4, 8))
    if bench.memory != "recurrent":
        cells = [(16, end - start)]
        if bench.memory == "sliding-window":
            *_, last = rows(payload, 8, end - start)
            cells.append((last.stop + 8, end - start))
        harmless |= {first + 12 * i + byte for first, n in cells for i in range(n) for byte in range(8, 12)}
    assert [(at, flip) for at, flip in passed if at not in harmless] == []


# ---- made-up payloads -------------------------------------------------------------------------------------------


def attention(positions: list[int], *, transposed: int = 0, layers: int = 1, row: int = 0) -> bytes:
    cells = b"".join(struct.pack("<iIi", p, 1, 1) for p in positions)
    layer = struct.pack("<iQ", 1, row) + bytes(row * len(positions))
    return (
        struct.pack("<II", 1, len(positions))
        + cells
        + struct.pack("<II", transposed, layers)
        + layer * 2 * layers
    )


def test_a_made_up_one_passes_so_that_its_variations_prove_something() -> None:
    check_payload(memoryview(MAGIC + attention([3, 4], row=4)), "dense", 3, 5)


@pytest.mark.parametrize(
    "positions", [[4, 3], [3, 3], [3, 5], [-3, -2], [2, 3], [2**31 - 1, -(2**31)], [3], [3, 4, 5], []]
)
def test_positions_must_be_the_spans(positions: list[int]) -> None:
    with pytest.raises(CheckpointError):
        check_payload(memoryview(MAGIC + attention(positions, row=4)), "dense", 3, 5)


def huge(memory: MemoryKind) -> list[bytes]:
    """Counts that would loop, allocate or overflow, were they believed."""
    most, cell = 2**32 - 1, struct.pack("<iIi", 0, 1, 1)
    endless = struct.pack("<II", 1, 1) + cell
    zeros = bytes(12 * 400_000)
    return [
        MAGIC + struct.pack("<II", 1, most),
        MAGIC + endless + struct.pack("<II", 0, most),
        MAGIC + endless + struct.pack("<II", 0, most) + zeros,
        MAGIC + endless + struct.pack("<II", 1, most) + zeros,
        MAGIC + endless + struct.pack("<II", 0, 2) + struct.pack("<iQ", 1, 2**64 - 1) * 4,
        MAGIC + endless + struct.pack("<II", 0, 2) + struct.pack("<iQ", 1, 2**63 - 1) * 4,
        MAGIC
        + endless
        + struct.pack("<II", 1, 1)
        + struct.pack("<iQ", 1, 0)
        + struct.pack("<iII", 1, most, most),
        MAGIC + struct.pack("<IiIII", 1, 0, 0, 0, most) + zeros,
        MAGIC + struct.pack("<IiIII", 1, 0, 0, 0, 1) + zeros,
        MAGIC + struct.pack("<IiIII", 1, 0, 0, 0, most) + struct.pack("<iQ", 1, 2**64 - 1) * 4,
        MAGIC + bytes(4_800_000),
    ]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("number", range(11))
def test_huge_counts_are_refused_at_once(memory: MemoryKind, number: int) -> None:
    payload = huge(memory)[number]
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(CheckpointError):
            check_payload(memoryview(payload), memory, 0, 1, 64)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - began < 0.5
    assert peak < 100_000


def test_a_span_of_many_tokens_in_a_short_payload_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            check_payload(memoryview(MAGIC + struct.pack("<II", 1, 2**31)), "dense", 0, 2**31)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def some_payloads() -> st.SearchStrategy[bytes]:
    u32 = st.one_of(st.integers(0, 8), st.sampled_from([255, 2**31 - 1, 2**31, 2**32 - 1])).map(
        lambda n: struct.pack("<I", n)
    )
    u64 = st.sampled_from([0, 1, 4, 2**32, 2**63 - 1, 2**63, 2**64 - 1]).map(lambda n: struct.pack("<Q", n))
    part = st.one_of(u32, u64, st.binary(max_size=12), st.just(struct.pack("<iIi", 0, 1, 1)))
    return st.lists(part, max_size=12).map(b"".join)


@pytest.mark.parametrize("memory", MEMORIES)
@given(
    garbage=st.one_of(
        st.binary(max_size=64), some_payloads(), some_payloads().map(lambda tail: MAGIC + tail)
    ),
    start=st.integers(0, 3),
    length=st.one_of(st.integers(0, 3), st.just(2**32 - 1)),
)
@example(garbage=b"", start=0, length=0)
@settings(max_examples=60, deadline=1000)
def test_garbage_passes_or_is_a_checkpoint_error(
    memory: MemoryKind, garbage: bytes, start: int, length: int
) -> None:
    try:
        check_payload(memoryview(garbage), memory, start, start + length, 64)
    except CheckpointError:
        return
    # Nothing without the magic, or without a byte for its cells, gets through.
    assert garbage.startswith(MAGIC[:4]) and len(garbage) >= 16
