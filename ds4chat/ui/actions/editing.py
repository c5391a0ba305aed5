"""Editing an earlier message: its text in the prompt box, and the text that stood there, which is given back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ds4chat.sessions.session import Session
from ds4chat.ui import attachments
from ds4chat.ui.screens.viewing import ViewingScreen

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager


@dataclass(frozen=True)
class Edit:
    """A message that is being written anew. `kept` stood in the prompt box before."""

    message_id: int
    text: str
    kept: str


class EditingActions(ViewingScreen):
    """The part of the chat screen that knows whether a message is being edited: one at most in each session."""

    def __init__(self, manager: SessionManager, *, session_id: str | None = None, pick: bool = False) -> None:
        super().__init__(manager, session_id=session_id, pick=pick)
        self._edits: dict[str, Edit] = {}

    def _show(self, session: Session, read_only: bool = False) -> None:
        super()._show(session, read_only)
        self._show_editing()

    @property
    def editing(self) -> int | None:
        """Id of the message that is being edited in the session on the screen."""
        edit = self._edits.get(self.current_id)
        return edit.message_id if edit is not None else None

    def begin_edit(self, message_id: int) -> None:
        """Put a message of the user's into the prompt box, to be sent anew."""
        view = self._views.current
        if view is None or message_id not in view.session.messages:
            return
        if view.read_only:
            self.say("read only: F5 goes on in a copy")
            return
        before = self._edits.get(self.current_id)
        text = attachments.collapse(view.session.messages[message_id].text)
        kept = before.kept if before is not None else self.prompt.text
        self._edits[self.current_id] = Edit(message_id, text, kept)
        self.prompt.put(text)
        self.set_focus(self.prompt)
        self._show_editing()

    def send_edit(self, session_id: str, text: str) -> bool:
        """Send what was edited; whether anything was being edited. Raises Ds4chatError, and the edit goes on."""
        edit = self._edits.get(session_id)
        if edit is None:
            return False
        self.manager.edit_message(session_id, edit.message_id, text)
        del self._edits[session_id]
        if session_id == self.current_id:
            typed = self.prompt.text
            self.prompt.put("\n".join(part for part in (edit.kept, typed) if part))
            self._show_editing()
            self.transcript.follow_end()
        return True

    def give_up_edit(self) -> None:
        """Leave the message as it is; what was written in its place can be brought back."""
        edit = self._edits.pop(self.current_id, None)
        if edit is None:
            return
        written = self.prompt.text
        self.prompt.put(edit.kept)
        self._show_editing()
        if written != edit.text:
            self.undo.append(partial(self._edit_again, self.current_id, edit, written))
            self.say("the message stays as it was · Alt+Z brings back what you wrote")
        else:
            self.say("the message stays as it was")

    def _edit_again(self, session_id: str, edit: Edit, written: str) -> None:
        if session_id == self.current_id or self.open(session_id):
            self.begin_edit(edit.message_id)
            if self.editing is not None:
                self.prompt.put(written)

    def draft_text(self) -> str:
        """An edit that never was sent must not cost what stood in the box before it."""
        edit = self._edits.get(self.current_id)
        written = super().draft_text()
        if edit is None:
            return written
        return "\n\n".join(part for part in (edit.kept, written if written != edit.text else "") if part)

    def _show_editing(self) -> None:
        """Say above the prompt box that it holds an earlier message."""
        view, message_id = self._views.current, self.editing
        self.prompt.set_class(message_id is not None, "-editing")
        title = ""
        if view is not None and message_id is not None:
            mine = [message.id for message in view.session.path() if message.role == "user"]
            which = f" {mine.index(message_id) + 1} of {len(mine)}" if message_id in mine else ""
            title = f"editing your message{which} · Esc gives up"
        self.prompt.border_title = title
