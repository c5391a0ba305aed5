"""The colours of an exported page: those of a chat theme, resolved as the screen does it."""

from __future__ import annotations

from pathlib import Path

from rich.style import Style
from textual.theme import BUILTIN_THEMES

from ds4chat.errors import UsageError
from ds4chat.sessions.exporting.code import KINDS
from ds4chat.sessions.exporting.html import Colors
from ds4chat.ui.palette import Palette, make_palette
from ds4chat.ui.theme_file import ChatTheme
from ds4chat.ui.themes import DEFAULT_THEME, ThemeShelf, theme_directories

LIGHT_THEME = "paper"
"""Beside a dark theme."""


def page_colors(config_dir: Path, name: str, *, given: bool) -> tuple[Colors, Colors]:
    """The colours for light and for dark screens: a theme's own for its kind, and shipped ones for the other.

    Args:
        given: the theme was asked for; else one that is not there is passed over.

    Raises UsageError.
    """
    shelf = ThemeShelf(theme_directories(config_dir))
    shelf.reload()
    themes = {name: ChatTheme(theme) for name, theme in BUILTIN_THEMES.items()} | shelf.themes
    chosen = themes.get(name)
    if chosen is None and given:
        raise UsageError(f'There is no theme "{name}": `ds4chat themes` lists them.')
    if chosen is not None and chosen.theme.ansi:
        if given:
            raise UsageError(
                f'The theme "{name}" has the colours of a terminal, which a page does not know: choose another.'
            )
        chosen = None
    light, dark = themes[LIGHT_THEME], themes[DEFAULT_THEME]
    if chosen is not None:
        light, dark = (light, chosen) if chosen.theme.dark else (chosen, dark)
    return _colors(light), _colors(dark)


def _colors(chosen: ChatTheme) -> Colors:
    theme = chosen.theme
    palette = make_palette(
        theme.to_color_system().generate(),
        dark=theme.dark,
        syntax=chosen.syntax,
        tokens=chosen.tokens,
        markdown=chosen.markdown,
        least=chosen.contrast,
    )
    elements = palette.markdown
    code, tokens = palette.code, dict(palette.tokens)
    return Colors(
        {
            "background": _ground(palette.base),
            "surface": _ground(palette.user),
            "foreground": _ink(palette.base),
            "muted": _ink(palette.muted),
            "user": _ink(palette.user_label),
            "reply": _ink(palette.reply_label),
            "heading": _ink(elements["markdown.h1"]),
            "link": _ink(elements["markdown.link"]),
            "quote": _ink(elements["markdown.block_quote"]),
            "rule": _ink(elements["markdown.hr"]),
            "code": _ink(elements["markdown.code"]),
            "code-background": _ground(code),
            **{
                kind: tokens[kind][:7].lower() if kind in tokens else _default(palette, kind)
                for kind in KINDS
            },
        }
    )


def _default(palette: Palette, kind: str) -> str:
    """A colour for a kind of code that a theme leaves to the screen."""
    match kind:
        case "comment":
            return _ink(palette.code_label)
        case "keyword" | "builtin":
            return _ink(palette.reply_label)
        case "string" | "number":
            return _ink(palette.markdown["markdown.link"])
        case "function" | "type":
            return _ink(palette.markdown["markdown.code"])
        case "error":
            return _ink(palette.error)
    return _ink(palette.code)


def _ink(style: Style) -> str:
    assert style.color is not None
    return style.color.get_truecolor().hex


def _ground(style: Style) -> str:
    assert style.bgcolor is not None
    return style.bgcolor.get_truecolor().hex
