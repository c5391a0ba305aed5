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

Role = Literal["user", "assistant", "tool"]
"""A "tool" message says what one call of the reply above it came to."""

MessageState = Literal["complete", "queued", "streaming", "stopped", "cut", "length", "failed"]
"""complete: whole. queued: a user's message that waits for the engine. streaming: a reply that grows.
stopped: ended by the user. cut: ended by a quit, a kill or a crash. length: ended by `max_tokens` or a full context.
failed: the engine could not answer."""

UNFINISHED: frozenset[str] = frozenset({"stopped", "cut", "length"})
"""States of a reply that can be continued from its last token."""

IMPORTED = "imported:"
"""Before the fingerprint of a reply whose token ids came with a file: nobody saw them sampled."""

MAX_TAG = 40
"""Characters of a tag: some stand side by side on one line of a list."""

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and cursor moves, as terminals take them."""


@dataclass(slots=True)
class Message:
    """One message of the tree.

    Attributes:
        id: unique in the database, growing with time.
        parent_id: None at the root.
        tokens: ids a reply was sampled with, valid under `fingerprint` alone; text does not give them back.
        fingerprint: of the weights that wrote the reply, "" for a user's message; behind `IMPORTED` where a file
            says so.
        created: seconds since the epoch.
        stats: the measures of the turn (`events.TurnStats` as a dict), empty for a user's message; of a tool's, which
            call it answers: `tool`, `call` (its id) and `outcome`.
        hidden: its turn was deleted, which can be undone: neither shown nor given to the model.
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
    hidden: bool = False


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
        summary: of what lies before `window_start_id`, "" for none.
        pinned, archived: where the list shows it: on top, or only when asked for what is archived.
        tags: as `clean_tags` leaves them.
        draft: typed and not sent.
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
    summary: str = ""
    pinned: bool = False
    archived: bool = False
    tags: list[str] = field(default_factory=list)
    draft: str = ""

    def append(self, message: Message) -> None:
        """Add a message below its parent and stand on it. Raises ValueError for a taken id or an unknown parent."""
        if message.id in self.messages:
            raise ValueError(f"message {message.id} is already in session {self.id}")
        if message.parent_id is not None and message.parent_id not in self.messages:
            raise ValueError(f"message {message.id} names an unknown parent {message.parent_id}")
        self.messages[message.id] = message
        self.head_id = message.id

    def lineage(self, to: int | None = None) -> list[Message]:
        """Every message from the root to `to` (the head by default), oldest first, the hidden ones too."""
        walked: list[Message] = []
        at = self.head_id if to is None else to
        while at is not None:
            message = self.messages[at]
            walked.append(message)
            at = message.parent_id
        walked.reverse()
        return walked

    def path(self, to: int | None = None) -> list[Message]:
        """The messages from the root to `to` (the head by default) that are not hidden, oldest first.

        What hangs on a hidden message stays on the path, so the parent of a message need not be the one before it.
        """
        return [message for message in self.lineage(to) if not message.hidden]

    def siblings(self, message_id: int) -> list[Message]:
        """The message and its alternatives that are not hidden, oldest first."""
        parent = self.messages[message_id].parent_id
        alternatives = (m for m in self.messages.values() if m.parent_id == parent and not m.hidden)
        return sorted(alternatives, key=lambda m: m.id)

    def newest_leaf(self, below: int) -> int:
        """The leaf reached by following the newest child from a message on (where walking to a branch ends up).

        Children with nothing to show, in them or below, are passed over.
        """
        shown: set[int] = set()
        newest: dict[int, int] = {}
        # A child is younger than its parent, so that what lies below a message was seen before it.
        for message in sorted(self.messages.values(), key=lambda m: m.id, reverse=True):
            if message.hidden and message.id not in shown:
                continue
            if message.parent_id is not None:
                shown.add(message.parent_id)
                newest.setdefault(message.parent_id, message.id)
        at = below
        while at in newest:
            at = newest[at]
        return at

    def window(self) -> list[Message]:
        """The part of the path that reaches the model: from `window_start_id` on, all of it when that is not on the
        way to the head."""
        lineage = self.lineage()
        start = next((i for i, message in enumerate(lineage) if message.id == self.window_start_id), 0)
        return [message for message in lineage[start:] if not message.hidden]

    def keep_path(self, to: int | None = None) -> list[Message]:
        """Drop everything but the path to `to` (the head by default) and stand on its end; the path.

        What was hidden is gone, so each message comes to hang below the one before it, and a window that began with a
        hidden message begins with the next one.
        """
        start = next(iter(self.window()), None) if self.window_start_id is not None else None
        path = self.path(to)
        self.messages = {message.id: message for message in path}
        for i, message in enumerate(path):
            message.parent_id = path[i - 1].id if i else None
        self.head_id = path[-1].id if path else None
        self.window_start_id = start.id if start is not None and start.id in self.messages else None
        return path


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A row of the session list.

    Attributes:
        messages: on the path to the head, without the hidden ones.
        tokens: of context that its last turn used, 0 when unknown.
        created, updated: seconds since the epoch.
        stored_tokens: how far its recorded checkpoints reach, 0 without any.
        stored_bytes: of those checkpoints.
    """

    id: str
    title: str
    model: str
    messages: int
    tokens: int
    created: float
    updated: float
    pinned: bool = False
    archived: bool = False
    tags: tuple[str, ...] = ()
    stored_tokens: int = 0
    stored_bytes: int = 0


def called(message: Message) -> str:
    """The name of the tool whose result a message is, "" for any other message or an unknown one."""
    return clean_title(str(message.stats.get("tool", ""))) if message.role == "tool" else ""


def speaker(message: Message, you: str = "You", reply: str = "Reply") -> str:
    """Who says a message, for a line above it."""
    if message.role == "tool":
        how = outcome(message)
        return f"Tool {called(message)}".strip() + (f" ({how})" if how != "ran" else "")
    return you if message.role == "user" else message.model or reply


def outcome(message: Message) -> str:
    """How a call ended: "ran", "refused", "failed" or "stopped"; "" for what is no result."""
    return str(message.stats.get("outcome", "ran")) if message.role == "tool" else ""


def clean_text(text: str) -> str:
    """Text made valid on entry: NUL removed, lone surrogates replaced by U+FFFD, CR LF and CR turned into LF."""
    text = text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_title(text: str) -> str:
    """A title on one line: valid text, no escape sequences or control characters, single spaces."""
    line = " ".join(_ESCAPE_SEQUENCE.sub("", clean_text(text)).split())
    return "".join(c for c in line if not (c < " " or "\x7f" <= c <= "\x9f")).strip()


def clean_tags(tags: Iterable[str]) -> list[str]:
    """Tags as they are kept: on one line, no "#" before them, not blank, at most 40 characters, each once whatever its
    case; in the order given."""
    kept: dict[str, str] = {}
    for tag in tags:
        tag = clean_title(tag).lstrip("# ")[:MAX_TAG].rstrip()
        if tag:
            kept.setdefault(tag.casefold(), tag)
    return list(kept.values())


_FILE_IN_FRONT = re.compile(r"\s*[^\n]+:\n(`{3,})[^\n`]*\n(?:.*?\n)??\1\n", re.DOTALL)


def title_from(text: str, width: int = 60) -> str:
    """A title made from the first message: its first line that is not blank, cut at a word, "" when there is none.
    Files that stand in front of a question are passed over."""
    while (file := _FILE_IN_FRONT.match(text)) and text[file.end() :].strip():
        text = text[file.end() :]
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
