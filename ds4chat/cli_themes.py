"""The commands on themes: `themes` lists them, `themes new` writes one to start from, `themes check` reads one.

They work on files alone; nothing of the screen runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds4chat.cli_completion import complete_themes
from ds4chat.errors import UsageError

if TYPE_CHECKING:
    from ds4chat.ui.theme_file import ChatTheme

ABOUT = {
    "name": "What the theme is called in the picker and in config.toml.",
    "dark": "Whether it is a dark one.",
    "ansi": 'true: all colours are names of the terminal\'s own, such as "ansi_blue".',
    "primary": "Frames, headings, who replies, the chosen line.",
    "secondary": "Links, bullets.",
    "accent": "Your own messages' mark, keys in the help, code within a line.",
    "foreground": "Text.",
    "background": "What is behind it.",
    "surface": "Behind your messages and the status line.",
    "panel": "Behind what lies over that.",
    "boost": "Lies over backgrounds to lift them.",
    "success": "Something went well.",
    "warning": "A notice.",
    "error": "An error.",
    "luminosity_spread": "How far apart Textual's darker and lighter shades are, 0 to 1.",
    "text_alpha": "How strong Textual's own text is, 0 to 1.",
    "contrast": "Text is lightened or darkened until it has this contrast (WCAG); 1 leaves it as it is.",
}
"""What stands above a key in a new file."""

TABLES = {
    "syntax": "Code. `style` is a Pygments style, for what has no colour here.",
    "markdown": "Replies.",
    "variables": "Any variable of Textual's stylesheets, such as footer-key-foreground, border, scrollbar.",
}


@click.group("themes", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def themes(ctx: click.Context, as_json: bool) -> None:
    """List the themes, or write and check your own."""
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from textual.theme import BUILTIN_THEMES

    from ds4chat.ui.themes import ThemeShelf

    shelf = ThemeShelf(_directories())
    shelf.reload()
    rows: list[dict[str, Any]] = []
    for name in sorted(BUILTIN_THEMES.keys() | shelf.themes.keys()):
        mine = shelf.themes.get(name)
        theme = mine.theme if mine else BUILTIN_THEMES[name]
        kind = "16 colours" if theme.ansi else "dark" if theme.dark else "light"
        if mine is None or mine.path is None:
            source = "Textual"
        else:
            source = "ds4chat" if mine.path.parent == shelf.directories[0] else str(mine.path)
        rows.append({"name": name, "kind": kind, "from": source, "fault": ""})
    for failure in shelf.failures:
        where = f"line {failure.line}: " if failure.line else ""
        rows.append(
            {
                "name": failure.path.stem,
                "kind": "",
                "from": str(failure.path),
                "fault": where + failure.reason,
            }
        )
    order = {"Textual": 2, "ds4chat": 1}
    rows.sort(key=lambda row: order.get(row["from"], 0))
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    from ds4chat.safe_text import one_line

    width = max(len(row["name"]) for row in rows)
    for row in rows:
        fault = f"  cannot be used: {row['fault']}" if row["fault"] else ""
        name, source = one_line(row["name"]), one_line(row["from"] + fault)
        click.echo(f"{name:{width}}  {row['kind'] or 'broken':10}  {source}")


def _directories() -> list[Path]:
    from ds4chat import paths
    from ds4chat.ui.themes import theme_directories

    return theme_directories(paths.resolve().config_dir)


@themes.command("new")
@click.argument("name")
@click.option(
    "--from",
    "source",
    metavar="THEME",
    default="harbor",
    show_default=True,
    help="Whose colours to take.",
    shell_complete=complete_themes,
)
def new_command(name: str, source: str) -> None:
    """Write a theme of your own, to be edited; a chat that is open shows each change when it is saved."""
    if (
        not name.strip()
        or len(name) > 60
        or not all(c.isalnum() or c in " -_." for c in name)
        or name[0] in ". "
    ):
        raise UsageError(
            f'"{name}" cannot be the name of a theme: use up to 60 letters, digits, spaces, dots, "-" and "_".'
        )
    from ds4chat.ui.themes import ThemeShelf

    shelf = ThemeShelf(_directories())
    shelf.reload()
    base = _base(shelf, source)
    folder = shelf.directories[-1]
    path = folder / f"{name}.toml"
    text = theme_text(name, base)
    taken = shelf.themes.get(name)
    if taken is not None and taken.path is not None and taken.path.parent == folder:
        raise UsageError(
            f'The theme "{name}" is there already, in {taken.path}: edit it, or choose another name.'
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: edit it, or choose another name.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror or error}): see to its folder."
        ) from None
    click.echo(str(path))
    if sys.stderr.isatty():
        click.echo(
            f'Edit it, and choose it with Alt+L in the chat or theme = "{name}" in config.toml.', err=True
        )


def _base(shelf: Any, name: str) -> ChatTheme:
    from textual.theme import BUILTIN_THEMES

    from ds4chat.ui.theme_file import ChatTheme

    if name in shelf.themes:
        found: ChatTheme = shelf.themes[name]
        return found
    if name in BUILTIN_THEMES:
        return ChatTheme(BUILTIN_THEMES[name])
    import difflib

    known = sorted(BUILTIN_THEMES.keys() | shelf.themes.keys())
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"near it are {', '.join(near)}" if near else "`ds4chat themes` lists them"
    raise UsageError(f'There is no theme "{name}": {hint}.')


def theme_text(name: str, base: ChatTheme) -> str:
    """A complete theme file with the values of another, each key explained."""
    import tomli_w

    from ds4chat.ui.theme_file import COLOR_KEYS, MARKDOWN_KEYS, SYNTAX_KEYS

    theme = base.theme
    system = theme.to_color_system().generate()
    lines = [f"# Made from {theme.name}. A chat that is open shows each change when this is saved.", ""]

    def put(key: str, value: object, *, off: bool = False) -> None:
        lines.append(f"# {ABOUT[key]}")
        lines.append(("# " if off else "") + tomli_w.dumps({key: value}).strip())

    put("name", name)
    put("dark", theme.dark)
    put("ansi", theme.ansi)
    boost = "ansi_default" if theme.ansi else "#ffffff0a" if theme.dark else "#0000000a"
    for key in COLOR_KEYS:
        value = getattr(theme, key)
        follows_from = boost if key == "boost" else system.get(key, theme.primary)
        put(key, follows_from if value is None else value, off=value is None)
    put("luminosity_spread", theme.luminosity_spread)
    put("text_alpha", theme.text_alpha)
    put("contrast", base.contrast)
    follows = _defaults(base)
    for table, known, values in (
        ("syntax", SYNTAX_KEYS, base.tokens),
        ("markdown", MARKDOWN_KEYS, base.markdown),
        ("variables", (), theme.variables),
    ):
        lines += ["", f"# {TABLES[table]}", f"[{table}]"]
        if table == "syntax":
            style = base.syntax or ("github-dark" if theme.dark else "friendly")
            lines.append(("" if base.syntax else "# ") + tomli_w.dumps({"style": style}).strip())
        for key in known or tuple(values):
            value = values.get(key)
            if value is None:
                value = follows.get(table, {}).get(key, theme.foreground or system["foreground"])
                lines.append("# " + tomli_w.dumps({key: value}).strip())
            else:
                lines.append(tomli_w.dumps({key: value}).strip())
    return "\n".join(lines) + "\n"


def _defaults(base: ChatTheme) -> dict[str, dict[str, str]]:
    """Colours to begin with where a theme leaves them to the screen."""
    theme = base.theme
    accent, secondary = theme.accent or theme.primary, theme.secondary or theme.primary
    success, warning, error = (
        color or theme.primary for color in (theme.success, theme.warning, theme.error)
    )
    return {
        "markdown": {
            "heading": theme.primary,
            "code": accent,
            "code_background": theme.surface or theme.background or theme.primary,
            "link": secondary,
            "bullet": secondary,
        },
        "syntax": {
            "keyword": theme.primary,
            "string": success,
            "number": warning,
            "function": accent,
            "type": secondary,
            "builtin": secondary,
            "error": error,
        },
    }


@themes.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def check_command(file: Path) -> None:
    """Read a theme file and say what is wrong with it."""
    from ds4chat.ui.theme_file import ThemeFileError, load_theme

    try:
        theme = load_theme(file)
    except ThemeFileError as error:
        where = f", line {error.line}" if error.line else ""
        raise UsageError(f"{file}{where}: {error.reason}.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{file} cannot be read ({reason}): give the path of a theme file.") from None
    kind = "16 colours" if theme.theme.ansi else "dark" if theme.theme.dark else "light"
    from ds4chat.safe_text import one_line

    click.echo(one_line(f"{theme.theme.name}: {kind}, nothing wrong with it"))
