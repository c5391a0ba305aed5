"""A session manager without database and engine, for the screen's tests: same methods, events as scripted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4chat.errors import SessionLockedError, SessionNotFoundError, UsageError
from ds4chat.sessions.events import (
    CompactProgress,
    ContextRestored,
    ContextUsed,
    EngineChanged,
    EngineNotice,
    EngineStatus,
    ManagerEvent,
    MessageAdded,
    PathChanged,
    PromptProgress,
    SessionListChanged,
    SettingsChanged,
    SummaryChanged,
    TextStreamed,
    ToolAsked,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    TurnStats,
    WindowMoved,
)
from ds4chat.sessions.manager import SessionInfo, ToolInfo
from ds4chat.sessions.session import Message, Session, is_unfinished, title_from

if TYPE_CHECKING:
    from ds4chat.sessions.search import SearchHit

MODEL = "SmolLM2 135M Instruct"

RESTORE_BYTES_PER_MS = 1_500_000

LINE = 200
"""Characters of the line that a search shows."""


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
        self.asked: dict[str, ToolAsked] = {}
        self.tool_answers: list[str] = []
        self.auto_ready = True
        self.close_gate: asyncio.Event | None = None
        self.new_draft = ""
        """What an earlier run left of a chat that was never sent to."""
        self._status = EngineStatus(model=MODEL)
        self._listeners: list[Callable[[ManagerEvent], None]] = []
        self._read_only: set[str] = set()
        self._ids = 0
        self._made = 0
        self.written_elsewhere: set[str] = set()
        """Sessions that another program wrote in, for `refresh_read_only`."""
        self.trash: dict[str, Session] = {}
        self.incognito: set[str] = set()
        self.stored: dict[str, tuple[int, int]] = {}
        """Tokens and bytes on disk by session id, for `SessionInfo` and `restore_ms`."""
        self.live_session = ""
        self.compacting = ""
        self.instructions = ""
        self.defaults: dict[str, object] = {
            "model": MODEL,
            "model_path": "",
            "ctx": 8192,
            "temperature": 0.8,
            "top_p": 0.95,
            "top_k": 40,
            "min_p": 0.05,
            "repeat_penalty": 1.0,
            "seed": None,
            "max_tokens": None,
            "system": "",
            "persona": "",
        }
        self._before_compact: dict[str, int | None] = {}
        self._heads: dict[tuple[str, int], int | None] = {}

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

    def list_sessions(
        self, limit: int | None = None, offset: int = 0, *, archived: bool = False, tag: str = ""
    ) -> list[SessionInfo]:
        saved = self._listed(archived, tag)
        saved.sort(key=lambda s: (not s.pinned, -s.updated, s.id))
        end = None if limit is None else offset + limit
        return [self._info(session) for session in saved[offset:end]]

    def count_sessions(self, *, archived: bool = False, tag: str = "") -> int:
        return len(self._listed(archived, tag))

    def all_tags(self) -> list[str]:
        return sorted({tag for s in self.sessions.values() if self.is_saved(s.id) for tag in s.tags})

    def _listed(self, archived: bool, tag: str) -> list[Session]:
        return [
            s
            for s in self.sessions.values()
            if self.is_saved(s.id) and s.archived == archived and (not tag or tag in s.tags)
        ]

    def _info(self, s: Session) -> SessionInfo:
        tokens, size = self.stored.get(s.id, (0, 0))
        return SessionInfo(
            s.id,
            s.title,
            s.model,
            len(s.path()),
            s.tokens,
            s.created,
            s.updated,
            pinned=s.pinned,
            archived=s.archived,
            tags=tuple(s.tags),
            stored_tokens=tokens,
            stored_bytes=size,
        )

    def search(self, query: str, limit: int = 100) -> list[SearchHit]:
        from ds4chat.sessions.search import SearchHit

        wanted = query.casefold().strip()
        hits: list[SearchHit] = []
        newest = sorted(self.sessions.values(), key=lambda s: (-s.updated, s.id))
        for session in newest if wanted else ():
            if not self.is_saved(session.id):
                continue
            for message in sorted(session.messages.values(), key=lambda m: -m.id):
                line = next((ln for ln in message.text.splitlines() if wanted in ln.casefold()), None)
                if line is None or message.hidden:
                    continue
                at = line.casefold().index(wanted)
                begin = max(0, at - LINE // 2)
                marks = ((at - begin, at - begin + len(wanted)),)
                hits.append(
                    SearchHit(
                        session.id,
                        session.title,
                        message.id,
                        message.role,
                        line[begin : begin + LINE],
                        marks,
                        message.created,
                        session.archived,
                    )
                )
        return hits[:limit]

    def prompt_history(self, limit: int) -> list[str]:
        messages = [m for s in self.sessions.values() if self.is_saved(s.id) for m in s.messages.values()]
        newest = sorted((m for m in messages if m.role == "user" and not m.hidden), key=lambda m: -m.id)
        return list(dict.fromkeys(m.text for m in newest))[:limit]

    def pin_session(self, session_id: str, pinned: bool) -> None:
        self.sessions[session_id].pinned = pinned
        self.emit(SessionListChanged())

    def archive_session(self, session_id: str, archived: bool) -> None:
        self.sessions[session_id].archived = archived
        self.emit(SessionListChanged())

    def tag_session(self, session_id: str, tags: Sequence[str]) -> None:
        self.sessions[session_id].tags = list(
            dict.fromkeys(t for t in (" ".join(t.split()) for t in tags) if t)
        )
        self.emit(SessionListChanged())

    def save_draft(self, session_id: str, text: str) -> None:
        if session_id in self.sessions:
            self.sessions[session_id].draft = text

    def kept_draft(self) -> str:
        return self.new_draft

    def restore_ms(self, info: SessionInfo) -> float | None:
        return info.stored_bytes / RESTORE_BYTES_PER_MS if info.stored_bytes else None

    def new_session(
        self,
        system: str | None = None,
        *,
        incognito: bool = False,
        params: dict[str, Any] | None = None,
        model_path: str = "",
    ) -> Session:
        self._made += 1
        given = str(self.defaults["system"]) if system is None else system
        session = Session(f"{self._made:08x}", system=given, created=time.time())
        session.params, session.model_path = dict(params or {}), model_path
        self.sessions[session.id] = session
        if incognito:
            self.incognito.add(session.id)
        return session

    def is_incognito(self, session_id: str) -> bool:
        return session_id in self.incognito

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
        return bool(self.sessions[session_id].messages) and session_id not in self.incognito

    def refresh_read_only(self, session_id: str) -> bool:
        """Whether the session was `written_elsewhere` since it was asked for last."""
        changed = session_id in self.written_elsewhere
        self.written_elsewhere.discard(session_id)
        return changed

    def changed_elsewhere(self) -> bool:
        """Whether another program wrote a session."""
        return bool(self.written_elsewhere)

    def leave_session(self, session_id: str) -> None:
        self.left.append(session_id)

    def is_read_only(self, session_id: str) -> bool:
        return session_id in self._read_only

    def fork_session(self, session_id: str, at: int | None = None) -> Session:
        old = self.sessions[session_id]
        new = self.new_session(old.system, incognito=session_id in self.incognito, params=dict(old.params))
        for message in old.path(at):
            self._ids += 1
            new.append(Message(self._ids, new.head_id, message.role, message.text, message.state))
        new.title, new.updated = old.title, time.time()
        self.emit(SessionListChanged())
        return new

    def rename_session(self, session_id: str, title: str) -> None:
        self.sessions[session_id].title = title
        self.emit(SessionListChanged())

    def delete_session(self, session_id: str) -> None:
        if self.is_busy(session_id):
            raise UsageError(
                "A reply is being written in this session: stop it first, then delete the session."
            )
        self.trash[session_id] = self.sessions.pop(session_id)
        self.emit(SessionListChanged())

    def undelete_session(self, session_id: str) -> None:
        if session_id not in self.trash:
            raise SessionNotFoundError(f"There is no deleted session {session_id}.")
        self.sessions[session_id] = self.trash.pop(session_id)
        self.emit(SessionListChanged())

    # -- branches, turns

    def edit_message(self, session_id: str, message_id: int, text: str) -> Message:
        session = self._writable(session_id)
        if not text.strip():
            raise UsageError("There is nothing to send.")
        message = session.messages[message_id]
        if message.role != "user":
            raise UsageError("Only your own messages can be edited: regenerate a reply instead.")
        if message.state == "queued" and (session_id, message_id) in self.queue:
            message.text = text
            self.emit(PathChanged(session_id))
            return message
        self._idle(session_id)
        self._ids += 1
        edited = Message(self._ids, message.parent_id, "user", text, "queued", created=time.time())
        session.append(edited)
        session.updated = time.time()
        self.emit(PathChanged(session_id))
        self.emit(SessionListChanged())
        self._queue(session_id, edited.id)
        return edited

    def regenerate(self, session_id: str, reply_id: int) -> None:
        session = self._writable(session_id)
        self._idle(session_id)
        reply = session.messages[reply_id]
        if reply.role != "assistant" or reply.parent_id is None:
            raise UsageError("Only a reply can be regenerated.")
        self._heads[session_id, reply.parent_id] = session.head_id
        session.head_id = reply.parent_id
        self.emit(PathChanged(session_id))
        self._queue(session_id, reply.parent_id)

    def choose_branch(self, session_id: str, message_id: int) -> None:
        session = self._writable(session_id)
        self._idle(session_id)
        session.head_id = session.newest_leaf(message_id)
        self.emit(PathChanged(session_id))

    def delete_turn(self, session_id: str, message_id: int) -> list[int]:
        session = self._writable(session_id)
        self._idle(session_id)
        path = session.path()
        at = next((i for i, m in enumerate(path) if m.id == message_id), None)
        if at is None:
            raise UsageError("This message is not part of the chat as it stands.")
        while at > 0 and not (path[at].role == "user" and path[at - 1].role == "assistant"):
            at -= 1
        end = at + 1
        while end < len(path) and not (path[end].role == "user" and path[end - 1].role == "assistant"):
            end += 1
        ids = [m.id for m in path[at:end]]
        for id_ in ids:
            session.messages[id_].hidden = True
        self.emit(PathChanged(session_id))
        return ids

    def restore_turn(self, session_id: str, ids: Sequence[int]) -> None:
        for id_ in ids:
            self.sessions[session_id].messages[id_].hidden = False
        self.emit(PathChanged(session_id))

    # -- the window's summary

    def compact(self, session_id: str, instructions: str = "") -> None:
        """A test goes on with `compact_progress`, then `compact_done` or `stop`."""
        session = self._writable(session_id)
        self._idle(session_id)
        if len(session.path()) < 4:
            raise UsageError("There is nothing to summarise yet.")
        self.compacting, self.instructions = session_id, instructions
        self.emit(CompactProgress(session_id, ""))
        self.emit(SessionListChanged())

    def undo_compact(self, session_id: str) -> None:
        session = self.sessions[session_id]
        if not session.summary:
            raise UsageError("There is no summary to take back.")
        session.summary, session.window_start_id = "", self._before_compact.pop(session_id, None)
        self.emit(SummaryChanged(session_id))

    # -- settings

    def set_system(self, session_id: str, text: str) -> None:
        self._writable(session_id).system = text
        self.emit(SettingsChanged(session_id))

    def set_params(self, session_id: str, params: dict[str, Any]) -> None:
        self._writable(session_id).params = {k: v for k, v in params.items() if v is not None}
        self.emit(SettingsChanged(session_id))

    def set_model(self, session_id: str, path: Path) -> None:
        session = self._writable(session_id)
        session.model_path, session.model = str(path), path.name.removesuffix(".gguf")
        self.emit(SettingsChanged(session_id))

    def effective(self, session_id: str) -> dict[str, object]:
        session = self.sessions[session_id]
        model = {"model": session.model, "model_path": session.model_path} if session.model_path else {}
        return {**self.defaults, **model, **session.params, "system": session.system}

    def _writable(self, session_id: str) -> Session:
        if session_id in self._read_only:
            raise SessionLockedError("This session is read only.")
        return self.sessions[session_id]

    def _idle(self, session_id: str) -> None:
        if self.is_busy(session_id):
            raise UsageError("A reply is being written in this session: stop it first.")

    def _queue(self, session_id: str, message_id: int) -> None:
        self.queue.append((session_id, message_id))
        self.emit(TurnQueued(session_id, message_id, len(self.queue) - 1 + (self.running is not None)))

    def send(self, session_id: str, text: str, *, grammar: str = "") -> Message:
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

    def ask_for_tool(self, session_id: str, name: str = "calculator", arguments: str = "{}") -> ToolAsked:
        """The last reply calls a tool."""
        session = self.sessions[session_id]
        asked = ToolAsked(session_id, session.head_id or 0, "call_1", name, "built in", arguments)
        self.asked[session_id] = asked
        self.emit(asked)
        return asked

    def asked_tool(self, session_id: str) -> ToolAsked | None:
        return self.asked.get(session_id)

    def answer_tool(self, session_id: str, answer: str) -> bool:
        if self.asked.pop(session_id, None) is None:
            return False
        self.tool_answers.append(answer)
        return True

    def add_result(self, session_id: str, text: str, outcome: str = "ran") -> Message:
        """What a call came to."""
        session = self.sessions[session_id]
        self._ids += 1
        message = Message(self._ids, session.head_id, "tool", text)
        message.stats = {"tool": "calculator", "call": "call_1", "outcome": outcome}
        session.append(message)
        self.emit(MessageAdded(session_id, message.id))
        return message

    async def tools(self) -> list[ToolInfo]:
        return [ToolInfo("calculator", "Works it out.", "built in")]

    def has_tools_on(self, session_id: str) -> bool:
        return bool(self.sessions[session_id].params.get("tools"))

    def set_tools(self, session_id: str, on: bool) -> None:
        self.set_params(session_id, {**self.sessions[session_id].params, "tools": on})

    def stop(self, session_id: str) -> bool:
        if self.running is not None and self.running[0] == session_id:
            self.finish("stopped")
            return True
        if self.compacting == session_id:
            self.compacting = ""
            self.notice("The summary was stopped: nothing changed.", session_id)
            self.emit(SummaryChanged(session_id))
            return True
        for item in self.queue:
            if item[0] == session_id:
                self.queue.remove(item)
                if item in self._heads:
                    self.sessions[session_id].head_id = self._heads.pop(item)
                    self.emit(PathChanged(session_id))
                self.sessions[session_id].messages[item[1]].state = "stopped"
                self.emit(TurnEnded(session_id, item[1], None, "stopped"))
                return True
        return False

    def is_busy(self, session_id: str) -> bool:
        return session_id in self.busy_sessions()

    def busy_sessions(self) -> dict[str, str]:
        busy = {session_id: "queued" for session_id, _ in self.queue}
        busy |= dict.fromkeys(self.asked, "running")
        if self.running is not None:
            busy[self.running[0]] = "running"
        if self.compacting:
            busy[self.compacting] = "running"
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
        self._heads.pop((session_id, message_id), None)
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

    def compact_progress(self, text: str) -> None:
        self.emit(CompactProgress(self.compacting, text))

    def compact_done(self, summary: str, first_message_id: int | None = None) -> None:
        """The summary is there; the window goes on at a message (the last question by default)."""
        session = self.sessions[self.compacting]
        self.compacting = ""
        self._before_compact[session.id] = session.window_start_id
        questions = [m.id for m in session.path() if m.role == "user"]
        first = questions[-1] if first_message_id is None else first_message_id
        session.summary, session.window_start_id = summary, first
        self.emit(SummaryChanged(session.id))
        self.emit(WindowMoved(session.id, first, max(1, questions.index(first))))

    def notice(self, text: str, session_id: str = "", severity: str = "information") -> None:
        self.emit(EngineNotice(text, session_id, severity))  # type: ignore[arg-type]
