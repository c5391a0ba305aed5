"""The only importer of llama_cpp: one model, one context, one live sequence, spans out and in.

Promises: nothing here decides what to compute or to store; every call that can fail says so by an exception or a return
value; a span taken with `capture` and handed back with `restore` in order into an empty cache gives the same logits bit
for bit. Must not know: sessions, files of checkpoints, the protocol's events.

All calls come from one thread, the engine thread, except `Model.load`'s progress callback (same thread, inside the
call).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp
import xxhash
from llama_cpp import llama_cpp as lib

from ds4chat.engine.machine import physical_cores
from ds4chat.engine.memory_need import KV_BYTES, default_n_ctx
from ds4chat.engine.payload import CELL_BYTES, check_payload
from ds4chat.engine.protocol import PLAIN_KV_TYPES, MemoryKind, Sampling
from ds4chat.engine.weights import weights_hash
from ds4chat.errors import CheckpointError, ModelError

log = logging.getLogger(__name__)

LIB = lib
"""The binding's own functions, for what stands beside this module."""

BUILD: str = llama_cpp.__version__
"""Of llama-cpp-python."""

LIVE, SCRATCH = 0, 1
"""Sequence ids: the conversation, and the one through which ranges of it leave and enter the cache."""

BATCH_TOKENS = 512
"""Tokens decoded in one call at most, and the absolute multiples at which prefill is cut."""

MANY_TOKENS = 32
"""Batches from this many tokens on are computed on all cores, shorter ones on as many as generation uses."""

PAYLOAD_ABI = 1
"""Of `llama_state_seq_get_data_ext` blobs of one range; raise it when llama.cpp changes their layout."""

KV_TYPES = {
    "f16": lib.GGML_TYPE_F16,
    "f32": lib.GGML_TYPE_F32,
    "bf16": 30,  # GGML_TYPE_BF16, which the binding does not name
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "iq4_nl": 20,  # GGML_TYPE_IQ4_NL, likewise
}


class DecodeError(Exception):
    """`llama_decode` failed; `aborted` tells whether the abort callback asked for it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"llama_decode returned {code}")
        self.aborted = code == 2


_errors: deque[str] = deque(maxlen=8)
"""What llama.cpp said last of what went wrong."""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _log_callback(level: int, text: bytes, _user: object) -> None:
    # Level 1 is debug and 5 continues the line before; both would flood the log file.
    if level in (2, 3, 4):
        log.log(
            {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}[level],
            line := text.decode("utf-8", "replace").rstrip(),
        )
        if level == 4:
            _errors.append(line)


def _reason() -> str:
    """The first thing that went wrong, without the name of the function that says so."""
    first = next(iter(_errors), "the engine does not say why")
    return re.sub(r"^(\w+: |error loading model: )+", "", first)[:200].rstrip(".")


def _string(call: Callable[[Any, int], int]) -> str:
    size = 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        need = call(buffer, size)
        if need < size:
            return buffer.value.decode("utf-8", "replace") if need >= 0 else ""
        size = need + 1


class Model:
    """Weights and vocabulary of one GGUF file."""

    def __init__(self, path: Path, handle: Any, extra_buffers: bool) -> None:
        self.path, self._extra_buffers = path, extra_buffers
        self.hashes: Path | None = None
        """A small file that remembers hashes of weights, see `engine.weights`."""
        self.beat: Callable[[], object] = bool
        """Called as long work goes on."""
        self._model = handle
        self._vocab = lib.llama_model_get_vocab(handle)
        self.n_vocab = int(lib.llama_vocab_n_tokens(self._vocab))
        self._pieces: dict[int, bytes] = {}

    @staticmethod
    def offloads(gpu_layers: int | None) -> bool:
        """Whether layers, and the cache with them, go to memory other than the system's own."""
        return bool(lib.llama_supports_gpu_offload()) and gpu_layers != 0 and sys.platform != "darwin"

    @classmethod
    def load(
        cls,
        path: Path,
        gpu_layers: int | None = None,
        progress: Callable[[float], bool] | None = None,
        *,
        extra_buffers: bool = True,
    ) -> Model:
        """Load a GGUF file. Raises ModelError.

        Args:
            progress: gets 0 to 1 and returns False to give up.
            extra_buffers: let the CPU backend repack weights for its special instructions.
        """
        lib.llama_log_set(_log_callback, ctypes.c_void_p(0))
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = extra_buffers

        @lib.llama_progress_callback  # type: ignore[untyped-decorator]
        def report(value: float, _user: object) -> bool:
            return progress is None or progress(value)

        params.progress_callback = report
        _errors.clear()
        handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            unknown = re.search(
                r"unknown (?:model architecture|pre-tokenizer type): '([^']*)'", "\n".join(_errors)
            )
            if unknown:
                raise ModelError(
                    f"The model {path} is of a kind that this engine does not know ({unknown[1]}; llama-cpp-python "
                    f"{BUILD}): update llama-cpp-python, or choose another with --model (in a chat: /model)."
                )
            raise ModelError(
                f"The model {path} could not be loaded ({_reason()}): download or copy it again, or choose another "
                "with --model (in a chat: /model); the engine's log has the details."
            )
        if lib.llama_model_has_encoder(handle) or not lib.llama_model_has_decoder(handle):
            lib.llama_model_free(handle)
            raise ModelError(
                f"The model {path} reads text and does not go on with it, so it cannot chat: choose another with "
                "--model (in a chat: /model)."
            )
        return cls(path, handle, extra_buffers)

    def close(self) -> None:
        """Free the weights; the object is unusable afterwards."""
        lib.llama_model_free(self._model)

    # ---- what it is ----

    def meta(self, key: str) -> str:
        """A value of the GGUF metadata as text, "" when absent."""
        return _string(
            lambda buffer, size: lib.llama_model_meta_val_str(self._model, key.encode(), buffer, size)
        )

    @property
    def name(self) -> str:
        """The file's name without its ending: what people call the model by."""
        return self.path.name.removesuffix(".gguf")

    @cached_property
    def architecture(self) -> str:
        return self.meta("general.architecture")

    @property
    def n_ctx_train(self) -> int:
        return int(lib.llama_model_n_ctx_train(self._model))

    @cached_property
    def memory(self) -> MemoryKind:
        """How the model remembers, which decides whether its state can be cut back."""
        if lib.llama_model_is_recurrent(self._model):
            return "recurrent"
        if lib.llama_model_is_hybrid(self._model):
            return "hybrid"
        return "sliding-window" if lib.llama_model_n_swa(self._model) > 0 else "dense"

    @cached_property
    def n_swa(self) -> int:
        return int(lib.llama_model_n_swa(self._model))

    @property
    def chat_template(self) -> str:
        """The GGUF's Jinja chat template, "" when it has none."""
        raw = lib.llama_model_chat_template(self._model, None)
        return raw.decode("utf-8", "replace") if raw else ""

    def kv_bytes_per_token(self, kv_type: str) -> int:
        """Bytes of KV rows one token takes, from the shapes: an upper bound where not all layers have attention."""
        if self.memory == "recurrent":
            return 0
        arch = self.architecture
        n_head = max(1, int(lib.llama_model_n_head(self._model)))
        head = int(lib.llama_model_n_embd(self._model)) // n_head
        key = int(self.meta(f"{arch}.attention.key_length") or head)
        value = int(self.meta(f"{arch}.attention.value_length") or head)
        # Only the first layer's count can be asked for, which is 0 where that layer has no attention.
        n_head_kv = int(lib.llama_model_n_head_kv(self._model)) or n_head
        rows = int(lib.llama_model_n_layer(self._model)) * n_head_kv
        return int(rows * (key + value) * KV_BYTES.get(kv_type, 18 / 32))

    def default_n_ctx(self, kv_type: str) -> int:
        """The model's own context length, capped at `DEFAULT_CTX_CAP` and by a quarter of the memory; tokens."""
        return default_n_ctx(self.n_ctx_train, self.kv_bytes_per_token(kv_type))

    @cached_property
    def weights_hash(self) -> bytes:
        """16 bytes that tell exact weights apart, see `engine.weights`."""
        return weights_hash(self.path, self.hashes, self.beat)

    @cached_property
    def family(self) -> str:
        """Folder name of models whose KV has the same meaning but for the weights: architecture, shapes, tokenizer."""
        arch = self.architecture
        digest = hashlib.sha1()
        for key in ("general.basename", "general.size_label", "tokenizer.ggml.model", "tokenizer.ggml.pre"):
            digest.update(self.meta(key).encode() + b"\0")
        shape = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "rope.freq_base",
                 "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "attention.sliding_window",
                 "attention.key_length", "attention.value_length", "ssm.state_size", "ssm.inner_size")  # fmt: skip
        for key in shape:
            digest.update(self.meta(f"{arch}.{key}").encode() + b"\0")
        for token in range(self.n_vocab):
            digest.update(lib.llama_vocab_get_text(self._vocab, token) or b"")
            digest.update(b"\0")
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in arch) or "model"
        return f"{name}-{digest.hexdigest()[:16]}"

    def variant(self, *, kv_type: str, flash_attention: bool, n_ctx: int, swa_full: bool) -> bytes:
        """8 bytes over all that changes KV bytes: weights, KV type, flash attention, build, rope choice."""
        return self._hash_variant(self.weights_hash.hex(), kv_type, flash_attention, n_ctx, swa_full)

    def loose_variant(self, *, kv_type: str, flash_attention: bool, n_ctx: int, swa_full: bool) -> bytes:
        """8 bytes over the same but the weights, for which the model's names stand: equal for quantizations of one
        model, and for models whose files say no more of themselves. b"" where a file says nothing."""
        names = [self.meta(f"general.{key}") for key in ("name", "basename", "finetune", "size_label")]
        if not any(names[:2]):
            return b""
        return self._hash_variant("\0".join(names), kv_type, flash_attention, n_ctx, swa_full)

    def _hash_variant(
        self, weights: str, kv_type: str, flash_attention: bool, n_ctx: int, swa_full: bool
    ) -> bytes:
        original = self.meta(f"{self.architecture}.rope.scaling.original_context_length")
        # Longrope models pick their factors by whether the context is longer than the original one.
        long_rope = bool(original.isdigit() and n_ctx > int(original))
        parts = (weights, kv_type, str(flash_attention), BUILD, sys.byteorder,
                 str(long_rope), str(swa_full), str(self._extra_buffers), str(PAYLOAD_ABI))  # fmt: skip
        return xxhash.xxh3_64("\0".join(parts).encode()).digest()

    @property
    def quant_bits(self) -> int:
        """Rough bits a weight, for the file header: size of the tensors over their count."""
        params = int(lib.llama_model_n_params(self._model))
        return min(255, round(8 * int(lib.llama_model_size(self._model)) / params)) if params else 0

    # ---- vocabulary ----

    @property
    def vocab(self) -> Any:
        """llama.cpp's own vocabulary."""
        return self._vocab

    def tokenize(self, text: bytes, *, markers: bool) -> list[int]:
        """Token ids of UTF-8 text, no BOS added; control tokens' text is read as such only with `markers`."""
        size = len(text) + 8
        out = (lib.llama_token * size)()
        count = lib.llama_tokenize(self._vocab, text, len(text), out, size, False, markers)
        if count < 0:
            out = (lib.llama_token * -count)()
            count = lib.llama_tokenize(self._vocab, text, len(text), out, -count, False, markers)
        return list(out[:count])

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for, b"" for control tokens (and ids outside of the vocabulary)."""
        known = self._pieces.get(token)
        if known is None:
            known = b""
            if 0 <= token < self.n_vocab:
                buffer = ctypes.create_string_buffer(64)
                size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
                if size < 0:
                    buffer = ctypes.create_string_buffer(-size)
                    size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, False)
                known = buffer.raw[:size]
            self._pieces[token] = known
        return known

    def is_control(self, token: int) -> bool:
        # llama.cpp looks at any id it is given, past the end of its table too.
        return 0 <= token < self.n_vocab and bool(lib.llama_vocab_is_control(self._vocab, token))

    def is_eog(self, token: int) -> bool:
        """End of generation: any token after which the model expects to be silent."""
        return 0 <= token < self.n_vocab and bool(lib.llama_vocab_is_eog(self._vocab, token))

    @cached_property
    def never_written(self) -> frozenset[int]:
        """What a reply that must follow a grammar never holds: control tokens, whose text counts for llama.cpp and is
        nowhere in the reply, and bytes that no UTF-8 text has, which it takes for characters."""
        foreign = re.compile(rb"[\xc0\xc1\xf5-\xff]")
        return frozenset(
            token
            for token in range(self.n_vocab)
            if not self.is_eog(token) and (self.is_control(token) or foreign.search(self.piece(token)))
        )

    @cached_property
    def control_texts(self) -> frozenset[str]:
        """Texts that the tokenizer would read as control tokens when asked to."""
        wanted = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        return frozenset(
            lib.llama_vocab_get_text(self._vocab, t).decode("utf-8", "replace")
            for t in range(self.n_vocab)
            if lib.llama_vocab_get_attr(self._vocab, t) & wanted
        ) - {""}

    def token_text(self, token: int) -> str:
        """The vocabulary's own text of a token, control tokens included; "" for none."""
        if not 0 <= token < self.n_vocab:
            return ""
        raw = lib.llama_vocab_get_text(self._vocab, token)
        return raw.decode("utf-8", "replace") if raw else ""

    @property
    def bos(self) -> int | None:
        token = int(lib.llama_vocab_bos(self._vocab))
        return token if token >= 0 else None

    @property
    def eos(self) -> int | None:
        token = int(lib.llama_vocab_eos(self._vocab))
        return token if token >= 0 else None

    @property
    def adds_bos(self) -> bool:
        return bool(lib.llama_vocab_get_add_bos(self._vocab))


@dataclass(frozen=True)
class ContextSettings:
    """How a context is made. `threads` None: all cores for prefill, physical cores - 1 to generate."""

    n_ctx: int
    kv_type: str = "f16"
    flash_attention: bool = True
    swa_full: bool = True
    threads: int | None = None


@dataclass(frozen=True)
class SpanCost:
    """Bytes of a span's payload: `fixed` for any (a recurrent state, headers), `per_token` of KV rows."""

    fixed: int
    per_token: int


class Context:
    """One llama.cpp context with a live sequence that grows, is cut back, leaves in spans and comes back in spans."""

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        """Raises ModelError when the context cannot be made (memory, KV type)."""
        self.model, self.settings = model, settings
        if not settings.flash_attention and settings.kv_type not in PLAIN_KV_TYPES:
            raise ModelError(
                f"KV type {settings.kv_type} needs flash attention, which [model] flash_attention turns off: set it to "
                f"true, or choose one of {', '.join(PLAIN_KV_TYPES)} with --kv-type."
            )
        params = lib.llama_context_default_params()
        params.n_ctx = settings.n_ctx
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        # One KV stream: without it a partial `seq_cp` aborts. No rollback snapshots: restored ones would be wrong.
        params.n_seq_max, params.kv_unified, params.n_rs_seq = 2, True, 0
        params.flash_attn_type = 1 if settings.flash_attention else 0
        params.swa_full = settings.swa_full
        params.type_k = params.type_v = KV_TYPES[settings.kv_type]
        params.no_perf = True
        self._threads_batch = settings.threads or os.cpu_count() or 1
        self._threads = min(settings.threads or max(1, physical_cores() - 1), physical_cores())
        params.n_threads_batch, params.n_threads = self._threads_batch, self._threads
        self._ctx = lib.llama_init_from_model(model._model, params)
        if not self._ctx:
            raise ModelError(
                f"The engine could not make a context of {settings.n_ctx:,} tokens with KV type {settings.kv_type} for "
                f"{model.name}: choose a smaller --ctx, or another --kv-type."
            )
        self._memory = lib.llama_get_memory(self._ctx)
        self._batch = lib.llama_batch_init(BATCH_TOKENS, 0, 1)
        self._abort: Any = None
        self._covered: list[tuple[int, int]] = []
        self.rewinds = model.memory in ("dense", "sliding-window")
        """Whether the state can be cut back at all; a probe may find that it cannot."""

    def close(self) -> None:
        lib.llama_batch_free(self._batch)
        lib.llama_free(self._ctx)

    @property
    def handle(self) -> Any:
        """llama.cpp's own context."""
        return self._ctx

    @property
    def n_ctx(self) -> int:
        return int(lib.llama_n_ctx(self._ctx))

    def decode(self, tokens: Sequence[int], position: int, *, logits: bool) -> None:
        """Compute up to `BATCH_TOKENS` tokens at `position`. Raises DecodeError; what the state is then, see
        `Turns`."""
        if len(tokens) > BATCH_TOKENS:
            raise ValueError(f"{len(tokens)} tokens are more than a batch holds")
        batch = self._batch
        batch.n_tokens = len(tokens)
        # All cores pay off for long batches alone: threads that wait for one another on a busy machine cost more.
        few = self._threads if len(tokens) < MANY_TOKENS else self._threads_batch
        lib.llama_set_n_threads(self._ctx, self._threads, few)
        last = len(tokens) - 1
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
            batch.seq_id[i][0] = LIVE
            batch.logits[i] = logits and i == last
        code = lib.llama_decode(self._ctx, batch)
        if code != 0:
            raise DecodeError(code)
        self._cover(position, position + len(tokens))

    def set_abort(self, should_stop: Callable[[], bool] | None) -> None:
        """Look at `should_stop` inside of decodes; None stops looking (it runs hundreds of times a token)."""
        if should_stop is None:
            self._abort = lib.ggml_abort_callback()
        else:
            stop = should_stop
            self._abort = lib.ggml_abort_callback(lambda _user: stop())
        lib.llama_set_abort_callback(self._ctx, self._abort, None)

    def logits(self) -> bytes:
        """The last logits as raw f32 bytes, for comparisons bit for bit."""
        pointer = lib.llama_get_logits_ith(self._ctx, -1)
        return ctypes.string_at(pointer, 4 * self.model.n_vocab)

    # ---- the live sequence ----

    def clear(self) -> None:
        """Empty the cache; the cells' old bytes stay, masked."""
        lib.llama_memory_clear(self._memory, False)
        self._covered = []

    def warm_up(self) -> SpanCost:
        """Compute two tokens and forget them: a processor that cannot run this build shows it here, not in a chat.

        Returns what spans take, measured.
        """
        self.decode([0, 0], 0, logits=False)
        lib.llama_synchronize(self._ctx)
        sizes = []
        for start in (0, 1):
            sizes.append(self.open_span(start, 2))
            self.close_span()
        self.clear()
        two, one = sizes
        caches = {"dense": 1, "sliding-window": 2, "hybrid": 1, "recurrent": 0}[self.model.memory]
        return SpanCost(fixed=one - (two - one), per_token=two - one - caches * CELL_BYTES)

    def can_rewind(self, length: int, to: int) -> bool:
        """Whether a live state of `length` tokens can be cut back to `to` tokens with nothing lost.

        A sliding-window cache looks back over `n_swa` positions, and a restored span brings only the last of them. What
        llama.cpp says (its smallest position, the result of the cut) does not tell of the holes between.
        """
        if to >= length:
            return True
        if not self.rewinds or self.model.memory == "dense":
            return self.rewinds
        needed = max(0, to - self.model.n_swa + 1)
        return to > 0 and any(start <= needed and to <= end for start, end in self._covered)

    def rewind(self, to: int) -> None:
        """Cut the live state back to `to` tokens; ask `can_rewind` first. Raises CheckpointError when refused."""
        if not lib.llama_memory_seq_rm(self._memory, LIVE, to, -1):
            raise CheckpointError(f"the state refused to be cut back to {to} tokens")
        self._covered = [(start, min(end, to)) for start, end in self._covered if start < to]

    def _cover(self, start: int, end: int) -> None:
        """Remember which positions the short layers hold, as merged intervals in ascending order."""
        if self._covered and self._covered[-1][1] >= start:
            start = min(start, self._covered.pop()[0])
        self._covered.append((start, end))

    def open_span(self, start: int, end: int) -> int:
        """Make the span readable; returns the bytes of its payload. `close_span` must follow."""
        lib.llama_memory_seq_cp(self._memory, LIVE, SCRATCH, start, end)
        return int(lib.llama_state_seq_get_size_ext(self._ctx, SCRATCH, 0))

    def read_span(self, address: int, size: int) -> int:
        """Copy the open span's payload to memory at `address`; returns the bytes written, 0 on failure."""
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        return int(lib.llama_state_seq_get_data_ext(self._ctx, pointer, size, SCRATCH, 0))

    def close_span(self) -> None:
        lib.llama_memory_seq_rm(self._memory, SCRATCH, -1, -1)

    def restore(self, address: int, size: int, start: int, end: int) -> None:
        """Append a span's payload to the live state. Raises CheckpointError; the caller then clears the state."""
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        used = int(lib.llama_state_seq_set_data_ext(self._ctx, pointer, size, SCRATCH, 0))
        if used != size:
            lib.llama_memory_seq_rm(self._memory, SCRATCH, -1, -1)
            raise CheckpointError(f"llama.cpp took {used} of {size} bytes of span {start}..{end}")
        lib.llama_memory_seq_cp(self._memory, SCRATCH, LIVE, start, end)
        lib.llama_memory_seq_rm(self._memory, SCRATCH, -1, -1)
        self._cover(max(start, end - self.model.n_swa) if self.model.n_swa else start, end)

    def check_payload(self, payload: memoryview, start: int, end: int) -> None:
        """Raise CheckpointError unless the payload holds exactly the span's positions (see `engine.payload`)."""
        check_payload(payload, self.model.memory, start, end, self.model.n_swa)


class Sampler:
    """The sampler chain of one reply: penalties, top-k, top-p, min-p, temperature, draw; greedy at temperature 0."""

    def __init__(self, context: Context, sampling: Sampling, seed: int, before: Iterable[int]) -> None:
        """`before` are the tokens ahead of the first one to sample; the repeat penalty looks back into them."""
        self._context = context
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        if sampling.repeat_penalty != 1.0 and sampling.repeat_last_n != 0:
            n_vocab, last_n = context.model.n_vocab, sampling.repeat_last_n
            self._add(lib.llama_sampler_init_penalties(n_vocab, last_n, sampling.repeat_penalty, 0.0, 0.0))
        if sampling.temperature <= 0:
            self._add(lib.llama_sampler_init_greedy())
        else:
            # Top-k first makes what follows cheap; 0 would mean the whole vocabulary.
            self._add(lib.llama_sampler_init_top_k(sampling.top_k))
            self._add(lib.llama_sampler_init_top_p(sampling.top_p, 1))
            self._add(lib.llama_sampler_init_min_p(sampling.min_p, 1))
            self._add(lib.llama_sampler_init_temp(sampling.temperature))
            self._add(lib.llama_sampler_init_dist(seed & 0xFFFFFFFF))
        for token in before:
            lib.llama_sampler_accept(self._chain, token)

    def _add(self, sampler: Any) -> None:
        lib.llama_sampler_chain_add(self._chain, sampler)

    def sample(self) -> int:
        """Draw the next token from the last logits (and remember it for the penalty)."""
        return int(lib.llama_sampler_sample(self._chain, self._context._ctx, -1))

    def close(self) -> None:
        lib.llama_sampler_free(self._chain)
