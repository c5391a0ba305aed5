"""The format of a theme file: TOML with all fields of a Textual theme, and colours for code and Markdown.

Reading says what is wrong, in which line and what may stand there. Knows no folders and no app.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.css.tokenize import tokenize_values
from textual.css.tokenizer import TokenError
from textual.theme import Theme

from ds4chat.files import read_limited
from ds4chat.safe_text import one_line
from ds4chat.toml_text import parse_toml
from ds4chat.validation import explain, short

MARKDOWN_KEYS = ("heading", "strong", "code", "code_background", "link", "quote", "bullet", "rule", "table")

SYNTAX_KEYS = (
    "comment", "keyword", "string", "number", "function", "type", "builtin", "operator", "name", "error",
)  # fmt: skip
"""Kinds of text in code that may have a colour of their own."""

COLOR_KEYS = (
    "primary", "secondary", "accent", "foreground", "background", "surface", "panel", "boost",
    "success", "warning", "error",
)  # fmt: skip

DEFAULT_CONTRAST = 4.5
"""Least contrast of text to its background, as WCAG measures it."""

MAX_BYTES = 100_000
"""Of a theme file: some sixty short lines."""


class _ThemeFile(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=60)]
    primary: str
    secondary: str | None = None
    accent: str | None = None
    foreground: str | None = None
    background: str | None = None
    surface: str | None = None
    panel: str | None = None
    boost: str | None = None
    success: str | None = None
    warning: str | None = None
    error: str | None = None
    dark: bool = True
    ansi: bool = False
    luminosity_spread: Annotated[float, Meta(ge=0, le=1)] = 0.15
    text_alpha: Annotated[float, Meta(ge=0, le=1)] = 0.95
    contrast: Annotated[float, Meta(ge=1, le=15)] = DEFAULT_CONTRAST
    syntax: str | dict[str, str] = ""
    markdown: dict[str, str] = {}
    variables: dict[str, str] = {}


_ANSI_VARIABLES = {"ansi-background": "ansi_default", "ansi-foreground": "ansi_default"}
"""Textual's stylesheets need these of a theme of the terminal's colours."""

_ALLOWED = {
    "$": ", ".join(_ThemeFile.__struct_fields__),
    "$.name": "a name of 1 to 60 characters",
    **{f"$.{key}": 'a colour such as "#7aa7e8"' for key in COLOR_KEYS},
    "$.dark": "true or false",
    "$.ansi": "true or false",
    "$.luminosity_spread": "a number from 0 to 1",
    "$.text_alpha": "a number from 0 to 1",
    "$.contrast": "a number from 1 to 15",
    "$.syntax": "the name of a Pygments style, or a table of colours",
    "$.syntax[...]": "a colour",
    "$.markdown": "a table of colours",
    "$.markdown[...]": "a colour",
    "$.variables": "a table of strings",
    "$.variables[...]": "a string",
}


@dataclass(frozen=True)
class ChatTheme:
    """A theme and what Textual's own has no place for.

    Attributes:
        syntax: name of a Pygments style, "" for the screen's own choice.
        tokens: colour by kind of text in code (`SYNTAX_KEYS`), over that style.
        markdown: colour by element (`MARKDOWN_KEYS`); the rest follows from the theme.
        contrast: text is lightened or darkened until it has this contrast; 1 leaves it as it is.
        path: the file it is from, None for Textual's own.
    """

    theme: Theme
    syntax: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    markdown: dict[str, str] = field(default_factory=dict)
    contrast: float = DEFAULT_CONTRAST
    path: Path | None = None


class ThemeFileError(ValueError):
    """What is wrong with a file. `line` counts from 1; 0 when the fault is in no single line."""

    def __init__(self, reason: str, line: int = 0) -> None:
        reason = one_line(reason)
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason = reason
        self.line = line


def load_theme(path: Path) -> ChatTheme:
    """Read one file. Raises ThemeFileError, whose text names line and key, and OSError when it cannot be read."""
    data = read_limited(path, MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise ThemeFileError("it is larger than 100 KB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ThemeFileError("not UTF-8 text", data[: error.start].count(b"\n") + 1) from error
    return parse_theme(text, path)


@functools.lru_cache(maxsize=64)
def parse_theme(text: str, path: Path | None = None) -> ChatTheme:
    """A theme from the text of a file. Raises ThemeFileError."""
    try:
        tree = parse_toml(text)
    except ValueError as error:
        found = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        if found:
            raise ThemeFileError(f"not valid TOML: {str(error)[: found.start()]}", int(found[1])) from error
        raise ThemeFileError(f"not valid TOML: {error}", text.rstrip().count("\n") + 1) from error
    try:
        data = msgspec.convert(tree, _ThemeFile)
    except msgspec.ValidationError as error:
        raise ThemeFileError(explain(error, _ALLOWED), _line_of_error(text, str(error))) from error
    check = _Checker(text, ansi=data.ansi)
    for key in COLOR_KEYS:
        if (value := getattr(data, key)) is not None:
            check.color("", key, value)
    check.table("markdown", data.markdown, MARKDOWN_KEYS)
    tokens = dict(data.syntax) if isinstance(data.syntax, dict) else {}
    style = tokens.pop("style", "") if tokens else data.syntax if isinstance(data.syntax, str) else ""
    check.style(style, "syntax" if tokens or isinstance(data.syntax, dict) else "")
    check.table("syntax", tokens, SYNTAX_KEYS, also=("style",))
    check.variables(data.variables)
    theme = Theme(
        name=data.name,
        dark=data.dark,
        ansi=data.ansi,
        luminosity_spread=data.luminosity_spread,
        text_alpha=data.text_alpha,
        variables={**(_ANSI_VARIABLES if data.ansi else {}), **data.variables},
        **{key: getattr(data, key) for key in COLOR_KEYS},
    )
    return ChatTheme(theme, style, tokens, data.markdown, data.contrast, path)


@functools.cache
def _color_variables() -> frozenset[str]:
    """Names of Textual's variables that hold a colour."""
    names = Theme("any", primary="#7aa7e8").to_color_system().generate()
    return frozenset(name for name in names if not _is_style(name))


def _is_style(variable: str) -> bool:
    """Whether a variable holds a text style, as "link-style" and "link-style-hover" do."""
    return re.search(r"-style(-|$)", variable) is not None


def _is_text_style(value: str) -> bool:
    """Whether a stylesheet takes the value: the words themselves, and together."""
    from textual.css.constants import VALID_STYLE_FLAGS

    words = value.split()
    if words == ["none"]:
        return True
    if not words or "none" in words or not VALID_STYLE_FLAGS.issuperset(words):
        return False
    try:
        Style.parse(value)
    except StyleSyntaxError:
        return False
    return True


class _Checker:
    """Checks values one by one; each fault knows its line."""

    def __init__(self, text: str, *, ansi: bool) -> None:
        self._text, self._ansi = text, ansi

    def color(self, table: str, key: str, value: str) -> None:
        wanted = self._wanted(key, value)
        if wanted:
            name = f"{table}.{key}" if table else key
            raise ThemeFileError(f"{name} must be {wanted}", line_of(self._text, table, key))

    def _wanted(self, key: str, value: str) -> str:
        """What a colour must be and is not, "" when there is nothing to say."""
        full = f'a full colour such as "#7aa7e8", not "{short(value)}"'
        try:
            color = Color.parse(value)
        except ColorParseError:
            return f'a colour such as "{"ansi_blue" if self._ansi else "#7aa7e8"}", not "{short(value)}"'
        if self._ansi and color.ansi is None:
            return f'one of the 16 colours such as "ansi_blue", not "{short(value)}"'
        if not self._ansi and color.ansi is not None:
            return f"{full}: ANSI names need ansi = true"
        return full if color.a < 1 and key != "boost" else ""

    def table(
        self, table: str, values: dict[str, str], known: tuple[str, ...], also: tuple[str, ...] = ()
    ) -> None:
        for key, value in values.items():
            if key not in known:
                allowed = ", ".join((*also, *known))
                line = line_of(self._text, table, key)
                raise ThemeFileError(f'unknown key "{short(key)}" in {table}: allowed are {allowed}', line)
            self.color(table, key, value)

    def variables(self, values: dict[str, str]) -> None:
        """Textual would end the app over a value that its stylesheets cannot use."""
        for key, value in values.items():
            if _is_style(key):
                if not _is_text_style(value):
                    reason = f'variables.{short(key)} must be a style such as "bold", not "{short(value)}"'
                    raise self._variable_fault(key, reason)
            elif key in _color_variables():
                try:
                    Color.parse(
                        re.sub(r"^(auto|initial)$", "white", re.sub(r"\s+\d+(\.\d+)?%$", "", value.strip()))
                    )
                except ColorParseError as error:
                    reason = f'variables.{short(key)} must be a colour, not "{short(value)}"'
                    raise self._variable_fault(key, reason) from error
            elif not _is_value(value):
                reason = f'variables.{short(key)} must be a value as in a stylesheet, not "{short(value)}"'
                raise self._variable_fault(key, reason)

    def _variable_fault(self, key: str, reason: str) -> ThemeFileError:
        return ThemeFileError(reason, line_of(self._text, "variables", key))

    def style(self, name: str, table: str) -> None:
        if not name:
            return
        # The names alone: importing Pygments' styles to check them would hold up the first paint.
        from pygments.styles import STYLE_MAP  # type: ignore[import-untyped]

        if name not in STYLE_MAP:
            key = "style" if table else "syntax"
            raise ThemeFileError(
                f'syntax must be one of {", ".join(sorted(STYLE_MAP))}, not "{short(name)}"',
                line_of(self._text, table, key),
            )


def _is_value(text: str) -> bool:
    """Whether a stylesheet can use it where a value is wanted."""
    if not re.fullmatch(r"[\w #%.(),-]*", text):
        return False
    try:
        tokenize_values({"value": text})
    except TokenError:
        return False
    return True


def line_of(text: str, table: str, key: str) -> int:
    """The line a key stands in, counted from 1; 0 when it is written in a way that is not looked for."""
    inside = ""
    wanted = re.compile(rf"""\s*(?:["']?{re.escape(key)}["']?)\s*=""")
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            inside = header[1]
            if not table and inside == key:
                return number
        elif inside == table and wanted.match(line):
            return number
    return 0


def _line_of_error(text: str, message: str) -> int:
    reason, _, where = message.partition(" - at `$")
    if found := re.search(r"unknown field `(.*?)`", reason):
        return line_of(text, "", found[1])
    return line_of(text, "", where.strip("`.").partition("[")[0])
