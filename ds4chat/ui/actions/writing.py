"""Writing: what is sent, stopped, continued, and where it is written."""

from __future__ import annotations

import os

from textual import events
from textual.app import SuspendNotSupported
from textual.content import Content
from textual.widgets import TextArea

from ds4chat.errors import Ds4chatError
from ds4chat.sessions.session import is_unfinished
from ds4chat.ui import attachments
from ds4chat.ui.actions.commanding import CommandActions
from ds4chat.ui.actions.editing import EditingActions
from ds4chat.ui.commands import Slash, find, read
from ds4chat.ui.keys import key
from ds4chat.ui.messages import PromptSubmitted, SuggestionChosen, SuggestionsChanged
from ds4chat.ui.text import one_line
from ds4chat.ui.widgets.prompt_box import PromptBox, pasted
from ds4chat.ui.widgets.suggestion_list import SuggestionList

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
    key("alt+e", "editor", "Editor", "chat.editor", "Write in your own editor ($VISUAL or $EDITOR)."),
]


class WritingActions(CommandActions, EditingActions):
    """The part of the chat screen that writes."""

    def on_mount(self) -> None:
        self.suggestion_list = self.query_one(SuggestionList)
        prompt = self.query_one(PromptBox)
        prompt.recall.stored, prompt.completer = self._history, self.suggest
        self.app.app_resume_signal.subscribe(self, lambda _: self._paint_all())

    def _paint_all(self) -> None:
        """Another program had the terminal: of what stood there nothing is left, and Textual paints what changed."""
        for screen in self.app.screen_stack:
            screen.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._views.current
        if action == "continue_reply":
            return view is not None and not view.read_only and is_unfinished(view.session.path()[-1:])
        if action == "stop":
            # At rest Esc only leads back to the prompt box.
            busy = self.manager.is_busy(self.current_id)
            return self.focused is not self.prompt or self.editing is not None or busy
        return super().check_action(action, parameters)

    async def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        view = self._views.current
        if view is None or self._leaving:
            self.prompt.give_back(message.text)
            return
        session_id = message.session_id or view.session.id
        meant = self._read(message.text.rstrip().lstrip("\n"))
        try:
            if isinstance(meant, Slash):
                await self.run_slash(meant, session_id)
                return
            if self.manager.is_read_only(session_id):
                self.say("read only: F5 goes on in a copy")
                self.prompt.give_back(message.text)
                return
            text = attachments.expand(meant)
            if not self.send_edit(session_id, text):
                self.manager.send(session_id, text)
        except Ds4chatError as error:
            self.tell(error)
            self.prompt.give_back(message.text)
            return
        self._refresh_state()

    def _read(self, text: str) -> Slash | str:
        """A command, or the text to send. What names a file ("/tmp is full") is text, unless it is a command."""
        meant = read(text)
        if isinstance(meant, Slash) and find(meant.name, self.slash_commands()) is None:
            return text if os.path.lexists(text.split()[0]) else meant
        return meant

    def _history(self, limit: int) -> list[str]:
        """What was sent in all chats, newest first, as it was typed."""
        try:
            return [attachments.collapse(text) for text in self.manager.prompt_history(limit)]
        except Ds4chatError as error:
            self.tell(error)
            return []

    def on_suggestions_changed(self, message: SuggestionsChanged) -> None:
        self.suggestion_list.show_suggestions(message.suggestions, message.chosen)

    def on_suggestion_chosen(self, message: SuggestionChosen) -> None:
        self.prompt.accept(message.index)
        self.prompt.focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        text = self.prompt.text
        if text:
            self._rest()
        # A title would be read as markup.
        self.prompt.border_subtitle = (
            Content(one_line(attachments.describe(text))).markup if "@" in text else ""
        )

    def on_key(self, event: events.Key) -> None:
        """What is typed while the transcript has the focus goes to the prompt box."""
        if getattr(self.app, "modal_keys", False):
            return
        if (
            event.is_printable
            and event.character
            and self.focused is self.transcript
            and not self._is_bound(event.key)
        ):
            self.set_focus(self.prompt)
            self.prompt.insert(event.character)
            event.stop()

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted elsewhere goes to the prompt box too."""
        if self.focused is not self.prompt:
            event.stop()
            self.set_focus(self.prompt)
            self.prompt.insert(pasted(event.text))

    def _is_bound(self, key: str) -> bool:
        """Whether a letter is a key here, as in the vim preset, or of a chosen message."""
        active = self.active_bindings.get(key)
        return active is not None and (active.node is not self.transcript or self.transcript.takes(key))

    def action_stop(self) -> None:
        """Esc: back to the prompt box; from there, stop this session's reply. What is typed stays."""
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif self.editing is not None:
            self.give_up_edit()
        elif self.current_id and self.manager.is_busy(self.current_id):
            self.manager.stop(self.current_id)

    def action_continue_reply(self) -> None:
        try:
            self.manager.continue_reply(self.current_id)
        except Ds4chatError as error:
            self.tell(error)
        else:
            self.transcript.follow_end()

    def action_editor(self) -> None:
        """Write the text in the box in an editor of the user's own; replies go on meanwhile."""
        self.run_worker(self._write_outside(), name="editor", group="editor", exit_on_error=False)

    async def _write_outside(self) -> None:
        from ds4chat.ui import editor

        text = self.prompt.text
        try:
            command = editor.find_editor(os.environ)
            with self.app.suspend():
                try:
                    edited = await editor.edit(command, text)
                except Ds4chatError as error:
                    edited = editor.Edited(text, str(error))
        except SuspendNotSupported:
            edited = editor.Edited(text, "An editor cannot be opened from this terminal.")
        except Ds4chatError as error:
            edited = editor.Edited(text, str(error))
        self.call_later(self._take_edited, text, edited.text, edited.problem)

    def _take_edited(self, before: str, text: str, problem: str) -> None:
        if text != before:
            typed = self.prompt.text.removeprefix(before) if self.prompt.text != before else ""
            self.prompt.put(text + typed)
        if problem:
            self.notify(problem, severity="error", markup=False, timeout=10)
        self.prompt.focus()
