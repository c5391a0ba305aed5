"""Session and its tree of messages: pure, no clock, no database, no engine.

Messages form a tree: editing a message or regenerating a reply makes a sibling, nothing is overwritten. The head is the
message the conversation stands on; the path from the root to it is what the user sees.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["user", "assistant"]

MessageState = Literal["complete", "queued", "streaming", "stopped", "cut", "length", "failed"]
"""complete: whole. queued: a user's message that waits for the engine. streaming: a reply that grows.
stopped: ended by the user. cut: ended by a quit, a kill or a crash. length: ended by `max_tokens` or a full context.
failed: the engine could not answer."""

UNFINISHED: frozenset[str] = frozenset({"stopped", "cut", "length"})
"""States of a reply that can be continued from its last token."""


_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor moves, as terminals take them."""


@dataclass(slots=True)
class Message:
    """One message of the tree.

    Attributes:
        id: unique in the database, growing with time.
        parent_id: None at the root.
        tokens: ids a reply was sampled with, valid under `fingerprint` alone; text does not give them back.
        fingerprint: of the weights that wrote the reply, "" for a user's message.
        created: seconds since the epoch.
        stats: the measures of the turn (`events.TurnStats` as a dict), empty for a user's message.
    """

    id: int
    parent_id: int | None
    role: Role
    text: str
    state: MessageState = "complete"
    tokens: list[int] = field(default_factory=list)
    fingerprint: str = ""
    model: str = ""
    created: float = 0.0
    stats: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """A saved conversation.

    Attributes:
        id: 8 lowercase hex characters, fixed for life.
        system: the system prompt, "" for none (the model's template may add its own).
        model_path: of the model it was last used with, "" when never.
        head_id: the message it stands on, None while empty.
        window_start_id: first message that still reaches the model, None when all do.
        cold_done: its cold prompt was prefilled (see the checkpoint policy).
        created, updated: seconds since the epoch.
        tokens: of context that its last turn used, 0 when unknown.
        params: settings of this session alone, by name (JSON values).
    """

    id: str
    title: str = ""
    system: str = ""
    model: str = ""
    model_path: str = ""
    created: float = 0.0
    updated: float = 0.0
    head_id: int | None = None
    window_start_id: int | None = None
    cold_done: bool = False
    messages: dict[int, Message] = field(default_factory=dict)
    tokens: int = 0
    params: dict[str, float | int | str | bool | None] = field(default_factory=dict)

    def append(self, message: Message) -> None:
        """Add a message below its parent and stand on it. Raises ValueError for a taken id or an unknown parent."""
        if message.id in self.messages:
            raise ValueError(f"message {message.id} is already in session {self.id}")
        if message.parent_id is not None and message.parent_id not in self.messages:
            raise ValueError(f"message {message.id} names an unknown parent {message.parent_id}")
        self.messages[message.id] = message
        self.head_id = message.id

    def path(self, to: int | None = None) -> list[Message]:
        """The messages from the root to `to` (the head by default), oldest first."""
        walked: list[Message] = []
        at = self.head_id if to is None else to
        while at is not None:
            message = self.messages[at]
            walked.append(message)
            at = message.parent_id
        walked.reverse()
        return walked

    def siblings(self, message_id: int) -> list[Message]:
        """The message and its alternatives, oldest first."""
        parent = self.messages[message_id].parent_id
        return sorted((m for m in self.messages.values() if m.parent_id == parent), key=lambda m: m.id)

    def newest_leaf(self, below: int) -> int:
        """The leaf reached by following the newest child from a message on (where walking to a branch ends up)."""
        children: dict[int | None, int] = {}
        for message in self.messages.values():
            children[message.parent_id] = max(children.get(message.parent_id, -1), message.id)
        at = below
        while at in children:
            at = children[at]
        return at

    def window(self) -> list[Message]:
        """The part of the path that reaches the model: from `window_start_id` on, all of it when that is not on the
        path."""
        path = self.path()
        for i, message in enumerate(path):
            if message.id == self.window_start_id:
                return path[i:]
        return path


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A row of the session list.

    Attributes:
        messages: on the path to the head.
        tokens: of context that its last turn used, 0 when unknown.
        created, updated: seconds since the epoch.
    """

    id: str
    title: str
    model: str
    messages: int
    tokens: int
    created: float
    updated: float


def clean_text(text: str) -> str:
    """Text made valid on entry: NUL removed, lone surrogates replaced by U+FFFD, CR LF and CR turned into LF."""
    text = text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_title(text: str) -> str:
    """A title on one line: valid text, no escape sequences or control characters, single spaces."""
    line = " ".join(_ESCAPE_SEQUENCE.sub("", clean_text(text)).split())
    return "".join(c for c in line if not (c < " " or "\x7f" <= c <= "\x9f")).strip()


def title_from(text: str, width: int = 60) -> str:
    """A title made from the first message: its first line that is not blank, cut at a word, "" when there is none."""
    for line in text.splitlines():
        line = " ".join(line.split())
        if line:
            if len(line) <= width:
                return line
            cut = line[:width].rsplit(" ", 1)[0] or line[:width]
            return cut.rstrip(" ,.;:") + "…"
    return ""


def is_unfinished(messages: Iterable[Message]) -> bool:
    """Whether the last of the messages is a reply that can be continued, or a question that was never answered."""
    last = next(iter(deque(messages, maxlen=1)), None)
    if last is None:
        return False
    return last.state in UNFINISHED if last.role == "assistant" else last.state == "complete"
