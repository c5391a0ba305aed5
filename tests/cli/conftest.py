"""A command line with folders of its own, and a session manager without an engine."""

from __future__ import annotations

import asyncio
import io
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ds4chat import cli, cli_setup, paths
from ds4chat.errors import SessionLockedError
from ds4chat.sessions.database import Database
from ds4chat.sessions.events import (
    ContextRestored,
    EngineStatus,
    ManagerEvent,
    PromptProgress,
    TextStreamed,
    TurnEnded,
    TurnStarted,
    TurnStats,
)
from ds4chat.sessions.session import Message, Session

STATS = TurnStats("stop", 30, 20, 10, 2, 1.23456, 20.00049, 300.5)


@dataclass
class FakeManager:
    """Answers with `script`, a list of events and calls that run in the loop, one at a time."""

    made: ClassVar[list[FakeManager]] = []
    script: ClassVar[list[Any]] = []
    stopped: ClassVar[list[str]] = []
    locked: ClassVar[bool] = False

    data_dir: Path
    options: Any
    sampling: Any
    max_tokens: int | None = None
    system: str = ""
    params: Any = None
    save: bool = True
    tools: Any = None
    engine: EngineStatus = field(default_factory=lambda: EngineStatus("ready", "Smol"))
    listeners: list[Callable[[ManagerEvent], None]] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    grammars: list[str] = field(default_factory=list)
    closed: bool = False
    end: asyncio.Future[TurnEnded] | None = None

    def __post_init__(self) -> None:
        FakeManager.made.append(self)

    def subscribe(self, listener: Callable[[ManagerEvent], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def start_engine(self) -> None: ...

    def new_session(self, system: str | None = None) -> Session:
        return Session("0000aaaa")

    def open_session(self, session_id: str) -> Session:
        if FakeManager.locked:
            raise SessionLockedError(f"Session {session_id} is open in another ds4chat: close it there.")
        return Session(session_id)

    def send(self, session_id: str, text: str, *, grammar: str = "") -> Message:
        self.sent.append((session_id, text))
        self.grammars.append(grammar)
        asyncio.get_running_loop().create_task(self._play(session_id))
        return Message(1, None, "user", text)

    async def _play(self, session_id: str) -> None:
        for step in FakeManager.script:
            await asyncio.sleep(0)
            if callable(step):
                step()
                continue
            for listener in list(self.listeners):
                listener(step)

    def stop(self, session_id: str) -> bool:
        FakeManager.stopped.append(session_id)
        self._end().set_result(TurnEnded(session_id, 1, 2, "stopped", TurnStats("cancelled")))
        return True

    def _end(self) -> asyncio.Future[TurnEnded]:
        if self.end is None:
            self.end = asyncio.get_running_loop().create_future()
        return self.end

    async def wait_turn(self, session_id: str) -> TurnEnded:
        end = self._end()

        def listen(event: ManagerEvent) -> None:
            if isinstance(event, TurnEnded) and not end.done():
                end.set_result(event)

        self.listeners.append(listen)
        return await end

    async def aclose(self) -> None:
        self.closed = True


def answer(*texts: str, session: str = "0000aaaa") -> list[Any]:
    """The events of a turn that went well."""
    return [
        TurnStarted(session, 1, 2),
        ContextRestored(session, 20, 1.23456),
        PromptProgress(session, 10, 10),
        *(TextStreamed(session, 2, text) for text in texts),
        TurnEnded(session, 1, 2, "complete", STATS),
    ]


@dataclass
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str


@dataclass
class Line:
    """Runs command lines in-process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    folder: Path
    ui_calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: str | bytes = "", terminal: bool | str = False) -> Result:
        """`terminal`: True for both sides, "input" for standard input alone."""
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        reader = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", reader)
            if terminal:
                patch.setattr(reader, "isatty", lambda: True, raising=False)
                patch.setattr(sys.stdout, "isatty", lambda: terminal is True, raising=False)
            self.capsys.readouterr()
            code = cli.run(arguments)
        out, err = self.capsys.readouterr()
        return Result(code, out, err)

    @property
    def database(self) -> Path:
        return self.folder / "data" / "sessions.db"

    def session(self, title: str, *texts: str, id_: str = "", model_path: str = "") -> str:
        """Store a session of the given messages, the user's first."""
        with Database(self.database) as database:
            session = Session(id_, title=title, model_path=model_path)
            for i, text in enumerate(texts):
                session.append(Message(i + 1, i or None, "assistant" if i % 2 else "user", text))
            database.create_session(session)
            return session.id


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Line:
    for name in ("DATA_DIR", "KV_DIR", "LOG_DIR"):
        monkeypatch.setenv(f"DS4CHAT_{name}", str(tmp_path / name[:-4].lower()))
    monkeypatch.setenv("DS4CHAT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setattr(paths, "STARTER_PACKAGE", "no_such_package_at_all")
    monkeypatch.setattr(cli_setup, "SessionManager", FakeManager)
    monkeypatch.setattr(FakeManager, "made", [])
    monkeypatch.setattr(FakeManager, "stopped", [])
    monkeypatch.setattr(FakeManager, "script", answer("Hel", "lo"))
    (tmp_path / "data" / "models").mkdir(parents=True)
    (tmp_path / "data" / "models" / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "config.toml").write_text('[model]\npath = "tiny"\n')
    line = Line(monkeypatch, capsys, tmp_path)

    def run_ui(manager: Any, **options: Any) -> str:
        line.ui_calls.append(options)
        return "0000bbbb"

    ui = types.ModuleType("ds4chat.ui.app")
    ui.run = run_ui  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ds4chat.ui.app", ui)
    return line
