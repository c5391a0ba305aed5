"""Replies reach the database while they grow.

Promises: what was shown of a reply is saved at most `SAVE_SECONDS` later. Must not know: the engine, the screen.
"""

from __future__ import annotations

import asyncio

from ds4chat.sessions.session import Message
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import Turn

SAVE_SECONDS = 0.4
"""Longest time a streamed word is only in memory; the promise is half a second."""


def _length(reply: Message) -> int:
    """How far a reply has come: in tokens and characters, since not every engine tells its tokens."""
    return len(reply.tokens) + len(reply.text)


class ReplySaver:
    """Saves the reply of the running turn, now and then."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._growing: Turn | None = None

    def soon(self, turn: Turn) -> None:
        """Something was added to the turn's reply."""
        if self._growing is None:
            asyncio.get_running_loop().call_later(SAVE_SECONDS, self._save_growing)
        self._growing = turn

    def _save_growing(self) -> None:
        turn, self._growing = self._growing, None
        if turn is not None and turn.reply is not None and _length(turn.reply) != turn.saved:
            self.save(turn)

    def save(self, turn: Turn) -> None:
        """Save a turn's reply as it is."""
        reply = turn.reply
        assert reply is not None
        turn.saved = _length(reply)
        stats = reply.stats or None
        args = (reply.id, reply.text, reply.tokens, reply.state, stats)
        self._shelf.write(turn.session_id, self._shelf.db.update_reply, *args)
