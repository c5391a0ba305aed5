"""The chat screen: what is looked at, and what the keys do with it, put together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.binding import Binding

from ds4chat.ui.actions.looks import LookActions
from ds4chat.ui.actions.messages import MessageActions
from ds4chat.ui.actions.panels import PanelActions
from ds4chat.ui.actions.reading import ReadingActions
from ds4chat.ui.actions.sessions import SessionActions
from ds4chat.ui.actions.tools import ToolActions
from ds4chat.ui.actions.writing import WritingActions
from ds4chat.ui.palette import Palette
from ds4chat.ui.screens.bindings import CHAT_BINDINGS
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.widgets.choosing import MESSAGE_KEYS

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

NOT_COMMANDS = (
    *("chat.pageup", "chat.pagedown", "chat.up", "chat.down", "chat.list", "chat.number"),
    *("message.up", "message.down", "message.first", "message.last", "message.back"),
)
"""Keys that make no sense in the command palette."""


class ChatScreen(
    ToolActions, WritingActions, SessionActions, MessageActions, PanelActions, LookActions, ReadingActions
):
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
        for binding in MESSAGE_KEYS:
            action, _, argument = binding.action.removeprefix("screen.").rstrip(")").partition("(")
            parameters = (int(argument),) if argument else ()
            if (binding.id or "") not in NOT_COMMANDS and self.check_action(action, parameters):
                title = f"Message: {binding.description}"
                yield SystemCommand(title, binding.tooltip, partial(self.run_action, binding.action))
