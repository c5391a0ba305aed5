"""The colours of a theme, resolved to Rich styles once, for everything that paints its own lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color

DEFAULT_SYNTAX = {True: "github-dark", False: "friendly"}
"""Pygments style of a theme that names none, by whether the theme is dark."""

BLACK, WHITE = Color(0, 0, 0), Color(255, 255, 255)

TERMINAL = Color.parse("ansi_default")


def contrast(one: Color, other: Color) -> float:
    """WCAG's contrast ratio, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Color) -> float:
    parts = (c / 255 for c in color.rgb)
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def readable(ink: Color, ground: Color, least: float) -> Color:
    """`ink`, lightened or darkened until it stands out from `ground`, as far as that is possible."""
    if ink.ansi is not None or ground.ansi is not None or contrast(ink, ground) >= least:
        return ink
    goal = max((WHITE, BLACK), key=lambda extreme: contrast(extreme, ground))
    for step in range(1, 20):
        tried = ink.blend(goal, step / 20)
        if contrast(tried, ground) >= least:
            return tried
    return goal


@dataclass(frozen=True)
class Palette:
    """Styles with their background baked in, so that painted lines need no further composing.

    Attributes:
        base: text of a reply.    muted, faint: secondary text, and less than that; both stay readable.
        user: text of the user's messages, on its own background.    user_label, reply_label: who speaks.
        syntax: name of the Pygments style for code, `tokens`: colours over it by kind.
        ansi: colours are the terminal's own.    markdown: Rich style by Markdown element ("markdown.h1").
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
    tokens: tuple[tuple[str, str], ...] = ()
    ansi: bool = False


def make_palette(
    variables: Mapping[str, str],
    *,
    dark: bool,
    ansi: bool = False,
    syntax: str = "",
    tokens: Mapping[str, str] | None = None,
    markdown: Mapping[str, str] | None = None,
    least: float = 4.5,
) -> Palette:
    """Resolve a palette from Textual's CSS variables and a theme's own colours for code and Markdown.

    Args:
        variables: of `App.get_css_variables()`.
        tokens: colour by kind, keys as in `theme_file.SYNTAX_KEYS`.
        markdown: colour by element, keys as in `theme_file.MARKDOWN_KEYS`; the rest follows from the theme.
        least: contrast that all text has at least.
    """

    def color(name: str) -> Color:
        found = Color.parse(variables[name])
        # An ANSI theme has transparent surfaces: what is behind them is the terminal.
        return TERMINAL if ansi and found.ansi is None else found

    def style(ink: Color, ground: Color, *, bold: bool | None = None, away: float = 0) -> Style:
        """Text on a ground; `away` moves it that far towards the ground, as the contrast allows."""
        if ansi:
            return Style(color=ink.rich_color, bgcolor=ground.rich_color, bold=bold, dim=away > 0 or None)
        return Style(color=text(ink, ground, away), bgcolor=ground.rich_color, bold=bold)

    def text(ink: Color, ground: Color, away: float = 0) -> RichColor:
        return readable(ink.blend(ground, away), ground, least).rich_color

    def mark(
        ink: Color,
        *,
        away: float = 0,
        bold: bool | None = None,
        italic: bool | None = None,
        line: bool | None = None,
    ) -> Style:
        """An element of Markdown, on the page's own background; `line` underlines it."""
        # Dim or not is said either way: a link's text stands inside of what is dim.
        return Style(
            color=ink.rich_color if ansi else text(ink, background, away),
            bold=bold,
            italic=italic,
            underline=line,
            dim=away > 0 if ansi else None,
        )

    background, foreground, surface = color("background"), color("foreground"), color("surface")
    primary, secondary, accent = color("primary"), color("secondary"), color("accent")
    own = {key: Color.parse(value) for key, value in (markdown or {}).items()}
    heading = own.get("heading", primary)
    strong = own["strong"].rich_color if "strong" in own else None
    ground = own.get("code_background", surface)
    inline = ground if ansi else background.blend(ground, 0.9)
    rule = own.get("rule", foreground)
    return Palette(
        base=style(foreground, background),
        muted=style(foreground, background, away=0.36),
        faint=style(foreground, background, away=0.5),
        user=style(foreground, surface),
        user_muted=style(foreground, surface, away=0.36),
        user_bar=style(accent, surface, bold=True),
        user_label=style(accent, surface, bold=True),
        reply_label=style(primary, background, bold=True),
        warning=style(color("warning"), background),
        error=style(color("error"), background),
        code=style(foreground, ground),
        code_label=style(foreground, ground, away=0.4),
        syntax=syntax or DEFAULT_SYNTAX[dark],
        tokens=tuple(
            (kind, value if ansi else readable(Color.parse(value), ground, least).hex)
            for kind, value in (tokens or {}).items()
        ),
        ansi=ansi,
        markdown={
            "markdown.paragraph": Style(),
            "markdown.text": Style(),
            "markdown.em": Style(italic=True),
            "markdown.strong": Style(color=strong, bold=True),
            "markdown.s": Style(strike=True),
            "markdown.code": style(own.get("code", accent), inline),
            "markdown.code_block": Style(),
            "markdown.block_quote": mark(
                own.get("quote", foreground), away=0 if "quote" in own else 0.36, italic=True
            ),
            "markdown.item": Style(),
            "markdown.item.bullet": mark(own.get("bullet", secondary), bold=True),
            "markdown.item.number": mark(own.get("bullet", secondary), bold=True),
            "markdown.hr": _line(rule, background, ansi=ansi, away=0 if "rule" in own else 0.7),
            "markdown.h1": mark(heading, bold=True, line=True),
            "markdown.h2": mark(heading, bold=True),
            "markdown.h3": mark(heading, bold=True),
            "markdown.h4": mark(heading, italic=True),
            "markdown.h5": mark(heading, italic=True),
            "markdown.h6": mark(heading, italic=True),
            "markdown.link": mark(own.get("link", secondary), line=True),
            "markdown.link_url": mark(foreground, away=0.36),
            "markdown.table.border": _line(
                own.get("table", foreground), background, ansi=ansi, away=0 if "table" in own else 0.7
            ),
            "markdown.table.header": mark(heading, bold=True),
        },
    )


def _line(ink: Color, ground: Color, *, ansi: bool, away: float) -> Style:
    """Lines need no contrast: nothing is read in them."""
    return Style(color=ink.rich_color, dim=True) if ansi else Style(color=ink.blend(ground, away).rich_color)
