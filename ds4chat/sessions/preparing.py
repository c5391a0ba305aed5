"""What the engine makes ready while it has nothing else to do: the session the user rests on, a window that moved.

Promises: a turn never waits for it (it is cancelled first); what does not fit the context is met with a smaller window.
Must not know: the screen, llama.cpp.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ds4chat.engine.protocol import Cancel, ContextFull, Failed, Prepare, Prepared
from ds4chat.sessions import events as ev
from ds4chat.sessions.engine_host import EngineHost
from ds4chat.sessions.session import Session
from ds4chat.sessions.settings import Settings
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import entries
from ds4chat.sessions.windows import Windows

log = logging.getLogger(__name__)


class Preparing:
    """What is live in the engine, and what is to be."""

    def __init__(
        self,
        shelf: Shelf,
        settings: Settings,
        windows: Windows,
        host: EngineHost,
        emit: Callable[[ev.ManagerEvent], None],
        next_number: Callable[[], int],
        is_free: Callable[[], bool],
    ) -> None:
        """`is_free`: no turn runs or waits. `next_number`: of a turn or a preparation."""
        self._shelf, self._settings, self._windows, self._host = shelf, settings, windows, host
        self._emit, self._next_number, self._is_free = emit, next_number, is_free
        self._command: Prepare | None = None
        self._given: list[int] = []
        self._resting = ""
        self._to_prefill = ""
        self._live: tuple[str, int | None] = ("", None)

    @property
    def live_session(self) -> str:
        """The session whose state is in the engine, "" for none."""
        return self._live[0]

    def set_live(self, session_id: str, message_id: int | None) -> None:
        """The engine holds a session up to a message; None: up to somewhere."""
        self._live = (session_id, message_id)

    def path_changed(self, session_id: str) -> None:
        """A session reads otherwise than what the engine may hold of it."""
        if self._live[0] == session_id:
            self._live = (session_id, None)

    def engine_is_new(self) -> None:
        """The engine holds nothing and does nothing."""
        self._live, self._command = ("", None), None

    def rest_on(self, session_id: str) -> None:
        """The user's eye rests on a session."""
        self._resting = session_id
        self.go_on()

    def rest_elsewhere(self, session_id: str) -> None:
        """A session is gone from the user's eyes."""
        if self._resting == session_id:
            self._resting = ""

    def prefill(self, session_id: str) -> None:
        """A session's window reads otherwise: compute it, as soon as there is nothing else to do."""
        self._to_prefill = session_id

    def make_way(self) -> None:
        """A turn begins."""
        if self._command is not None:
            self._host.send(Cancel(self._command.session, self._command.turn))

    def go_on(self) -> None:
        """Begin with the next preparation, if there is one and the engine is free."""
        loaded = self._host.loaded
        if loaded is None or self._command is not None or not self._is_free():
            return
        session_id = self._to_prefill or self._resting
        session = self._shelf.get(session_id)
        if session is None or not session.path() or not self._is_loaded(session):
            self._to_prefill = ""
            return
        if self._live == (session_id, session.head_id) and not self._to_prefill:
            return
        tools = self._settings.tools(session, loaded)
        if tools is None:
            # What tools there are is not known yet: the prompt would be another one.
            return
        given = entries(session, session.window(), loaded.fingerprint, tools=loaded.tools)
        self._given = [e.first_id or 0 for e in given]
        self._command = Prepare(
            session_id,
            self._next_number(),
            [e.message for e in given],
            prefill=bool(self._to_prefill),
            store=not self._shelf.is_incognito(session_id),
            tools=tools,
        )
        self._live, self._to_prefill = (session_id, session.head_id), ""
        self._host.send(self._command)

    def _is_loaded(self, session: Session) -> bool:
        return self._host.has(self._settings.model(session), self._settings.ctx(session))

    def takes(self, event: object) -> bool:
        """Whether an event is the end of a preparation; then it is worked off."""
        if not isinstance(event, Prepared | ContextFull | Failed):
            return False
        command = self._command
        if command is None or (command.session, command.turn) != (event.session, event.turn):
            return isinstance(event, Prepared)
        self._ended(command, event)
        return True

    def _ended(self, command: Prepare, event: Prepared | ContextFull | Failed) -> None:
        self._command = None
        match event:
            case Prepared():
                self._emit(ev.ContextUsed(event.session, event.live_tokens, self._host.status.n_ctx))
                session = self._shelf.get(event.session)
                if command.prefill and session is not None and event.live_tokens >= event.total_tokens - 1:
                    session.tokens = event.total_tokens
                    self._shelf.write(session.id, self._shelf.db.set_tokens, session.id, session.tokens)
                self.go_on()
            case ContextFull():
                self._smaller(command, event)
            case Failed():
                log.warning("preparing session %s: %s", event.session, event.message)

    def _smaller(self, command: Prepare, full: ContextFull) -> None:
        """What a session holds is more than the context does: a smaller window is made ready. It becomes the session's
        own with the next turn, so that a look at a chat in a small context costs it nothing."""
        session = self._shelf.get(command.session)
        if session is not None and self._windows.move(
            session, self._given, full.message_tokens, full.n_ctx, full.prompt_tokens, keep=False
        ):
            self._live = (session.id, None)
            self._to_prefill = session.id if command.prefill else ""
        self.go_on()
