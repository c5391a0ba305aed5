"""Text files that go into a message: which can, how large they are, and how they stand in it.

`@path` in a message and `--file` on the command line are both made of this. Must not know: messages, the screen.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ds4chat.errors import UsageError

LIMIT_BYTES = 1_000_000
"""A larger file is refused: no model here could read it."""

CHARS_A_TOKEN = 4


def read_text(path: Path, name: str, way_out: str, *, pipes: bool = False) -> str:
    """The text of a file. Raises UsageError with the reason why it cannot be put in.

    Args:
        name: what an error calls it.    way_out: the sentence behind the reason, "" for none.
        pipes: wait for what comes out of pipes and devices, too.
    """
    behind = f" {way_out}" if way_out else ""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{name} is a folder: name a file in it.{behind}")
        if not stat.S_ISREG(mode) and not (pipes and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))):
            raise UsageError(f"{name} is not a file that can be read as a whole.{behind}")
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file can have this name"
        raise UsageError(f"{name} cannot be read ({reason}).{behind}") from error
    return decode(data, name, way_out)


def decode(data: bytes, name: str, way_out: str) -> str:
    """The text that a file holds. Raises UsageError when it is too long or none."""
    behind = f" {way_out}" if way_out else ""
    if len(data) > LIMIT_BYTES:
        raise UsageError(f"{name} is over {LIMIT_BYTES // 1_000_000} MB, too long for a message.{behind}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise UsageError(f"{name} is a binary file: only UTF-8 text can be put in.{behind}")
    return text


def block(name: str, text: str) -> str:
    """A file as it stands in a message: its name and a fenced block that nothing in the text ends."""
    runs = [len(run) for run in re.findall(r"`{3,}", text)]
    fence = "`" * (max(runs, default=2) + 1)
    language = re.sub(r"[^\w+-]", "", Path(name).suffix[1:])
    body = text if text.endswith("\n") or not text else text + "\n"
    return f"{name}:\n{fence}{language}\n{body}{fence}"


def expand_user(name: str) -> str:
    """A path with `~` for the home folder, which may be of nobody's."""
    return os.path.expanduser(name)  # noqa: PTH111 - Path.expanduser raises


def weight(name: str, size: int) -> str:
    """What a file of so many bytes adds: "notes.md 3.1 KB, about 800 tokens"."""
    return f"{name} {size_words(size)}, {_tokens(size)}"


def size_words(size: int) -> str:
    """A number of bytes in a few characters: "812 B", "3.1 KB", "2.0 MB"."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} KB" if size < 999_950 else f"{size / 1_000_000:.1f} MB"


def _tokens(size: int) -> str:
    count = max(size // CHARS_A_TOKEN, 1)
    digits = max(len(str(count)) - 2, 0)
    return f"about {round(count, -digits):,} token" + ("s" if count != 1 else "")
