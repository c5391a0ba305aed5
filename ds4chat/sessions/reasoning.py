"""Which parts of a reply are the model's reasoning and which are its answer.

Models mark their reasoning at the start of a reply: `<think>`, `<thinking>`, `<reasoning>`, `<thought>`, `[THINK]`,
each up to its closing tag, or channels, `<|channel|>analysis<|message|>` up to `<|end|>`. Only there, or right behind
an earlier reasoning part, is a tag a tag: in prose, or in code later on, it is text.

Made for text that grows: more of it changes nothing of what was split but the end of the last part, and half a tag at
the end is never shown as answer or as reasoning. Nothing is lost: between the parts stand tags and white space alone.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["reasoning", "answer"]

TAGS = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "reasoning", "thought")},
    "[think]": "[/think]",
}
"""Opening and closing tags, whatever their case."""

CHANNELS = {"analysis": "reasoning", "commentary": "reasoning", "final": "answer"}
"""What is said in each channel."""

_START, _CHANNEL, _MESSAGE = "<|start|>assistant", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|return|>")

_HEADER = rf"(?:{re.escape(_START)})?{re.escape(_CHANNEL)}(?P<channel>{'|'.join(CHANNELS)})[^<]{{0,100}}"
_OPENING = re.compile(
    rf"(?P<tag>{'|'.join(map(re.escape, TAGS))})|{_HEADER}{re.escape(_MESSAGE)}", re.IGNORECASE
)
_HALF_HEADER = re.compile(rf"{_HEADER}(?P<rest><.*)?", re.IGNORECASE)
_OPENINGS = (*TAGS, *(start + _CHANNEL + name for start in ("", _START) for name in CHANNELS))
_LONGEST = len(_START + _CHANNEL + max(CHANNELS, key=len) + _MESSAGE) + 100

_CLOSINGS = {tag: (re.compile(re.escape(end), re.IGNORECASE), (end,)) for tag, end in TAGS.items()}
_CHANNEL_END = (
    # Another message begins where the end of this one was left out.
    re.compile("|".join(map(re.escape, _ENDS)) + f"|(?={re.escape(_START)})|(?={re.escape(_CHANNEL)})"),
    (*_ENDS, _START, _CHANNEL),
)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a reply, without its tags.

    Attributes:
        closed: of reasoning: whether its closing tag is there. An answer is always closed.
    """

    kind: Kind
    text: str
    closed: bool


def split(text: str, *, whole: bool = False) -> list[Part]:
    """The parts of a reply in order: reasoning, if any, then the answer, if it has begun.

    Half a tag at the end may still become one and is held back; when that is all there is, it stands for a reasoning
    part of no text that is not closed. `whole`: nothing comes any more, so half a tag is text.
    """
    parts: list[Part] = []
    at = 0
    while True:
        begin = _end_of_space(text, at)
        if begin == len(text):
            return parts
        opening = _OPENING.match(text, begin)
        if opening is None:
            if not whole and _may_open(text[begin : begin + _LONGEST + 1]):
                return [*parts, Part("reasoning", "", False)]
            return [*parts, Part("answer", text[at:], True)]
        channel = opening["channel"]
        if channel is not None and CHANNELS[channel.lower()] == "answer":
            return [*parts, Part("answer", _without_end(text[opening.end() :], whole), True)]
        closing, ends = _CHANNEL_END if channel is not None else _CLOSINGS[opening["tag"].lower()]
        found = closing.search(text, opening.end())
        if found is None:
            inside = text[opening.end() :]
            return [*parts, Part("reasoning", inside if whole else _without_half(inside, ends), False)]
        parts.append(Part("reasoning", text[opening.end() : found.start()], True))
        at = found.end()


def visible_answer(text: str, *, whole: bool = False) -> str:
    """What a reply says apart from its reasoning, without the white space between the two."""
    parts = split(text, whole=whole)
    answer = "".join(part.text for part in parts if part.kind == "answer")
    return answer if len(parts) == 1 else answer.lstrip()


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _may_open(tail: str) -> bool:
    """Whether more text could make an opening tag of the tail."""
    lowered = tail.lower()
    if any(opening.startswith(lowered) for opening in _OPENINGS):
        return True
    header = _HALF_HEADER.fullmatch(tail)
    return header is not None and _MESSAGE.startswith((header["rest"] or "").lower())


def _without_half(text: str, ends: tuple[str, ...]) -> str:
    """The text without what could become one of the tags, at its end."""
    last = max(map(len, ends)) - 1
    tail = text[max(0, len(text) - last) :].lower()
    for i in range(len(tail)):
        if any(end.startswith(tail[i:]) for end in ends):
            return text[: len(text) - len(tail) + i]
    return text


def _without_end(text: str, whole: bool) -> str:
    """The text without the mark that a channel's message ends with."""
    for end in _ENDS:
        if text.endswith(end):
            return text[: -len(end)]
    return text if whole else _without_half(text, _ENDS)
