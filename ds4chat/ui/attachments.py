"""Text files named in a message as `@path`: finding them, their size, and putting them into the message.

Only what names something that is there counts as a file, so that mail addresses and decorators stay text. Pure but for
looking at the files; knows no widget. The line mode uses it as well. What a file in a message looks like is
`attached_files`'.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ds4chat.attached_files import LIMIT_BYTES, block, expand_user, read_text, size_words, weight
from ds4chat.ui.suggestions import Suggestion

LOOKED_AT = 40
"""Names that are looked up in one message; pasted mail and code may hold thousands of `@`."""

BINARY_LOOK = 4096
"""Bytes of a file looked at, while a message is written, for a NUL."""

LISTED = 50
"""Files that a completion lists."""

_MENTION = re.compile(r"""(?<![\w@.+/\\-])@(?:"([^"\n]+)"|([^\s"'`<>|]+))""")
_ESCAPED = re.compile(r"""(?<![\w@.+/\\-])\\(@(?:"[^"\n]+"|[^\s"'`<>|]+))""")
_TYPING = re.compile(r"""(?<![\w@.+/\\-])@(?:"([^"\n]*)|([^\s"'`<>|]*))\Z""")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_TRAILING = ".,;:!?)]}»"
_BLOCK = re.compile(r"\n\n(?P<name>[^\n]+):\n(?P<fence>`{3,})[^\n`]*\n")


@dataclass(frozen=True)
class Mention:
    """A name in the text that is there on disk; `start` and `end` are where it stands, the `@` included."""

    name: str
    path: Path
    start: int
    end: int


def mentions(text: str, folder: Path | None = None) -> list[Mention]:
    """The files and folders a text names, in order. What stands in a fenced block is code."""
    if "@" not in text:
        return []
    fenced = [match.span() for match in _FENCE.finditer(text)]
    found: list[Mention] = []
    for looked, match in enumerate(_MENTION.finditer(text)):
        if looked >= LOOKED_AT:
            break
        at = match.start()
        if any(start <= at < end for start, end in fenced):
            continue
        quoted, name = match[1] is not None, match[1] or match[2]
        while name:
            path = _path(name, folder)
            if _is_there(path):
                found.append(Mention(name, path, at, at + 1 + len(name) + 2 * quoted))
                break
            # A full stop or a bracket behind a name ends the sentence, not the name.
            name = "" if quoted or name[-1] not in _TRAILING else name[:-1]
    return found


def expand(text: str, folder: Path | None = None) -> str:
    """The message with each file it names behind it, as a fenced block. `\\@name` is the text `@name`.

    Raises UsageError for a folder, a binary or unreadable file, and one over `LIMIT_BYTES`.
    """
    blocks: dict[str, str] = {}
    for mention in mentions(text, folder):
        if f"\n{mention.name}:\n```" not in text:
            blocks.setdefault(mention.name, "\n\n" + block(mention.name, read(mention)))
    if "\\@" in text:
        text = _ESCAPED.sub(lambda m: m[1] if mentions(m[1], folder) else m[0], text)
    return text + "".join(blocks.values())


def collapse(text: str) -> str:
    """A message as it was typed: without the blocks that `expand` put behind it."""
    for match in _BLOCK.finditer(text):
        head = text[: match.start()]
        name = match["name"]
        if (f"@{name}" in head or f'@"{name}"' in head) and _only_blocks(text, match.start()):
            return head
    return text


def read(mention: Mention) -> str:
    """The text of a file. Raises UsageError with the reason why it cannot be put in."""
    way_out = f"Write \\@{mention.name} to send the name as text."
    return read_text(mention.path, mention.name, way_out)


def describe(text: str, folder: Path | None = None) -> str:
    """What a message will carry: "notes.md 3.1 KB, about 800 tokens", "" for nothing."""
    parts = []
    for mention in {m.name: m for m in mentions(text, folder)}.values():
        try:
            info = mention.path.stat()
        except OSError:
            continue
        if stat.S_ISDIR(info.st_mode):
            parts.append(f"{mention.name} is a folder")
        elif info.st_size > LIMIT_BYTES:
            parts.append(f"{mention.name} {size_words(info.st_size)}, too long")
        elif _begins_binary(str(mention.path), info.st_mtime_ns):
            parts.append(f"{mention.name} is a binary file")
        else:
            parts.append(weight(mention.name, info.st_size))
    return " · ".join(parts)


@lru_cache(maxsize=256)
def _begins_binary(path: str, _written: int) -> bool:
    """Whether the beginning of a file holds what no text does; asked with every key, so remembered."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        with Path(path).open("rb") as file:
            return b"\x00" in file.read(BINARY_LOOK)
    except OSError:
        return False


def mention_of(path: str) -> str:
    """A path as it is written in a message."""
    return f'@"{path}"' if re.search(r"[\s'`<>|]", path) or path[-1:] in _TRAILING else f"@{path}"


def complete(line: str, column: int, folder: Path | None = None) -> list[Suggestion]:
    """Files that may be meant by the `@` before the cursor; folders first become a path to go on in."""
    match = _TYPING.search(line[:column])
    if match is None:
        return []
    typed = match[1] if match[1] is not None else match[2]
    head, _, begun = typed.rpartition("/")
    where = _path(f"{head}/" if head or typed.startswith("/") else ".", folder)
    found: list[tuple[bool, str, bool]] = []
    try:
        with os.scandir(where) as entries:
            for entry in entries:
                name = entry.name
                if (name.startswith(".") and not begun.startswith(".")) or not _fits(begun, name):
                    continue
                found.append((not name.lower().startswith(begun.lower()), name, entry.is_dir()))
    except OSError:
        return []
    suggestions = []
    for _, name, is_folder in sorted(found, key=lambda item: (item[0], item[1].lower()))[:LISTED]:
        if not name.isprintable():
            continue
        path = f"{typed[: len(typed) - len(begun)]}{name}" + ("/" if is_folder else "")
        insert = mention_of(path).removesuffix('"') if is_folder else mention_of(path)
        if insert == match.group():
            return []
        detail, space = _detail(where / name, is_folder), "" if is_folder else " "
        suggestions.append(Suggestion(path, detail, match.start(), column, insert + space))
    return suggestions


def _fits(begun: str, name: str) -> bool:
    letters = iter(name.lower())
    return all(letter in letters for letter in begun.lower())


def _detail(path: Path, is_folder: bool) -> str:
    if is_folder:
        return "folder"
    try:
        return size_words(path.stat().st_size)
    except OSError:
        return ""


def _path(name: str, folder: Path | None) -> Path:
    return (folder or Path()) / Path(expand_user(name))


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


def _only_blocks(text: str, at: int) -> bool:
    while at < len(text):
        match = _BLOCK.match(text, at)
        if match is None:
            return False
        close = re.compile(rf"^{match['fence']}$", re.MULTILINE).search(text, match.end())
        if close is None:
            return False
        at = close.end()
    return True
