"""A streamed reply: server-sent events taken apart, and what their JSON says. Pure; must not know: HTTP, turns."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ds4chat.validation import short

MAX_LINE = 4 * 2**20
"""Bytes of one line of a stream; a longer one is no reply."""

THINK, THOUGHT = "<think>\n", "\n</think>\n\n"
"""Around what a server sends as reasoning beside the answer: the chat folds it like any model's thoughts."""

_OWN_THOUGHTS = re.compile(re.escape(THINK) + r".*?" + re.escape(THOUGHT), re.DOTALL)


class StreamError(ValueError):
    """What came is no reply; the message says what it is, in the middle of a sentence."""


def without_thoughts(text: str) -> str:
    """A reply as the server knows it: without the reasoning that came beside it."""
    return _OWN_THOUGHTS.sub("", text, count=1) if text.startswith(THINK) else text


class Lines:
    """Whole lines of text out of pieces of bytes: a character, or CR LF, may be cut in two."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that are whole now. Raises StreamError for one without end."""
        self._rest += self._decoder.decode(data)
        *lines, self._rest = re.split(r"\r\n|\n|\r(?!$)", self._rest)
        if len(self._rest) > MAX_LINE:
            raise StreamError("a line without end")
        yield from lines


@dataclass
class Usage:
    """Tokens, as far as the server counts; None for what it does not tell."""

    prompt: int | None = None
    cached: int | None = None
    generated: int | None = None


@dataclass
class Reply:
    """What has come of a reply.

    Attributes:
        finish: why it ended, "" until the server says.
        done: the server closed the stream in good order.
        pieces: of text, since the start; about one a token.
    """

    finish: str = ""
    done: bool = False
    pieces: int = 0
    usage: Usage = field(default_factory=Usage)
    _thinking: bool = False

    def take(self, line: str) -> str:
        """The text that a line of the stream brings. Raises StreamError."""
        name, _, value = line.partition(":")
        if name != "data":
            return ""
        value = value.strip()
        if value == "[DONE]":
            self.done = True
            return self._stop_thinking()
        if not value:
            return ""
        try:
            data: Any = msgspec.json.decode(value.encode())
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            raise StreamError("a line that is not JSON") from None
        if not isinstance(data, dict):
            raise StreamError("a line that is no part of a reply")
        if data.get("error"):
            raise StreamError(f"an error: {error_words(data)}")
        self._count(data)
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        text = self._text(delta)
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish = reason
        return text

    def _text(self, delta: dict[str, Any]) -> str:
        answer = delta.get("content")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        text = ""
        if isinstance(thought, str) and thought:
            text = ("" if self._thinking else THINK) + thought
            self._thinking = True
        if isinstance(answer, str) and answer:
            text += self._stop_thinking() + answer
        self.pieces += bool(text)
        return text

    def _stop_thinking(self) -> str:
        was, self._thinking = self._thinking, False
        return THOUGHT if was else ""

    def _count(self, data: dict[str, Any]) -> None:
        usage = data.get("usage")
        if isinstance(usage, dict):
            self.usage.prompt = _whole(usage.get("prompt_tokens"), self.usage.prompt)
            self.usage.generated = _whole(usage.get("completion_tokens"), self.usage.generated)
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                self.usage.cached = _whole(details.get("cached_tokens"), self.usage.cached)
        # llama-server tells how much of the prompt it computed, and how much it still had.
        timings = data.get("timings")
        if isinstance(timings, dict):
            computed = _whole(timings.get("prompt_n"), None)
            cached = _whole(timings.get("cache_n"), None)
            self.usage.generated = _whole(timings.get("predicted_n"), self.usage.generated)
            if computed is not None and cached is not None:
                self.usage.prompt, self.usage.cached = computed + cached, cached


def _whole(value: object, otherwise: int | None) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else otherwise
    )


def error_words(data: object, most: int = 200) -> str:
    """What a server says went wrong, in one line and without control characters; "" when it says nothing."""
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and data.get(key):
            data = data[key]
            if isinstance(data, dict | list):
                return error_words(data[0] if isinstance(data, list) and data else data, most)
            break
    if isinstance(data, dict):
        data = data.get("msg", "")
    if not isinstance(data, str):
        return ""
    return short(data, most).rstrip(".")
