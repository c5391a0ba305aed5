"""Looking at sessions: which one is on the screen, and keeping what is shown in step with the manager's
events.

The half of the chat screen that has no keys. Widgets post up to it, it calls down to them.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from textual import events
from textual.timer import Timer
from textual.widgets import TextArea

from ds4chat.errors import Ds4chatError, SessionLockedError, SessionNotFoundError
from ds4chat.sessions.events import (
    ContextUsed,
    EngineChanged,
    EngineNotice,
    ManagerEvent,
    SavingChanged,
    SessionListChanged,
    TextStreamed,
    ToolAsked,
    TurnEnded,
    TurnStarted,
)
from ds4chat.sessions.session import Session
from ds4chat.ui.messages import ManagerEventReceived
from ds4chat.ui.palette import Palette
from ds4chat.ui.screens.early_keys import pass_on
from ds4chat.ui.screens.surroundings import Surroundings

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

log = logging.getLogger(__name__)

REST_SECONDS = 0.5
"""How long the eye must rest on a session before its context is restored."""

DRAFT_SECONDS = 1.0
"""How long what is typed may be on the screen alone."""

FOLLOW_SECONDS = 1.0
"""How often it is looked whether another ds4chat has written to sessions."""

LIST_EVERY = 2
"""Of these looks, how many it takes until the list is read again."""


class ViewingScreen(Surroundings):
    """Shows one session at a time; the replies of the others go on meanwhile."""

    def __init__(self, manager: SessionManager, *, session_id: str | None = None, pick: bool = False) -> None:
        super().__init__(manager, empty=session_id is None)
        self._first = session_id
        self._rest_timer: Timer | None = None
        self._rested = ""
        self._draft_timer: Timer | None = None
        self._looks = self._list_looked = 0
        self._list_is_old = False
        self._gone: set[str] = set()
        self._failure = ""

    def on_mount(self) -> None:
        self._unsubscribe = self.manager.subscribe(self._receive)
        self.set_interval(FOLLOW_SECONDS, self._follow_elsewhere)

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

    def open_new(self, *, incognito: bool = False) -> None:
        """Look at a new session, or at the one that is still empty."""
        unused = self._views.unused(incognito=incognito)
        session = unused.session if unused else self.manager.new_session(incognito=incognito)
        if not unused and not incognito:
            session.draft = self.manager.kept_draft()
        self._show(session)

    def forget(self, session_id: str) -> None:
        """A session was deleted: look at another."""
        self._views.drop(session_id)
        self._forget_rows(session_id)
        if self.current_id == session_id:
            self._views.current = None
            self.prompt.put("")
            self.open_new()

    def go_to(self, session_id: str, message_id: int) -> None:
        """Look at a message of a session, on whatever branch it is."""
        if not self.open(session_id):
            return
        view = self._views.current
        if view is not None and all(message.id != message_id for message in view.session.path()):
            try:
                self.manager.choose_branch(session_id, message_id)
            except Ds4chatError as error:
                self.tell(error)
                return
            self._show(view.session, view.read_only)
        # Behind the event that the path has changed.
        self.call_later(self.transcript.reveal, message_id)

    def _show(self, session: Session, read_only: bool = False) -> None:
        old = self._views.current
        if old is not None:
            old.draft, old.place = self.prompt.text, self.transcript.place
            if old.session.id != session.id:
                self._save_draft()
                if not old.is_new:
                    self.manager.leave_session(old.session.id)
        self.prompt.session_id = session.id
        incognito = self.manager.is_incognito(session.id)
        view = self._views.current = self._views.put(session, read_only=read_only, incognito=incognito)
        self._unread.discard(session.id)
        self.clear_selection()
        self.transcript.show_session(session, view.notes, view.place)
        if old is None and self.prompt.text:
            # Typed before there was a session to type in.
            if view.draft:
                self.prompt.give_back(view.draft)
        elif old is not view:
            self.prompt.put(view.draft)
        self.sessions.current = session.id
        self.sessions.move_to(session.id)
        self.prompt.focus()
        if incognito or (old is not None and old.incognito):
            self._list_later()
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

    def _follow_elsewhere(self) -> None:
        """Show what another ds4chat wrote: in the list, and in the session on the screen when it is open there."""
        view = self._views.current
        if self._leaving:
            return
        try:
            self._list_is_old |= self.manager.changed_elsewhere()
            if view is not None and view.read_only and self.manager.refresh_read_only(view.session.id):
                self.transcript.reload()
                self._refresh_state()
        except SessionNotFoundError:
            if view is not None and view.session.id not in self._gone:
                self._gone.add(view.session.id)
                text = "This chat was deleted in another ds4chat. What was read of it stays here; F5 keeps a copy."
                self.transcript.add_note(self._views.note(view.session.id, text, "warning"))
        except Ds4chatError as error:
            log.warning("%s", error)
        self._looks += 1
        if self._list_is_old and self._looks - self._list_looked >= LIST_EVERY:
            self._list_is_old, self._list_looked = False, self._looks
            self._list_later()

    # -- what is typed and not sent

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if event.text_area is not self.prompt or self._views.current is None:
            return
        if not self.prompt.text:
            # What was sent must not come back as a draft.
            self._save_draft()
        elif self._draft_timer is None:
            self._draft_timer = self.set_timer(DRAFT_SECONDS, self._save_draft)

    def draft_text(self) -> str:
        """What is typed and not sent."""
        return self.prompt.text

    def keep_draft(self) -> None:
        """Save what is typed now, and not a second later."""
        self._save_draft()

    def _save_draft(self) -> None:
        if self._draft_timer is not None:
            self._draft_timer.stop()
            self._draft_timer = None
        view = self._views.current
        text = self.draft_text()
        if view is None or view.read_only or view.incognito or view.session.draft == text:
            return
        try:
            self.manager.save_draft(view.session.id, text)
        except Ds4chatError as error:
            self.tell(error)

    def show_closing(self) -> None:
        """The app is about to end: say so, and take no more text."""
        self._save_draft()
        self._leaving = True
        self.prompt.disabled = True
        self.status.set_parts(["saving…", "Ctrl+Q again leaves without waiting"], "")

    def on_key(self, event: events.Key) -> None:
        """A key typed behind the one that opened a dialog is for the dialog."""
        pass_on(self, event)

    # -- what comes from the manager

    def _receive(self, event: ManagerEvent) -> None:
        if isinstance(event, TextStreamed):
            # A hundred a second: a message through the pump would cost more than all that is done with it.
            self._activity.apply(event, time.monotonic())
            self.transcript.apply(event)
            self._status_later()
        else:
            if isinstance(event, SavingChanged):
                # A quit asks for it before any message comes through.
                self.unsaved = event.why
            self.post_message(ManagerEventReceived(event))

    def _tool_asked(self, asked: ToolAsked) -> None:
        """See `ToolActions`."""

    def on_manager_event_received(self, message: ManagerEventReceived) -> None:
        event = message.event
        self._activity.apply(event, time.monotonic())
        self.transcript.apply(event)
        match event:
            case ContextUsed():
                self._status_later()
                return
            case SessionListChanged():
                self._list_later()
            case TurnStarted(session_id=session_id):
                info = self._infos.get(session_id)
                self._activity.expect_restore(session_id, self.manager.restore_ms(info) if info else None)
            case ToolAsked():
                self._tool_asked(event)
            case TurnEnded():
                self._reply_done(event)
                self._list_later()
            case EngineChanged(status=status):
                failure = status.message if status.phase == "failed" else ""
                if failure and failure != self._failure:
                    # A line of the status has no room for the way out.
                    self.notify(failure, severity="error", markup=False, timeout=5 + len(failure) / 20)
                self._failure = failure
            case EngineNotice(message=text, session_id=session_id, severity=severity):
                # What is long to read, and of weight, stays longer.
                if text != self._failure:
                    self.notify(text, severity=severity, markup=False, timeout=5 + len(text) / 20)
                if session_id:
                    note = self._views.note(session_id, text, severity)
                    if session_id == self.current_id:
                        self.transcript.add_note(note)
        self._refresh_state()
