"""The real engine in this process, in the place of the child, whose replies are what a test wrote down.

The words are sampled one after the other, decoded and stored as the model's own would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ds4chat.engine import turn
from ds4chat.engine.llama import Context
from ds4chat.engine.protocol import Cancel, Command, Event, KvOptions, Load, Sampling
from ds4chat.engine.worker import Engine
from ds4chat.sessions import engine_host
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.tools.options import ToolOptions
from tests.support.manager_room import GREEDY, ManagerRoom


class Forced:
    """Replies in order; None (and none left): the model's own words."""

    def __init__(self) -> None:
        self.replies: list[str] = []


class ForcedSampler(turn.Sampler):
    """Draws what is forced, then the end of the turn."""

    forced: Forced

    def __init__(self, context: Context, sampling: Sampling, seed: int, before: Iterable[int]) -> None:
        super().__init__(context, sampling, seed, before)
        self._left: list[int] | None = None
        if self.forced.replies:
            model, text = context.model, self.forced.replies.pop(0)
            # A token a byte pair or so: not what the tokenizer would make of the whole.
            pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
            self._left = [t for piece in pieces for t in model.tokenize(piece.encode(), markers=False)]
            self._left += model.tokenize(b"<|im_end|>", markers=True)

    def sample(self) -> int:
        return self._left.pop(0) if self._left else super().sample()


class InProcessClient:
    """Stands for `EngineClient`."""

    def __init__(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None], *_: object) -> None:
        self._on_event = on_event
        self.pid: int | None = 1
        self.is_running = True

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._engine = Engine(lambda event: loop.call_soon_threadsafe(self._say, event))
        self._engine.start()

    def _say(self, event: Event) -> None:
        if self.is_running:
            self._on_event(event)

    def send(self, command: Command) -> None:
        if isinstance(command, Load):
            command = msgspec.structs.replace(command, extra_buffers=False, threads=1)
        if isinstance(command, Cancel):
            self._engine.cancel(command)
        else:
            self._engine.commands.put(command)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)
        self.is_running = False

    def _close(self) -> None:
        self._engine.stop()
        self._engine.join(60)
        turns = self._engine._turns
        if turns is not None and not self._engine.is_alive():
            turns._context.close()
            turns._model.close()

    def kill(self) -> None:
        raise AssertionError("nothing to kill")


@asynccontextmanager
async def forced_room(
    monkeypatch: pytest.MonkeyPatch, model: Path, home: Path, tools: ToolOptions, max_tokens: int = 200
) -> AsyncIterator[tuple[ManagerRoom, Forced]]:
    """A manager over `home` with the real engine in this process, whose replies are forced."""
    forced = Forced()
    monkeypatch.setattr(ForcedSampler, "forced", forced, raising=False)
    monkeypatch.setattr(turn, "Sampler", ForcedSampler)
    monkeypatch.setattr(engine_host, "EngineClient", InProcessClient)
    home.mkdir(exist_ok=True)
    options = EngineOptions(model, n_ctx=2048, kv=KvOptions(directory=str(home / "kv"), budget_mb=0))
    manager = SessionManager(home, options, GREEDY, max_tokens=max_tokens, tools=tools)
    room = ManagerRoom(manager)
    try:
        await manager.start_engine()
        await room.ready()
        yield room, forced
    finally:
        await manager.aclose()
