"""The file: what is written comes back, and whatever else a file holds is refused."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_helpers import IDENTITY, Talk

from ds4chat.checkpoints.format import (
    EMPTY_TOKEN_HASH,
    Flag,
    Header,
    LoadedSpan,
    hash_tokens,
    open_span,
    read_header,
    read_tokens,
    token_hash,
    write_span,
    write_use,
)
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import SpanDraft
from ds4chat.checkpoints.trailers import Trailer, pack_trailers, unpack_trailers
from ds4chat.errors import CheckpointError

TALK = Talk([901, 10, 20, 30, 902, 40])
UNCHECKED = {*range(12, 16), *range(32, 40)}
"""Bytes of hits and last used."""


def write(path: Path, draft: SpanDraft) -> Header:
    with path.open("wb") as file:
        return write_span(
            file, draft.header(IDENTITY, 123), draft.text, draft.tokens, draft.payload, draft.trailers
        )


def small(trailers: tuple[Trailer, ...] = ()) -> SpanDraft:
    draft = TALK.draft(2, 5, Reason.IDLE, trailers=trailers)
    return replace(draft, payload=bytes(range(40)))


def content(span: LoadedSpan) -> tuple[object, ...]:
    header = replace(span.header, hits=0, last_used=0)
    return header, span.text, list(span.tokens), bytes(span.payload)


def test_header_offsets_are_those_of_the_design(tmp_path: Path) -> None:
    write(tmp_path / "a", small())
    data = (tmp_path / "a").read_bytes()
    draft = small()

    def at(form: str, offset: int) -> object:
        return struct.unpack_from("<" + form, data, offset)[0]

    assert data[:8] == b"KVC" + bytes((1, 16, Reason.IDLE, 0, 1))
    assert (at("I", 8), at("I", 12), at("I", 16), at("I", 20)) == (5, 0, 4096, 2)
    assert (at("Q", 24), at("Q", 32), at("Q", 40)) == (123, 123, 40)
    assert data[48:68] == TALK.name(2)
    assert (at("I", 68), at("I", 72), at("I", 76)) == (len(draft.text), 3, 1000)
    assert data[80:96] == IDENTITY.fingerprint
    assert data[96:104] == IDENTITY.variant
    assert at("Q", 104) == TALK.key_len(5)
    ids = struct.pack("<6I", *TALK.tokens)
    assert at("Q", 112) == xxhash.xxh3_64_intdigest(ids[:8])
    assert at("Q", 120) == xxhash.xxh3_64_intdigest(ids[:20])
    assert at("Q", 128) == xxhash.xxh3_64_intdigest(bytes(range(40)))
    fixed = data[:12] + data[16:32] + data[40:136] + draft.text + ids[8:20]
    assert at("Q", 136) == xxhash.xxh3_64_intdigest(fixed)
    assert data[144:] == draft.text + ids[8:20] + bytes(range(40))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20),
    st.binary(max_size=50),
    st.binary(max_size=200),
    st.lists(
        st.builds(Trailer, st.binary(min_size=4, max_size=4), st.integers(0, 9), st.binary(max_size=30)),
        max_size=3,
    ),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    tokens: list[int],
    text: bytes,
    payload: bytes,
    trailers: list[Trailer],
) -> None:
    path = tmp_path_factory.mktemp("f") / "a"
    draft = small(tuple(trailers))
    draft = replace(
        draft, end=2 + len(tokens), tokens=tokens, text=text, payload=payload, key_len=7 + len(text)
    )
    header = write(path, draft)
    assert read_header(path) == (header, path.stat().st_size)
    assert path.stat().st_size == draft.size
    assert list(read_tokens(path)) == tokens
    with open_span(path) as span:
        span.verify()
        assert (span.header, span.text, list(span.tokens)) == (header, text, tokens)
        assert bytes(span.payload) == payload
        assert span.trailers == trailers
        assert Header.unpack(header.pack()) == header


def test_the_payload_can_be_read_at_its_address(tmp_path: Path) -> None:
    write(tmp_path / "a", small())
    span = open_span(tmp_path / "a")
    assert ctypes.string_at(span.payload_address, span.payload_size) == bytes(range(40))
    assert span.payload.readonly
    kept = span.payload
    span.close()
    assert bytes(kept) == bytes(range(40))
    with pytest.raises(ValueError, match="closed"):
        _ = span.payload_address
    with pytest.raises(ValueError):
        _ = span.payload
    span.close()


@pytest.mark.parametrize("bit", [0x01, 0x80, 0xFF])
def test_a_flip_of_any_byte_is_refused_or_changes_nothing(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "a"
    write(path, small((Trailer(b"KTM1", 1, b"call"), Trailer(b"ZZZZ", 7, b""))))
    data = path.read_bytes()
    with open_span(path) as span:
        good = content(span)
        trailers_at = span.header.trailers_at
        trailers = span.trailers
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes((data[position] ^ bit,)) + data[position + 1 :])
        try:
            with open_span(path) as span:
                span.verify()
                assert content(span) == good
                assert position in UNCHECKED or position >= trailers_at
                if position >= trailers_at:
                    assert len(span.trailers) < 2
                    assert all(t in trailers for t in span.trailers)
        except CheckpointError:
            assert position < trailers_at
            assert position not in UNCHECKED


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, small())
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            open_span(path).verify()
        with pytest.raises(CheckpointError):
            read_header(path)


def test_a_cut_trailer_leaves_the_span_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    header = write(path, small((Trailer(b"KTM1", 1, b"call"), Trailer(b"ZZZZ", 7, b"x"))))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with open_span(path) as span:
        span.verify()
        assert span.trailers == [Trailer(b"KTM1", 1, b"call")]
    path.write_bytes(data[: header.trailers_at + 5])
    with open_span(path) as span:
        span.verify()
        assert span.trailers == []


def test_a_damaged_trailer_makes_only_itself_unusable() -> None:
    one, two = Trailer(b"AAAA", 1, b"first"), Trailer(b"BBBB", 2, b"second")
    data = bytearray(pack_trailers([one, two]))
    data[18] ^= 1
    assert unpack_trailers(memoryview(bytes(data))) == [two]
    with pytest.raises(CheckpointError):
        pack_trailers([Trailer(b"AAA", 1, b"")])


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=144, max_size=200), st.booleans())
def test_any_bytes_are_a_span_or_a_checkpoint_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, magic: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(b"KVC\x01\x10\x01\x00\x01" + data[8:] if magic else data)
    with pytest.raises(CheckpointError):
        open_span(path).verify()


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (3, "B", 2),
        (5, "B", 0),
        (5, "B", 99),
        (8, "I", 2),
        (8, "I", 2**32 - 1),
        (20, "I", 5),
        (40, "Q", 2**64 - 1),
        (40, "Q", 2**63),
        (40, "Q", 41),
        (68, "I", 2**32 - 1),
        (72, "I", 0),
        (72, "I", 2**32 - 1),
        (104, "Q", 0),
    ],
)
def test_a_lying_header_is_refused_before_its_numbers_are_used(
    tmp_path: Path, offset: int, form: str, value: int
) -> None:
    path = tmp_path / "a"
    write(path, small())
    data = bytearray(path.read_bytes())
    struct.pack_into("<" + form, data, offset, value)
    path.write_bytes(data)
    with pytest.raises(CheckpointError):
        open_span(path)


def test_what_is_no_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("missing", "empty", "."):
        with pytest.raises(CheckpointError):
            open_span(tmp_path / name)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": [1, 2]},
        {"tokens": [1, 2, 2**32]},
        {"tokens": [1, 2, -1]},
        {"key_len": 0},
        {"parent": bytes(20)},
        {"parent": b"short"},
        {"start_hash": 2**64},
        {"end": 2**31},
    ],
)
def test_parts_that_make_no_span_write_nothing(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        write(tmp_path / "a", replace(small(), **changes))  # type: ignore[arg-type]
    assert (tmp_path / "a").read_bytes() == b""


def test_token_hash_is_incremental() -> None:
    state = hash_tokens([1, 2])
    assert token_hash([3], state) == token_hash([1, 2, 3])
    assert state.intdigest() == token_hash([1, 2])
    assert hash_tokens([3], state) is state
    assert state.intdigest() == token_hash([1, 2, 3])
    assert token_hash([]) == EMPTY_TOKEN_HASH == 0x2D06800538D394C2
    assert token_hash([1]) != token_hash([256])


def test_the_root_span_must_hold_the_tokens_it_was_hashed_with(tmp_path: Path) -> None:
    draft = TALK.draft(0, 3)
    write(tmp_path / "good", draft)
    open_span(tmp_path / "good").verify()
    write(tmp_path / "bad", replace(draft, tokens=[901, 10, 21]))
    with pytest.raises(CheckpointError, match="token hash"):
        open_span(tmp_path / "bad").verify()


def test_use_is_rewritten_in_place_and_saturates(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, small())
    before = path.read_bytes()
    with path.open("r+b") as file:
        write_use(file.fileno(), 2**40, 456)
    after = path.read_bytes()
    assert [i for i in range(len(before)) if before[i] != after[i]] == [12, 13, 14, 15, 32, 33]
    header, _ = read_header(path)
    assert (header.hits, header.last_used) == (2**32 - 1, 456)
    open_span(path).verify()


def test_flags_of_later_builds_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "a", replace(small(), flags=Flag.SNAPSHOT | 0x80))
    assert read_header(tmp_path / "a")[0].flags == 0x81
