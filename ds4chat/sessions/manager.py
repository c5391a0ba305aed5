"""The one join of database and engine: open, send, stop, switch. The chat screen and `-p` both sit on it.

Promises: whatever is shown came through one list of events, in the order things happened. How turns are worked off
is the conductor's, which sessions are open the shelf's; this is the face of both. Must not know: the screen, llama.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from ds4chat.engine.protocol import Sampling
from ds4chat.errors import UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.conductor import Conductor
from ds4chat.sessions.engine_host import EngineOptions
from ds4chat.sessions.session import Message, Session, SessionInfo, clean_text
from ds4chat.sessions.shelf import Shelf

__all__ = ["EngineOptions", "SessionInfo", "SessionManager"]


class SessionManager:
    """All methods are called on one event loop and return at once unless they are coroutines."""

    def __init__(
        self,
        data_dir: Path,
        options: EngineOptions,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        system: str = "",
        save: bool = True,
    ) -> None:
        """Open the database; the engine is started by `start_engine`. Raises DatabaseError.

        Args:
            system: the system prompt new sessions get.
            save: False keeps everything in memory (`--no-save`); sessions on disk can be read and gone on in, unsaved.
        """
        self._system = clean_text(system)
        self._listeners: list[Callable[[ev.ManagerEvent], None]] = []
        self._shelf = Shelf(data_dir, save=save, on_failure=self._say_failure)
        memo = data_dir / "engine.json"
        self._conductor = Conductor(self._shelf, options, sampling, max_tokens, self._emit, memo)

    # ---- listeners and engine ----

    def subscribe(self, listener: Callable[[ev.ManagerEvent], None]) -> Callable[[], None]:
        """Deliver events to `listener` until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def engine(self) -> ev.EngineStatus:
        """The engine as it stands."""
        return self._conductor.host.status

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine child, None before it started."""
        return self._conductor.host.pid

    async def start_engine(self) -> None:
        """Start the child and the model load; returns once the process is spawned. Failures come as `EngineChanged`."""
        if self._conductor.host.status.phase in ("off", "failed"):
            await self._conductor.host.start()

    # ---- sessions ----

    def list_sessions(self, limit: int | None = None, offset: int = 0) -> list[SessionInfo]:
        """Saved sessions, the one used last first."""
        return self._shelf.db.list_sessions(limit, offset)

    def new_session(self, system: str | None = None) -> Session:
        """A session that is written to the database with its first message, so that empty ones leave nothing behind."""
        return self._shelf.new(self._system if system is None else clean_text(system))

    def is_saved(self, session_id: str) -> bool:
        """Whether the session outlives this process."""
        return self._shelf.is_saved(session_id)

    def open_session(self, session_id: str) -> Session:
        """Open and lock a session (again: the same object). Raises SessionNotFoundError, SessionLockedError."""
        self._conductor.back_to(session_id)
        return self._shelf.open(session_id)

    def open_read_only(self, session_id: str) -> Session:
        """A session that another ds4chat has open, to look at."""
        return self._shelf.open_read_only(session_id)

    def is_read_only(self, session_id: str) -> bool:
        """Whether the session can only be looked at."""
        return self._shelf.is_read_only(session_id)

    def leave_session(self, session_id: str) -> None:
        """The user looks elsewhere: unlock the session, as soon as nothing of it runs or waits."""
        self._conductor.leave(session_id)

    def fork_session(self, session_id: str) -> Session:
        """A new session with the same path, to go on in when the other is locked."""
        fork = self._shelf.fork(session_id)
        self._emit(ev.SessionListChanged())
        return fork

    def rename_session(self, session_id: str, title: str) -> None:
        """Raises UsageError for a blank title."""
        self._shelf.rename(session_id, title)
        self._emit(ev.SessionListChanged())

    def delete_session(self, session_id: str) -> None:
        """Delete a session for good, and the checkpoints only it stood on. Raises SessionLockedError, UsageError."""
        if self.is_busy(session_id):
            raise UsageError(
                "A reply is being written in this session: stop it first, then delete the session."
            )
        spans = self._shelf.delete(session_id)
        self._conductor.forget(session_id, spans, self._shelf.db.all_spans())
        self._emit(ev.SessionListChanged())

    # ---- chat ----

    def send(self, session_id: str, text: str) -> Message:
        """Append the user's message and queue its turn. Raises UsageError for blank text, SessionLockedError when
        read-only, DatabaseError when it cannot be saved."""
        return self._conductor.send(session_id, text)

    def continue_reply(self, session_id: str) -> None:
        """Queue a turn that goes on from the last token of a reply that was cut off. Raises UsageError without one."""
        self._conductor.continue_reply(session_id)

    def stop(self, session_id: str) -> bool:
        """Stop the session's running turn, else drop its queued one (its text stays). False: nothing to stop."""
        return self._conductor.stop(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of the session runs or waits."""
        return self._conductor.is_busy(session_id)

    def busy_sessions(self) -> dict[str, str]:
        """ "running" or "queued" by session id."""
        return self._conductor.busy_sessions()

    def rest_on(self, session_id: str) -> None:
        """The eye rests on a session (half a second) or types in it: restore its context if the engine is free."""
        self._conductor.rest_on(session_id)

    async def wait_turn(self, session_id: str) -> ev.TurnEnded:
        """Wait until the session's turns are over; the last one's end. Raises UsageError when there was none."""
        return await self._conductor.wait_turn(session_id)

    async def aclose(self) -> None:
        """Stop what runs (what was generated stays, marked cut), let the engine store its tail, close everything."""
        await self._conductor.aclose()
        self._shelf.close()

    def _say_failure(self, sentence: str) -> None:
        self._emit(ev.EngineNotice(sentence, severity="error"))

    def _emit(self, event: ev.ManagerEvent) -> None:
        for listener in list(self._listeners):
            with contextlib.suppress(Exception):
                listener(event)
