"""What the tests of lists of chats share."""

from __future__ import annotations

import time

from textual import events

from ds4chat.sessions.session import SessionInfo
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.widgets.session_list import SessionList
from tests.ui.driving import Chat
from tests.ui.fake_manager import FakeManager

DAY = 86_400


class CountingManager(FakeManager):
    """Knows how many rows were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = 0

    def list_sessions(
        self, limit: int | None = None, offset: int = 0, *, archived: bool = False, tag: str = ""
    ) -> list[SessionInfo]:
        infos = super().list_sessions(limit, offset, archived=archived, tag=tag)
        self.fetched += len(infos)
        return infos


def many(manager: FakeManager, count: int = 10_000) -> None:
    now = time.time()
    for n in range(count):
        manager.make(f"Talk number {n}", ["a", "b"], updated=now - 60 * n)


def lines(found: SessionList) -> list[str]:
    return [found.render_line(y).text.rstrip() for y in range(found.size.height)]


def line_with(found: SessionList, text: str) -> str:
    return next(line for line in lines(found) if text in line)


def switcher(chat: Chat) -> SessionList:
    assert isinstance(chat.app.screen, SwitcherScreen)
    return chat.app.screen.query_one(SessionList)


async def burst(chat: Chat, *keys: str) -> None:
    """Keys that arrive in one read of the terminal."""
    for key in keys:
        chat.app.post_message(
            events.Key(key, key if len(key) == 1 else {"space": " ", "full_stop": "."}.get(key))
        )
    await chat.pilot.pause()
