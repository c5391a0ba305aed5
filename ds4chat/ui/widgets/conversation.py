"""A session in the transcript: its messages as entries, kept in step with the manager's events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4chat.sessions.events import (
    ManagerEvent,
    MessageAdded,
    PromptProgress,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    WindowMoved,
)
from ds4chat.sessions.session import Message, Session
from ds4chat.ui.entries import Entry, MessageEntry, NoteEntry, ReplyEntry, RuleEntry, UserEntry
from ds4chat.ui.widgets.transcript import Transcript
from ds4chat.ui.wording import message_status

WINDOW_TEXT = "older messages no longer reach the model"


@dataclass(frozen=True)
class Note:
    """A sentence of the program within a conversation, after message `after_id` (None: before the first)."""

    after_id: int | None
    text: str
    severity: str = "information"


class Conversation(Transcript):
    """Reads the texts from the session itself, which the manager grows; an event only says that there is
    more.

    So a session opened in the middle of a reply shows each character once, whatever events are still on their
    way.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.session: Session | None = None
        """Name for replies that do not carry the name of their model."""
        self._rule = RuleEntry(WINDOW_TEXT)
        self._errors: dict[int, str] = {}
        self._ahead: dict[int, int] = {}
        self._progress: dict[str, tuple[int, int]] = {}

    def show_session(
        self, session: Session, notes: Sequence[Note] = (), place: tuple[int, int] | None = None
    ) -> None:
        """Show a session from its end, or from where `place` says the reader was."""
        self.session = session
        path = session.path()
        here = {message.id for message in path}
        entries: list[Entry] = []
        entries += [NoteEntry(n.text, n.severity) for n in notes if n.after_id not in here]
        for index, message in enumerate(path):
            if index and message.id == session.window_start_id:
                entries.append(self._rule)
            entries.append(self._entry(message))
            entries += [NoteEntry(n.text, n.severity) for n in notes if n.after_id == message.id]
        self.show(entries, place)

    def add_note(self, note: Note) -> None:
        """Show a sentence at the end."""
        self.add(NoteEntry(note.text, note.severity))

    def apply(self, event: ManagerEvent) -> None:
        """Take in an event; those of other sessions are only remembered as far as their marks go."""
        match event:
            case TurnQueued(message_id=message_id, ahead=ahead):
                self._ahead[message_id] = ahead
            case PromptProgress(session_id=session_id, done=done, total=total):
                self._progress[session_id] = (done, total)
            case TurnStarted(session_id=session_id):
                self._progress.pop(session_id, None)
            case TurnEnded(session_id=session_id, message_id=message_id, reply_id=reply_id, error=error):
                self._progress.pop(session_id, None)
                if error:
                    self._errors[reply_id if reply_id is not None else message_id] = error
        if self.session is not None and getattr(event, "session_id", None) == self.session.id:
            self._update(event)

    def _update(self, event: ManagerEvent) -> None:
        match event:
            case MessageAdded(message_id=message_id):
                self._add_message(message_id)
            case TurnQueued(message_id=message_id):
                self._refresh_status(message_id)
            case TurnStarted(message_id=message_id, reply_id=reply_id):
                self._add_message(reply_id)
                self._refresh_questions()
                self._refresh_status(reply_id)
            case TextStreamed(message_id=message_id):
                self._refresh_status(message_id)
                self.touch(message_id)
            case PromptProgress():
                if self.session is not None and self.session.head_id is not None:
                    self._refresh_status(self.session.head_id)
            case TurnEnded(message_id=message_id, reply_id=reply_id):
                self._refresh_questions()
                self._refresh_status(message_id)
                if reply_id is not None:
                    self._refresh_status(reply_id)
                    self.touch(reply_id)
            case WindowMoved(first_message_id=first):
                self.take_out(self._rule)
                index = self.index_of(first)
                if index:
                    self.insert(index, self._rule)

    def _add_message(self, message_id: int) -> None:
        session = self.session
        if session is None or self.message(message_id) is not None or message_id not in session.messages:
            return
        message = session.messages[message_id]
        previous = message.parent_id
        self.add(self._entry(message))
        if previous is not None:
            self._refresh_status(previous)
        if message.role == "user":
            self.follow_end()

    def _entry(self, message: Message) -> MessageEntry:
        status, severity = self._status(message)
        if message.role == "user":
            return UserEntry(message, "You", status, severity)
        return ReplyEntry(message, message.model or "Reply", status, severity)

    def _status(self, message: Message) -> tuple[str, str]:
        session = self.session
        return message_status(
            message,
            is_last=session is not None and session.head_id == message.id,
            error=self._errors.get(message.id, ""),
            ahead=self._ahead.get(message.id),
            progress=self._progress.get(session.id) if session is not None else None,
        )

    def _refresh_questions(self) -> None:
        """A turn may answer several messages that waited together: none of them waits any more."""
        for message_id, entry in self.messages_with_status():
            if entry.message.role == "user":
                self._refresh_status(message_id)

    def _refresh_status(self, message_id: int) -> None:
        entry = self.message(message_id)
        if entry is not None and entry.set_status(*self._status(entry.message)):
            self.touch(message_id)
