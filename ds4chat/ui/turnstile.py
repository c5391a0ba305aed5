"""Keys that come in a burst, one after the other: the next is looked at when the one before has done all it does.

Textual hands a key to the widget that has the focus when it arrives, and runs its binding only after it went up through
all parents. Of keys that come fast (a slow line, a text expander, a quick hand), those behind one that moves the focus
would go to the wrong place: letters meant for the prompt box would act on a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

PLAIN = frozenset({"backspace", "delete", "left", "right", "up", "down", "home", "end"})
"""Keys that leave the focus where it is, besides letters, while something is being written."""


LOOK_SECONDS = 0.05
"""How often it is looked whether the widget a key was last given to is still there to pass it on."""

LONGEST_LOOKS = 20
"""After so many the next key is let through all the same."""


class Turnstile:
    """Lets keys through to an app one by one, where that matters."""

    def __init__(
        self, app: App[Any], let_in: Callable[[events.Key], Awaitable[None]], writes: Callable[[], bool]
    ) -> None:
        """`let_in` gives a key to the app; `writes` says whether the focus is where letters are only letters."""
        self._app, self._let_in, self._writes = app, let_in, writes
        self._waiting: deque[events.Key] = deque()
        self._passing = 0
        """Number of the key that is under way, 0 for none."""
        self._last = 0
        self._at: MessagePump = app
        """Where it is now, and where it goes from there."""
        self._path: list[MessagePump] = []

    async def enter(self, event: events.Key) -> None:
        """A key has arrived."""
        if self._passing:
            self._waiting.append(event)
        elif self._writes() and (event.is_printable or event.key in PLAIN):
            await self._let_in(event)
        else:
            await self._pass(event)

    async def _pass(self, event: events.Key) -> None:
        self._last += 1
        self._passing = number = self._last
        focused = self._app.screen.focused or self._app.screen
        try:
            await self._let_in(event)
        finally:
            self._follow([*focused.ancestors_with_self], number)
            self._app.set_timer(LOOK_SECONDS, partial(self._look, number, LONGEST_LOOKS))

    def _follow(self, path: list[MessagePump], number: int) -> None:
        """Go the way of the key, from queue to queue, so as to arrive behind it."""
        if number != self._passing:
            return
        while path:
            self._at, self._path = path[0], path[1:]
            if self._at.call_later(self._follow, self._path, number):
                return
            path = self._path
        # The action a key brought about may have asked for more, which is done first.
        self._at, self._path = self._app, []
        self._app.call_later(self._next, number)

    async def _look(self, number: int, left: int) -> None:
        """A widget that goes takes what was in its queue along."""
        if number != self._passing:
            return
        if left == 0:
            await self._next(number)
            return
        if not self._at.is_running:
            self._follow(self._path, number)
        self._app.set_timer(LOOK_SECONDS, partial(self._look, number, left - 1))

    async def _next(self, number: int) -> None:
        if number != self._passing:
            return
        self._passing = 0
        if self._waiting:
            await self.enter(self._waiting.popleft())
            if not self._passing:
                self._passing = self._last = self._last + 1
                self._app.call_later(self._next, self._passing)
