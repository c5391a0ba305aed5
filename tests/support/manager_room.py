"""A session manager with the real engine child, and what it said, for a test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from ds4chat.engine.protocol import KvOptions, Sampling
from ds4chat.sessions.events import EngineChanged, ManagerEvent, TurnEnded
from ds4chat.sessions.manager import EngineOptions, SessionManager
from tests.support import memos

E = TypeVar("E")

GREEDY = Sampling(temperature=0.0, repeat_penalty=1.1)


class ManagerRoom:
    """The manager, its events so far, and ways to wait for one."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager
        self.events: list[ManagerEvent] = []
        self._more = asyncio.Event()
        manager.subscribe(self._take)

    def _take(self, event: ManagerEvent) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, kind: type[E], fits: Callable[[E], bool] = lambda _: True, after: int = 0) -> E:
        """The first event of a kind that fits, from the `after`th event on."""
        async with asyncio.timeout(60):
            seen = after
            while True:
                while seen < len(self.events):
                    event = self.events[seen]
                    seen += 1
                    if isinstance(event, kind) and fits(event):
                        return event
                self._more.clear()
                await self._more.wait()

    async def ready(self) -> None:
        await self.until(EngineChanged, lambda e: e.status.phase in ("ready", "failed"), after=0)
        assert self.manager.engine.phase == "ready", self.manager.engine.message

    async def ask(self, session_id: str, text: str) -> TurnEnded:
        self.manager.send(session_id, text)
        async with asyncio.timeout(90):
            return await self.manager.wait_turn(session_id)

    def of(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    def kill_engine(self) -> None:
        pid = self.manager.engine_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def manager_room(
    model: Path,
    home: Path,
    *,
    kv: KvOptions | None = None,
    n_ctx: int = 2048,
    max_tokens: int | None = 24,
    save: bool = True,
    system: str = "",
    start: bool = True,
) -> AsyncIterator[ManagerRoom]:
    """A manager over `home`, its engine started; closed at the end as a quit closes it."""
    home.mkdir(exist_ok=True)
    memos.learn(home)
    options = EngineOptions(
        model,
        n_ctx=n_ctx,
        threads=1,
        kv=kv if kv is not None else KvOptions(directory=str(home / "kv"), budget_mb=0),
        log_path=home / "engine.log",
    )
    manager = SessionManager(home, options, GREEDY, max_tokens=max_tokens, save=save, system=system)
    room = ManagerRoom(manager)
    try:
        if start:
            await manager.start_engine()
            await room.ready()
        yield room
    finally:
        await manager.aclose()
