"""Looking at sessions: which one is on the screen, and keeping what is shown in step with the manager's
events.

The half of the chat screen that has no keys. Widgets post up to it, it calls down to them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Footer, Static

from ds4chat.errors import Ds4chatError, SessionLockedError
from ds4chat.sessions.events import (
    ContextUsed,
    EngineNotice,
    ManagerEvent,
    SessionListChanged,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
)
from ds4chat.sessions.session import Session
from ds4chat.ui.activity import Activity
from ds4chat.ui.messages import ManagerEventReceived
from ds4chat.ui.palette import Palette
from ds4chat.ui.text import one_line
from ds4chat.ui.views import Views
from ds4chat.ui.widgets.conversation import Conversation
from ds4chat.ui.widgets.prompt_box import PromptBox
from ds4chat.ui.widgets.session_list import Row, SessionList
from ds4chat.ui.widgets.status_line import StatusLine
from ds4chat.ui.widgets.welcome import Welcome
from ds4chat.ui.wording import age, placeholder

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionInfo, SessionManager

LIST_LIMIT = 1000
"""Sessions in the sidebar; the switcher finds them all."""

STATUS_SECONDS = 0.25

REST_SECONDS = 0.5
"""How long the eye must rest on a session before its context is restored."""


def rows_of(infos: Sequence[SessionInfo]) -> list[Row]:
    """Sessions as rows of a list, with their age."""
    now = time.time()
    return [Row(info.id, info.title or "Untitled", age(max(now - info.updated, 0))) for info in infos]


class ViewingScreen(Screen[None]):
    """Shows one session at a time; the replies of the others go on meanwhile."""

    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]

    def __init__(self, manager: SessionManager, *, session_id: str | None = None, pick: bool = False) -> None:
        super().__init__(id="chat")
        self.manager = manager
        self._first = session_id
        self._views = Views()
        self._activity = Activity(manager.engine)
        self._infos: dict[str, SessionInfo] = {}
        self._rows: list[Row] = []
        self._said = ""
        self._said_timer: Timer | None = None
        self._rest_timer: Timer | None = None
        self._rested = ""
        self._status_timer: Timer | None = None
        self._list_pending = False
        self._leaving = False

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            with Vertical(id="sidebar"):
                yield Static("Chats", id="sidebar-title", markup=False)
                yield SessionList(id="sessions")
            with Vertical(id="main"):
                yield Static("", id="title", markup=False)
                yield Welcome(id="welcome")
                yield Conversation(id="transcript")
                with Horizontal(id="prompt-row"):
                    yield PromptBox(id="prompt")
        yield StatusLine(id="status")
        yield Footer(compact=True, show_command_palette=False)

    # Found once: the tree of the screen never changes.
    def on_mount(self) -> None:
        self.transcript = self.query_one(Conversation)
        self.prompt = self.query_one(PromptBox)
        self.sessions = self.query_one(SessionList)
        self.status = self.query_one(StatusLine)
        self.welcome = self.query_one(Welcome)
        self.set_class(True, "-empty")
        self._unsubscribe = self.manager.subscribe(self._receive)
        self._activity.engine = self.manager.engine
        self._refresh_state()
        self.set_interval(60, self._refresh_list)

    def on_unmount(self) -> None:
        self._unsubscribe()

    def begin(self, palette: Palette) -> None:
        """Open the first session; called after the first paint."""
        self.transcript.set_palette(palette)
        self._refresh_list()
        if self._first is None or not self.open(self._first):
            self.open_new()

    def set_palette(self, palette: Palette) -> None:
        if self.is_mounted:
            self.transcript.set_palette(palette)

    # -- which session is looked at

    @property
    def current_id(self) -> str:
        """Id of the session on the screen, "" before the first."""
        return self._views.current.session.id if self._views.current else ""

    @property
    def resumable(self) -> str | None:
        """Id of the session on the screen when it can be opened again."""
        view = self._views.current
        if view is None or view.is_new or not self.manager.is_saved(view.session.id):
            return None
        return view.session.id

    def open(self, session_id: str) -> bool:
        """Look at a session; whether that was possible."""
        known = self._views.get(session_id)
        read_only = False
        try:
            if known is not None and known.is_new:
                session = known.session
            else:
                session = self.manager.open_session(session_id)
                read_only = self.manager.is_read_only(session_id)
        except SessionLockedError:
            read_only = True
            try:
                session = self.manager.open_read_only(session_id)
            except Ds4chatError as error:
                self.tell(error)
                return False
            if known is None or not known.read_only:
                text = "This chat is open in another ds4chat. Here it is read only; F5 goes on in a copy."
                self._views.note(session.id, text, "warning")
        except Ds4chatError as error:
            self.tell(error)
            return False
        self._show(session, read_only)
        return True

    def open_new(self) -> None:
        """Look at a new session, or at the one that is still empty."""
        unused = self._views.unused()
        self._show(unused.session if unused else self.manager.new_session())

    def forget(self, session_id: str) -> None:
        """A session was deleted: look at another."""
        self._views.drop(session_id)
        if self.current_id == session_id:
            self._views.current = None
            self.prompt.put("")
            self.open_new()

    def _show(self, session: Session, read_only: bool = False) -> None:
        old = self._views.current
        if old is not None:
            old.draft, old.place = self.prompt.text, self.transcript.place
            if old.session.id != session.id and not old.is_new:
                self.manager.leave_session(old.session.id)
        self.prompt.session_id = session.id
        view = self._views.current = self._views.put(session, read_only=read_only)
        self.clear_selection()
        self.transcript.show_session(session, view.notes, view.place)
        if old is not view:
            self.prompt.put(view.draft)
        self.sessions.current = session.id
        self.sessions.move_to(session.id)
        self.prompt.history_texts = [m.text for m in session.path() if m.role == "user"]
        self.prompt.focus()
        self._refresh_state()
        self._rested = ""
        if self._rest_timer is not None:
            self._rest_timer.stop()
        self._rest_timer = self.set_timer(REST_SECONDS, self._rest)

    def _rest(self) -> None:
        view = self._views.current
        if view is None or view.is_new or view.read_only or self._rested == self.current_id or self._leaving:
            return
        self._rested = self.current_id
        self.manager.rest_on(self.current_id)

    def say(self, text: str, seconds: float = 4.0) -> None:
        """Put a few words into the status line for a while."""
        self._said = text
        if self._said_timer is not None:
            self._said_timer.stop()
        self._said_timer = self.set_timer(seconds, self._unsay)
        self._refresh_status()

    def _unsay(self) -> None:
        self._said = ""
        self._refresh_status()

    def tell(self, error: Ds4chatError) -> None:
        """Show an error's sentence."""
        self.notify(str(error), severity="error", markup=False)

    def show_closing(self) -> None:
        """The app is about to end: say so, and take no more text."""
        self._leaving = True
        self.prompt.disabled = True
        self.status.set_parts(["saving…", "Ctrl+Q again leaves without waiting"], "")

    # -- what comes from the manager

    def _receive(self, event: ManagerEvent) -> None:
        self.post_message(ManagerEventReceived(event))

    def on_manager_event_received(self, message: ManagerEventReceived) -> None:
        event = message.event
        self._activity.apply(event, time.monotonic())
        self.transcript.apply(event)
        match event:
            case TextStreamed() | ContextUsed():
                self._status_later()
                return
            case SessionListChanged():
                self._list_later()
            case EngineNotice(message=text, session_id=session_id, severity=severity):
                self.notify(text, severity=severity, markup=False)
                if session_id:
                    note = self._views.note(session_id, text, severity)
                    if session_id == self.current_id:
                        self.transcript.add_note(note)
        self._refresh_state(event)

    def _refresh_state(self, event: ManagerEvent | None = None) -> None:
        """Bring everything around the transcript up to date."""
        view = self._views.current
        engine = self._activity.engine
        busy = self.manager.is_busy(self.current_id) if view else False
        self.set_class(view is None or (view.is_new and not view.notes), "-empty")
        self.welcome.set_state(engine, self._rows)
        read_only = view.read_only if view else False
        self.prompt.placeholder = placeholder(engine, busy=busy, read_only=read_only)
        if view is not None:
            info = self._infos.get(view.session.id)
            title = (info.title if info else view.session.title) or "New chat"
            self.query_one("#title", Static).update(one_line(title) + (" (read only)" if read_only else ""))
        if event is None or isinstance(event, TurnQueued | TurnStarted | TurnEnded | SessionListChanged):
            self.sessions.set_rows(self._rows, self.manager.busy_sessions())
        self.refresh_bindings()
        self._refresh_status()

    def _refresh_status(self) -> None:
        self._status_timer = None
        if self._leaving:
            return
        current = self.current_id
        elsewhere = sum(1 for session_id in self.manager.busy_sessions() if session_id != current)
        left = self._activity.left(current, elsewhere=elsewhere)
        if self._said:
            left.insert(0, self._said)
        info = self._infos.get(current)
        right = self._activity.right(current, info.tokens if info else 0)
        self.status.set_parts(left, right, alarm=self._activity.engine.phase == "failed" and not self._said)

    def _status_later(self) -> None:
        """What changes with every token is shown a few times a second."""
        if self._status_timer is None:
            self._status_timer = self.set_timer(STATUS_SECONDS, self._refresh_status)

    def _list_later(self) -> None:
        """Read the list again once, however many events ask for it before the next paint."""
        if not self._list_pending:
            self._list_pending = True
            self.call_after_refresh(self._refresh_list)

    def _refresh_list(self) -> None:
        self._list_pending = False
        if self._leaving:
            return
        infos = self.manager.list_sessions(limit=LIST_LIMIT)
        self._infos = {info.id: info for info in infos}
        self._rows = rows_of(infos)
        self.sessions.set_rows(self._rows, self.manager.busy_sessions())
        self._refresh_state()
