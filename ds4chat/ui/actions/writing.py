"""Writing: what is sent, stopped, continued."""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea

from ds4chat.errors import Ds4chatError
from ds4chat.sessions.session import is_unfinished
from ds4chat.ui.keys import key
from ds4chat.ui.messages import PromptSubmitted
from ds4chat.ui.screens.viewing import ViewingScreen

KEYS = [
    key("escape", "stop", "Stop", "chat.stop", "Stop the reply; what was written stays.", show=True),
    key(
        "ctrl+g",
        "continue_reply",
        "Continue",
        "chat.continue",
        "Go on with a reply that was cut off.",
        show=True,
    ),
]


class WritingActions(ViewingScreen):
    """The part of the chat screen that writes."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._views.current
        if action == "continue_reply":
            return view is not None and not view.read_only and is_unfinished(view.session.path()[-1:])
        if action == "stop":
            # At rest Esc only leads back to the prompt box.
            return self.focused is not self.prompt or self.manager.is_busy(self.current_id)
        return super().check_action(action, parameters)

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
