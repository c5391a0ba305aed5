"""The same work over and over in one screen: chats are begun, talked in, gone to and deleted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.support.interplay import Interplay, Seat

CHATS = 6
"""That are there at a time."""

TURNS = 3
"""In a new chat; one more comes later, in one that is gone to."""

QUESTIONS = (
    "Name a colour of the sea.",
    "What is a skerry?",
    "Say something about lighthouses.",
    "Which bird lives on a cliff?",
    "Describe a small harbour in the evening, with its boats and the people who wait there for them.",
    "Why do ships carry a bell?",
)


@dataclass
class Work:
    """What one round does is the same for all rounds, but for the questions.

    Attributes:
        tokens, text_bytes: of all chats, each as it was when it was left for good.
    """

    play: Interplay
    seat: Seat
    chance: random.Random
    turns: int = 0
    switches: int = 0
    made: int = 0
    deleted: int = 0
    tokens: int = 0
    text_bytes: int = 0
    visits: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Turns and switches so far."""
        return self.turns + self.switches

    def round(self) -> None:
        """A new chat, a visit to another one, and the oldest one deleted."""
        play, seat = self.play, self.seat
        play.new(seat)
        self.switches += 1
        self.made += 1
        for _ in range(TURNS):
            self._say()
        others = [name for name in play.said if name != seat.name]
        if others:
            # Always the one between: how long its chat is must not depend on chance.
            play.go(seat, others[len(others) // 2])
            self.switches += 1
            self._say()
        if len(play.said) > CHATS:
            play.go(seat, next(iter(play.said)))
            self.count(seat.name)
            play.delete(seat)
            self.switches += 2
            self.deleted += 1

    def _say(self) -> None:
        self.play.say(self.seat, self.chance.choice(QUESTIONS))
        self.turns += 1

    def count(self, name: str) -> None:
        """Add what a chat came to."""
        saved = self.play.saved
        session_id = self.play.id_of(name)
        rows = saved.all("SELECT text FROM messages WHERE session_id = ?", session_id)
        self.text_bytes += sum(len(text.encode()) for (text,) in rows)
        self.tokens += int(saved.all("SELECT tokens FROM sessions WHERE id = ?", session_id)[0][0])
