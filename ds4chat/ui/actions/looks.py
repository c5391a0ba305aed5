"""Looks: the themes, and what the presets of keys need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds4chat.errors import Ds4chatError
from ds4chat.ui.keys import NO_KEY, key
from ds4chat.ui.screens.viewing import ViewingScreen

if TYPE_CHECKING:
    from ds4chat.ui.desk import Desk

KEYS = [
    key("alt+l", "themes", "Themes", "chat.themes", "Choose how the screen looks, with a preview."),
    key(
        NO_KEY,
        "choose_when_empty",
        "Leave box",
        "chat.normal",
        "From an empty box to the messages, as in vim.",
    ),
]


class LookActions(ViewingScreen):
    """The part of the chat screen that changes how it looks."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "choose_when_empty":
            return self.focused is self.prompt and not self.prompt.text
        return super().check_action(action, parameters)

    async def action_choose_when_empty(self) -> None:
        await self.run_action("choose_message")

    def action_themes(self) -> None:
        from ds4chat.ui.screens.themes import ThemesScreen

        before = self.app.theme

        def end(name: str | None) -> None:
            # A theme can go away while it is looked at: its file was deleted.
            if name is None and before in self.app.available_themes:
                self.app.theme = before
            elif name is not None and name != before:
                self.run_worker(
                    lambda: self._keep_theme(name), thread=True, group="theme", exit_on_error=False
                )

        self.app.push_screen(ThemesScreen(before), end)

    def _keep_theme(self, name: str) -> None:
        """In a thread: it writes a file."""
        desk: Desk | None = getattr(self.app, "desk", None)
        if desk is None:
            return
        try:
            desk.save_setting("chat", "theme", name)
        except Ds4chatError as error:
            self.app.call_from_thread(self.tell, error)
        else:
            self.app.call_from_thread(self.say, f"theme {name}, also from now on")
