"""The colours of a theme, resolved to Rich styles once, for everything that paints its own lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from textual.color import Color

DEFAULT_SYNTAX = {True: "github-dark", False: "friendly"}
"""Pygments style of a theme that names none, by whether the theme is dark."""


def _style(color: Color, background: Color, *, bold: bool | None = None) -> Style:
    return Style(color=color.rich_color, bgcolor=background.rich_color, bold=bold)


@dataclass(frozen=True)
class Palette:
    """Styles with their background baked in, so that painted lines need no further composing.

    Attributes:
        base: text of a reply.    muted: secondary text that must stay readable.    faint: rules and hints.
        user: text of the user's messages, on its own background.    user_label, reply_label: who speaks.
        syntax: name of the Pygments style for code.    markdown: Rich style by Markdown element
        ("markdown.h1").
    """

    base: Style
    muted: Style
    faint: Style
    user: Style
    user_muted: Style
    user_bar: Style
    user_label: Style
    reply_label: Style
    warning: Style
    error: Style
    code: Style
    code_label: Style
    syntax: str
    markdown: Mapping[str, Style]


def make_palette(
    variables: Mapping[str, str], *, dark: bool, syntax: str = "", markdown: Mapping[str, str] | None = None
) -> Palette:
    """Resolve a palette from Textual's CSS variables and a theme's own syntax style and Markdown colours.

    Args:
        variables: of `App.get_css_variables()`.
        markdown: colour by element, keys as in `themes.MARKDOWN_KEYS`; the rest follows from the theme.
    """

    def color(name: str) -> Color:
        return Color.parse(variables[name])

    background, foreground, surface = color("background"), color("foreground"), color("surface")
    primary, secondary, accent = color("primary"), color("secondary"), color("accent")
    muted = foreground.blend(background, 0.36)
    own = {key: Color.parse(value) for key, value in (markdown or {}).items()}
    heading = own.get("heading", primary)
    code_color = own.get("code", accent)
    code_background = own.get("code_background", surface)
    inline_background = background.blend(code_background, 0.9)
    return Palette(
        base=_style(foreground, background),
        muted=_style(muted, background),
        faint=_style(foreground.blend(background, 0.6), background),
        user=_style(foreground, surface),
        user_muted=_style(foreground.blend(surface, 0.36), surface),
        user_bar=_style(accent, surface, bold=True),
        user_label=_style(accent, surface, bold=True),
        reply_label=_style(primary, background, bold=True),
        warning=_style(color("warning"), background),
        error=_style(color("error"), background),
        code=_style(foreground, code_background),
        code_label=_style(foreground.blend(code_background, 0.4), code_background),
        syntax=syntax or DEFAULT_SYNTAX[dark],
        markdown={
            "markdown.paragraph": Style(),
            "markdown.text": Style(),
            "markdown.em": Style(italic=True),
            "markdown.strong": Style(bold=True),
            "markdown.s": Style(strike=True),
            "markdown.code": _style(code_color, inline_background),
            "markdown.code_block": Style(),
            "markdown.block_quote": Style(color=own.get("quote", muted).rich_color, italic=True),
            "markdown.item": Style(),
            "markdown.item.bullet": Style(color=own.get("bullet", secondary).rich_color, bold=True),
            "markdown.item.number": Style(color=own.get("bullet", secondary).rich_color, bold=True),
            "markdown.hr": Style(color=foreground.blend(background, 0.7).rich_color),
            "markdown.h1": Style(color=heading.rich_color, bold=True, underline=True),
            "markdown.h2": Style(color=heading.rich_color, bold=True),
            "markdown.h3": Style(color=heading.rich_color, bold=True),
            "markdown.h4": Style(color=heading.rich_color, italic=True),
            "markdown.h5": Style(color=heading.rich_color, italic=True),
            "markdown.h6": Style(color=heading.rich_color, italic=True),
            "markdown.link": Style(color=own.get("link", secondary).rich_color, underline=True),
            "markdown.link_url": Style(color=muted.rich_color),
            "markdown.table.border": Style(color=foreground.blend(background, 0.7).rich_color),
            "markdown.table.header": Style(color=heading.rich_color, bold=True),
        },
    )
