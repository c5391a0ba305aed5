"""An engine that says what a test has written down, in the place of the child process: no model, exact token counts.

A message takes one token a word and `MARKERS` more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    Command,
    ContextFull,
    Done,
    Event,
    Expendable,
    Failed,
    Forget,
    Generate,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Started,
    StopReason,
    Token,
)
from ds4chat.sessions import engine_host
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.tools.options import ToolOptions
from tests.support.manager_room import GREEDY, ManagerRoom

MARKERS = 4
REPLY_MARKERS = 8


class Script:
    """What the engine says, and what it was told.

    Attributes:
        replies: texts of the next replies, in order; without one it says "so be it".
        tools: the model's template has a place for tools.
        hold: turns wait in the middle of their reply for `go_on`.
    """

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.hold = False
        self.tools = True
        self.commands: list[Command] = []
        self.clients: list[ScriptedClient] = []

    @property
    def questions(self) -> list[Generate]:
        """All that was asked."""
        return [command for command in self.commands if isinstance(command, Generate)]

    @property
    def asked(self) -> Generate:
        """The last question."""
        return self.questions[-1]

    @property
    def loads(self) -> list[Load]:
        """What was asked to be loaded."""
        return [command for command in self.commands if isinstance(command, Load)]

    @property
    def preparations(self) -> list[Prepare]:
        """What was asked to be made ready."""
        return [command for command in self.commands if isinstance(command, Prepare)]

    @property
    def forgotten(self) -> list[Forget]:
        """What was asked to be forgotten."""
        return [command for command in self.commands if isinstance(command, Forget)]

    @property
    def expendable(self) -> list[list[str]]:
        """What was said to go first when room is made, each time."""
        return [command.spans for command in self.commands if isinstance(command, Expendable)]

    def go_on(self) -> None:
        self.hold = False
        self.clients[-1].finish("stop")

    def crash(self) -> None:
        self.clients[-1].die(-9)


class ScriptedClient:
    """Stands for `EngineClient`."""

    script: Script

    def __init__(
        self,
        on_event: Callable[[Event], None],
        on_exit: Callable[[int], None],
        log_path: Path | None = None,
        remote: object = None,
    ) -> None:
        self._on_event, self._on_exit = on_event, on_exit
        self._n_ctx = 0
        self._running: tuple[Generate, int, str] | None = None
        self.pid: int | None = 1
        self.is_running = True
        self.script.clients.append(self)

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.is_running = False

    def kill(self) -> None:
        self.die(-9)

    def die(self, code: int) -> None:
        self._running, self.is_running = None, False
        self._on_exit(code)

    def send(self, command: Command) -> None:
        self.script.commands.append(command)
        asyncio.get_running_loop().call_soon(self._work, command)

    def say(self, event: Event) -> None:
        """Let the engine say it now."""
        if self.is_running:
            self._on_event(event)

    def _work(self, command: Command) -> None:
        match command:
            case Load():
                self._n_ctx = command.n_ctx or 4096
                name = Path(command.model_path).stem
                self.say(
                    Loaded(
                        name,
                        command.model_path,
                        "test",
                        self._n_ctx,
                        8192,
                        "dense",
                        name,
                        1000,
                        self.script.tools,
                    )
                )
            case Prepare():
                counts = _counts(command.messages)
                n, ids = sum(counts), (command.session, command.turn)
                if n > 0.85 * self._n_ctx:
                    self.say(ContextFull(*ids, n, self._n_ctx, counts))
                else:
                    self.say(Prepared(*ids, n, n))
            case Generate():
                self._generate(command)
            case Cancel():
                if self._running is not None and self._running[0].turn == command.turn:
                    self.finish("cancelled")

    def _generate(self, command: Generate) -> None:
        counts = _counts(command.messages)
        n, ids = sum(counts), (command.session, command.turn)
        if n > 0.85 * self._n_ctx and not command.force:
            self.say(ContextFull(*ids, n, self._n_ctx, counts))
        elif n >= self._n_ctx:
            self.say(Failed(*ids, "It is too long."))
        else:
            text = self.script.replies.pop(0) if self.script.replies else "so be it"
            self.say(Started(*ids, n, 0, n))
            first, _, rest = text.partition(" ")
            self._running = (command, n, rest)
            if text:
                self.say(Token(*ids, first, [1]))
            if not self.script.hold:
                self.finish("stop")

    def finish(self, reason: StopReason) -> None:
        assert self._running is not None
        (command, n, rest), self._running = self._running, None
        ids, words = (command.session, command.turn), len(rest.split())
        if rest and reason == "stop":
            self.say(Token(*ids, f" {rest}", [1] * words))
        made = 1 + words
        counts = [*_counts(command.messages), made + REPLY_MARKERS]
        self.say(Done(*ids, reason, n, 0, n, made, 0.0, 1.0, 1.0, n + made, counts))


def _counts(messages: list[ChatMessage]) -> list[int]:
    return [len(message.text.split()) + MARKERS for message in messages]


def scripted_manager(
    monkeypatch: pytest.MonkeyPatch, home: Path, tools: ToolOptions | None = None
) -> tuple[SessionManager, Script]:
    """A manager over `home` with a scripted engine, not started."""
    script = Script()
    monkeypatch.setattr(ScriptedClient, "script", script, raising=False)
    monkeypatch.setattr(engine_host, "EngineClient", ScriptedClient)
    home.mkdir(exist_ok=True)
    (home / "scripted.gguf").touch()
    options = EngineOptions(home / "scripted.gguf", n_ctx=1000)
    return SessionManager(home, options, GREEDY, tools=tools), script


@asynccontextmanager
async def scripted_room(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    *,
    n_ctx: int = 1000,
    system: str = "",
    save: bool = True,
    start: bool = True,
    pinned: bool = False,
    tools: ToolOptions | None = None,
) -> AsyncIterator[tuple[ManagerRoom, Script]]:
    """A manager over `home` with a scripted engine."""
    script = Script()
    monkeypatch.setattr(ScriptedClient, "script", script, raising=False)
    monkeypatch.setattr(engine_host, "EngineClient", ScriptedClient)
    home.mkdir(exist_ok=True)
    model = home / "scripted.gguf"
    model.touch()
    options = EngineOptions(model, n_ctx=n_ctx, pinned=pinned)
    manager = SessionManager(home, options, GREEDY, system=system, save=save, tools=tools)
    room = ManagerRoom(manager)
    try:
        if start:
            await manager.start_engine()
            await room.ready()
        yield room, script
    finally:
        await manager.aclose()
