"""The chat screen's keys. None of them is one that terminals keep for themselves or cannot tell from
another.
"""

from __future__ import annotations

from textual.binding import BindingType

from ds4chat.ui.actions import messages, panels, reading, sessions, writing

CHAT_BINDINGS: list[BindingType] = [
    *writing.KEYS,
    *sessions.KEYS,
    *messages.KEYS,
    *panels.KEYS,
    *reading.KEYS,
]
