"""Themes as TOML files: those shipped with ds4chat, and the user's own beside config.toml.

A file has all fields of a Textual theme, and may name a Pygments style for code (`syntax`) and colours for
Markdown. A file that cannot be used is skipped and told about once; a user's theme replaces a shipped one of
the same name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from textual.color import Color, ColorParseError
from textual.theme import Theme

from ds4chat.validation import explain

DEFAULT_THEME = "harbor"

MARKDOWN_KEYS = ("heading", "code", "code_background", "link", "quote", "bullet")

_COLORS = (
    "primary", "secondary", "warning", "error", "success", "accent",
    "foreground", "background", "surface", "panel", "boost",
)  # fmt: skip
_COLOR = Meta(description='a colour such as "#7aa7e8"')


class _ThemeFile(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=60, description="a name of 1 to 60 characters")]
    primary: Annotated[str, _COLOR]
    secondary: Annotated[str, _COLOR] | None = None
    warning: Annotated[str, _COLOR] | None = None
    error: Annotated[str, _COLOR] | None = None
    success: Annotated[str, _COLOR] | None = None
    accent: Annotated[str, _COLOR] | None = None
    foreground: Annotated[str, _COLOR] | None = None
    background: Annotated[str, _COLOR] | None = None
    surface: Annotated[str, _COLOR] | None = None
    panel: Annotated[str, _COLOR] | None = None
    boost: Annotated[str, _COLOR] | None = None
    dark: bool = True
    luminosity_spread: Annotated[float, Meta(ge=0, le=1)] = 0.15
    text_alpha: Annotated[float, Meta(ge=0, le=1)] = 0.95
    syntax: str = ""
    markdown: dict[str, str] = {}
    variables: dict[str, str] = {}


_ALLOWED = {
    "$": ", ".join(_ThemeFile.__struct_fields__),
    "$.name": "a name of 1 to 60 characters",
    **{f"$.{key}": 'a colour such as "#7aa7e8"' for key in _COLORS},
    "$.dark": "true or false",
    "$.luminosity_spread": "a number from 0 to 1",
    "$.text_alpha": "a number from 0 to 1",
    "$.syntax": "the name of a Pygments style",
    "$.markdown": "a table of colours",
    "$.markdown[...]": "a colour",
    "$.variables": "a table of strings",
    "$.variables[...]": "a string",
}


@dataclass(frozen=True)
class ChatTheme:
    """A theme and what Textual's own has no place for. `syntax` "" leaves the style of code to the screen."""

    theme: Theme
    syntax: str = ""
    markdown: dict[str, str] = field(default_factory=dict)
    path: Path | None = None


@dataclass(frozen=True)
class ThemeFailure:
    """A file that was skipped; `reason` names the key."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"Theme {self.path} was skipped: {self.reason}."


def load_theme(path: Path) -> ChatTheme:
    """Read one file. Raises ValueError with a reason that names the key, OSError when it cannot be read."""
    try:
        data = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _ThemeFile)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text") from error
    except msgspec.ValidationError as error:
        raise ValueError(explain(error, _ALLOWED)) from error
    for key in _COLORS:
        _check_color(key, getattr(data, key))
    for key, value in data.markdown.items():
        if key not in MARKDOWN_KEYS:
            raise ValueError(f'unknown key "{key}" in markdown: allowed are {", ".join(MARKDOWN_KEYS)}')
        _check_color(f"markdown.{key}", value)
    if data.syntax:
        _check_syntax(data.syntax)
    theme = Theme(
        name=data.name,
        dark=data.dark,
        luminosity_spread=data.luminosity_spread,
        text_alpha=data.text_alpha,
        variables=data.variables,
        **{key: getattr(data, key) for key in _COLORS},
    )
    try:
        theme.to_color_system().generate()
    except Exception as error:
        raise ValueError(f"its colours cannot be used together ({error})") from error
    return ChatTheme(theme, data.syntax, data.markdown, path)


def _check_color(key: str, value: str | None) -> None:
    if value is None:
        return
    try:
        color = Color.parse(value)
    except ColorParseError as error:
        raise ValueError(f'{key} must be a colour such as "#7aa7e8", not "{value}"') from error
    if color.ansi is not None or color.a < 1:
        raise ValueError(f'{key} must be a full colour such as "#7aa7e8", not "{value}"')


def _check_syntax(name: str) -> None:
    # The names alone: importing Pygments' styles to check them would hold up the first paint.
    from pygments.styles import STYLE_MAP  # type: ignore[import-untyped]

    if name not in STYLE_MAP:
        raise ValueError(f'syntax must be one of {", ".join(sorted(STYLE_MAP))}, not "{name}"')


def load_themes(directories: Iterable[Path]) -> tuple[dict[str, ChatTheme], list[ThemeFailure]]:
    """All themes by name, later directories winning, and the files that were skipped. A missing directory is
    empty.
    """
    loaded: dict[str, ChatTheme] = {}
    failed: list[ThemeFailure] = []
    for directory in directories:
        try:
            paths = sorted(directory.glob("*.toml"))
        except OSError as error:
            failed.append(ThemeFailure(directory, str(error)))
            continue
        for path in paths:
            try:
                chat_theme = load_theme(path)
            except (ValueError, OSError) as error:
                failed.append(ThemeFailure(path, str(error)))
            else:
                loaded[chat_theme.theme.name] = chat_theme
    return loaded, failed


def theme_directories(config_dir: Path) -> list[Path]:
    """Where themes lie: shipped ones first, then the user's own."""
    from ds4chat.paths import shipped

    return [shipped("themes"), config_dir / "themes"]
