"""Panels: the screens that open over the chat and are not about its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ds4chat.errors import Ds4chatError
from ds4chat.ui.keys import key
from ds4chat.ui.screens.viewing import ViewingScreen

if TYPE_CHECKING:
    from ds4chat.personas import Persona
    from ds4chat.ui.desk import Desk
    from ds4chat.ui.screens.chat_settings import ChatSettings

KEYS = [
    key("f1", "help", "Help", "chat.help", "All keys.", show=True),
    key("alt+s", "settings", "Settings", "chat.settings", "Settings of this chat and of all chats."),
    key("alt+m", "models", "Model", "chat.models", "Choose the model that answers in this chat."),
    key(
        "alt+p",
        "personas",
        "Persona",
        "chat.personas",
        "Give this chat a persona: a system prompt with parameters.",
    ),
    key("alt+y", "system", "System prompt", "chat.system", "Write what the model is told before this chat."),
    key(
        "alt+k",
        "checkpoints",
        "Checkpoints",
        "chat.checkpoints",
        "What is on disk of each chat, and its budget.",
    ),
]


class PanelActions(ViewingScreen):
    """The part of the chat screen that opens others. They are loaded when they are opened."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("models", "personas", "checkpoints"):
            return self.desk is not None and self._views.current is not None
        if action in ("settings", "system"):
            return self._views.current is not None
        return super().check_action(action, parameters)

    @property
    def desk(self) -> Desk | None:
        """What answers for config.toml, models and checkpoints; None where nobody brought one."""
        return getattr(self.app, "desk", None)

    def action_help(self) -> None:
        # It shows all bindings, these among them.
        from ds4chat.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen())

    def action_settings(self) -> None:
        from ds4chat.ui.screens.settings import SettingsScreen

        if view := self._views.current:
            self.app.push_screen(
                SettingsScreen(self.manager, view.session, self.desk, read_only=view.read_only)
            )

    def action_checkpoints(self) -> None:
        from ds4chat.ui.screens.checkpoints import CheckpointsScreen

        if self.desk is not None:
            self.app.push_screen(CheckpointsScreen(self.desk, self.current_id))

    def action_models(self) -> None:
        from ds4chat.ui.screens.models import ModelsScreen

        chat = self._settings_of_chat()
        if self.desk is None or chat is None:
            return

        def take(path: str | None) -> None:
            if path is not None:
                try:
                    chat.set_model(path)
                except Ds4chatError as error:
                    self.tell(error)
                    return
                computed = "the chat is computed once with the new model"
                self.say(computed if chat.session.messages else "the next message goes to the new model")

        self.app.push_screen(ModelsScreen(self.desk, self._model_path(chat), chat.other_model()), take)

    def _model_path(self, chat: ChatSettings) -> str:
        """Of the model this chat is answered by, "" when unknown."""
        effective = self.manager.effective(chat.session.id)
        return chat.session.model_path or str(effective.get("model_path") or "")

    def action_personas(self) -> None:
        from ds4chat.ui.screens.personas import PersonasScreen

        chat, desk = self._settings_of_chat(), self.desk
        if desk is None or chat is None:
            return
        view = self._views.current
        mine = None if view is None or view.read_only else chat.as_persona()
        current = str(chat.session.params.get("persona") or "")

        def take(persona: Persona | None) -> None:
            if persona is not None:
                try:
                    chat.personas = screen.personas
                    chat.give_persona(persona)
                except Ds4chatError as error:
                    self.tell(error)
                else:
                    self.say(f"this chat has the persona {persona.name}")

        screen = PersonasScreen(desk, current, mine, chat.recompute())
        self.app.push_screen(screen, take)

    def action_system(self) -> None:
        from ds4chat.ui.screens.ask import TextScreen

        chat, view = self._settings_of_chat(), self._views.current
        if chat is None or view is None:
            return
        if view.read_only:
            self.say("read only: F5 goes on in a copy")
            return

        def take(text: str | None) -> None:
            if text is not None:
                try:
                    chat.set_system(text)
                except Ds4chatError as error:
                    self.tell(error)

        self.app.push_screen(
            TextScreen("System prompt of this chat", chat.session.system, chat.recompute), take
        )

    def _settings_of_chat(self) -> ChatSettings | None:
        from ds4chat.ui.screens.chat_settings import ChatSettings

        view = self._views.current
        return ChatSettings(self.manager, view.session) if view else None
