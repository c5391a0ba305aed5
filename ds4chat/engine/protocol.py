"""What parent and engine child say to each other: one JSON object a line, tagged by `type`.

Commands go down the child's standard input, events come back on its (duplicated) standard output. This module knows
neither the engine nor the sessions; both sides import it. KV bytes never cross the pipe. Tokens are ids of the loaded
model's vocabulary, times are milliseconds unless a name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL_VERSION = 1

StopReason = Literal["stop", "length", "context", "cancelled"]
"""Why a reply ended: end-of-generation token, `max_tokens`, the context is full, cancelled."""

PLAIN_KV_TYPES = ("f16", "bf16", "f32")
"""What the cache can hold without flash attention, which stores V transposed."""

MemoryKind = Literal["dense", "sliding-window", "hybrid", "recurrent"]


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sampler chain of one reply. `temperature` 0 is greedy; `seed` None draws one."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    seed: int | None = None


class KvOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where and by which rules checkpoints are kept.

    Attributes:
        enabled: False (`--no-kv`) neither stores nor restores; batches are cut at the same places all the same.
        directory: the root, `kv/`; families and variants are folders below it.
        budget_mb: of all files below the root, in MB (10**6 bytes); None takes a tenth of the free disk, at most
            32,000; 0 means no limit.
        read_only: restore but store nothing (a chat that is not saved).
    """

    enabled: bool = True
    read_only: bool = False
    directory: str = ""
    budget_mb: int | None = None
    min_tokens: int = 512
    cold_max_tokens: int = 30_000
    continued_interval_tokens: int = 512
    boundary_trim_tokens: int = 32
    boundary_align_tokens: int = 512
    hit_half_life_seconds: float = 21_600.0
    accept_different_quant: bool = False


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message as the chat template sees it.

    Attributes:
        role: "system", "user", "assistant", or "tool": what a call came to.
        text: the content. Nothing in it is ever read as a control token.
        tokens: the ids a reply was sampled with by the loaded model; empty when unknown, then the text is tokenized.
        imported: a file says so. Control tokens have no text to tell them by: with one, the ids count as unknown.
    """

    role: str
    text: str
    tokens: list[int] = []
    imported: bool = False


# ---- commands: parent to child ----------------------------------------------------------------------------------


class Load(msgspec.Struct, tag="load", frozen=True, omit_defaults=True):
    """Load a model. Answered by `Loading` events, then `Loaded` or `LoadFailed`.

    Attributes:
        n_ctx: context length in tokens; None takes the model's own, capped at 16,384 and by a quarter of the memory.
        threads: for prefill; None takes all cores (and one less, at least 1, to generate).
        gpu_layers: None offloads all that the build can; 0 none.
        extra_buffers: let the CPU backend repack weights for its special instructions; False for processors that
            announce instructions they do not run.
        crashed_pid: of a child that aborted or segfaulted before this one, 0 for none: a checkpoint it was taking in
            is to blame.
        memo: path of a small file in which the child remembers what it found out about models; "" remembers nothing.
    """

    model_path: str
    n_ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    kv_type: str = "f16"
    flash_attention: bool = True
    extra_buffers: bool = True
    crashed_pid: int = 0
    memo: str = ""
    kv: KvOptions = KvOptions()


class Generate(msgspec.Struct, tag="generate", frozen=True, omit_defaults=True):
    """Answer the last message. Events: `Restored`?, `Prefill`*, `Started`, `Token`*, then `Done`, `ContextFull` or
    `Failed`.

    Attributes:
        messages: the window, system prompt first.
        continue_reply: the last message is a reply that was cut off; go on from its last token.
        cold: no prompt of this session of at least `min_tokens` was prefilled before.
        force: go ahead even past 85% of the context (nothing more can fall out).
        store: False: nothing that is computed for this turn reaches the disk, now or later.
        grammar: GBNF that the reply must follow; "" for none.
        tools: declarations for the template, a JSON list; "" for none. They are part of the prompt: the same bytes
            each turn, or all of it is computed anew.
    """

    session: str
    turn: int
    messages: list[ChatMessage]
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    continue_reply: bool = False
    cold: bool = False
    force: bool = False
    store: bool = True
    grammar: str = ""
    tools: str = ""


class Prepare(msgspec.Struct, tag="prepare", frozen=True, omit_defaults=True):
    """Make a session's state live ahead of its next message. Answered by `Restored`?, `Prefill`*, `Prepared`, or by
    `ContextFull` alone.

    Attributes:
        prefill: also compute what no checkpoint holds; else only restore.
        force: see `Generate`; what does not fit then is left for the turn itself to refuse.
        store, tools: see `Generate`.
    """

    session: str
    turn: int
    messages: list[ChatMessage]
    prefill: bool = False
    force: bool = False
    store: bool = True
    tools: str = ""


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Stop the turn, if it runs or waits. A `Generate` still ends with `Done(stop_reason="cancelled")`."""

    session: str
    turn: int


class Forget(msgspec.Struct, tag="forget", frozen=True, omit_defaults=True):
    """A session was deleted: drop its live state and delete these checkpoints, and what only they stand on.

    Attributes:
        spans: names in hex.    keep: names in hex of those that other sessions stand on.
    """

    session: str
    spans: list[str] = []
    keep: list[str] = []


class Expendable(msgspec.Struct, tag="expendable", frozen=True, omit_defaults=True):
    """Checkpoints that only deleted sessions stand on, which can still be brought back: they go first when room is
    made. Replaces what was said before.

    Attributes:
        spans: names in hex.
    """

    spans: list[str] = []


class Quit(msgspec.Struct, tag="quit", frozen=True):
    """Store the tail, then go. End of input means the same."""


Command = Load | Generate | Prepare | Cancel | Expendable | Forget | Quit

# ---- events: child to parent ------------------------------------------------------------------------------------


class Loading(msgspec.Struct, tag="loading", frozen=True):
    """Model load, `progress` from 0 to 1."""

    progress: float


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The model can answer.

    Attributes:
        name: as the GGUF file calls itself (its file name without a name).
        n_ctx: context length in use, tokens.    n_ctx_train: what the model was trained with, tokens.
        fingerprint: hex of the exact weights; token ids are only valid under the same one.
        kv_bytes_per_token: of one token's KV rows, 0 where there are none.
        tools: the model's chat template tells it of tools, and of what their calls came to.
    """

    name: str
    path: str
    architecture: str
    n_ctx: int
    n_ctx_train: int
    memory: MemoryKind
    fingerprint: str
    kv_bytes_per_token: int
    tools: bool = False


class LoadFailed(msgspec.Struct, tag="load_failed", frozen=True):
    """The model was not loaded; `message` is one sentence for the user."""

    message: str


class Restored(msgspec.Struct, tag="restored", frozen=True):
    """`tokens` tokens came from `spans` checkpoint files in `ms` milliseconds (find, read, verify, hand over)."""

    session: str
    turn: int
    tokens: int
    spans: int
    ms: float


class Prefill(msgspec.Struct, tag="prefill", frozen=True):
    """Prompt tokens computed so far, of all that this turn must compute."""

    session: str
    turn: int
    done: int
    total: int


class Started(msgspec.Struct, tag="started", frozen=True):
    """The prompt is in; the first token is next. `prompt_tokens = cached_tokens + prefilled_tokens`."""

    session: str
    turn: int
    prompt_tokens: int
    cached_tokens: int
    prefilled_tokens: int


class Token(msgspec.Struct, tag="token", frozen=True):
    """New text of a reply, whole characters only, and the ids sampled since the last such event."""

    session: str
    turn: int
    text: str
    tokens: list[int]


class Done(msgspec.Struct, tag="done", frozen=True):
    """A reply ended.

    Attributes:
        live_tokens: length of the live state, the pending token included.
        message_tokens: tokens each of the given messages takes with its markers, the reply's own last.
        cold: this prompt was treated as the session's cold one.
    """

    session: str
    turn: int
    stop_reason: StopReason
    prompt_tokens: int
    cached_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    restore_ms: float
    prefill_ms: float
    generate_ms: float
    live_tokens: int
    message_tokens: list[int]
    cold: bool = False


class ContextFull(msgspec.Struct, tag="context_full", frozen=True):
    """The prompt takes more than 85% of the context and nothing was computed: let turns fall out and ask again.

    Attributes:
        message_tokens: tokens each of the given messages takes with its markers.
    """

    session: str
    turn: int
    prompt_tokens: int
    n_ctx: int
    message_tokens: list[int]


class Prepared(msgspec.Struct, tag="prepared", frozen=True):
    """A `Prepare` ended; `live_tokens` of its tokens are live (fewer than all when only restored, or cancelled)."""

    session: str
    turn: int
    live_tokens: int
    total_tokens: int


class Failed(msgspec.Struct, tag="failed", frozen=True, omit_defaults=True):
    """The turn ended without a (complete) reply; `message` is one sentence for the user.

    Attributes:
        passing: it was not the question's fault, which stays asked: a connection that broke, a server that is busy.
    """

    session: str
    turn: int
    message: str
    passing: bool = False


class Stored(msgspec.Struct, tag="stored", frozen=True):
    """The session stands on a span on disk: just stored, restored, or found there.

    Attributes:
        sha1: its name, hex.    reason: why it was stored.    size: of the file, bytes; 0 when it was not looked at.
    """

    session: str
    sha1: str
    start: int
    end: int
    reason: str
    size: int


class Pulse(msgspec.Struct, tag="pulse", frozen=True):
    """The engine is at work on something long and comes on; sent when it had nothing else to say for some seconds."""


class Notice(msgspec.Struct, tag="notice", frozen=True):
    """Something the user should know once, in one sentence (storing is switched off, say)."""

    message: str


Event = (
    Loading
    | Loaded
    | LoadFailed
    | Restored
    | Prefill
    | Started
    | Token
    | Done
    | ContextFull
    | Prepared
    | Failed
    | Stored
    | Pulse
    | Notice
)

_encoder = msgspec.json.Encoder()
_command_decoder = msgspec.json.Decoder(Command)
_event_decoder = msgspec.json.Decoder(Event)

_UNREADABLE = (RecursionError, ValueError, OverflowError)
"""What the decoder may raise beside its own errors: nested too deeply, bytes that are no text, numbers too long."""


def encode(message: Command | Event) -> bytes:
    """One line, newline included. Text must be valid Unicode (no lone surrogates), which entry to a session ensures."""
    return _encoder.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    """Raises `msgspec.DecodeError` (or its `ValidationError`) for anything that is not one command."""
    try:
        return _command_decoder.decode(line)
    except msgspec.DecodeError:
        raise
    except _UNREADABLE as error:
        raise msgspec.DecodeError(str(error)) from error


def decode_event(line: bytes) -> Event:
    """Raises `msgspec.DecodeError` (or its `ValidationError`) for anything that is not one event."""
    try:
        return _event_decoder.decode(line)
    except msgspec.DecodeError:
        raise
    except _UNREADABLE as error:
        raise msgspec.DecodeError(str(error)) from error
