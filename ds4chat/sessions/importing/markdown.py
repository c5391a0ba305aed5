"""Transcripts in Markdown: ours, and others in which headings, bold words or words with a colon say who speaks.

Only one way of saying it counts in a file, that of its first message; what stands in a fenced block is text. Which
words may speak is a short list, so that other headings stay part of what is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing.chats import ForeignChat
from ds4chat.sessions.session import MessageState, Role, clean_text

SOURCE = "markdown"

_USER = r"user|you|human|me|prompt|question|you said"
_ASSISTANT = (
    r"assistant|ai|bot|model|response|answer|chatgpt|gpt(?:-?[0-9][\w.-]*)?|claude|gemini|copilot|llama|mistral|deepseek"
    r"|qwen|(?:chatgpt|claude|gemini|copilot) (?:said|says|replied)"
)
_TOOL = r"tool"
_SYSTEM = r"system(?: prompt| message)?"
_NAME = rf"(?:(?P<user>{_USER})|(?P<assistant>{_ASSISTANT})|(?P<system>{_SYSTEM}))"
_HEADING = _NAME.replace("(?P<system>", f"(?P<tool>{_TOOL})|(?P<system>")
"""A tool has a heading or no line at all: in prose the word is a common one."""
_BEFORE = r"[^\w\s*#<>\[\]`|]{0,4}[ \t]?"
"""A picture that some put before the name."""
_NOTE = r"(?:[ \t]*\((?P<note>[^()]*)\))?"
"""A time, or what became of a reply."""

Style = Literal["heading", "bold", "plain"]

_STYLES: dict[Style, re.Pattern[str]] = {
    "heading": re.compile(
        rf"(?P<level>\#{{1,6}})[ \t]+{_BEFORE}\**{_HEADING}\**:?\**{_NOTE}(?:[ \t]+[-–—·|][^\n]*)?[ \t]*:?",
        re.IGNORECASE,
    ),
    "bold": re.compile(
        rf"{_BEFORE}(?:\*\*|__){_BEFORE}{_NAME}{_NOTE}(?::(?:\*\*|__)|(?:\*\*|__):|(?:\*\*|__)(?=[ \t]*$))"
        r"[ \t]*(?P<rest>.*)",
        re.IGNORECASE,
    ),
    "plain": re.compile(rf"{_BEFORE}{_NAME}{_NOTE}:(?=\s|$)[ \t]*(?P<rest>.*)", re.IGNORECASE),
}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_TITLE = re.compile(r"#[ \t]+(.+?)[ \t]*#*")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_FRONT_TITLE = re.compile(r"""title:[ \t]*(["']?)(.*?)\1[ \t]*""")

_STATES = frozenset(get_args(MessageState)) - {"streaming", "queued"}


@dataclass
class _Turn:
    role: str
    note: str
    lines: list[str]


def looks_like(text: str) -> bool:
    """Whether somebody speaks in the text, in a way that is known."""
    return _style(text.split("\n")) is not None


def read(text: str) -> ForeignChat:
    """The conversation in a transcript. Raises InterchangeError when nobody speaks in it."""
    lines = clean_text(text).removeprefix("\ufeff").split("\n")
    found = _style(lines)
    if found is None:
        raise InterchangeError(
            'it has no line that says who speaks: begin each message with a line like "## User" or "**Assistant:**"'
        )
    style, level = found
    title, turns, before = _turns(lines, style, level)
    chat = ForeignChat(SOURCE, title=title)
    chat.leave_out("lines before the first message", before)
    if len(turns) > 2 and all(_ends_with_rule(turn.lines) for turn in turns[:-1]):
        for turn in turns:
            if _ends_with_rule(turn.lines):
                _trim(turn.lines)
                turn.lines.pop()
    above: str | None = None
    for i, turn in enumerate(turns):
        said = "\n".join(turn.lines).strip("\n")
        key = str(i)
        if turn.role == "system":
            chat.instruct(said)
            chat.pass_over(key, above)
        else:
            note = turn.note.strip().lower()
            state = cast(MessageState, note) if turn.role == "assistant" and note in _STATES else "complete"
            chat.add(key, above, cast(Role, turn.role), said, state=state)
        above = key
    return chat


def _style(lines: list[str]) -> tuple[Style, int] | None:
    """How the first that speaks is named, and the level of its heading; headings count before bold words, and those
    before words with a colon."""
    first: dict[Style, tuple[Style, int]] = {}
    for line in _outside_fences(lines):
        for style, pattern in _STYLES.items():
            if style not in first and (match := pattern.fullmatch(line)) and not match["system"]:
                first[style] = style, len(match["level"]) if style == "heading" else 0
        if "heading" in first:
            break
    return next((first[style] for style in _STYLES if style in first), None)


def _outside_fences(lines: list[str]) -> list[str]:
    fences = _Fences()
    return [line for line in lines if not fences.inside(line)]


class _Fences:
    """Goes along with the lines and knows which of them are code."""

    def __init__(self) -> None:
        self._open = ""

    def inside(self, line: str) -> bool:
        match = _FENCE.fullmatch(line)
        if self._open:
            if match and match[1].startswith(self._open) and not match[2].strip():
                self._open = ""
            return True
        if match and not (match[1][0] == "`" and "`" in match[2]):
            self._open = match[1]
            return True
        return False


def _turns(lines: list[str], style: Style, level: int) -> tuple[str, list[_Turn], int]:
    """Title, messages, and how many lines before them say something else."""
    pattern = _STYLES[style]
    title, before = "", 0
    turns: list[_Turn] = []
    fences = _Fences()
    in_front = False
    for number, line in enumerate(lines):
        if not turns and number == 0 and line.strip() == "---":
            in_front = True
            continue
        if in_front:
            in_front = line.strip() != "---"
            if match := _FRONT_TITLE.fullmatch(line):
                title = match[2]
            continue
        match = None if fences.inside(line) else pattern.fullmatch(line)
        if match is not None and (style != "heading" or len(match["level"]) == level):
            role = next(
                role for role in ("user", "assistant", "tool", "system") if match.groupdict().get(role)
            )
            rest = "" if style == "heading" else match["rest"]
            turns.append(_Turn(role, match["note"] or "", [rest] if rest else []))
        elif turns:
            turns[-1].lines.append(line)
        elif not title and (heading := _TITLE.fullmatch(line)):
            title = heading[1]
        elif line.strip() and not _RULE.fullmatch(line):
            before += 1
    return title, turns, before


def _trim(lines: list[str]) -> None:
    while lines and not lines[-1].strip():
        lines.pop()


def _ends_with_rule(lines: list[str]) -> bool:
    last = next((line for line in reversed(lines) if line.strip()), "")
    return _RULE.fullmatch(last) is not None
