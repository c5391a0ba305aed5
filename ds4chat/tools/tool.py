"""What a tool is, and how words of others (descriptions, schemas, results) are made fit to be given to a model."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_DESCRIPTION = 1000
"""Characters of what a tool, or one of its arguments, says of itself."""

MAX_SCHEMA = 8_000
"""Characters of a tool's arguments, described as JSON."""

MAX_DEPTH = 12

MAX_RESULT = 100_000
"""Bytes of what a call came to; the rest is cut."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_NAME = re.compile(r"[^a-zA-Z0-9_-]")

Arguments = Mapping[str, Any]


class ToolError(Exception):
    """A call came to nothing; the text is one sentence for the model and for the user."""


@dataclass(frozen=True)
class Result:
    """What a call came to, as the model is told it."""

    text: str
    failed: bool = False


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        name: letters, digits, "_" and "-", at most 64, unique.
        schema: JSON Schema of the arguments, an object.
        where: "built in", or the name of the server it is of.
        run: may raise ToolError.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    where: str
    run: Callable[[Arguments], Awaitable[Result]]

    def declaration(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


def clean(text: str) -> str:
    """Text without escape sequences, control and formatting characters; tabs and line ends stay."""
    text = _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Co", "Cs")
    ).translate(_DIRECTIONS)


_DIRECTIONS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029], None)


def clean_name(text: str) -> str:
    """A name as models and templates take it."""
    return _NAME.sub("_", text)[:64] or "tool"


def clean_description(text: object) -> str:
    """What a tool says of itself, bounded."""
    words = clean(str(text or "")).strip()
    return words if len(words) <= MAX_DESCRIPTION else words[: MAX_DESCRIPTION - 1] + "…"


def clean_schema(schema: object) -> dict[str, Any] | None:
    """A schema of arguments with clean words; None when it is none, or too large."""
    try:
        cleaned = _clean_value(schema, MAX_DEPTH)
        size = len(json.dumps(cleaned, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(cleaned, dict) or size > MAX_SCHEMA:
        return None
    return {"type": "object", "properties": {}} | cleaned


def _clean_value(value: object, depth: int) -> Any:
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_description(value)
    if isinstance(value, Mapping):
        return {clean_description(key): _clean_value(item, depth - 1) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_clean_value(item, depth - 1) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is no JSON")


def bounded(text: str, most: int = MAX_RESULT) -> str:
    """Text of at most so many bytes, with a note of what was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    kept = data[:most].decode("utf-8", "ignore")
    return f"{kept}\n(cut here: {len(kept.encode()):,} of {len(data):,} bytes)"
