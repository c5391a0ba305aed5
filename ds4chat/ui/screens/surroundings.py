"""What stands around the transcript: the list of chats, the title, the status line, and the terminal's own title.

Promises: kept in step with the manager's events and with what is looked at; the list is fetched by the page. Which
session is looked at is `viewing`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from ds4chat.errors import Ds4chatError
from ds4chat.sessions.events import TurnEnded
from ds4chat.ui.activity import Activity
from ds4chat.ui.attention import TerminalTitle, title_words
from ds4chat.ui.listing import INCOGNITO, PAGE, Listing, Marks, Row, restore_words
from ds4chat.ui.text import one_line
from ds4chat.ui.views import View, Views
from ds4chat.ui.widgets.conversation import Conversation
from ds4chat.ui.widgets.key_footer import KeyFooter
from ds4chat.ui.widgets.prompt_box import PromptBox
from ds4chat.ui.widgets.session_list import ON_DISK, UNREAD, WARM, SessionList
from ds4chat.ui.widgets.status_line import StatusLine
from ds4chat.ui.widgets.suggestion_list import SuggestionList
from ds4chat.ui.widgets.welcome import Welcome
from ds4chat.ui.wording import age, placeholder

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionInfo, SessionManager

STATUS_SECONDS = 0.5
"""How often what changes with every token is told, at most: a number that flickers cannot be read."""

LIST_SECONDS = 60
"""How often the list is read again without being asked to: ages change, other programs write."""

UNSAVED = "NOT SAVED"

INCOGNITO_WORDS = "Incognito: this chat leaves nothing behind"


class Surroundings(Screen[None]):
    """The frame of the chat screen. What it shows of the session in the middle comes from `_views.current`."""

    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]

    def __init__(self, manager: SessionManager, *, empty: bool = True) -> None:
        # A class that is set or taken away later styles the whole tree once more.
        super().__init__(id="chat", classes="-empty" if empty else "")
        self.manager = manager
        self.bell_when_done = False
        """Ring the terminal's bell when a reply that nobody watches is done."""
        self.undo: list[Callable[[], None]] = []
        """What brings back the deleted sessions and turns, the last one deleted at the end."""
        self._views = Views()
        self._activity = Activity(manager.engine)
        self._listing = Listing(manager)
        self._infos: dict[str, SessionInfo] = {}
        self._rows: list[Row] = []
        self._unread: set[str] = set()
        self.unsaved = ""
        """Why what is said is not saved for now, "" when it is."""
        self._list_fault = ""
        self._said = ""
        self._said_timer: Timer | None = None
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
                yield SuggestionList(id="suggestions")
                with Horizontal(id="prompt-row"):
                    yield PromptBox(id="prompt")
        yield StatusLine(id="status")
        yield KeyFooter()

    # Found once: the tree of the screen never changes.
    def on_mount(self) -> None:
        self.transcript = self.query_one(Conversation)
        self.prompt = self.query_one(PromptBox)
        self.sessions = self.query_one(SessionList)
        self.status = self.query_one(StatusLine)
        self.welcome = self.query_one(Welcome)
        self.terminal_title = TerminalTitle(self.app)
        self._activity.engine = self.manager.engine
        self._refresh_state()
        self.set_interval(LIST_SECONDS, self._refresh_list)
        self.watch(self.app, "app_focus", self._focus_changed, init=False)

    def on_unmount(self) -> None:
        self.terminal_title.give_back()

    @property
    def current_id(self) -> str:
        """Id of the session on the screen, "" before the first."""
        return self._views.current.session.id if self._views.current else ""

    # -- words for a while

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

    # -- a reply that nobody watches

    def _focus_changed(self, focused: bool) -> None:
        if focused:
            self._seen(self.current_id)

    def _seen(self, session_id: str) -> None:
        """The user looks at a session: its replies are not new any more."""
        if session_id in self._unread:
            self._unread.discard(session_id)
            self._refresh_state()

    def _reply_done(self, event: TurnEnded) -> None:
        watched = self.app.app_focus and event.session_id == self.current_id
        if watched or event.reply_id is None or event.state in ("stopped", "cut"):
            return
        if self.manager.is_busy(event.session_id):
            # The model goes on behind the calls of its reply.
            return
        self._unread.add(event.session_id)
        if self.bell_when_done:
            self.app.bell()

    @property
    def marks(self) -> Marks:
        """What the lists of sessions mark now."""
        return Marks(self.manager.busy_sessions(), self.manager.live_session, frozenset(self._unread))

    # -- title and status line

    def _refresh_state(self) -> None:
        """Bring everything around the transcript up to date."""
        view = self._views.current
        engine = self._activity.engine
        busy = self.manager.is_busy(self.current_id) if view else False
        if view is not None:
            self.set_class(view.is_new and not view.notes, "-empty")
        self.set_class(view is not None and view.incognito, "-incognito")
        self.welcome.set_state(engine, self._rows, incognito=view is not None and view.incognito)
        read_only = view.read_only if view else False
        self.prompt.placeholder = placeholder(engine, busy=busy, read_only=read_only)
        title = self._title_of(view) if view is not None else ""
        self.query_one("#title", Static).update(title)
        self.sessions.set_marks(self.marks)
        self.terminal_title.set(title_words(title, unread=len(self._unread), writing=busy))
        self.refresh_bindings()
        self._refresh_status()

    def _title_of(self, view: View) -> str:
        if view.incognito and view.is_new:
            return INCOGNITO_WORDS
        info = self._infos.get(view.session.id)
        title = one_line((info.title if info else view.session.title) or "New chat")
        parts = [f"{title} (read only)" if view.read_only else title]
        if view.incognito:
            parts.append("incognito, leaves nothing behind")
        if view.session.archived:
            parts.append("archived")
        if view.session.tags:
            parts.append(" ".join(f"#{one_line(tag)}" for tag in view.session.tags))
        return " · ".join(parts)

    def _refresh_status(self) -> None:
        self._status_timer = None
        if self._leaving:
            return
        current = self.current_id
        elsewhere = sum(1 for session_id in self.manager.busy_sessions() if session_id != current)
        left = self._activity.left(current, elsewhere=elsewhere)
        if self._unread - {current}:
            left.append(f"{UNREAD} {len(self._unread - {current})} new elsewhere")
        view = self._views.current
        if view is not None and view.incognito:
            left.insert(1, "incognito")
        elif view is not None and not view.is_new and not self.manager.is_busy(current):
            left.append(self._whereabouts(view))
        if self.unsaved:
            left.insert(0, UNSAVED)
        if self._said:
            left.insert(0, self._said)
        info = self._infos.get(current)
        saved = info.tokens if info else view.session.tokens if view else 0
        right, *shorter = self._activity.right_forms(current, saved)
        alarm = (self._activity.engine.phase == "failed" or bool(self.unsaved)) and not self._said
        self.status.set_parts(left, right, shorter=shorter, alarm=alarm)

    def _whereabouts(self, view: View) -> str:
        """Where the session's context is, with the mark the lists use for it."""
        info = self._infos.get(view.session.id)
        if self.manager.live_session == view.session.id:
            # Whose reading was stopped at once stands in an empty engine.
            held = self._activity.holds(view.session.id, info.tokens if info else 0)
            return f"{WARM} in the engine" if held else ""
        ms = self.manager.restore_ms(info) if info else None
        if ms is not None:
            return f"{ON_DISK} on disk, {restore_words(ms)}"
        return "to be read again" if info else ""

    def _status_later(self) -> None:
        """For what changes with every token."""
        if self._status_timer is None:
            self._status_timer = self.set_timer(STATUS_SECONDS, self._refresh_status)

    # -- the list of chats

    def _list_later(self) -> None:
        """Read the list again once, however many events ask for it before the next paint."""
        if not self._list_pending:
            self._list_pending = True
            self.call_after_refresh(self._refresh_list)

    def _refresh_list(self) -> None:
        self._list_pending = False
        if self._leaving:
            return
        # What was scrolled past is fetched again when it is come near to.
        count = max(PAGE, self.sessions.seen_items, self.sessions.cursor + 1)
        if self._fetch(lambda: self._listing.reload(count)):
            self._list_fetched()
        self._refresh_state()

    def on_line_list_more_wanted(self, message: SessionList.MoreWanted) -> None:
        count = message.count - len(self._rows) + len(self._listing.rows)
        if self._fetch(lambda: self._listing.more(count)):
            self._list_fetched()

    def _fetch(self, fetch: Callable[[], object]) -> bool:
        """Whether the list was read anew; one that cannot be read stays as it is, and the chat goes on."""
        try:
            fetched = fetch()
        except Ds4chatError as error:
            if str(error) != self._list_fault:
                self._list_fault = str(error)
                self.tell(error)
            return False
        self._list_fault = ""
        return fetched is not False

    def _list_fetched(self) -> None:
        self._infos = {info.id: info for info in self._listing.infos}
        hidden = self._incognito_rows()
        self._rows = [*hidden, *self._listing.rows]
        self.sessions.set_rows(self._rows, len(hidden) + self._listing.total)

    def _incognito_rows(self) -> list[Row]:
        """Chats that are nowhere but here: only this list leads back to them."""
        now = time.time()
        return [
            Row(view.session.id, view.session.title, age(max(now - view.session.updated, 0)), group=INCOGNITO)
            for view in self._views
            if view.incognito and not view.is_new
        ]

    def _forget_rows(self, session_id: str) -> None:
        self._unread.discard(session_id)
        self._infos.pop(session_id, None)
