"""How a key is declared: what Textual's `Binding` needs, with an id and a sentence for every action."""

from __future__ import annotations

from collections.abc import Mapping

from textual.binding import Binding

NO_KEY = "ignore"
"""Stands for no key at all, since Textual takes an empty string for the key that was declared."""


def key(key: str, action: str, description: str, id: str, tooltip: str, *, show: bool = False) -> Binding:
    """A binding. `id` names it in the configuration, `description` is for the footer, `tooltip` a sentence for the
    help; `show` puts it into the footer."""
    return Binding(key, action, description, id=id, tooltip=tooltip, show=show)


def keys_of(id: str | None, declared: str, keymap: Mapping[str, str]) -> list[str]:
    """The keys of an action as they are set; those declared when nothing is set for its id."""
    keys = keymap.get(id, declared) if id else declared
    return [name for name in keys.split(",") if name and name != NO_KEY]
