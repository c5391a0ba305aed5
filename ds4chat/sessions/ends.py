"""How the turns of each session ended, and who waits for that. Must not know: the engine, the screen."""

from __future__ import annotations

import asyncio

from ds4chat.errors import UsageError
from ds4chat.sessions.events import TurnEnded

KEPT = 16
"""Sessions whose last end is remembered."""


class Ends:
    """The last end of each session, as far as somebody may still ask for it."""

    def __init__(self) -> None:
        self._ends: dict[str, TurnEnded] = {}
        self._waiters: dict[str, list[asyncio.Future[TurnEnded]]] = {}

    def begins(self, session_id: str) -> None:
        """A turn of the session waits now: what ended before is of no interest any more."""
        self._ends.pop(session_id, None)

    def ended(self, end: TurnEnded, *, last: bool) -> None:
        """A turn is over. `last`: none of its session runs or waits."""
        self._ends.pop(end.session_id, None)
        self._ends[end.session_id] = end
        if len(self._ends) > KEPT:
            del self._ends[next(iter(self._ends))]
        if last:
            for waiter in self._waiters.pop(end.session_id, []):
                if not waiter.done():
                    waiter.set_result(end)

    async def wait(self, session_id: str, *, busy: bool) -> TurnEnded:
        """The last end, waited for while the session is busy. Raises UsageError when there was no turn."""
        if not busy:
            if session_id in self._ends:
                return self._ends[session_id]
            raise UsageError("No message was sent in this session.")
        waiter: asyncio.Future[TurnEnded] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(session_id, []).append(waiter)
        return await waiter
