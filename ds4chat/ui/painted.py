"""What was painted of widgets that are gone is let go of.

Reaches into a private corner of Textual; without it the app runs on, and remembers what 1,000 widgets looked like.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from textual._styles_cache import StylesCache
from textual.color import Color


def let_go_of_widgets() -> None:
    """Textual remembers two styles by the colours they are made of, and by the cache of whoever asked, which holds all
    lines of a widget: that is of no account for the styles. Again does nothing."""
    method = StylesCache.__dict__.get("get_inner_outer")
    if method is None or isinstance(method, staticmethod) or not hasattr(method, "__wrapped__"):
        return
    made = method.__wrapped__

    @lru_cache(1024)
    def get_inner_outer(base_background: Color, background: Color) -> Any:
        return made(None, base_background, background)

    StylesCache.get_inner_outer = staticmethod(get_inner_outer)  # type: ignore[method-assign, assignment]
