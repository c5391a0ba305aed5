"""How a key is declared: what Textual's `Binding` needs, with an id and a sentence for every action."""

from __future__ import annotations

from textual.binding import Binding


def key(key: str, action: str, description: str, id: str, tooltip: str, *, show: bool = False) -> Binding:
    """A binding. `id` names it in the configuration, `description` is for the footer, `tooltip` a sentence for the
    help; `show` puts it into the footer."""
    return Binding(key, action, description, id=id, tooltip=tooltip, show=show)
