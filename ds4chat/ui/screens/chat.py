"""The chat screen: what the keys do with the session that is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding
from textual.widgets import TextArea

from ds4chat.errors import Ds4chatError
from ds4chat.sessions.session import is_unfinished
from ds4chat.ui.messages import PromptSubmitted, SessionChosen
from ds4chat.ui.palette import Palette
from ds4chat.ui.screens.bindings import CHAT_BINDINGS
from ds4chat.ui.screens.confirm import ConfirmScreen
from ds4chat.ui.screens.help import HelpScreen
from ds4chat.ui.screens.rename import RenameScreen
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.screens.viewing import ViewingScreen, rows_of
from ds4chat.ui.styles import stylesheet

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

NOT_COMMANDS = ("chat.pageup", "chat.pagedown", "chat.up", "chat.down", "chat.list", "chat.number")
"""Keys that make no sense in the command palette."""


class ChatScreen(ViewingScreen):
    """The one screen below all dialogs."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = CHAT_BINDINGS

    def __init__(self, manager: SessionManager, *, session_id: str | None = None, pick: bool = False) -> None:
        super().__init__(manager, session_id=session_id)
        self._pick = pick

    def begin(self, palette: Palette) -> None:
        super().begin(palette)
        if self._pick:
            self.action_switch()

    def commands(self) -> Iterable[SystemCommand]:
        """The actions that make sense now, for the command palette."""
        for binding in CHAT_BINDINGS:
            if not isinstance(binding, Binding):
                continue
            action, _, argument = binding.action.rstrip(")").partition("(")
            parameters = (int(argument),) if argument else ()
            if not (binding.id or "").startswith(NOT_COMMANDS) and self.check_action(action, parameters):
                yield SystemCommand(
                    binding.description, binding.tooltip, partial(self.run_action, f"screen.{binding.action}")
                )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions that would do nothing now are not offered."""
        view = self._views.current
        if action == "continue_reply":
            return view is not None and not view.read_only and is_unfinished(view.session.path()[-1:])
        if action == "stop":
            # At rest Esc only leads back to the prompt box.
            return self.focused is not self.prompt or self.manager.is_busy(self.current_id)
        if action in ("fork", "rename", "delete"):
            return view is not None and not view.is_new and (action == "fork" or not view.read_only)
        return super().check_action(action, parameters)

    # -- writing

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        text = message.text.rstrip().lstrip("\n")
        view = self._views.current
        if view is None or self._leaving:
            self.prompt.give_back(message.text)
            return
        if self.manager.is_read_only(message.session_id):
            self.say("read only: F5 goes on in a copy")
            self.prompt.give_back(message.text)
            return
        try:
            self.manager.send(message.session_id or view.session.id, text)
        except Ds4chatError as error:
            self.tell(error)
            self.prompt.give_back(message.text)
            return
        self.prompt.history_texts.append(text)
        self._refresh_state()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if self.prompt.text:
            self._rest()

    def on_key(self, event: events.Key) -> None:
        """What is typed while the transcript has the focus goes to the prompt box."""
        if event.is_printable and event.character and self.focused is self.transcript:
            self.prompt.focus()
            self.prompt.insert(event.character)
            event.stop()

    def action_stop(self) -> None:
        """Esc: back to the prompt box; from there, stop this session's reply. What is typed stays."""
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif self.current_id and self.manager.is_busy(self.current_id):
            self.manager.stop(self.current_id)

    def action_continue_reply(self) -> None:
        try:
            self.manager.continue_reply(self.current_id)
        except Ds4chatError as error:
            self.tell(error)
        else:
            self.transcript.follow_end()

    # -- going from session to session

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

    # -- reading

    def action_scroll_page(self, by: int) -> None:
        self.transcript.scroll_relative(y=by * max(self.transcript.size.height - 2, 1), animate=False)

    def action_scroll_lines(self, by: int) -> None:
        self.transcript.scroll_relative(y=by, animate=False)

    def action_scroll_to_start(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_scroll_to_end(self) -> None:
        self.transcript.follow_end()

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen())
