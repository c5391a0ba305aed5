"""What the screen's tests share: an app on a fake manager, and waiting for conditions instead of sleeping."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.widget import Widget

from ds4chat.ui.app import ChatApp
from tests.ui.fake_manager import FakeManager

THEMES = Path(__file__).parents[2] / "themes"


class Chat:
    """A running app with short ways to what tests look at."""

    def __init__(self, app: ChatApp, pilot: Pilot[str], manager: FakeManager) -> None:
        self.app, self.pilot, self.manager = app, pilot, manager
        self.screen = app.chat
        self.prompt = app.chat.prompt
        self.transcript = app.chat.transcript

    @property
    def status(self) -> str:
        return self.screen.status.text

    def lines(self) -> list[str]:
        """The transcript as it is painted now, the visible part."""
        height = self.transcript.size.height
        return [self.transcript.render_line(y).text.rstrip() for y in range(height)]

    def shown(self) -> str:
        return "\n".join(self.lines())

    @property
    def toasts(self) -> list[str]:
        """What was told beside the chat so far."""
        return [notification.message for notification in self.app._notifications]

    @property
    def chosen(self) -> int | None:
        """Id of the message the cursor is on."""
        entry = self.transcript.chosen_message
        return entry.message.id if entry is not None else None

    def has_focus(self, widget: Widget) -> bool:
        return self.screen.focused is widget

    def edited(self) -> int | None:
        """Id of the message that is being edited."""
        return self.screen.editing

    def row_of(self, text: str) -> int:
        """The line of the transcript in which a text stands."""
        return next(row for row, line in enumerate(self.lines()) if text in line)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the app run until the condition holds; some 1,000 turns of the loop are given."""
        for _ in range(1000):
            if condition():
                return
            await self.pilot.pause(0.005)
        raise AssertionError(f"it never came to hold; the screen shows\n{self.shown()}\n{self.status}")

    async def until_shown(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.shown() for text in texts))


@asynccontextmanager
async def running(
    manager: FakeManager,
    *,
    size: tuple[int, int] = (100, 30),
    session_id: str | None = None,
    **options: object,
) -> AsyncIterator[Chat]:
    options.setdefault("theme_directories", [THEMES])
    app = ChatApp(manager, session_id=session_id, **options)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        chat = Chat(app, pilot, manager)
        await chat.until(lambda: app.chat.current_id != "")
        yield chat
