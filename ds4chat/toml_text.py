"""TOML that somebody else wrote, read at a cost that follows from its length. Imports nothing of the program."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_KEY_PARTS = 64
"""Of a dotted key or a table's name: the parser's time grows with their square."""

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_.-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS},}}+[ \t]*+")


def parse_toml(text: str) -> dict[str, Any]:
    """The values in TOML text. Raises ValueError with the reason (`tomllib.TOMLDecodeError` is one) for all that it
    cannot be read as, what is nested too deeply or has too long a number included."""
    if text.count(".") >= MAX_KEY_PARTS:
        for found in _LONG_KEY.finditer(text):
            # Only before these it is a key, and no text.
            if text[found.end() : found.end() + 1] in ("=", "]"):
                line = text.count("\n", 0, found.start()) + 1
                raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts (at line {line}, column 1)")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
