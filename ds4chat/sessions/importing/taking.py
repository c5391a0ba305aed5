"""Chats taken into the database: each once, in one transaction, and nothing that is here is overwritten.

A chat that came in before and has grown since gets its new messages, where they belong in the tree; what was said or
changed here stays. A chat that is open in another ds4chat is left for another time.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ds4chat.errors import InterchangeError, SessionLockedError
from ds4chat.sessions.database import Database
from ds4chat.sessions.importing.chats import ForeignChat, digest
from ds4chat.sessions.origins import Origin
from ds4chat.sessions.session import Message, Session

Outcome = Literal["imported", "updated", "known", "skipped", "failed"]
"""known: it is here, as it is. skipped: there is nothing of it to take in, or not now. failed: it cannot be read."""

Lock = Callable[[str, str], contextlib.AbstractContextManager[object]]
"""Holds a session, given its id and title. Raises SessionLockedError."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a chat.

    Attributes:
        messages: how many came in with it.
        reason: why it was skipped or cannot be read, a clause.
        left_out: how many of which kind stayed out.
        told: the user has read of it.
    """

    outcome: Outcome
    session_id: str = ""
    title: str = ""
    messages: int = 0
    reason: str = ""
    left_out: Counter[str] | None = None
    told: bool = False


def take(database: Database, chat: ForeignChat, lock: Lock) -> Taken:
    """Take a chat in. Raises DatabaseError."""
    try:
        session = chat.session()
    except InterchangeError as error:
        return Taken("failed", title=chat.title, reason=str(error))
    if not session.messages:
        return Taken("skipped", title=session.title, reason="nothing was said in it", left_out=chat.left_out)
    taken = take_session(database, session, chat.source, chat.key, lock)
    if taken.outcome in ("imported", "updated"):
        return Taken(
            taken.outcome, taken.session_id, taken.title, taken.messages, taken.reason, chat.left_out
        )
    return taken


def take_session(database: Database, session: Session, source: str, key: str, lock: Lock) -> Taken:
    """Take a session without an id in, which has a `key` in its source, or "" when it goes by what is said in it."""
    origin = Origin(source, key or f"={digest(session)}", digest(session))
    known = database.imported_as(origin.source, origin.key)
    if known is None:
        database.create_session(session, origin)
        return Taken("imported", session.id, session.title, len(session.messages))
    session_id, seen = known
    if seen == origin.digest:
        return Taken("known", session_id, database.info(session_id).title)
    return _grow(database, session_id, session, origin, lock)


def _grow(database: Database, session_id: str, incoming: Session, origin: Origin, lock: Lock) -> Taken:
    title = database.info(session_id).title
    try:
        with lock(session_id, title):
            here = database.load_session(session_id)
            new, head = _new_messages(here, incoming)
            database.add_messages(session_id, new, head, origin)
    except SessionLockedError:
        return Taken("skipped", session_id, title, reason="it has changed, and is open in another ds4chat")
    if not new:
        return Taken("known", session_id, title)
    return Taken("updated", session_id, title, len(new))


def _new_messages(here: Session, incoming: Session) -> tuple[list[Message], int | None]:
    """The messages that are not here, below those that are, and what to stand on (None: as before).

    Those that are to be added have negative ids, in the order in which they are to be added.
    """
    # The same may be said more than once at one place: each is another's, in the order of their ids.
    known: dict[tuple[int | None, str, str], list[int]] = {}
    for message in sorted(here.messages.values(), key=lambda m: m.id, reverse=True):
        known.setdefault((message.parent_id, message.role, message.text), []).append(message.id)
    ids: dict[int | None, int | None] = {None: None}
    new: list[Message] = []
    for message in sorted(incoming.messages.values(), key=lambda m: m.id):
        parent = ids[message.parent_id]
        twins = known.get((parent, message.role, message.text))
        if twins:
            found = twins.pop()
        else:
            found = -len(new) - 1
            new.append(
                Message(
                    found,
                    parent,
                    message.role,
                    message.text,
                    message.state,
                    created=message.created,
                    model=message.model,
                )
            )
        ids[message.id] = found
    before = {ids[message.id] for message in incoming.lineage()}
    head = ids[incoming.head_id]
    # Who has gone on here stays where they are.
    moves = head is not None and head != here.head_id and here.head_id in before
    return new, head if moves else None
