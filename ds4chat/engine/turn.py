"""One turn on the engine: find, restore, prefill, sample, store.

Promises: batches are cut at the same places with and without checkpoints, and the last token of a prompt is decoded
alone, so that both compute the same numbers; a cancelled turn ends within a token or a batch and keeps what it has.
Must not know: the pipe, threads, files. Everything here runs on the engine thread.
"""

from __future__ import annotations

import codecs
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from ds4chat.checkpoints.policy import Policy, batch_ends, frontiers, is_continued_frontier
from ds4chat.checkpoints.reason import Reason
from ds4chat.engine.constraint import ConstrainedSampler, Grammar, GrammarError
from ds4chat.engine.live import LiveState, Reuse
from ds4chat.engine.llama import BATCH_TOKENS, Context, DecodeError, Model, Sampler
from ds4chat.engine.prompt import Prompt, PromptBuilder
from ds4chat.engine.protocol import (
    ChatMessage,
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    Prefill,
    Prepare,
    Prepared,
    Restored,
    Started,
    StopReason,
    Token,
)
from ds4chat.engine.template import TemplateError, TemplateLimitError
from ds4chat.engine.tool_calls import blocks, put_back

log = logging.getLogger(__name__)

FULL_AT = 0.85
"""Share of the context from which on a prompt is answered by `ContextFull`: a reply needs room too."""

REPLY_HEADER_TOKENS = 8
"""Rough count of markers around a reply, for its share of the window."""


class TurnCancelledError(Exception):
    """The turn was cancelled before its first token."""


@dataclass
class _Times:
    restore_ms: float = 0.0
    prefill_ms: float = 0.0
    generate_ms: float = 0.0


class Turns:
    """Answers `Generate` and `Prepare` commands on one model."""

    def __init__(
        self,
        model: Model,
        context: Context,
        builder: PromptBuilder,
        live: LiveState,
        policy: Policy,
        emit: Callable[[Event], None],
        *,
        turn_ends_only: bool = False,
    ) -> None:
        """`turn_ends_only`: spans cost much whatever their length, so none is stored at mere frontiers."""
        self._turn_ends_only = turn_ends_only
        self._model, self._context, self._builder = model, context, builder
        self.live, self._policy, self._emit = live, policy, emit

    def _frontiers(self, cached: int, prompt: Prompt, cold: bool) -> dict[int, Reason]:
        """Where spans are stored in prefill, and why."""
        n, system_end = len(prompt.tokens), prompt.system_end
        rewindable = self._context.rewinds and not self._turn_ends_only
        ends = dict(frontiers(cached, n, self._policy, system_end, cold, rewindable))
        if self._turn_ends_only:
            return {end: reason for end, reason in ends.items() if end in (system_end, n - 1)}
        return ends

    # ---- commands ----

    def generate(self, command: Generate, cancelled: Callable[[], bool]) -> None:
        """Run a whole turn; always ends in exactly one `Done`, `ContextFull` or `Failed`."""
        grammar: Grammar | None = None
        try:
            if command.grammar:
                # Before anything is computed for it.
                grammar = Grammar(self._model, command.grammar)
                if command.continue_reply:
                    grammar.follow(self._written(command.messages[-1]))
            self._generate(command, cancelled, grammar)
        except GrammarError as error:
            self._emit(Failed(command.session, command.turn, str(error)))
        finally:
            if grammar is not None:
                grammar.close()

    def _written(self, reply: ChatMessage) -> list[int]:
        """The tokens of a reply that goes on, or some of the same text."""
        return reply.tokens or self._model.tokenize(reply.text.encode(), markers=False)

    def _generate(self, command: Generate, cancelled: Callable[[], bool], grammar: Grammar | None) -> None:
        session, turn, n_ctx = command.session, command.turn, self._context.n_ctx
        prompt = self._build(session, turn, command.messages, command.continue_reply, command.tools)
        if prompt is None:
            return
        n = len(prompt.tokens)
        if n > FULL_AT * n_ctx and not command.force:
            self._emit(ContextFull(session, turn, n, n_ctx, prompt.message_tokens()))
            return
        if n >= n_ctx:
            self._emit(
                Failed(
                    session,
                    turn,
                    f"This message takes {n:,} tokens with what must come before it, and the context holds {n_ctx:,}: "
                    f"send it in parts, or start with a larger --ctx.",
                )
            )
            return
        times = _Times()
        reply: list[int] = []
        reuse = Reuse(prompt, 0)
        stop: StopReason = "cancelled"
        try:
            reuse = self.live.take_up(session, prompt, keep=command.store)
            prompt, times.restore_ms = reuse.prompt, reuse.ms
            self._say_restored(session, turn, reuse)
            cold = command.cold and len(prompt.tokens) >= self._policy.min_tokens
            began = time.perf_counter()
            try:
                self.prefill(session, turn, prompt, reuse.cached, cold, cancelled)
            finally:
                times.prefill_ms = _ms_since(began)
            cached = reuse.cached
            self._emit(Started(session, turn, len(prompt.tokens), cached, len(prompt.tokens) - cached))
            began = time.perf_counter()
            try:
                stop = self._sample(command, prompt, reply, cancelled, grammar)
            finally:
                times.generate_ms = _ms_since(began)
        except TurnCancelledError:
            pass
        except DecodeError as error:
            log.error("turn %d of session %s: %s", turn, session, error)
            self.live.clear()
            self._emit(
                Failed(
                    session,
                    turn,
                    "The engine could not compute this turn (the log has the details): send again.",
                )
            )
            return
        done = (
            len(prompt.tokens) if len(self.live) >= len(prompt.tokens) else max(reuse.cached, len(self.live))
        )
        self._emit(
            Done(
                session=session,
                turn=turn,
                stop_reason=stop,
                prompt_tokens=done,
                cached_tokens=reuse.cached,
                prefilled_tokens=done - reuse.cached,
                generated_tokens=len(reply),
                restore_ms=times.restore_ms,
                prefill_ms=times.prefill_ms,
                generate_ms=times.generate_ms,
                live_tokens=len(prompt.tokens) + len(reply),
                message_tokens=self._counts(prompt, command, reply),
                cold=command.cold and done >= self._policy.min_tokens,
            )
        )

    def prepare(self, command: Prepare, cancelled: Callable[[], bool]) -> None:
        """Restore a session's state ahead of its next message, and compute the rest of it when asked to."""
        session, turn = command.session, command.turn
        prompt = self._build(session, turn, command.messages, False, command.tools)
        if prompt is None:
            return
        n, n_ctx = len(prompt.tokens), self._context.n_ctx
        if n > FULL_AT * n_ctx and not command.force:
            self._emit(ContextFull(session, turn, n, n_ctx, prompt.message_tokens()))
            return
        if 1 < n < n_ctx:
            try:
                reuse = self.live.take_up(session, prompt, keep=command.store)
                prompt = reuse.prompt
                self._say_restored(session, turn, reuse)
                if command.prefill:
                    self.prefill(
                        session, turn, prompt, reuse.cached, False, cancelled, upto=len(prompt.tokens) - 1
                    )
            except TurnCancelledError:
                pass
            except DecodeError as error:
                log.error("preparing session %s: %s", session, error)
                self.live.clear()
        self._emit(Prepared(session, turn, len(self.live), len(prompt.tokens)))

    def stores_at(self, length: int) -> bool:
        """Whether a span is stored when a reply brings the live state to `length` tokens."""
        return not self._turn_ends_only and is_continued_frontier(length, self._policy)

    def store_tail(self, reason: Reason) -> None:
        """Store what is live beyond the last span."""
        self.live.store(reason)

    # ---- parts of a turn ----

    def _build(
        self, session: str, turn: int, messages: list[ChatMessage], continue_reply: bool, tools: str
    ) -> Prompt | None:
        declared = json.loads(tools) if tools else None

        def build() -> Prompt:
            written = self._as_written(messages)
            return self._builder.build(written, continue_reply=continue_reply, tools=declared)

        try:
            prompt = build()
            # A call put back as it was written lengthens the match, and with it what can be learned.
            while self.live.learn_tool_calls(prompt, self._calls(messages)):
                prompt = build()
            return prompt
        except TemplateLimitError as error:
            log.error("the chat template was given up: it %s", error)
            reason = (
                f"The chat template of {self._model.name} {error}: from now on ds4chat's own (ChatML) stands in for "
                "it. Send again, or choose another model with --model (in a chat: /model)."
            )
            self._emit(Failed(session, turn, reason))
            return None
        except TemplateError as error:
            log.error("the chat template failed: %s", error)
            self._emit(Failed(session, turn, f"The model's chat template refused this conversation: {error}"))
            return None

    def _as_written(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        """The messages with tool calls as the model wrote them, where their tokens are not known anyway."""
        known = self.live.tool_calls
        return [
            ChatMessage(m.role, put_back(m.text, known))
            if known and m.role == "assistant" and not m.tokens
            else m
            for m in messages
        ]

    @staticmethod
    def _calls(messages: list[ChatMessage]) -> set[str]:
        texts = (m.text for m in messages if m.role == "assistant" and not m.tokens)
        return {call.id for text in texts for call in blocks(text)}

    def _say_restored(self, session: str, turn: int, reuse: Reuse) -> None:
        if reuse.restored:
            self._emit(Restored(session, turn, reuse.restored, reuse.spans, reuse.ms))

    def prefill(
        self,
        session: str,
        turn: int,
        prompt: Prompt,
        cached: int,
        cold: bool,
        cancelled: Callable[[], bool],
        upto: int | None = None,
    ) -> None:
        """Compute a prompt's tokens from `cached` on, storing at frontiers. Raises TurnCancelledError, DecodeError."""
        tokens, n, system_end = prompt.tokens, len(prompt.tokens), prompt.system_end
        stores = self._frontiers(cached, prompt, cold)
        total = (n if upto is None else upto) - cached
        began = time.perf_counter()
        self._context.set_abort(cancelled)
        try:
            for end in batch_ends(cached, n, BATCH_TOKENS, self._policy, system_end, cold):
                if upto is not None and end > upto:
                    break
                if cancelled():
                    raise TurnCancelledError
                try:
                    self.live.decode(tokens[len(self.live) : end], logits=end == n)
                except DecodeError as error:
                    self.live.failed_decode()
                    if error.aborted and cancelled():
                        raise TurnCancelledError from None
                    raise
                done = end - cached
                self.live.prefill_us_per_token = max(1, int((time.perf_counter() - began) * 1e6 / done))
                self._emit(Prefill(session, turn, done, total))
                if end in stores:
                    self.live.store(stores[end])
        finally:
            self._context.set_abort(None)

    def _sample(
        self,
        command: Generate,
        prompt: Prompt,
        reply: list[int],
        cancelled: Callable[[], bool],
        grammar: Grammar | None = None,
    ) -> StopReason:
        """Generate into `reply` (the last token of it stays pending). Returns why it ended."""
        sampling = command.sampling
        seed = sampling.seed if sampling.seed is not None else secrets.randbits(32)
        # The penalty looks back over the reply alone: over the question it would forbid the very words to answer with.
        before = prompt.tokens[prompt.boundaries[-1] :] if command.continue_reply else []
        sampler = (
            Sampler(self._context, sampling, seed, before)
            if grammar is None
            else ConstrainedSampler(self._context, sampling, seed, before, grammar)
        )
        text = codecs.getincrementaldecoder("utf-8")("replace")
        if command.continue_reply:
            text.decode(self._builder.unfinished(command.messages[-1]))
        unsaid: list[int] = []
        ended = False

        def say(last: bool, piece: bytes = b"") -> None:
            # A reply that may go on keeps a character it is in the middle of for then.
            shown = text.decode(piece, last and ended).replace("\x00", "")
            if shown or (last and unsaid):
                self._emit(Token(command.session, command.turn, shown, list(unsaid)))
                unsaid.clear()

        try:
            while True:
                if cancelled():
                    return "cancelled"
                if command.max_tokens is not None and len(reply) >= command.max_tokens:
                    return "stop" if grammar is not None and grammar.is_at_end() else "length"
                if reply:
                    if len(self.live) + 1 >= self._context.n_ctx:
                        return "context"
                    self.live.decode([reply[-1]], logits=True)
                    if self.stores_at(len(self.live)):
                        self.live.store(Reason.CONTINUED)
                token = sampler.sample()
                if self._model.is_eog(token):
                    ended = True
                    return "stop"
                reply.append(token)
                unsaid.append(token)
                say(False, self._model.piece(token))
        except DecodeError:
            self.live.failed_decode()
            raise
        finally:
            say(True)
            sampler.close()

    def _counts(self, prompt: Prompt, command: Generate, reply: list[int]) -> list[int]:
        counts = prompt.message_tokens()
        if command.continue_reply and counts:
            counts[-1] += len(reply)
            return counts
        return [*counts, len(reply) + REPLY_HEADER_TOKENS]


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
