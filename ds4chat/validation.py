"""Sentences for what `msgspec` refuses: which key, what is wrong, and what may stand there."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ds4chat.sessions.session import clean_title

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_OTHER_TYPE = re.compile(r"got `(\w+)`")
_ENUM_VALUE = re.compile(r"Invalid enum value (.*)", re.DOTALL)


def explain(error: msgspec.ValidationError, allowed: Mapping[str, str]) -> str:
    """What is wrong, without the full stop.

    Args:
        allowed: by path as in "$.messages[...].role" ("$" is the whole): what a value must be, or for a table
            what its keys are.
    """
    reason, _, where = str(error).partition(" - at `")
    where = where.rstrip("`") or "$"
    what = allowed.get(re.sub(r"\[\d+\]", "[...]", where), "of another kind")
    key = where.removeprefix("$").removeprefix(".")
    if match := _UNKNOWN_FIELD.search(reason):
        inside = f" in {key}" if key else ""
        return f'unknown key "{short(match[1])}"{inside}: allowed are {what}'
    if match := _MISSING_FIELD.search(reason):
        inside = f" in {key}" if key else ""
        return f'the key "{match[1]}" is missing{inside}: give {what}'
    if match := _ENUM_VALUE.search(reason):
        return f"{key} must be {what}, not {short(match[1])}"
    if match := _OTHER_TYPE.search(reason):
        return f"{key or 'the whole'} must be {what}, not of type {match[1]}"
    return f"{key or 'the whole'} must be {what}"


def short(text: str, length: int = 200) -> str:
    """Text of someone else's on one line, without control characters, at most `length` characters long."""
    text = clean_title(text)
    return text if len(text) <= length else text[:length] + "…"


def shown(value: object) -> str:
    """A value as `short` shows text."""
    try:
        return short(str(value))
    except (ValueError, RecursionError):
        return "a value too long to be shown"
