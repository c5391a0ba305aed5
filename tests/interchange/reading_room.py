"""Chats of a file, as sessions."""

from __future__ import annotations

from pathlib import Path

from ds4chat.sessions.importing import reading
from ds4chat.sessions.importing.chats import ForeignChat
from ds4chat.sessions.importing.detect import file_kind
from ds4chat.sessions.session import Session

SAMPLES = Path(__file__).parent / "samples"


class Steps:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.total = self.done = 0

    def begin(self, total: int) -> None:
        self.total += total

    def advance(self, steps: int) -> None:
        self.done += steps


def read(path: Path) -> list[ForeignChat]:
    """The chats of a file, none of which may have a fault."""
    chats: list[ForeignChat] = []
    for found in reading.chats(path, file_kind(path), Steps()):
        assert found.chat is not None, found.fault
        chats.append(found.chat)
    return chats


def told(session: Session) -> list[tuple[str, str]]:
    """Who said what on the path to the head."""
    return [(message.role, message.text) for message in session.path()]


def tree(session: Session) -> dict[str, str | None]:
    """What each message hangs on, by their texts."""
    messages = session.messages
    return {
        m.text: messages[m.parent_id].text if m.parent_id is not None else None for m in messages.values()
    }
