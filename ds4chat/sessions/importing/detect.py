"""What a file to import is, by its content.

Promises: a look at its beginning, whatever its size; a file that cannot be read is "session", whose reader says why.
"""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path
from typing import Literal

import msgspec

from ds4chat.sessions.importing import databases, markdown

FileKind = Literal["session", "bundle", "export zip", "json", "json lines", "markdown", "database"]
"""session: ours in TOML. bundle: ours in a zip or as JSON. The others are of other programs."""

LOOK_BYTES = 1 << 20

MAX_DIRECTORY_BYTES = 20_000_000
"""Of a zip's list of entries, which is held in memory."""

_CHATS_ENTRY = re.compile(r"(?:[^/\\]+/)?conversations(?:[-_ ]?\d+)?\.json")
"""Where an export has its chats; large ones are in several files."""

_FOREIGN_KEY = re.compile(
    rb'"(?:mapping|chat_messages|chat|history|messages|conversations|role|from|content)"\s*:'
)
_LIST_OF_JSON = re.compile(rb"\[\s*(?:\[\s*)?[{\]]")
_TOML = re.compile(rb"^\s*\[\[\s*messages\s*\]\]|^\s*messages\s*=", re.MULTILINE)
_END = struct.Struct("<4s4H2LH")


def file_kind(path: Path) -> FileKind:
    """What the file is."""
    try:
        if not path.is_file():
            return "session"
        with path.open("rb") as file:
            start = file.read(LOOK_BYTES)
            whole = len(start) < LOOK_BYTES
    except (OSError, ValueError):
        return "session"
    if start.startswith(databases.MAGIC):
        return "database"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "export zip" if chat_entries(path) else "bundle"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") or _LIST_OF_JSON.match(text):
        return _kind_of_json(text, whole)
    if path.suffix.lower() == ".toml" or _TOML.search(text):
        return "session"
    if markdown.looks_like(text.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")):
        return "markdown"
    return "markdown" if path.suffix.lower() in (".md", ".markdown") and text else "session"


def _kind_of_json(text: bytes, whole: bool) -> FileKind:
    first, newline, rest = text.partition(b"\n")
    lines = bool(newline and (rest.strip() or not whole) and _is_json(first))
    if (
        text.startswith(b"{")
        and not lines
        and (b'"ds4chat-session"' in text[:4096] or not _FOREIGN_KEY.search(text))
    ):
        return "bundle"
    return "json lines" if lines else "json"


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return line.lstrip()[:1] in (b"{", b"[")


def chat_entries(path: Path) -> list[str]:
    """Names of the entries of a zip that hold chats of an export; none in one of ours, or one that is damaged."""
    try:
        if not _directory_is_small(path):
            return []
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, EOFError, struct.error):
        return []
    return [] if "session.json" in names else sorted(filter(_CHATS_ENTRY.fullmatch, names))


def _directory_is_small(path: Path) -> bool:
    """Whether the list of entries may be read into memory, by what the end of the file says of it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 66_000))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        return False
    length = int(_END.unpack_from(tail, at)[5])
    # A larger list says so elsewhere, and this one's size is all ones then.
    return length <= MAX_DIRECTORY_BYTES
