"""Sessions: going from one to another, and what can be done with one as a whole."""

from __future__ import annotations

from ds4chat.errors import Ds4chatError
from ds4chat.ui.keys import key
from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.screens.confirm import ConfirmScreen
from ds4chat.ui.screens.rename import RenameScreen
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.screens.viewing import ViewingScreen, rows_of

KEYS = [
    key("ctrl+n", "new_chat", "New", "chat.new", "Start a new chat.", show=True),
    key("ctrl+o", "switch", "Open", "chat.switch", "Find a chat by a few letters of its title.", show=True),
    key("ctrl+b", "toggle_sidebar", "Chats", "chat.sidebar", "Show or hide the list of chats.", show=True),
    key("f5", "fork", "Fork", "chat.fork", "Go on in a copy of this chat."),
    key("f2", "focus_list", "To the list", "chat.list", "Go to the list of chats; 1 to 9 there open one."),
    key("f3,alt+up", "step(-1)", "Newer chat", "chat.newer", "The chat above in the list (also Alt+Up)."),
    key("f4,alt+down", "step(1)", "Older chat", "chat.older", "The chat below in the list (also Alt+Down)."),
    *(
        key(f"alt+{n}", f"number({n})", f"Chat {n}", f"chat.number{n}", f"Open chat number {n} of the list.")
        for n in range(1, 10)
    ),
    key("f9", "rename", "Rename", "chat.rename", "Give this chat another title."),
    key("f8", "delete", "Delete", "chat.delete", "Delete this chat, after asking."),
]


class SessionActions(ViewingScreen):
    """The part of the chat screen that goes from session to session."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._views.current
        if action in ("fork", "rename", "delete"):
            return view is not None and not view.is_new and (action == "fork" or not view.read_only)
        return super().check_action(action, parameters)

    def on_session_chosen(self, message: SessionChosen) -> None:
        self._go(message.session_id)

    def _go(self, session_id: str | None) -> None:
        if session_id:
            self.open(session_id)
        elif session_id == "":
            self.open_new()

    def action_new_chat(self) -> None:
        self.open_new()

    def action_switch(self) -> None:
        rows = rows_of(self.manager.list_sessions())
        self.app.push_screen(SwitcherScreen(rows, self.manager.busy_sessions(), self.current_id), self._go)

    def action_step(self, by: int) -> None:
        ids = [row.session_id for row in self._rows]
        if not ids:
            return
        at = ids.index(self.current_id) + by if self.current_id in ids else (0 if by > 0 else len(ids) - 1)
        if 0 <= at < len(ids):
            self.open(ids[at])

    def action_number(self, number: int) -> None:
        if number <= len(self._rows):
            self.open(self._rows[number - 1].session_id)

    def action_toggle_sidebar(self) -> None:
        wide = self.has_class("-wide")
        self.toggle_class("-no-sidebar" if wide else "-sidebar")
        if not self._sidebar_shown and self.focused is self.sessions:
            self.prompt.focus()

    @property
    def _sidebar_shown(self) -> bool:
        return not self.has_class("-no-sidebar") if self.has_class("-wide") else self.has_class("-sidebar")

    def action_focus_list(self) -> None:
        if not self._sidebar_shown:
            self.action_toggle_sidebar()
        self.sessions.focus()

    def action_fork(self) -> None:
        try:
            session = self.manager.fork_session(self.current_id)
        except Ds4chatError as error:
            self.tell(error)
        else:
            draft = self.prompt.text
            self.open(session.id)
            self.prompt.put(draft)
            self.say("this is a copy")

    def action_rename(self) -> None:
        session_id = self.current_id
        info = self._infos.get(session_id)

        def rename(title: str | None) -> None:
            if title:
                try:
                    self.manager.rename_session(session_id, title)
                except Ds4chatError as error:
                    self.tell(error)

        self.app.push_screen(RenameScreen(info.title if info else ""), rename)

    def action_delete(self) -> None:
        session_id = self.current_id
        info = self._infos.get(session_id)
        title = (info.title if info else "") or "this chat"

        def delete(sure: bool | None) -> None:
            if sure:
                try:
                    self.manager.delete_session(session_id)
                except Ds4chatError as error:
                    self.tell(error)
                    return
                self.forget(session_id)

        self.app.push_screen(ConfirmScreen(f"Delete “{title}”? It cannot be brought back."), delete)
