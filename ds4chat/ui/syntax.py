"""The colours of code: a Pygments style with a theme's own colours over it.

Imported with the Markdown renderer, since Pygments is slow to import.
"""

from __future__ import annotations

from functools import lru_cache

from pygments.token import (  # type: ignore[import-untyped]
    Comment,
    Error,
    Generic,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
)
from rich.style import Style
from rich.syntax import ANSI_DARK, ANSISyntaxTheme, PygmentsSyntaxTheme, SyntaxTheme, TokenType
from textual.color import Color

KINDS: dict[str, tuple[TokenType, ...]] = {
    "comment": (Comment,),
    "keyword": (Keyword, Name.Tag, Operator.Word),
    "string": (String, Literal.String),
    "number": (Number, Literal),
    "function": (Name.Function, Name.Decorator),
    "type": (Name.Class, Name.Exception, Name.Namespace, Keyword.Type),
    "builtin": (Name.Builtin, Name.Constant, Keyword.Constant),
    "operator": (Operator, Punctuation),
    "name": (Name, Text, Generic),
    "error": (Error, Generic.Error, Generic.Deleted),
}
"""Pygments' tokens by the keys of a theme's table `syntax`; a token is coloured as its nearest relative here."""

_EXTRA = {"comment": Style(italic=True), "type": Style(bold=True)}


class CodeTheme(SyntaxTheme):
    """A style for code, on the background of whoever paints it."""

    def __init__(self, base: SyntaxTheme, colors: tuple[tuple[str, str], ...]) -> None:
        self._base = base
        self._styles = {
            token: Style(color=Color.parse(color).rich_color) + _EXTRA.get(kind, Style())
            for kind, color in colors
            for token in KINDS[kind]
        }
        self._cache: dict[TokenType, Style] = {}

    def get_style_for_token(self, token_type: TokenType) -> Style:
        style = self._cache.get(token_type)
        if style is None:
            relatives = (token_type[:length] for length in range(len(token_type), 0, -1))
            style = next((self._styles[kin] for kin in relatives if kin in self._styles), None)
            style = self._cache[token_type] = style or self._base.get_style_for_token(token_type)
        return style

    def get_background_style(self) -> Style:
        return self._base.get_background_style()


@lru_cache(maxsize=16)
def code_theme(style: str, colors: tuple[tuple[str, str], ...], *, ansi: bool = False) -> SyntaxTheme:
    """The style of code for a palette's `syntax`, `tokens` and `ansi`."""
    base: SyntaxTheme = ANSISyntaxTheme(ANSI_DARK) if ansi else PygmentsSyntaxTheme(style)
    return CodeTheme(base, colors) if colors else base
