"""Choosing a session by a few letters of its title or a tag, and doing something with it on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from ds4chat.ui.finding import Finder, read_query
from ds4chat.ui.listing import Listing, Marks, Row
from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.screens.early_keys import EarlyKeys
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.widgets.dialog_input import DialogInput
from ds4chat.ui.widgets.session_list import SessionList

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

STEP = 1000
"""Sessions that are looked through between two keys."""

MARKS_SECONDS = 0.5

TALL = 16
"""Lines of a screen that has room for more than the list."""

TALL_FRAME, SHORT_FRAME = 10, 3
"""Lines of the screen that are not the list's."""

HINT = "Letters of a title, or #tag"


class Host(Protocol):
    """What the switcher asks of the chat screen."""

    @property
    def marks(self) -> Marks: ...

    def pin(self, session_id: str, pinned: bool) -> None: ...

    def archive(self, session_id: str, archived: bool) -> None: ...

    def trash(self, session_id: str, title: str) -> None: ...

    def rename(self, session_id: str, title: str) -> None: ...

    def tag(self, session_id: str, tags: Sequence[str]) -> None: ...

    def action_undo(self) -> None: ...


class FilterInput(DialogInput):
    """An input in which a number, typed first, is not text."""

    class NumberPressed(Message):
        """1 to 9 was pressed while the input was empty."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    async def on_key(self, event: events.Key) -> None:
        if not self.value and event.character and event.character in "123456789":
            event.stop()
            event.prevent_default()
            self.post_message(self.NumberPressed(int(event.character)))


def _key(
    key: str, action: str, description: str, name: str, tooltip: str, *, priority: bool = False
) -> Binding:
    return Binding(
        key, action, description, id=f"switcher.{name}", tooltip=tooltip, show=False, priority=priority
    )


class SwitcherScreen(EarlyKeys[str | None]):
    """Ends with a session's id, "" for a new one, None when the user changed their mind."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#filter"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]
    BINDINGS = [
        _key("escape", "dismiss(None)", "Close", "close", "Stay where you are."),
        _key("ctrl+n", "new", "New chat", "new", "Start a new chat."),
        _key("up", "move(-1)", "Up", "up", "One up.", priority=True),
        _key("down", "move(1)", "Down", "down", "One down.", priority=True),
        _key("pageup", "page(-1)", "Page up", "pageup", "One page up."),
        _key("pagedown", "page(1)", "Page down", "pagedown", "One page down."),
        _key("f6", "pin", "Pin", "pin", "Keep the chat under the cursor on top, or no longer."),
        _key(
            "f7",
            "archive",
            "Archive",
            "archive",
            "Put the chat under the cursor into the archive, or take it out.",
        ),
        _key("f8", "delete", "Delete", "delete", "Delete the chat under the cursor; Alt+Z brings it back."),
        _key("f9", "rename", "Rename", "rename", "Give the chat under the cursor another title."),
        _key("alt+t", "tags", "Tags", "tags", "Give the chat under the cursor tags."),
        _key("alt+z", "undo", "Undo", "undo", "Bring back what was deleted last."),
        _key("alt+a", "toggle_archived", "Archived", "archived", "Show archived chats too, or no longer."),
    ]

    def __init__(
        self, manager: SessionManager, host: Host, current: str, *, query: str = "", extra: Iterable[Row] = ()
    ) -> None:
        """`extra` are rows above those of the manager: chats it does not list."""
        super().__init__()
        self._manager, self._host, self._current, self._query = manager, host, current, query
        self._extra = list(extra)
        self._archived = False
        self.listing = Listing(manager)
        self._finder = Finder()

    def compose(self) -> ComposeResult:
        with Vertical(id="switcher") as box:
            box.border_title = "Open a chat"
            yield FilterInput(self._query, placeholder=HINT, id="filter", select_on_focus=False)
            yield SessionList(always_cursor=True, id="found")
            yield Static("", id="nothing", markup=False)
            yield Static("", id="keys", markup=False)

    def on_mount(self) -> None:
        found = self.query_one(SessionList)
        found.can_focus = False
        found.current = self._current
        self._say_keys()
        self._reload()
        # Who opens the list wants another session than the one on the screen.
        if not self._query and len(found.rows) > 1 and found.rows[0].session_id == self._current:
            found.cursor = 1
        self.set_interval(MARKS_SECONDS, self._refresh_marks)

    def on_screen_resume(self) -> None:
        if self.listing.total:
            self._reload()

    def _say_keys(self) -> None:
        archived = "hide archived" if self._archived else "archived too"
        keys = f"F6 pin · F7 archive · F8 delete · F9 rename · Alt+T tags · Alt+A {archived}"
        self.query_one("#keys", Static).update(keys)
        self.query_one("#switcher").border_subtitle = "1–9 or Enter opens · Ctrl+N new · Esc"

    # -- what is listed

    def _reload(self) -> None:
        """Read the list again and stay on the session under the cursor, or where it was."""
        found = self.query_one(SessionList)
        chosen, at = found.chosen, found.cursor
        self._finder = Finder()
        if self.listing.infos:
            self.listing.reload(len(self.listing.infos))
        else:
            self.listing.reload()
        self._show()
        found.cursor = at
        if chosen is not None:
            found.move_to(chosen.session_id)

    def _rows(self) -> list[Row]:
        return [*self._extra, *self.listing.rows]

    def _show(self) -> None:
        """Show what fits the filter; what was not fetched yet is looked through bit by bit."""
        found = self.query_one(SessionList)
        found.numbered = not self._query
        self._refresh_marks()
        if not read_query(self._query):
            self._show_rows(self._rows(), len(self._extra) + self.listing.total)
            return
        self._finder.add(self._rows()[len(self._finder) :])
        self._show_rows(self._finder.find(self._query))
        if not self.listing.complete:
            self.call_later(self._look_further, self._query)

    def _look_further(self, typed: str) -> None:
        """Look through another part of the list, unless another letter was typed."""
        if typed != self._query or not self.is_attached:
            return
        self.listing.more(len(self.listing.infos) + STEP)
        self._finder.add(self._rows()[len(self._finder) :])
        self._show_rows(self._finder.find(typed))
        if not self.listing.complete:
            self.call_later(self._look_further, typed)

    def _show_rows(self, rows: Sequence[Row], total: int | None = None) -> None:
        found = self.query_one(SessionList)
        found.set_rows(rows, total)
        self._fit()
        self.set_class(not rows, "-nothing")
        words = "No chat with these letters" if self._query else "No chats yet"
        if self._query and not self._archived:
            words += " · Alt+A looks among the archived too"
        self.query_one("#nothing", Static).update(words)

    def _fit(self) -> None:
        """The box is as high as its list, as far as the screen goes."""
        found = self.query_one(SessionList)
        height = self.app.size.height
        room = height - (TALL_FRAME if height >= TALL else SHORT_FRAME)
        found.styles.height = max(min(found.line_count, room), 1)

    def on_resize(self) -> None:
        self._fit()

    def _refresh_marks(self) -> None:
        self.query_one(SessionList).set_marks(self._host.marks)

    def on_line_list_more_wanted(self, message: SessionList.MoreWanted) -> None:
        message.stop()
        if not self._query and self.listing.more(message.count - len(self._extra)):
            rows = self._rows()
            self._show_rows(rows, len(self._extra) + self.listing.total)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            self.query_one(SessionList).cursor = 0
            self._show()

    # -- choosing

    def on_input_submitted(self, event: Input.Submitted) -> None:
        # What was typed with Enter in one burst counts, shown or not.
        self.on_input_changed(Input.Changed(event.input, event.value))
        self.query_one(SessionList).action_choose()

    def on_filter_input_number_pressed(self, message: FilterInput.NumberPressed) -> None:
        self.query_one(SessionList).action_number(message.number)

    def on_session_chosen(self, message: SessionChosen) -> None:
        message.stop()
        self.dismiss(message.session_id)

    def action_new(self) -> None:
        self.dismiss("")

    def action_move(self, by: int) -> None:
        self.query_one(SessionList).action_move(by)

    def action_page(self, by: int) -> None:
        self.query_one(SessionList).action_page(by)

    # -- doing something with the session under the cursor

    @property
    def _chosen(self) -> Row | None:
        return self.query_one(SessionList).chosen

    def action_toggle_archived(self) -> None:
        self._archived = not self._archived
        self.listing = Listing(self._manager, archived=self._archived)
        self._say_keys()
        self._reload()
        self.query_one(SessionList).cursor = 0

    def action_pin(self) -> None:
        if row := self._chosen:
            self._host.pin(row.session_id, not row.pinned)
            self._reload()

    def action_archive(self) -> None:
        if row := self._chosen:
            self._host.archive(row.session_id, not row.archived)
            self._reload()

    def action_delete(self) -> None:
        if row := self._chosen:
            self._host.trash(row.session_id, row.title)
            self._extra = [other for other in self._extra if other.session_id != row.session_id]
            self._reload()

    def action_undo(self) -> None:
        self._host.action_undo()
        self._reload()

    def action_rename(self) -> None:
        if row := self._chosen:
            self._host.rename(row.session_id, row.title)

    def action_tags(self) -> None:
        if row := self._chosen:
            self._host.tag(row.session_id, row.tags)
