"""Messages: choosing one by keys, and what can be done with it."""

from __future__ import annotations

from textual.binding import Binding

from ds4chat.ui.screens.viewing import ViewingScreen

KEYS: list[Binding] = []


class MessageActions(ViewingScreen):
    """The part of the chat screen that acts on a chosen message."""
