"""Sessions: going from one to another, and what can be done with one as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ds4chat.errors import Ds4chatError
from ds4chat.ui.keys import key
from ds4chat.ui.messages import SessionChosen
from ds4chat.ui.screens.viewing import ViewingScreen
from ds4chat.ui.text import clip, one_line

KEYS = [
    key("ctrl+n", "new_chat", "New", "chat.new", "Start a new chat.", show=True),
    key("ctrl+o", "switch", "Open", "chat.switch", "Find a chat by a few letters of its title.", show=True),
    key("ctrl+f", "search", "Search", "chat.search", "Find what was said, in all chats.", show=True),
    key("ctrl+b", "toggle_sidebar", "Chats", "chat.sidebar", "Show or hide the list of chats.", show=True),
    key("alt+n", "incognito", "Incognito", "chat.incognito", "Start a chat that leaves nothing behind."),
    key("f5", "fork", "Fork", "chat.fork", "Go on in a copy of this chat."),
    key("f2", "focus_list", "To the list", "chat.list", "Go to the list of chats; 1 to 9 there open one."),
    key("f3,alt+up", "step(-1)", "Newer chat", "chat.newer", "The chat above in the list (also Alt+Up)."),
    key("f4,alt+down", "step(1)", "Older chat", "chat.older", "The chat below in the list (also Alt+Down)."),
    *(
        key(f"alt+{n}", f"number({n})", f"Chat {n}", f"chat.number{n}", f"Open chat number {n} of the list.")
        for n in range(1, 10)
    ),
    key("f9", "rename", "Rename", "chat.rename", "Give this chat another title."),
    key("f6", "pin", "Pin", "chat.pin", "Keep this chat at the top of the list, or no longer."),
    key("f7", "archive", "Archive", "chat.archive", "Put this chat into the archive, or take it out."),
    key("alt+t", "tags", "Tags", "chat.tags", "Give this chat tags, to find it by."),
    key("f8", "delete", "Delete", "chat.delete", "Delete this chat; Alt+Z brings it back."),
    key("alt+z", "undo", "Undo", "chat.undo", "Bring back the chat or the turn that was deleted last."),
]

TITLE_CELLS = 40
"""Of a title in a notice."""


class SessionActions(ViewingScreen):
    """The part of the chat screen that goes from session to session."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._views.current
        if action in ("fork", "rename", "delete"):
            return view is not None and not view.is_new and (action == "fork" or not view.read_only)
        if action in ("pin", "archive", "tags"):
            return view is not None and not view.is_new and not view.read_only and not view.incognito
        if action == "undo":
            return bool(self.undo)
        return super().check_action(action, parameters)

    def _try(self, act: Callable[[], object]) -> bool:
        """Do something that may be refused; say why when it is."""
        try:
            act()
        except Ds4chatError as error:
            self.tell(error)
            return False
        return True

    # -- going

    def on_session_chosen(self, message: SessionChosen) -> None:
        self._go(message.session_id)

    def _go(self, session_id: str | None) -> None:
        if session_id:
            self.open(session_id)
        elif session_id == "":
            self.open_new()

    def action_new_chat(self) -> None:
        self.open_new()

    def action_incognito(self) -> None:
        self.open_new(incognito=True)

    def action_switch(self, query: str = "") -> None:
        # Read when it is first wanted: the first paint does not wait for it.
        from ds4chat.ui.screens.switcher import SwitcherScreen

        extra = self._incognito_rows()
        self.app.push_screen(
            SwitcherScreen(self.manager, self, self.current_id, query=query, extra=extra), self._go
        )

    def action_search(self, words: str | None = None) -> None:
        """Search; without `words` for what was searched last."""
        from ds4chat.ui.screens.search import SearchScreen

        screen = SearchScreen(self.manager, self._searched if words is None else words)

        def go(place: tuple[str, int] | None) -> None:
            self._searched = screen.words
            if place is not None:
                self.go_to(*place)

        self.app.push_screen(screen, go)

    _searched = ""

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

    # -- doing something with a session: with any of them, for the switcher, and with the one on the screen

    def rename(self, session_id: str, title: str) -> None:
        from ds4chat.ui.screens.rename import RenameScreen

        def rename(new: str | None) -> None:
            if new:
                self._try(lambda: self.manager.rename_session(session_id, new))

        self.app.push_screen(RenameScreen(title), rename)

    def pin(self, session_id: str, pinned: bool) -> None:
        if self._try(lambda: self.manager.pin_session(session_id, pinned)):
            self.say("pinned to the top of the list" if pinned else "no longer pinned")

    def archive(self, session_id: str, archived: bool) -> None:
        if self._try(lambda: self.manager.archive_session(session_id, archived)):
            self.say("archived: Ctrl+O, Alt+A shows it" if archived else "out of the archive again")

    def tag(self, session_id: str, tags: Sequence[str]) -> None:
        from ds4chat.ui.screens.tags import TagsScreen

        def set_tags(new: list[str] | None) -> None:
            if new is not None and self._try(lambda: self.manager.tag_session(session_id, new)):
                self._refresh_state()

        self.app.push_screen(TagsScreen(tags, self.manager.all_tags()), set_tags)

    def trash(self, session_id: str, title: str) -> None:
        """Delete a session so that it can be brought back while the program runs."""
        here = session_id == self.current_id
        if here:
            self._save_draft()
        if not self._try(lambda: self.manager.delete_session(session_id)):
            return
        self.forget(session_id)
        name = clip(one_line(title), TITLE_CELLS) or "this chat"

        def bring_back() -> None:
            self.manager.undelete_session(session_id)
            if here or self.app.screen is self:
                self.open(session_id)
            self.say(f"“{name}” is back")

        self.undo.append(bring_back)
        self.refresh_bindings()
        if self.app.screen is self:
            # In the status line, where what is said next takes its place.
            self.say(f"deleted “{name}” · Alt+Z brings it back")
        else:
            self.notify(f"Deleted “{name}”. Alt+Z brings it back.", markup=False)

    def action_rename(self) -> None:
        if (view := self._views.current) is not None:
            info = self._infos.get(self.current_id)
            self.rename(self.current_id, info.title if info else view.session.title)

    def action_pin(self) -> None:
        if (view := self._views.current) is not None:
            self.pin(self.current_id, not view.session.pinned)

    def action_archive(self) -> None:
        if (view := self._views.current) is not None:
            self.archive(self.current_id, not view.session.archived)

    def action_tags(self) -> None:
        if (view := self._views.current) is not None:
            self.tag(self.current_id, view.session.tags)

    def action_delete(self) -> None:
        if (view := self._views.current) is not None:
            info = self._infos.get(self.current_id)
            self.trash(self.current_id, info.title if info else view.session.title)

    def action_undo(self) -> None:
        """Bring back what was deleted last."""
        if self.undo:
            self._try(self.undo.pop())
            self.refresh_bindings()
        else:
            self.say("nothing was deleted")
