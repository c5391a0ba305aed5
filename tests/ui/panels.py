"""What the panels' tests share: a chat with a desk, and what a panel shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.widgets import Input, Static

from ds4chat.sessions.session import Session
from ds4chat.ui.widgets.row_list import RowList
from tests.ui.driving import Chat, running
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager


class Panels:
    """A chat and the panel on top of it."""

    def __init__(self, chat: Chat, desk: FakeDesk, session: Session) -> None:
        self.chat, self.desk, self.session = chat, desk, session

    @property
    def top(self) -> Any:
        return self.chat.app.screen

    @property
    def rows(self) -> RowList:
        listed: RowList = self.top.query_one(RowList)
        return listed

    @property
    def words(self) -> str:
        return str(self.top.query_one("#words", Static).render())

    @property
    def keys(self) -> str:
        return str(self.top.query_one("#panel").border_subtitle)

    def shown(self) -> list[str]:
        return [self.rows.render_line(y).text.rstrip() for y in range(self.rows.size.height)]

    def cells(self, key: str) -> tuple[str, ...]:
        return next(row.cells for row in self.rows.rows if row.key == key)

    def mark(self, key: str) -> str:
        return next(row.mark for row in self.rows.rows if row.key == key)

    async def press(self, *keys: str) -> None:
        await self.chat.pilot.press(*keys)

    async def until_top(self, name: str) -> None:
        await self.until(lambda: type(self.top).__name__ == name and self.top.is_attached)
        await self.chat.pilot.pause()

    async def until_words(self, text: str) -> None:
        await self.until(lambda: text in self.words)

    async def until(self, condition: Any) -> None:
        await self.chat.until(condition)

    async def go_to(self, key: str) -> None:
        """Put the cursor on a row, by keys."""
        await self.until(lambda: any(row.key == key for row in self.rows.rows))
        await self.press("home")
        for _ in self.rows.rows:
            if self.rows.current == key:
                return
            await self.press("down")
        raise AssertionError(f"{key} cannot be reached")

    async def type(self, text: str) -> None:
        """In place of what the line holds."""
        self.top.query_one(Input).value = text
        await self.chat.pilot.pause()


@asynccontextmanager
async def panels(
    desk: FakeDesk | None = None, *, size: tuple[int, int] = (100, 30), **session: Any
) -> AsyncIterator[Panels]:
    """A chat of six messages that was computed at 100 tokens a second, with attributes of the session."""
    manager, desk = FakeManager(), desk or FakeDesk()
    made = manager.make("A tide table", ["When is high water?", "At six."] * 3)
    for message in made.messages.values():
        if message.role == "assistant":
            message.stats.update(prefilled_tokens=500, prefill_ms=5000.0)
    for name, value in session.items():
        setattr(made, name, value)
    async with running(manager, size=size, session_id=made.id, desk=desk) as chat:
        yield Panels(chat, desk, made)
