"""A session in the transcript: its messages as entries, kept in step with the manager's events."""

from __future__ import annotations

from ds4chat.sessions.events import (
    CompactProgress,
    ManagerEvent,
    MessageAdded,
    PathChanged,
    PromptProgress,
    SummaryChanged,
    TextStreamed,
    ToolAsked,
    ToolRunning,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    WindowMoved,
)
from ds4chat.ui.entries import MessageEntry, SummaryGrowingEntry
from ds4chat.ui.text import one_line
from ds4chat.ui.widgets.session_transcript import Note, SessionTranscript, branch_of

__all__ = ["Conversation", "Note"]


class Conversation(SessionTranscript):
    """Reads the texts from the session itself, which the manager grows; an event only says that there is
    more.

    So a session opened in the middle of a reply shows each character once, whatever events are still on their
    way.
    """

    def apply(self, event: ManagerEvent) -> None:
        """Take in an event; those of other sessions are only remembered as far as their marks go."""
        match event:
            case TurnQueued(message_id=message_id, ahead=ahead):
                self._ahead[message_id] = ahead
            case PromptProgress(session_id=session_id, done=done, total=total):
                self._progress[session_id] = (done, total)
            case TurnStarted(session_id=session_id, message_id=message_id, reply_id=reply_id):
                self._progress.pop(session_id, None)
                self._errors.pop(message_id, None)
                self._errors.pop(reply_id, None)
            case TurnEnded(session_id=session_id, message_id=message_id, reply_id=reply_id, error=error):
                self._progress.pop(session_id, None)
                self._calling.pop(reply_id or 0, None)
                if error:
                    self._errors[reply_id if reply_id is not None else message_id] = error
            case ToolAsked(message_id=message_id, name=name):
                self._calling[message_id] = f"{one_line(name)} waits for your word"
            case ToolRunning(message_id=message_id, name=name):
                self._calling[message_id] = f"{one_line(name)} is running…"
            case CompactProgress(session_id=session_id, text=text):
                self._growing.setdefault(session_id, SummaryGrowingEntry()).add(text)
            case SummaryChanged(session_id=session_id):
                self._growing.pop(session_id, None)
        if self.session is not None and getattr(event, "session_id", None) == self.session.id:
            self._update(event)

    def _update(self, event: ManagerEvent) -> None:
        match event:
            case MessageAdded(message_id=message_id):
                self._worked_off(message_id)
                self._add_message(message_id)
            case ToolAsked(message_id=message_id) | ToolRunning(message_id=message_id):
                self._refresh_status(message_id)
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
            case WindowMoved() | PathChanged() | SummaryChanged():
                self.reload()
            case CompactProgress(session_id=session_id):
                growing = self._growing[session_id]
                if growing in self._entries:
                    self.touch(0)
                else:
                    self.add(growing)

    def _add_message(self, message_id: int) -> None:
        session = self.session
        if session is None or self.message(message_id) is not None or message_id not in session.messages:
            return
        message = session.messages[message_id]
        previous = message.parent_id
        last = next((e for e in reversed(self._entries) if isinstance(e, MessageEntry)), None)
        if (last.message.id if last is not None else None) != previous:
            # The path is another one than is shown.
            self.reload()
        else:
            entry = self._entry(message)
            entry.set_branch(branch_of(session, message))
            self.add(entry)
        if previous is not None:
            self._refresh_status(previous)
        if message.role == "user":
            self.follow_end()

    def _worked_off(self, message_id: int) -> None:
        """A result: its call does not run any more."""
        at: int | None = message_id
        while self.session is not None and at is not None and self.session.messages[at].role == "tool":
            at = self.session.messages[at].parent_id
        if at is not None and self._calling.pop(at, None) is not None:
            self._refresh_status(at)

    def _refresh_questions(self) -> None:
        """A turn may answer several messages that waited together: none of them waits any more."""
        for message_id, entry in self.messages_with_status():
            if entry.message.role == "user":
                self._refresh_status(message_id)

    def _refresh_status(self, message_id: int) -> None:
        entry = self.message(message_id)
        if entry is not None and entry.set_status(*self._status(entry.message)):
            self.touch(message_id)
