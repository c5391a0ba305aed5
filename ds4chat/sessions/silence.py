"""Noticing an engine that says nothing for too long while it has something to say. Must not know: what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SECONDS = 60.0
"""Between two events of an engine at work, at most: where nothing else is due it gives a sign of life every few."""

LOOKS = 12
"""So often in that time the clock is looked at."""


class Silence:
    """Watches one engine. `is_due` says whether it has anything to say now."""

    def __init__(self, is_due: Callable[[], bool], on_change: Callable[[bool], None]) -> None:
        self._is_due, self._on_change = is_due, on_change
        self._timer: asyncio.TimerHandle | None = None
        self._since = self._looked = 0.0
        self.lasts = False
        """Whether it has said nothing for too long."""

    def begin(self) -> None:
        """An engine was started, or asked for something."""
        if self._timer is None:
            self._since = self._looked = asyncio.get_running_loop().time()
            self._look_again()
        elif not self._is_due():
            self._since = asyncio.get_running_loop().time()

    def heard(self) -> None:
        """It said something."""
        self._since = asyncio.get_running_loop().time()
        self._set(False)

    def end(self) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.lasts = False

    def _set(self, lasts: bool) -> None:
        if lasts != self.lasts:
            self.lasts = lasts
            self._on_change(lasts)

    def _look_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SECONDS / LOOKS, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._is_due() or now - self._looked > SECONDS / 2:
            # Nothing is due; or it was this program that stood still, and what was said meanwhile is still unread.
            self._since = now
        self._looked = now
        self._look_again()
        self._set(now - self._since >= SECONDS)
