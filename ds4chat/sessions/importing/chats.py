"""A chat of another program on its way to become a session: pure.

A reader adds messages as they stand in its source, in any order, and says of others that they are passed over. What
comes out is a tree as sessions are: it begins with the user, and a reply is one message, however many pieces (with
calls of tools between them) the other program wrote it in.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ds4chat.errors import InterchangeError
from ds4chat.sessions.session import (
    Message,
    MessageState,
    Role,
    Session,
    clean_tags,
    clean_text,
    clean_title,
    title_from,
)

MAX_TEXT = 64_000_000
"""Characters of a chat, all branches together: what a session as JSON may have."""

MAX_MESSAGES = 100_000

MAX_TITLE = 200

LAST_SECOND = 253_402_300_799.0
"""Of the year 9999."""

MILLISECONDS_FROM = 100_000_000_000.0
"""A time beyond this (the year 5138) is one in milliseconds, microseconds or nanoseconds."""

ATTACHMENT_ONLY = "[attachment that was not imported]"
"""The text of a question that was nothing else."""


@dataclass(slots=True)
class _Piece:
    """A message as its source has it."""

    key: str
    parent: str | None
    role: Role
    text: str
    reasoning: str
    created: float
    model: str
    state: MessageState


@dataclass(slots=True)
class _Written:
    """The pieces of a reply that were read so far, the last one first."""

    piece: _Piece
    before: _Written | None

    def all(self) -> list[_Piece]:
        pieces: list[_Piece] = []
        at: _Written | None = self
        while at is not None:
            pieces.append(at.piece)
            at = at.before
        return pieces[::-1]


@dataclass(slots=True)
class ForeignChat:
    """What is known of a chat.

    Attributes:
        source: the program or format it is from.
        key: what it goes by there, "" when it has no name of its own.
        head: the message it stands on, None for the newest branch.
        left_out: how many of which kind did not come in.
    """

    source: str
    key: str = ""
    title: str = ""
    system: str = ""
    model: str = ""
    created: float = 0.0
    updated: float = 0.0
    pinned: bool = False
    archived: bool = False
    tags: list[str] = field(default_factory=list)
    head: str | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    _pieces: dict[str, _Piece] = field(default_factory=dict)
    _passed: dict[str, str | None] = field(default_factory=dict)
    _steps: int = 0

    # ---- what a reader says ----

    def add(
        self,
        key: str,
        parent: str | None,
        role: Role,
        text: str,
        *,
        reasoning: str = "",
        created: float = 0.0,
        model: str = "",
        state: MessageState = "complete",
    ) -> None:
        """A message. One that says nothing is passed over."""
        text, reasoning = clean_text(text), clean_text(reasoning).strip()
        if key in self._pieces or key in self._passed:
            self.leave_out("messages that are there twice")
        elif not text.strip() and not reasoning:
            self.pass_over(key, parent, "blank messages")
        else:
            self._pieces[key] = _Piece(key, parent, role, text, reasoning, created, model, state)

    def pass_over(self, key: str, parent: str | None, kind: str = "") -> None:
        """A message that does not come in, of this kind ("" when nobody misses it): what follows it follows the one
        before."""
        if key not in self._pieces:
            self._passed.setdefault(key, parent)
        self.leave_out(kind)

    def leave_out(self, kind: str, number: int = 1) -> None:
        """Count what does not come in."""
        if kind and number:
            self.left_out[clean_title(kind)] += number

    def instruct(self, text: str) -> None:
        """A system prompt: the first one is the chat's."""
        text = clean_text(text).strip()
        if not text or text == self.system:
            return
        if self.system:
            self.leave_out("further system prompts")
        else:
            self.system = text

    # ---- what it becomes ----

    def session(self) -> Session:
        """The chat as a session without an id, its messages counted from 1; none when nothing was said.

        Raises InterchangeError when it is larger than a session may be.
        """
        session = Session(
            "",
            title=clean_title(self.title)[:MAX_TITLE],
            system=self.system,
            model=clean_title(self.model)[:MAX_TITLE],
            created=self.created,
            pinned=self.pinned,
            archived=self.archived,
            tags=clean_tags(self.tags),
        )
        _Planter(self, session).plant(self._children())
        times = [m.created for m in session.messages.values() if m.created]
        session.created = session.created or min(times, default=0.0)
        session.updated = max([self.updated, session.created, *times])
        if not session.model:
            session.model = next((m.model for m in reversed(session.path()) if m.model), "")
        first = next(iter(session.path()), None)
        session.title = session.title or (title_from(first.text) if first is not None else "")
        return session

    def nearest(self, key: str | None) -> str | None:
        """The message itself, or the next one above it that comes in."""
        seen: set[str] = set()
        while key is not None and key not in self._pieces:
            if key in seen:
                return None
            seen.add(key)
            key = self._passed.get(key)
        return key

    def _children(self) -> dict[str | None, list[_Piece]]:
        """By the message above, in the order of time where that is known."""
        above: dict[str, str | None] = {}
        children: dict[str | None, list[_Piece]] = {}
        for piece in self._pieces.values():
            parent = piece.parent
            if parent is not None and parent not in self._pieces:
                # Many may hang on one that is passed over.
                if parent not in above:
                    above[parent] = self.nearest(parent)
                parent = above[parent]
            children.setdefault(parent, []).append(piece)
        for siblings in children.values():
            if len(siblings) > 1 and all(piece.created for piece in siblings):
                siblings.sort(key=lambda piece: piece.created)
        return children

    def follow(self) -> tuple[str, str | None]:
        """Keys for a message that follows the one this was asked for last, and of that one."""
        self._steps += 1
        return f"#{self._steps}", f"#{self._steps - 1}" if self._steps > 1 else None

    def first_text(self) -> str:
        """What was said first."""
        return next((piece.text for piece in self._pieces.values()), "")


class _Planter:
    """Puts the messages of a chat into a session."""

    def __init__(self, chat: ForeignChat, session: Session) -> None:
        self._chat, self._session = chat, session
        self._ids: dict[str, int] = {}
        self._seen = 0
        self._characters = 0

    def plant(self, children: dict[str | None, list[_Piece]]) -> None:
        chat, session = self._chat, self._session
        todo: list[tuple[_Piece, int | None, _Written | None]] = [
            (piece, None, None) for piece in reversed(children.get(None, []))
        ]
        while todo:
            piece, parent, before = todo.pop()
            self._seen += 1
            below = children.get(piece.key, [])
            if piece.role != "user" and parent is None:
                chat.leave_out("greetings")
                todo += [(child, None, None) for child in reversed(below)]
                continue
            written = _Written(piece, before)
            goes_on = [child for child in below if child.role == piece.role == "assistant"]
            next_parent = parent
            if len(goes_on) < len(below) or not below:
                next_parent = self._emit(written, parent)
            for child in reversed(below):
                if piece.role == child.role == "assistant":
                    todo.append((child, parent, written))
                else:
                    todo.append((child, next_parent, None))
        chat.leave_out("messages that hang on nothing", len(chat._pieces) - self._seen)
        if not session.messages:
            session.head_id = None
            return
        head = chat.nearest(chat.head)
        if head in self._ids:
            session.head_id = self._ids[head]
        else:
            session.head_id = session.newest_leaf(min(session.messages))

    def _emit(self, written: _Written, parent: int | None) -> int:
        pieces = written.all()
        reasoning: list[str] = []
        answer: list[str] = []
        for piece in pieces:
            if piece.reasoning and not answer:
                reasoning.append(piece.reasoning)
            elif piece.reasoning:
                self._chat.leave_out("thoughts within a reply")
            if piece.text.strip():
                answer.append(piece.text)
        text = "\n\n".join(part.strip("\n") for part in answer) if len(answer) > 1 else "".join(answer)
        if reasoning:
            thought = "\n\n".join(reasoning)
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        self._characters += len(text)
        if self._characters > MAX_TEXT or len(self._session.messages) >= MAX_MESSAGES:
            most = f"{MAX_TEXT // 10**6} million characters, {MAX_MESSAGES:,} messages"
            raise InterchangeError(f"it is larger than a session may be ({most})")
        last = pieces[-1]
        id_ = len(self._session.messages) + 1
        self._session.append(
            Message(
                id_,
                parent,
                last.role,
                text,
                last.state,
                created=pieces[0].created if last.role == "user" else last.created,
                model=clean_title(last.model)[:MAX_TITLE] if last.role == "assistant" else "",
            )
        )
        for piece in pieces:
            self._ids.setdefault(piece.key, id_)
        return id_


def digest(session: Session) -> str:
    """Of what is said in a session, all branches, whatever its ids and title."""
    sums = hashlib.blake2b(digest_size=16)
    place: dict[int | None, int] = {None: -1}
    for i, message in enumerate(sorted(session.messages.values(), key=lambda m: m.id)):
        place[message.id] = i
        text = message.text.encode()
        sums.update(f"{place[message.parent_id]} {message.role} {len(text)}\n".encode())
        sums.update(text)
    sums.update(b"\n" + session.system.encode())
    return sums.hexdigest()


# ---- values of others ----


def seconds(value: Any) -> float:
    """A time as others write it, since the epoch: seconds or parts of them, or a date in ISO's form; 0 for none."""
    number = 0.0
    if isinstance(value, bool) or value is None:
        return 0.0
    if isinstance(value, int | float):
        number = float(value) if -1e20 < value < 1e20 else 0.0
    elif isinstance(value, str) and len(value) < 40:
        try:
            number = float(value)
        except ValueError:
            try:
                when = datetime.fromisoformat(value.strip())
                number = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                return 0.0
    if not math.isfinite(number):
        return 0.0
    while number >= MILLISECONDS_FROM:
        number /= 1000.0
    return number if 0.0 < number <= LAST_SECOND else 0.0


def text_of(value: Any) -> str:
    """A string, "" for anything else."""
    return value if isinstance(value, str) else ""


def role_of(value: Any) -> Role | None:
    """Who speaks, by the names that are in use; None for others."""
    match text_of(value).strip().lower():
        case "user" | "human":
            return "user"
        case "assistant" | "ai" | "gpt" | "bot" | "model" | "chatgpt" | "claude":
            return "assistant"
    return None


def unknown_role(value: Any) -> str:
    """What is left out when nobody knows who speaks."""
    name = clean_title(text_of(value))[:30]
    return f'messages of role "{name}"' if name else "messages without a role"
