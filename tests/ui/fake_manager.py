"""A session manager without database and engine, for the screen's tests: same methods, events as scripted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from ds4chat.errors import SessionLockedError, SessionNotFoundError, UsageError
from ds4chat.sessions.events import (
    ContextRestored,
    ContextUsed,
    EngineChanged,
    EngineNotice,
    EngineStatus,
    ManagerEvent,
    MessageAdded,
    PromptProgress,
    SessionListChanged,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    TurnStats,
    WindowMoved,
)
from ds4chat.sessions.manager import SessionInfo
from ds4chat.sessions.session import Message, Session, is_unfinished, title_from

MODEL = "SmolLM2 135M Instruct"


class FakeManager:
    """Turns run only as far as a test drives them: `begin`, `stream`, `finish`."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.locked: set[str] = set()
        self.queue: list[tuple[str, int]] = []
        self.running: tuple[str, int, int] | None = None
        self.rested: list[str] = []
        self.left: list[str] = []
        self.closed = False
        self.auto_ready = True
        self.close_gate: asyncio.Event | None = None
        self._status = EngineStatus(model=MODEL)
        self._listeners: list[Callable[[ManagerEvent], None]] = []
        self._read_only: set[str] = set()
        self._ids = 0
        self._made = 0

    # -- SessionManager

    def subscribe(self, listener: Callable[[ManagerEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def engine(self) -> EngineStatus:
        return self._status

    async def start_engine(self) -> None:
        if self.auto_ready:
            self.set_engine("ready", n_ctx=8192)
        else:
            self.set_engine("loading", progress=0.43)

    def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionInfo]:
        saved = [s for s in self.sessions.values() if s.messages]
        saved.sort(key=lambda s: (-s.updated, s.id))
        end = None if limit is None else offset + limit
        return [
            SessionInfo(s.id, s.title, s.model, len(s.messages), 0, s.created, s.updated)
            for s in saved[offset:end]
        ]

    def new_session(self, system: str | None = None) -> Session:
        self._made += 1
        session = Session(f"{self._made:08x}", system=system or "", created=time.time())
        self.sessions[session.id] = session
        return session

    def open_session(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise SessionNotFoundError(f"There is no session {session_id}.")
        if session_id in self.locked:
            raise SessionLockedError(f"Session {session_id} is open in another ds4chat.")
        return self.sessions[session_id]

    def open_read_only(self, session_id: str) -> Session:
        self._read_only.add(session_id)
        return self.sessions[session_id]

    def is_saved(self, session_id: str) -> bool:
        return bool(self.sessions[session_id].messages)

    def leave_session(self, session_id: str) -> None:
        self.left.append(session_id)

    def is_read_only(self, session_id: str) -> bool:
        return session_id in self._read_only

    def fork_session(self, session_id: str) -> Session:
        old, new = self.sessions[session_id], self.new_session()
        for message in old.path():
            self._ids += 1
            new.append(Message(self._ids, new.head_id, message.role, message.text, message.state))
        new.title, new.updated = old.title, time.time()
        self.emit(SessionListChanged())
        return new

    def rename_session(self, session_id: str, title: str) -> None:
        self.sessions[session_id].title = title
        self.emit(SessionListChanged())

    def delete_session(self, session_id: str) -> None:
        del self.sessions[session_id]
        self.emit(SessionListChanged())

    def send(self, session_id: str, text: str) -> Message:
        session = self.sessions[session_id]
        if not text.strip():
            raise UsageError("There is nothing to send.")
        if session_id in self._read_only:
            raise SessionLockedError("This session is read only.")
        self._ids += 1
        message = Message(self._ids, session.head_id, "user", text, "queued", created=time.time())
        session.append(message)
        session.title = session.title or title_from(text)
        session.updated = time.time()
        self.emit(MessageAdded(session_id, message.id))
        self.emit(SessionListChanged())
        ahead = len(self.queue) + (self.running is not None)
        self.queue.append((session_id, message.id))
        self.emit(TurnQueued(session_id, message.id, ahead))
        return message

    def continue_reply(self, session_id: str) -> None:
        session = self.sessions[session_id]
        path = session.path()
        if not is_unfinished(path):
            raise UsageError("There is no reply to continue.")
        reply = path[-1]
        reply.state = "streaming"
        assert reply.parent_id is not None
        self.running = (session_id, reply.parent_id, reply.id)
        self.emit(TurnStarted(session_id, reply.parent_id, reply.id))

    def stop(self, session_id: str) -> bool:
        if self.running is not None and self.running[0] == session_id:
            self.finish("stopped")
            return True
        for item in self.queue:
            if item[0] == session_id:
                self.queue.remove(item)
                self.sessions[session_id].messages[item[1]].state = "stopped"
                self.emit(TurnEnded(session_id, item[1], None, "stopped"))
                return True
        return False

    def is_busy(self, session_id: str) -> bool:
        return session_id in self.busy_sessions()

    def busy_sessions(self) -> dict[str, str]:
        busy = {session_id: "queued" for session_id, _ in self.queue}
        if self.running is not None:
            busy[self.running[0]] = "running"
        return busy

    def rest_on(self, session_id: str) -> None:
        self.rested.append(session_id)

    async def aclose(self) -> None:
        if self.close_gate is not None:
            await self.close_gate.wait()
        self.closed = True

    # -- what tests drive

    def emit(self, event: ManagerEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    def set_engine(self, phase: str, *, progress: float = 1.0, n_ctx: int = 0, message: str = "") -> None:
        self._status = EngineStatus(phase, MODEL, progress, n_ctx, message)  # type: ignore[arg-type]
        self.emit(EngineChanged(self._status))

    def make(self, title: str, texts: Iterable[str], *, updated: float | None = None) -> Session:
        """A saved session of alternating messages, the user's first."""
        session = self.new_session()
        session.title = title
        session.updated = time.time() if updated is None else updated
        for index, text in enumerate(texts):
            self._ids += 1
            reply = index % 2 == 1
            stats: dict[str, float | int | str] = (
                {
                    "generated_tokens": max(len(text) // 4, 1),
                    "generate_ms": len(text) * 3.0,
                    "cached_tokens": 412,
                }
                if reply
                else {}
            )
            session.append(
                Message(
                    self._ids,
                    session.head_id,
                    "assistant" if reply else "user",
                    text,
                    model=MODEL if reply else "",
                    stats=stats,
                )
            )
        return session

    def begin(self) -> Message:
        """The engine takes up the next turn; its empty reply."""
        session_id, message_id = self.queue.pop(0)
        session = self.sessions[session_id]
        session.messages[message_id].state = "complete"
        self._ids += 1
        reply = Message(self._ids, session.head_id, "assistant", "", "streaming", model=MODEL)
        session.append(reply)
        self.running = (session_id, message_id, reply.id)
        self.emit(MessageAdded(session_id, reply.id))
        self.emit(TurnStarted(session_id, message_id, reply.id))
        return reply

    def progress(self, done: int, total: int) -> None:
        assert self.running is not None
        self.emit(PromptProgress(self.running[0], done, total))

    def restored(self, tokens: int, ms: float) -> None:
        assert self.running is not None
        self.emit(ContextRestored(self.running[0], tokens, ms))

    def used(self, tokens: int) -> None:
        assert self.running is not None
        self.emit(ContextUsed(self.running[0], tokens, 8192))

    def stream(self, text: str) -> None:
        assert self.running is not None
        session_id, _, reply_id = self.running
        self.sessions[session_id].messages[reply_id].text += text
        self.emit(TextStreamed(session_id, reply_id, text))

    def finish(self, state: str = "complete", *, error: str = "") -> None:
        assert self.running is not None
        session_id, message_id, reply_id = self.running
        reply = self.sessions[session_id].messages[reply_id]
        reply.state = state  # type: ignore[assignment]
        generated = max(len(reply.text) // 4, 1)
        stats = TurnStats("stop", 500, 412, 88, generated, 41.0, 300.0, generated * 12.0)
        reply.stats = {
            "generated_tokens": stats.generated_tokens,
            "generate_ms": stats.generate_ms,
            "cached_tokens": stats.cached_tokens,
        }
        self.running = None
        self.emit(TurnEnded(session_id, message_id, reply_id, state, stats, error))

    def move_window(self, session_id: str, first_message_id: int) -> None:
        self.sessions[session_id].window_start_id = first_message_id
        self.emit(WindowMoved(session_id, first_message_id, 1))

    def notice(self, text: str, session_id: str = "", severity: str = "information") -> None:
        self.emit(EngineNotice(text, session_id, severity))  # type: ignore[arg-type]
