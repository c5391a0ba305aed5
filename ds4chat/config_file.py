"""Writing single settings into config.toml: the rest of the file stays as its owner wrote it, comments included.

Where a line can be changed, that line alone changes; else the file is written anew from its values, unknown keys and
order kept. Values are checked as when they are read. Must not know: the screen.
"""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from ds4chat.config import MAX_FILE_BYTES, parse_setting
from ds4chat.errors import UsageError
from ds4chat.personas import write_private
from ds4chat.validation import short


def read_tree(path: Path) -> tuple[str, dict[str, Any]]:
    """The file's text and values; empty when there is none. Raises UsageError when it is not TOML."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"The configuration {path} cannot be read ({reason}): mend it or move it away."
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"The configuration {path} is larger than 1 MB: make it smaller or move it away.")
    try:
        text = data.decode("utf-8-sig")
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"The configuration {path} is not TOML ({short(str(error))}): mend it there."
        ) from None


def save_setting(path: Path, section: str, key: str, text: str | None) -> None:
    """Set a key to what was typed, or take it out (None).

    Raises:
        UsageError: the value cannot stand there, or the file is not TOML or cannot be written.
    """
    import tomli_w

    value = None if text is None else parse_setting(section, key, text)
    source, tree = read_tree(path)
    table = tree.get(section, {})
    if not isinstance(table, dict):
        raise UsageError(f"The configuration {path} has a fault: {section} must be a table: mend it there.")
    wanted = {**tree, section: {**table}}
    if value is None:
        wanted[section].pop(key, None)
        if not wanted[section] and section not in tree:
            return
    else:
        wanted[section][key] = value
    edited = _edit(source, section, key, None if value is None else tomli_w.dumps({key: value}))
    try:
        new = edited if edited is not None and tomllib.loads(edited) == wanted else tomli_w.dumps(wanted)
    except tomllib.TOMLDecodeError:
        new = tomli_w.dumps(wanted)
    if new == source:
        return
    try:
        # A link is kept as one: dotfiles often lie elsewhere.
        target = path.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        write_private(target, new, mode)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"The configuration {path} cannot be written ({reason}): see to it and try again."
        ) from None


def _edit(source: str, section: str, key: str, line: str | None) -> str | None:
    """The text with one line changed, added or taken out. The caller proves that it means what was wanted."""
    lines = source.splitlines(keepends=True)
    header = re.compile(rf"\s*\[\s*{re.escape(section)}\s*\]\s*(#.*)?$")
    start = next((i for i, text in enumerate(lines) if header.match(text)), None)
    if start is None:
        if line is None:
            return source
        gap = "" if not source else ("\n" if source.endswith("\n") else "\n\n")
        return f"{source}{gap}[{section}]\n{line}"
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"\s*\[", lines[i])), len(lines))
    own = re.compile(rf"\s*{re.escape(key)}\s*=")
    at = next((i for i in range(start + 1, end) if own.match(lines[i])), None)
    if at is not None:
        comment = re.search(r"\s+#[^\"'\n]*$", lines[at]) if line is not None else None
        replaced = (
            [] if line is None else [line.rstrip("\n") + (comment[0].rstrip() if comment else "") + "\n"]
        )
        return "".join([*lines[:at], *replaced, *lines[at + 1 :]])
    if line is None:
        return source
    last = max((i for i in range(start, end) if lines[i].strip()), default=start)
    if not lines[last].endswith("\n"):
        lines[last] += "\n"
    return "".join([*lines[: last + 1], line, *lines[last + 1 :]])
