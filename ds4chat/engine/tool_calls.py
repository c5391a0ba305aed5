"""Tool calls in replies: the exact text of each, by its id, so that a turn renders back byte for byte.

Programs keep a call as data and write it out anew: other white space, other order of keys, other bytes, and the KV
state behind it would be lost. What the model wrote is kept in a checkpoint's trailer and put back in its place. Pure;
must not know: tokens, files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

TAG, VERSION = b"KTM\0", 1
"""The trailer's tag and version; its data is a JSON object of exact texts by id."""

MAX_BLOCK = 100_000
"""Characters of one call at most: more is no call but a reply that happens to contain the words."""

_BLOCKS = re.compile(
    r"<tool_call>(?P<hermes>.*?)</tool_call>"
    r"|<function_call>(?P<function>.*?)</function_call>"
    r"|\[TOOL_CALLS\]\s*(?P<mistral>\[.*?\](?=\s*(?:$|\n)))",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One call in a text: characters `start..end-1`, the delimiters included; `body` is the JSON between them."""

    id: str
    start: int
    end: int
    text: str
    body: str = ""


def blocks(text: str) -> Iterator[Block]:
    """The calls in a text, in order. What is no JSON between the delimiters is no call."""
    for found in _BLOCKS.finditer(text):
        body = next(group for group in found.groups() if group is not None)
        if len(body) <= MAX_BLOCK:
            id_ = call_id(body)
            if id_ is not None:
                yield Block(id_, found.start(), found.end(), found[0], body)


def call_id(body: str) -> str | None:
    """The call's own id, else one made of its content, the same for any way to write it down; None for no call."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    calls = data if isinstance(data, list) else [data]
    if not calls or not all(isinstance(call, dict) for call in calls):
        return None
    own = [call.get("id") for call in calls]
    if all(isinstance(id_, str) and id_ for id_ in own):
        return "+".join(map(str, own))
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "call_" + hashlib.sha1(canonical.encode()).hexdigest()[:24]


def put_back(text: str, known: Mapping[str, str]) -> str:
    """The text with each call whose id is known written as the model wrote it."""
    if not known:
        return text
    parts, at = [], 0
    for block in blocks(text):
        exact = known.get(block.id)
        if exact is not None:
            parts += [text[at : block.start], exact]
            at = block.end
    return "".join([*parts, text[at:]])


def pack(calls: Mapping[str, str]) -> bytes:
    """The trailer's data."""
    return msgspec.json.encode(dict(calls))


def unpack(data: bytes) -> dict[str, str]:
    """The calls of a trailer; of a damaged or foreign one, none."""
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
