"""Writing single settings into config.toml: the rest of the file stays as its owner wrote it, comments included.

Where a line can be changed, that line alone changes; else the file is written anew from its values, unknown keys and
order kept. Values are checked as when they are read. Must not know: the screen.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

from ds4chat.config import parse_setting, read_tree
from ds4chat.errors import UsageError
from ds4chat.files import write_private
from ds4chat.toml_text import parse_toml


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
        new = edited if edited is not None and _means(edited, wanted) else tomli_w.dumps(wanted)
    except (ValueError, RecursionError):
        # Numbers too long to be written, or lists nested too deeply.
        raise UsageError(
            f"The configuration {path} cannot be changed from here: write {section}.{key} into it by hand."
        ) from None
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


def _means(source: str, wanted: dict[str, Any]) -> bool:
    try:
        return parse_toml(source) == wanted
    except (ValueError, RecursionError):
        return False


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
