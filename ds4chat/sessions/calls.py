"""The calls of tools in a reply: which, and with what. Pure; must not know: tools, the engine child."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ds4chat.engine.tool_calls import blocks, call_id
from ds4chat.sessions.reasoning import visible_answer
from ds4chat.sessions.session import clean_text

MOST_CALLS = 16
"""Of one reply; more of them are not worked off."""


MAX_DEPTH = 50
"""Of objects and lists in one another."""


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        arguments: None when they are no object.
        start, end: where it stands in the answer, in characters.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    start: int = 0
    end: int = 0

    @property
    def shown(self) -> str:
        """The arguments as JSON, one a line."""
        return json.dumps(self.arguments, ensure_ascii=False, indent=2)


def calls_in(text: str, known: Collection[str] = ()) -> list[Call]:
    """The calls in a reply, in order; none in its reasoning. A reply that is nothing but an object that names one of
    the `known` tools is a call as well."""
    answer = visible_answer(text, whole=True)
    calls: list[Call] = []
    for block in blocks(answer):
        data = json.loads(block.body)
        for item in data if isinstance(data, list) else [data]:
            calls.append(_call(item, block.id, block.start, block.end))
    bare = answer.strip()
    if not calls and bare.startswith("{") and bare.endswith("}"):
        id_ = call_id(bare)
        item = json.loads(bare) if id_ is not None else {}
        if item.get("name") in known and ("arguments" in item or "parameters" in item):
            calls.append(_call(item, id_ or "", 0, len(answer)))
    return calls[:MOST_CALLS]


def _valid(value: Any, depth: int) -> Any:
    """A JSON value without what is no text or number elsewhere. Raises ValueError when it is nested too deeply."""
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {clean_text(key): _valid(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_valid(item, depth - 1) for item in value]
    return value


def _call(item: Mapping[str, Any], id_: str, start: int, end: int) -> Call:
    arguments = item.get("arguments", item.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    try:
        arguments = _valid(arguments, MAX_DEPTH)
    except ValueError:
        arguments = None
    own = item.get("id")
    name = item.get("name")
    return Call(
        own if isinstance(own, str) and own else id_,
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, dict) else None,
        start,
        end,
    )
