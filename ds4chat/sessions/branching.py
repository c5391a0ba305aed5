"""The tree of a session's messages: edits, other replies, branches walked to, turns deleted and brought back.

Promises: nothing is overwritten but a message that no one has answered or read yet (it waits); a session whose reply is
being written is left alone. Must not know: the engine, the database, the screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ds4chat.errors import UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.conductor import Conductor
from ds4chat.sessions.session import Message, Session, clean_text
from ds4chat.sessions.shelf import PATIENT_SECONDS, Shelf


class Branches:
    """Changes of what a session stands on, and the turns that follow from them."""

    def __init__(self, shelf: Shelf, conductor: Conductor, emit: Callable[[ev.ManagerEvent], None]) -> None:
        self._shelf, self._conductor, self._emit = shelf, conductor, emit

    def edit(self, session_id: str, message_id: int, text: str) -> Message:
        """A sibling of a message and a turn for it; one that still waits to be answered is changed as it stands."""
        text = clean_text(text)
        if not text.strip():
            raise UsageError("There is nothing to send: type a message first.")
        session = self._shelf.writable(session_id)
        message = _message(session, message_id)
        if message.role != "user":
            raise UsageError("A reply cannot be edited: edit the message before it, or regenerate the reply.")
        if message.state == "queued" and self._conductor.is_busy(session_id):
            message.text = text
            self._shelf.write(session_id, self._shelf.db.update_reply, message.id, text, [], "queued")
            self._emit(ev.PathChanged(session_id))
            return message
        self._must_rest(session_id)
        edited = Message(0, message.parent_id, "user", text, "queued", created=time.time())
        self._shelf.append(session, edited, PATIENT_SECONDS)
        self._emit(ev.PathChanged(session_id))
        self._emit(ev.SessionListChanged())
        self._conductor.answer(session_id, edited.id)
        return edited

    def regenerate(self, session_id: str, reply_id: int) -> None:
        """Another reply to the message that a reply answers."""
        session = self._shelf.writable(session_id)
        reply = _message(session, reply_id)
        if reply.role != "assistant" or reply.parent_id is None:
            raise UsageError("Only a reply can be regenerated: choose one, or edit your message instead.")
        self._must_rest(session_id)
        before, session.head_id = session.head_id, reply.parent_id
        self._emit(ev.PathChanged(session_id))
        self._conductor.answer(session_id, reply.parent_id, head_before=before)

    def choose(self, session_id: str, message_id: int) -> None:
        """Stand on the newest leaf below a message."""
        session = self._shelf.writable(session_id)
        message = _message(session, message_id)
        self._must_rest(session_id)
        self._shelf.stand_on(session, session.newest_leaf(message.id))
        self._changed(session)

    def delete_turn(self, session_id: str, message_id: int) -> list[int]:
        """Hide a message with its counterpart: a question with its reply, a reply with what it answers."""
        session = self._shelf.writable(session_id)
        self._must_rest(session_id)
        ids = turn_of(session.path(), message_id)
        if not ids:
            raise UsageError("This message is not part of the chat as it stands: walk to its branch first.")
        self._set_hidden(session, ids, True)
        return ids

    def restore_turn(self, session_id: str, ids: Sequence[int]) -> None:
        """Bring a deleted turn back."""
        session = self._shelf.writable(session_id)
        self._must_rest(session_id)
        self._set_hidden(session, [_message(session, id_).id for id_ in ids], False)

    def _set_hidden(self, session: Session, ids: list[int], hidden: bool) -> None:
        for id_ in ids:
            session.messages[id_].hidden = hidden
        self._shelf.write(session.id, self._shelf.db.set_hidden, ids, hidden)
        self._changed(session)

    def _changed(self, session: Session) -> None:
        self._emit(ev.PathChanged(session.id))
        self._emit(ev.SessionListChanged())
        self._conductor.path_changed(session)

    def _must_rest(self, session_id: str) -> None:
        if self._conductor.is_busy(session_id):
            raise UsageError("A reply is being written in this session: stop it first.")


def turn_of(path: Sequence[Message], message_id: int) -> list[int]:
    """The ids of the turn a message belongs to: the user's messages that were answered together, and the reply. Empty
    when the message is not on the path."""
    at = next((i for i, message in enumerate(path) if message.id == message_id), None)
    if at is None:
        return []

    def begins(i: int) -> bool:
        return i == len(path) or (i > 0 and path[i].role == "user" and path[i - 1].role != "user")

    first, end = at, at + 1
    while first > 0 and not begins(first):
        first -= 1
    while not begins(end):
        end += 1
    return [message.id for message in path[first:end]]


def _message(session: Session, message_id: int) -> Message:
    message = session.messages.get(message_id)
    if message is None:
        raise UsageError(f"There is no message {message_id} in this session.")
    return message
