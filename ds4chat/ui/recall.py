"""Going back through what was sent before, as the shell does: pure, for the prompt box."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LIMIT = 1000
"""Messages that can be taken up again."""


class Recall:
    """What was sent before, newest first, of that what begins with the text in the box."""

    def __init__(self) -> None:
        self.stored: Callable[[int], Sequence[str]] = lambda limit: ()
        """What was sent in all chats, newest first."""
        self._sent: list[str] = []
        self._found: list[str] = []
        self._at = -1
        self._unsent = ""

    def add(self, text: str) -> None:
        """A text was sent, or a command run."""
        self._sent.append(text)
        self._at = -1

    def stands_in(self, text: str) -> bool:
        """Whether the text is one that was taken up; one that was changed since is a text of its own."""
        return self._at >= 0 and text == self._found[self._at]

    def earlier(self, text: str) -> str | None:
        """The one before the text in the box, None when there is none."""
        if not self.stands_in(text):
            known = dict.fromkeys([*reversed(self._sent), *self.stored(LIMIT)])
            found = [other for other in known if other != text and other.startswith(text)]
            if not found:
                return None
            self._found, self._unsent, self._at = found, text, -1
        if self._at + 1 >= len(self._found):
            return None
        self._at += 1
        return self._found[self._at]

    def later(self, text: str) -> str | None:
        """The one after it, at last what had been written; None when the text is not one that was taken up."""
        if not self.stands_in(text):
            return None
        self._at -= 1
        return self._found[self._at] if self._at >= 0 else self._unsent
