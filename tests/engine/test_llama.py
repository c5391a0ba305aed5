"""One model and its context: what it says of itself, what it refuses, and what it can take back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.policy import Policy
from ds4chat.engine import llama, memory_need, worker
from ds4chat.engine.llama import KV_TYPES, Context, ContextSettings, Model, SpanCost
from ds4chat.engine.protocol import PLAIN_KV_TYPES, KvOptions, Load
from ds4chat.errors import CheckpointError, ModelError
from tests.engine.test_turn import DEFAULT, LONG, Room, done
from tests.support.engine_room import EngineRoom, user
from tests.support.tiny_models import KINDS, SLIDING_WINDOW

MEMORY = {"dense": "dense", "swa": "sliding-window", "hybrid": "hybrid", "recurrent": "recurrent"}

ROWS = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
}
"""Bytes of a number in a KV row, those of the 4-bit types (18/32) left out."""

LAYERS = {"dense": 2, "swa": 4, "hybrid": 2, "recurrent": 0}
"""With attention, of the tiny models; each has one KV head of 32 numbers for K and as many for V."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(kind: str, tiny: dict[str, Path]) -> Iterator[Model]:
    model = Model.load(tiny[kind], extra_buffers=False)
    yield model
    model.close()


def context_of(model: Model, **settings: object) -> Context:
    return Context(model, ContextSettings(512, threads=1, **settings))  # type: ignore[arg-type]


# ---- what it is -------------------------------------------------------------------------------------------------


def test_the_kind_of_memory(kind: str, model: Model) -> None:
    assert model.memory == MEMORY[kind]
    assert model.n_swa == (SLIDING_WINDOW if kind == "swa" else 0)


def test_loaded_tells_the_memory_and_the_context(kind: str, tiny: dict[str, Path]) -> None:
    with Room(tiny[kind], None, n_ctx=512) as room:
        assert room.loaded.memory == MEMORY[kind]
        assert (room.loaded.n_ctx, room.loaded.n_ctx_train) == (512, 4096)
        assert room.loaded.path == str(tiny[kind])
        assert len(bytes.fromhex(room.loaded.fingerprint)) == 16


@pytest.mark.parametrize("kv_type", sorted(KV_TYPES))
def test_bytes_of_a_tokens_rows(kind: str, tiny: dict[str, Path], kv_type: str) -> None:
    with EngineRoom(tiny[kind], None, n_ctx=256, threads=1, kv_type=kv_type) as room:
        assert room.loaded.kv_bytes_per_token == LAYERS[kind] * 64 * ROWS.get(kv_type, 18 / 32)


def test_the_bound_from_the_shapes_is_never_too_low(kind: str, model: Model) -> None:
    """Before a context exists; what it is too low by the default context length would be too long by."""
    for kv_type in KV_TYPES:
        assert model.kv_bytes_per_token(kv_type) >= LAYERS[kind] * 64 * ROWS.get(kv_type, 18 / 32)


def test_every_kv_type_by_name_is_taken_and_kept_apart(model: Model) -> None:
    variants = set()
    for kv_type in KV_TYPES:
        context = context_of(model, kv_type=kv_type)
        context.warm_up()
        context.close()
        variants.add(model.variant(kv_type=kv_type, flash_attention=True, n_ctx=512, swa_full=True))
    assert len(variants) == len(KV_TYPES)


def test_a_context_of_another_length_is_the_same_variant(model: Model) -> None:
    one, two = (
        model.variant(kv_type="f16", flash_attention=True, n_ctx=n_ctx, swa_full=True)
        for n_ctx in (512, 4096)
    )
    assert one == two


def load_failure(load: Load) -> str:
    room = EngineRoom(Path(load.model_path), None)
    room._load = load
    with pytest.raises(AssertionError) as failure:
        room.__enter__()
    room.engine.stop()
    room.engine.join(10)
    return str(failure.value)


@pytest.mark.parametrize("kv_type", ["F16", "q8", "", "int8", "q4_K"])
def test_a_kv_type_that_is_not_known_names_those_that_are(tiny: dict[str, Path], kv_type: str) -> None:
    message = load_failure(Load(str(tiny["dense"]), kv_type=kv_type, extra_buffers=False))
    assert "--kv-type" in message and "f16" in message and "q8_0" in message and repr(kv_type) in message


@pytest.mark.parametrize("kv_type", [name for name in KV_TYPES if name not in PLAIN_KV_TYPES])
def test_a_quantized_cache_without_flash_attention_is_refused_in_words(
    tiny: dict[str, Path], kv_type: str
) -> None:
    load = Load(str(tiny["dense"]), kv_type=kv_type, flash_attention=False, extra_buffers=False)
    message = load_failure(load)
    assert f"KV type {kv_type} needs flash attention" in message and "f16, bf16, f32" in message


@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"GGUF" + bytes(1000), b"PK\x03\x04" * 100, "cut"])
def test_what_is_no_model_is_a_sentence_that_names_it(
    tiny: dict[str, Path], tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "model é.gguf"
    if content == "cut":
        whole = tiny["dense"].read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model é\.gguf.*--model"):
        Model.load(path, extra_buffers=False)
    assert "model é.gguf" in load_failure(Load(str(path), extra_buffers=False))


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Model.load(tmp_path, extra_buffers=False)


def test_loading_can_be_given_up(tiny: dict[str, Path]) -> None:
    with pytest.raises(ModelError):
        Model.load(tiny["dense"], progress=lambda _value: False, extra_buffers=False)


def test_a_path_with_any_characters(tiny: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "ein Modell 'ü' 😀.gguf"
    path.symlink_to(tiny["dense"])
    model = Model.load(path, extra_buffers=False)
    assert model.name == "ein Modell 'ü' 😀"
    model.close()


def test_other_weights_have_another_fingerprint_and_the_same_family(
    tiny: dict[str, Path], tmp_path: Path, starter: Path
) -> None:
    from tests.support.tiny_models import write_tiny_model

    models = [
        Model.load(path, extra_buffers=False)
        for path in (
            tiny["dense"],
            write_tiny_model("dense", tmp_path / "other.gguf", starter, seed=5),
            tiny["swa"],
        )
    ]
    same, other, apart = models
    assert same.weights_hash != other.weights_hash
    assert same.family == other.family != apart.family
    for model in models:
        model.close()


# ---- how long the context is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trained", "per_token", "memory_gb", "expected"),
    [
        (4096, 23_052, 16, 4096),
        (131_072, 23_052, 16, 16_384),
        (131_072, 0, 1, 16_384),
        (0, 23_052, 16, 16_384),
        (8192, 500_000, 8, 4096),
        (8192, 500_000, 4, 2048),
        (8192, 10**9, 1, 256),
        (2000, 1, 16, 1792),
        (131_072, 131_072, 8, 16_384),
        (131_072, 131_073, 8, 16_128),
    ],
)
def test_the_default_context_length(
    monkeypatch: pytest.MonkeyPatch, trained: int, per_token: int, memory_gb: int, expected: int
) -> None:
    """The model's own, capped at 16,384 and by a quarter of the memory, in steps of 256."""
    monkeypatch.setattr(Model, "n_ctx_train", trained)
    monkeypatch.setattr(Model, "kv_bytes_per_token", lambda _model, _kv_type: per_token)
    sizes = {"SC_PHYS_PAGES": memory_gb * 2**30 // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    model = object.__new__(Model)
    assert model.default_n_ctx("f16") == expected


def test_a_context_is_made_with_the_default_length(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_need, "DEFAULT_CTX_CAP", 1024)
    with EngineRoom(tiny["dense"], None, n_ctx=None, threads=1) as room:  # type: ignore[arg-type]
        assert room.loaded.n_ctx == 1024


# ---- what is stored when ----------------------------------------------------------------------------------------


def span_files(kv_dir: Path) -> list[tuple[int, int]]:
    headers = [read_header(path)[0] for path in kv_dir.glob("*/*/*.kv")]
    return sorted((header.start, header.end) for header in headers)


def test_a_model_whose_every_span_costs_a_whole_state_stores_few(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    """A recurrent state has no rows: a span at each 512 tokens would be the same size for nothing new."""
    for kind in ("recurrent", "dense"):
        with Room(tiny[kind], tmp_path / kind, DEFAULT, n_ctx=2048) as room:
            n = done(room.chat([user(LONG)], max_tokens=2)).prompt_tokens
        spans = span_files(tmp_path / kind)
        if kind == "dense":
            assert spans[:2] == [(0, 512), (512, 1024)]
        else:
            assert [end for _start, end in spans] == [n - 1, n + 1], "the ends of the prompt and of the turn"


def test_spans_of_a_sliding_window_model_are_never_longer_than_the_window(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    """Else the short layers' caches have holes between the spans that no model state ever had."""
    for align in (512, 48):
        options = KvOptions(
            min_tokens=64,
            boundary_align_tokens=align,
            continued_interval_tokens=512,
            boundary_trim_tokens=0,
            budget_mb=0,
        )
        kv_dir = tmp_path / str(align)
        with Room(tiny["swa"], kv_dir, options, n_ctx=2048) as room:
            first = room.chat([user(LONG[:1500])], max_tokens=80)
        spans = span_files(kv_dir)
        assert max(end - start for start, end in spans) <= SLIDING_WINDOW
        with Room(tiny["swa"], kv_dir, options, n_ctx=2048) as room:
            again = room.chat([user(LONG[:1500])], max_tokens=80)
            assert again.tokens == first.tokens and done(again).cached_tokens > 64


@pytest.mark.parametrize("align", [1, 5, 48, 63, 64, 65, 512])
@pytest.mark.parametrize("interval", [1, 50, 64, 100, 512])
def test_the_policy_for_a_sliding_window_fits_into_it(align: int, interval: int) -> None:
    class Window:
        memory, n_swa = "sliding-window", 64

    options = KvOptions(boundary_align_tokens=align, continued_interval_tokens=interval)
    policy = worker._policy(options, Window(), SpanCost(100, 256))  # type: ignore[arg-type]
    assert 0 < policy.interval <= 64 and policy.align_tokens <= 64
    unchanged = Policy(interval_tokens=interval, align_tokens=align)
    if unchanged.interval <= 64:
        assert policy.interval == unchanged.interval


# ---- taking back ------------------------------------------------------------------------------------------------


def tokens_of(count: int) -> list[int]:
    return [3 + (i * 37) % 900 for i in range(count)]


def test_a_rewound_context_computes_what_one_that_never_went_there_does(kind: str, model: Model) -> None:
    """Where `can_rewind` says so; where it doesn't llama.cpp must not be asked."""
    tokens = tokens_of(200)
    context, fresh = context_of(model), context_of(model)
    context.decode(tokens[:150], 0, logits=False)
    fresh.decode(tokens[:150], 0, logits=False)
    for i in range(150, 160):
        context.decode([tokens[i]], i, logits=True)
    assert context.can_rewind(160, 160)
    rewinds = {to for to in (0, 1, 60, 100, 149, 150, 159) if context.can_rewind(160, to)}
    assert rewinds == {"dense": {0, 1, 60, 100, 149, 150, 159}, "swa": {1, 60, 100, 149, 150, 159}}.get(
        kind, set()
    )
    if rewinds:
        context.rewind(150)
        for other in (context, fresh):
            other.decode([7, 8, 9], 150, logits=True)
        assert context.logits() == fresh.logits()
    else:
        with pytest.raises(CheckpointError):
            context.rewind(150)
    context.close()
    fresh.close()


def test_after_a_restore_a_sliding_window_says_how_far_it_reaches(tiny: dict[str, Path]) -> None:
    """A restored span brings its last 64 positions; a cut that needs those before must be refused here, because
    llama.cpp makes it and computes something else."""
    model = Model.load(tiny["swa"], extra_buffers=False)
    context = context_of(model)
    context._cover(136, 200)
    assert context.can_rewind(200, 199) and not context.can_rewind(200, 198)
    context._cover(200, 264)
    assert context.can_rewind(264, 200) and context.can_rewind(264, 199) and not context.can_rewind(264, 190)
    context.clear()
    context._cover(0, 64)
    context._cover(100, 164)
    assert context.can_rewind(164, 163) and not context.can_rewind(164, 120) and context.can_rewind(164, 50)
    context.close()
    model.close()


def test_more_tokens_than_a_batch_holds_are_refused_and_write_nothing(model: Model) -> None:
    context = context_of(model)
    with pytest.raises(ValueError, match="batch"):
        context.decode(tokens_of(llama.BATCH_TOKENS + 1), 0, logits=False)
    context.close()


# ---- vocabulary -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def words(tiny: dict[str, Path]) -> Iterator[Model]:
    model = Model.load(tiny["dense"], extra_buffers=False)
    yield model
    model.close()


@pytest.mark.parametrize(
    "text", ["", "a", "Hello, world", "日本語 😀 é", "\x00", "a\x00b", "  \n\t ", "x" * 5000]
)
def test_any_text_comes_back_from_its_tokens(words: Model, text: str) -> None:
    tokens = words.tokenize(text.encode(), markers=False)
    assert b"".join(map(words.piece, tokens)) == text.encode()
    assert not any(map(words.is_control, tokens))


def test_control_tokens_are_their_texts_only_when_asked_for(words: Model) -> None:
    assert words.control_texts == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    for text in words.control_texts:
        (token,) = words.tokenize(text.encode(), markers=True)
        assert words.is_control(token) and words.piece(token) == b"" and words.token_text(token) == text
        assert token not in words.tokenize(text.encode(), markers=False)


@pytest.mark.parametrize("token", [-1, -(2**31), 10**6, 2**31 - 1])
def test_ids_that_are_none_have_no_text(words: Model, token: int) -> None:
    assert words.piece(token) == b"" and words.token_text(token) == ""
    assert not words.is_control(token)
    assert not words.is_eog(token)
