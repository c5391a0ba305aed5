"""The parent names the child that crashed to the next one, and only when a file can have done it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.engine.protocol import Command, Event, Load, Loaded
from ds4chat.sessions import engine_host
from ds4chat.sessions.engine_host import EngineHost, EngineOptions

LOADED = Loaded("m", "m.gguf", "llama", 512, 512, "dense", "00", 1)


class Child:
    """Plays the engine's client."""

    made: list[Child]

    def __init__(self, on_event: Callable[[Event], None], on_exit: Callable[[int], None], *_: object) -> None:
        self.on_event, self.on_exit = on_event, on_exit
        self.pid = 1000 + len(Child.made)
        self.sent: list[Command] = []
        Child.made.append(self)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def send(self, command: Command) -> None:
        self.sent.append(command)

    @property
    def crashed_pid(self) -> int:
        (load,) = self.sent
        assert isinstance(load, Load)
        return load.crashed_pid


@pytest.mark.parametrize(
    ("how", "blamed"),
    [
        (-signal.SIGABRT, True),
        (-signal.SIGSEGV, True),
        (-signal.SIGKILL, False),
        (-signal.SIGTERM, False),
        (-signal.SIGILL, False),
        (1, False),
    ],
)
async def test_the_next_child_is_told_which_one_crashed(
    monkeypatch: pytest.MonkeyPatch, how: int, blamed: bool
) -> None:
    monkeypatch.setattr(Child, "made", [], raising=False)
    monkeypatch.setattr(engine_host, "EngineClient", Child)
    host = EngineHost(EngineOptions(Path("m.gguf")), lambda _: None, lambda _: None, lambda _: None)
    await host.start()
    Child.made[0].on_event(LOADED)
    Child.made[0].on_exit(how)
    await asyncio.sleep(0.01)
    Child.made[1].on_event(LOADED)
    assert [child.crashed_pid for child in Child.made] == [0, 1000 if blamed else 0]
    await host.start()
    assert Child.made[2].crashed_pid == 0, "once is enough"
