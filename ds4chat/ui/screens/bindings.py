"""The chat screen's keys. None of them is one that terminals keep for themselves or cannot tell from
another.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType

from ds4chat.ui.actions import looks, messages, panels, reading, sessions, writing

CHAT_GROUPS: dict[str, list[Binding]] = {
    "Writing": writing.KEYS,
    "Chats": sessions.KEYS,
    "Messages": messages.KEYS,
    "Panels": [*panels.KEYS, *looks.KEYS],
    "Reading": reading.KEYS,
}
"""By what they are about, for the help."""

CHAT_BINDINGS: list[BindingType] = [binding for group in CHAT_GROUPS.values() for binding in group]
