"""The engine thread inside of the test process: real models, real files, no pipe.

Leaving the room is a clean quit (the tail is stored). A kill needs a process of its own: see `tests/e2e`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    KvOptions,
    Load,
    Loaded,
    LoadFailed,
    Prepare,
    Prepared,
    Restored,
    Sampling,
    Started,
    Token,
)
from ds4chat.engine.worker import Engine

GREEDY = Sampling(temperature=0.0)
SMALL = KvOptions(
    min_tokens=64, continued_interval_tokens=64, boundary_align_tokens=64, boundary_trim_tokens=0, budget_mb=0
)
"""Short spans, so that short chats have chains."""


@dataclass
class Reply:
    """What came back of one turn."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    done: Done | None = None
    restored: int = 0
    failure: str = ""
    events: list[Event] = field(default_factory=list)

    @property
    def message(self) -> ChatMessage:
        return ChatMessage("assistant", self.text, self.tokens)


class EngineRoom:
    """A loaded engine for a `with` block.

    Attributes:
        hook: called on the engine thread with each event, before the engine goes on.
    """

    hook: Callable[[Event], None] | None = None

    def __init__(
        self, model: Path, kv_dir: Path | None, kv: KvOptions = SMALL, *, n_ctx: int = 1024, **load: object
    ) -> None:
        options = {
            **{f: getattr(kv, f) for f in kv.__struct_fields__},
            "directory": str(kv_dir or ""),
            "enabled": kv_dir is not None,
        }
        # One thread: tiny models need no more, and threads that wait for one another starve on a busy machine.
        settings = {"n_ctx": n_ctx, "threads": 1, "extra_buffers": False, **load}
        self._load = Load(str(model), kv=KvOptions(**options), **settings)  # type: ignore[arg-type]
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.engine = Engine(self._emit)
        self._turn = 0
        self._cancel_after: int | None = None
        self._sampled = 0

    def __enter__(self) -> EngineRoom:
        self.engine.start()
        self.engine.commands.put(self._load)
        while True:
            event = self.events.get(timeout=60)
            assert not isinstance(event, LoadFailed), event.message
            if isinstance(event, Loaded):
                self.loaded = event
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.stop()
        self.engine.join(60)
        turns = self.engine._turns
        if turns is not None and not self.engine.is_alive():
            turns._context.close()
            turns._model.close()

    def _emit(self, event: Event) -> None:
        if isinstance(event, Token) and self._cancel_after is not None:
            self._sampled += len(event.tokens)
            if self._sampled >= self._cancel_after:
                self.engine.cancel(Cancel(event.session, event.turn))
        self.events.put(event)
        if self.hook is not None:
            self.hook(event)

    def cancel_at(self, kind: type, number: int = 1) -> None:
        """Cancel the next turn on its so manieth event of a kind."""
        seen = 0

        def hook(event: Event) -> None:
            nonlocal seen
            if isinstance(event, kind):
                seen += 1
                if seen == number:
                    self.engine.cancel(Cancel(event.session, event.turn))  # type: ignore[attr-defined]

        self.hook = hook

    def chat(
        self,
        messages: list[ChatMessage],
        *,
        max_tokens: int = 24,
        session: str = "s",
        stop_after: int | None = None,
        continue_reply: bool = False,
        cold: bool = True,
        force: bool = False,
        sampling: Sampling = GREEDY,
        store: bool = True,
        grammar: str = "",
    ) -> Reply:
        """One turn to its end. `stop_after` cancels it once so many tokens were sampled."""
        self._turn += 1
        self._cancel_after, self._sampled = stop_after, 0
        limits = (sampling, max_tokens, continue_reply, cold, force, store)
        self.engine.commands.put(Generate(session, self._turn, messages, *limits, grammar))
        reply = Reply()
        while True:
            event = self.events.get(timeout=90)
            reply.events.append(event)
            match event:
                case Token():
                    reply.text += event.text
                    reply.tokens += event.tokens
                case Restored():
                    reply.restored = event.tokens
                case Done():
                    reply.done = event
                    return reply
                case Failed(message=message):
                    reply.failure = message
                    return reply
                case ContextFull():
                    return reply

    def prepare(self, messages: list[ChatMessage], *, session: str = "s", prefill: bool = False) -> Prepared:
        """A `Prepare` to its end, however long its prompt."""
        self._turn += 1
        self.engine.commands.put(Prepare(session, self._turn, messages, prefill, force=True))
        while True:
            event = self.events.get(timeout=90)
            if isinstance(event, Prepared):
                return event

    def full(self, messages: list[ChatMessage], *, session: str = "s") -> ContextFull:
        """What a `Prepare` that does not fit is answered."""
        self._turn += 1
        self.engine.commands.put(Prepare(session, self._turn, messages, True))
        event = self.events.get(timeout=90)
        assert isinstance(event, ContextFull), event
        return event

    def flush(self) -> None:
        """Wait until all spans handed to the writer are on disk."""
        if self.engine._writer is not None:
            assert self.engine._writer.flush(30)


def started(reply: Reply) -> Started:
    """The turn's `Started` event."""
    return next(e for e in reply.events if isinstance(e, Started))


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)
