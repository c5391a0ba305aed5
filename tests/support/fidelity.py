"""Does a state that comes back from disk go on exactly as the one that never left? Bit for bit, way by way.

Each `Case` is a model and how its cache is kept, each way in `WAYS` a story with a restore in it. It is told twice,
with the engine's own `LiveState`: once uninterrupted with no store, once with one, its second part in a context and a
store of its own as in a new process. What counts are the logits of the last prompt token and of each token of a reply
behind it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.policy import Policy, batch_ends
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.store import Identity, Store
from ds4chat.checkpoints.writer import Writer
from ds4chat.engine.live import LiveState
from ds4chat.engine.llama import BATCH_TOKENS, PAYLOAD_ABI, Context, ContextSettings, Model
from ds4chat.engine.prompt import Prompt, PromptBuilder
from ds4chat.engine.template import ChatTemplate

STEP = 64
"""Tokens between frontiers, and the window of the sliding-window model: longer spans of it are not bit-exact."""

POLICY = Policy(min_tokens=STEP, interval_tokens=STEP, align_tokens=STEP, trim_tokens=0)
N_CTX = 1024

PROMPT = 4 * STEP + 21
REPLY = 11
MIDDLE = 2 * STEP + 30
"""Where a fork leaves the prompt, between two frontiers."""

Logits = list[bytes]


@dataclass(frozen=True)
class Case:
    """A kind of tiny model and how its cache is kept."""

    kind: str
    kv_type: str = "f16"
    swa_full: bool = True
    flash_attention: bool = True

    def __str__(self) -> str:
        swa = "" if self.kind != "swa" else ", full" if self.swa_full else ", window"
        flash = "" if self.flash_attention else ", no flash attention"
        return f"{self.kind}{swa} {self.kv_type}{flash}"


REQUIRED = [
    Case(kind, kv_type, swa_full)
    for kind, swa_full in (
        ("dense", True),
        ("swa", True),
        ("swa", False),
        ("hybrid", True),
        ("recurrent", True),
    )
    for kv_type in ("f16", "q8_0")
]

FURTHER = [
    *(Case(kind, "q4_0") for kind in ("dense", "swa", "hybrid")),
    *(Case(kind, "f16", flash_attention=False) for kind in ("dense", "swa", "hybrid")),
]
"""Beyond what must hold; a quantized V needs flash attention."""


class Rig:
    """One case: its model, and the conversation all stories are about."""

    def __init__(self, case: Case, model_path: Path, threads: int = 1) -> None:
        """With more than one thread, flash attention shares a row's cells out among them, and more can differ; on a
        busy machine it takes ten times as long."""
        self.case, self.threads = case, threads
        self.model = Model.load(model_path, extra_buffers=False)
        self.builder = PromptBuilder(self.model, ChatTemplate("", control_texts=self.model.control_texts))
        draw = random.Random(5)
        plain = [t for t in range(self.model.n_vocab) if not self.model.is_control(t)]
        self.text = draw.choices(plain, k=PROMPT + 2 * REPLY)
        self.other = draw.choices(plain, k=STEP + 9)
        """What a fork says instead."""

    def close(self) -> None:
        self.model.close()

    def prompt(self, tokens: list[int]) -> Prompt:
        pieces = [self.builder.key_piece(t) for t in tokens]
        return Prompt(list(tokens), b"".join(pieces), list(itertools.accumulate(map(len, pieces))), [0], 0)

    @contextmanager
    def process(self, folder: Path | None, *, read_only: bool = False, step: int = STEP) -> Iterator[Process]:
        """A context of its own and, over `folder`, a store of its own; None stores nothing."""
        case = self.case
        context = Context(
            self.model,
            ContextSettings(N_CTX, case.kv_type, case.flash_attention, case.swa_full, threads=self.threads),
        )
        cost = context.warm_up()
        store = writer = None
        if folder is not None:
            variant = self.model.variant(
                kv_type=case.kv_type,
                flash_attention=case.flash_attention,
                n_ctx=N_CTX,
                swa_full=case.swa_full,
            )
            model = self.model
            identity = Identity(model.family, variant, model.weights_hash, model.quant_bits, PAYLOAD_ABI)
            store = Store.open(folder, identity, POLICY, budget_mb=0)
            writer = Writer(store)
        # As the engine does where a span would hold the whole state anyway.
        snapshots = cost.per_token <= 0
        live = LiveState(
            context, self.builder, lambda _: None, store, writer, read_only=read_only, snapshots=snapshots
        )
        try:
            yield Process(self, context, live, writer, step)
        finally:
            live.close()
            if writer is not None:
                writer.close()
            context.close()


@dataclass
class Process:
    """What a story does in one process; `run` and `say` give the logits they pass."""

    rig: Rig
    context: Context
    live: LiveState
    writer: Writer | None
    step: int

    def take_up(self, tokens: list[int]) -> int:
        """Make what there is of these tokens live, all but the last at most; returns how many."""
        return self.live.take_up("s", self.rig.prompt(tokens)).cached

    def compute(self, tokens: list[int], upto: int | None = None) -> None:
        """A prompt's tokens from the live ones on, in the engine's batches, stored where the engine stores."""
        step = self.step
        policy = replace(POLICY, interval_tokens=step, align_tokens=step)
        for end in batch_ends(len(self.live), len(tokens), BATCH_TOKENS, policy):
            if upto is not None and end > upto:
                break
            self.live.decode(tokens[len(self.live) : end], logits=end == len(tokens))
            if end < len(tokens) and (
                end % step == 0 or (end == len(tokens) - 1 and not self.context.rewinds)
            ):
                self.live.store(Reason.CONTINUED if end % step == 0 else Reason.PROMPT)

    def ask(self, tokens: list[int]) -> Logits:
        """A prompt's rest and the logits behind it."""
        self.compute(tokens)
        return [self.context.logits()]

    def say(self, tokens: list[int]) -> Logits:
        """A reply, token by token."""
        seen = []
        for token in tokens:
            self.live.decode([token], logits=True)
            seen.append(self.context.logits())
        return seen

    def keep(self, reason: Reason = Reason.SHUTDOWN) -> None:
        """Store the tail and wait for the disk."""
        self.live.store(reason)
        if self.writer is not None:
            assert self.writer.flush(30)


def _prompt_and_reply(rig: Rig) -> tuple[list[int], list[int], list[int]]:
    text = rig.text
    return text[:PROMPT], text[PROMPT : PROMPT + REPLY], text[PROMPT + REPLY :]


def at_every_frontier(rig: Rig, folder: Path) -> Iterator[bool]:
    """Stored up to each frontier in turn; the rest of the prompt is computed behind it."""
    prompt, reply, _ = _prompt_and_reply(rig)
    with rig.process(None) as whole:
        expected = whole.ask(prompt) + whole.say(reply)
    for frontier in range(STEP, PROMPT, STEP):
        kv = folder / str(frontier)
        with rig.process(kv) as first:
            first.compute(prompt, upto=frontier)
            first.keep()
        with rig.process(kv) as second:
            yield second.take_up(prompt) == frontier
            yield second.ask(prompt) + second.say(reply) == expected


def at_a_tail(rig: Rig, folder: Path) -> Iterator[bool]:
    """Stored in the middle of a reply, at no frontier; the reply goes on."""
    prompt, reply, rest = _prompt_and_reply(rig)
    with rig.process(None) as whole:
        whole.ask(prompt)
        whole.say(reply)
        expected = whole.say(rest)
    with rig.process(folder) as first:
        first.ask(prompt)
        first.say(reply)
        first.keep()
    with rig.process(folder) as second:
        yield second.take_up([*prompt, *rest]) < PROMPT + REPLY  # not this text: it must not be taken for it
    with rig.process(folder) as third:
        yield third.take_up([*prompt, *reply, rest[0]]) == PROMPT + REPLY
        yield third.say(rest) == expected


def at_a_prompts_end(rig: Rig, folder: Path) -> Iterator[bool]:
    """Stored one token before the end of a prompt: the last token alone is computed."""
    prompt, reply, _ = _prompt_and_reply(rig)
    with rig.process(None) as whole:
        expected = whole.ask(prompt) + whole.say(reply)
    with rig.process(folder) as first:
        first.compute(prompt, upto=PROMPT - 1)
        first.keep(Reason.PROMPT)
    with rig.process(folder) as second:
        yield second.take_up(prompt) == PROMPT - 1
        yield second.ask(prompt) + second.say(reply) == expected


def after_a_rewind(rig: Rig, folder: Path) -> Iterator[bool]:
    """The same question asked again, in the process that answered it and in a new one that restored the answer.

    Where the state cannot be cut back so far, the chain to the prompt's end or to a frontier before it is restored.
    """
    prompt, reply, rest = _prompt_and_reply(rig)
    with rig.process(None) as whole:
        expected = whole.ask(prompt) + whole.say(reply)
    with rig.process(folder) as first:
        first.ask(prompt)
        first.say(reply)
        first.keep()
        yield first.take_up(prompt) == PROMPT - 1
        yield first.ask(prompt) + first.say(reply) == expected
        first.say(rest)
        first.keep()
    with rig.process(folder) as second:
        second.take_up([*prompt, *reply, *rest, 0])
        yield second.take_up(prompt) >= (PROMPT - 1) // STEP * STEP
        yield second.ask(prompt) + second.say(reply) == expected


def after_a_fork(rig: Rig, folder: Path) -> Iterator[bool]:
    """Another question behind the same answer, and another text from the middle of the prompt on."""
    prompt, reply, _ = _prompt_and_reply(rig)
    at_the_end = [*prompt, *reply, *rig.other]
    in_the_middle = [*prompt[:MIDDLE], *rig.other]
    with rig.process(None) as whole:
        whole.ask(prompt)
        whole.say(reply)
        expected = whole.ask(at_the_end)
    with rig.process(folder) as first:
        first.ask(prompt)
        first.say(reply)
        first.keep()
    with rig.process(folder) as second:
        yield second.take_up(at_the_end) == PROMPT + REPLY
        yield second.ask(at_the_end) == expected
        second.keep()
    with rig.process(folder) as third:
        start = third.take_up(in_the_middle)
        got = third.ask(in_the_middle)
    with rig.process(None) as whole:
        # The same batches: either all of its own, or the prompt's up to the cut and its own behind.
        if start % STEP != 0:
            whole.ask(prompt)
            whole.take_up(in_the_middle)
        yield len(whole.live) == (start if start % STEP else 0)
        yield whole.ask(in_the_middle) == got
    with rig.process(folder) as fourth:
        yield fourth.take_up(at_the_end) >= PROMPT + REPLY
        yield fourth.ask(at_the_end) == expected


def after_eviction(rig: Rig, folder: Path) -> Iterator[bool]:
    """The last spans of the chain are gone, one after the other: the shorter one serves, and the rest is computed."""
    prompt, reply, _ = _prompt_and_reply(rig)
    with rig.process(None) as whole:
        expected = whole.ask(prompt) + whole.say(reply)
    with rig.process(folder) as first:
        first.ask(prompt)
        first.keep()
    files = sorted(folder.glob("*/*/*.kv"), key=lambda path: read_header(path)[0].end)
    while len(files) > 1:
        files.pop().unlink()
        left = read_header(files[-1])[0].end
        with rig.process(folder, read_only=True) as second:
            yield second.take_up(prompt) == min(left, PROMPT - 1)
            yield second.ask(prompt) + second.say(reply) == expected


WAYS: dict[str, Callable[[Rig, Path], Iterator[bool]]] = {
    "every frontier": at_every_frontier,
    "tail": at_a_tail,
    "prompt's end": at_a_prompts_end,
    "rewind": after_a_rewind,
    "fork": after_a_fork,
    "eviction": after_eviction,
}


def beyond_the_window(rig: Rig, folder: Path, step: int) -> bool:
    """Whether a prompt goes on bit for bit behind spans of `step` tokens: on a sliding-window model not where they are
    longer than the window: the short layers' rows come back with holes, fewer cells are in use, and flash attention
    shares them out among threads otherwise. Hence the engine cuts there."""
    prompt, reply, _ = _prompt_and_reply(rig)
    with rig.process(None, step=step) as whole:
        expected = whole.ask(prompt) + whole.say(reply)
    with rig.process(folder, step=step) as first:
        first.compute(prompt, upto=PROMPT - 1)
        first.keep()
    with rig.process(folder, step=step) as second:
        assert second.take_up(prompt) == PROMPT - 1
        return second.ask(prompt) + second.say(reply) == expected
