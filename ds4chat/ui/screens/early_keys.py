"""Keys that were typed for a dialog before it was there, or behind the one that closes it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from textual import events
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

Result = TypeVar("Result")


CLOSING_SECONDS = 0.5
"""A dialog that is still there so long after Enter or Esc has not closed."""


class EarlyKeys(ModalScreen[Result], Generic[Result]):
    """A dialog with an input, for which no key is lost.

    What is typed in one burst with the key that opens it comes before the input is mounted: it is kept, and handed over
    in order. What is typed in one burst behind the key that closes it goes to the screen below.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[events.Key] | None = []

    @property
    def is_waiting(self) -> bool:
        """Keys are being kept."""
        return self._kept is not None

    def hold(self) -> None:
        """Keep what comes until it is clear whether the dialog has closed."""
        self._kept = []
        self.set_timer(CLOSING_SECONDS, self._let_go)

    def take_key(self, event: events.Key) -> None:
        """A key that was on its way to another screen when this one opened."""
        copy = events.Key(event.key, event.character)
        if self._kept is not None:
            self._kept.append(copy)
        else:
            _hand_over(self, copy)

    def on_key(self, event: events.Key) -> None:
        if self._kept is not None:
            event.stop()
            event.prevent_default()
            self.take_key(event)

    def on_mount(self) -> None:
        self.call_after_refresh(self._let_go)

    def on_unmount(self) -> None:
        kept, self._kept = self._kept or [], None
        for event in kept:
            _hand_over(self.app.screen, event)

    def _let_go(self) -> None:
        if self.focused is None:
            self.query_one("Input").focus()
            # The focus is set when this callback is over.
            self.call_later(self._let_go)
            return
        kept, self._kept = self._kept or [], None
        for event in kept:
            _hand_over(self, event)


def _hand_over(screen: Screen[Any], event: events.Key) -> None:
    (screen.focused or screen)._forward_event(event)


def pass_on(widget: Widget, event: events.Key) -> bool:
    """Give a key to the dialog that opened above a widget's screen after the key was typed; whether there was one."""
    top = widget.app.screen
    if top is widget.screen or not isinstance(top, ModalScreen):
        return False
    event.stop()
    event.prevent_default()
    if isinstance(top, EarlyKeys):
        top.take_key(event)
    else:
        _hand_over(top, events.Key(event.key, event.character))
    return True
