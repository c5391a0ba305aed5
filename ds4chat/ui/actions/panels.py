"""Panels: the screens that open over the chat and are not about its messages."""

from __future__ import annotations

from ds4chat.ui.keys import key
from ds4chat.ui.screens.viewing import ViewingScreen

KEYS = [
    key("f1", "help", "Help", "chat.help", "All keys.", show=True),
]


class PanelActions(ViewingScreen):
    """The part of the chat screen that opens others."""

    def action_help(self) -> None:
        # It shows all bindings, these among them.
        from ds4chat.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen())
