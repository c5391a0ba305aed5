"""Chat template -> rendered text, with what was typed kept apart from the template's own markers.

Promises: a control token's text inside of a message comes out as text, never as a marker, whatever the template does to
it; the rendering without any mark is what decides, marks only tell where contents lie in it. Must not know: the
engine, tokens, sessions. Templates come from model files, so they run in Jinja's immutable sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NoReturn

from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For models that bring no template: the markers most fine-tunes know."""

_OWN_USE = (range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
"""Code points to mark places with: those Unicode keeps free for a program's own use, then its private planes."""


class TemplateError(Exception):
    """The template refused the messages (or is broken); the text is the template's own."""


@dataclass(frozen=True)
class Marker:
    """A control token's text that the template itself put there."""

    text: str


@dataclass(frozen=True)
class Run:
    """Plain text between two markers; `contents` lists (message index, start, end) in characters, ends exclusive.

    A start of -1 means the template cut the front of that content off.
    """

    text: str
    contents: tuple[tuple[int, int, int], ...] = ()


Part = Marker | Run


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without Jinja's own escaping of HTML, as templates expect it."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _GenerationBlock(Extension):
    """`{% generation %}`, around what a trainer should learn from: nothing but its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled chat template."""

    def __init__(
        self, source: str, *, control_texts: Iterable[str] = (), bos: str = "", eos: str = ""
    ) -> None:
        """Raises TemplateError when the source does not compile. `control_texts` are what a tokenizer reads as
        control."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationBlock],
            keep_trailing_newline=True,
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        self._source = source or CHATML
        try:
            self._template = environment.from_string(self._source)
        except Exception as error:
            # Python's own compiler refuses some of what Jinja takes.
            raise TemplateError(str(error)) from error
        self._bos, self._eos = bos, eos
        self._controls = _Controls(control_texts)

    def render(self, messages: Sequence[tuple[str, str]], *, reply_follows: bool) -> list[Part]:
        """Render (role, text) pairs. `reply_follows` adds the header of the assistant's answer. Raises TemplateError.

        Where the template has no place for a system prompt, it goes ahead of the first user message.
        """
        roles = [role for role, _text in messages]
        marks = _Marks([*(text for _role, text in messages), self._source, self._bos, self._eos], len(roles))
        texts = [marks.shielded(text, self._controls) for _role, text in messages]
        rendering = _Rendering(self, reply_follows, datetime.now())
        folded = False
        try:
            plain = rendering.run(roles, texts, folded)
        except TemplateError:
            if len(roles) < 2 or roles[0] != "system":
                raise
            folded = True
            plain = rendering.run(roles, texts, folded)
        marked = self._marked(rendering, roles, texts, folded, marks, plain)
        foldable = not folded and len(roles) > 1 and roles[0] == "system" and texts[0].strip()
        if foldable and marked is not None and not marks.tells(marked, 0):
            # The system prompt was passed over without a word.
            with suppress(TemplateError):
                plain = rendering.run(roles, texts, True)
                marked = self._marked(rendering, roles, texts, True, marks, plain)
        return self._parts(plain if marked is None else marked, marks)

    @staticmethod
    def _marked(
        rendering: _Rendering, roles: list[str], texts: list[str], folded: bool, marks: _Marks, plain: str
    ) -> str | None:
        """The rendering with marks around the contents, None when they change what is rendered.

        A template may trim contents, of all roles or some: marks inside of the white space then tell the same places.
        """
        padded = {role for role, text in zip(roles, texts, strict=True) if text != text.strip()}
        others = padded - {"assistant"}
        for inside in dict.fromkeys(map(frozenset, (set(), others, padded & {"assistant"}, padded))):
            marked_texts = [
                marks.inside(i, text) if role in inside else marks.around(i, text)
                for i, (role, text) in enumerate(zip(roles, texts, strict=True))
            ]
            try:
                marked = rendering.run(roles, marked_texts, folded)
            except TemplateError:
                continue
            if marks.without(marked) == plain:
                return marked
        return None

    def _parts(self, text: str, marks: _Marks) -> list[Part]:
        parts: list[Part] = []
        at = 0
        for begin, control in self._controls.find(text):
            if begin < at:
                continue
            if begin > at:
                parts.append(marks.run(text[at:begin]))
            parts.append(Marker(control))
            at = begin + len(control)
        if at < len(text):
            parts.append(marks.run(text[at:]))
        return parts


class _Controls:
    """Finds the texts of control tokens. Some vocabularies have thousands: one regular expression takes seconds."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = {text for text in texts if text}
        # Longest first, so that of two texts where one begins the other the longer wins, as in the tokenizer.
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        first = "".join(map(re.escape, {text[0] for text in self._texts}))
        self._first = re.compile(f"[{first}]" if first else "(?!)")

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """Where each begins, and which; they may overlap."""
        for found in self._first.finditer(text):
            begin = found.start()
            for length in self._lengths:
                if (part := text[begin : begin + length]) in self._texts:
                    yield begin, part
                    break


@dataclass(frozen=True)
class _Rendering:
    """The renderings of one conversation, at one moment."""

    template: ChatTemplate
    reply_follows: bool
    now: datetime

    def run(self, roles: list[str], texts: list[str], folded: bool) -> str:
        """Raises TemplateError. `folded`: the system prompt, which is first, goes ahead of the first user message."""
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        if folded:
            system = messages.pop(0)["content"]
            first = next((m for m in messages if m["role"] == "user"), None)
            if first is None:
                messages.insert(0, {"role": "user", "content": system})
            else:
                first["content"] = f"{system}\n\n{first['content']}"
        try:
            return self.template._template.render(
                messages=messages,
                add_generation_prompt=self.reply_follows,
                bos_token=self.template._bos,
                eos_token=self.template._eos,
                tools=None,
                documents=None,
                strftime_now=self.now.strftime,
            )
        except TemplateError:
            raise
        except Exception as error:
            # A model file's code: it may fail in any way.
            raise TemplateError(str(error) or type(error).__name__) from error


class _Marks:
    """Characters that none of the texts has, to mark places in a rendering.

    The shield keeps a typed control text from being one, and is taken out again. An opening and a closing mark, each
    with the message's number in binary (templates reorder, repeat and leave out), tell where a content lies.
    """

    def __init__(self, texts: Iterable[str], count: int) -> None:
        """Raises TemplateError when the texts leave no character free."""
        used = set().union(*texts)
        self._free = (c for c in map(chr, chain(*_OWN_USE)) if c not in used)
        self._shield = self._take()
        self._open, self._close = self._take(), self._take()
        self._digits = self._take() + self._take()
        self._width = max(1, count.bit_length())
        self._stand_ins: dict[str, str] = {}
        self._places = re.compile(f"([{self._open}{self._close}])([{self._digits}]{{{self._width}}})")
        self._all = re.compile(f"[{self._open}{self._close}{self._digits}]")

    def _take(self) -> str:
        try:
            return next(self._free)
        except StopIteration:
            raise TemplateError("the messages use every character there is") from None

    def shielded(self, text: str, controls: _Controls) -> str:
        """The text without any control text in it, for `run` to put right."""
        out: list[str] = []
        at = 0
        for begin, _control in controls.find(text):
            first = text[begin]
            out.append(text[at:begin])
            # Split behind its first character, unless that is a control text itself.
            if first not in controls:
                out.append(first + self._shield)
            else:
                if first not in self._stand_ins:
                    self._stand_ins[first] = self._take()
                out.append(self._stand_ins[first])
            at = begin + 1
        return "".join(out) + text[at:]

    def around(self, index: int, text: str) -> str:
        number = self._number(index)
        return f"{self._open}{number}{text}{self._close}{number}"

    def inside(self, index: int, text: str) -> str:
        """Like `around`, with white space at the ends left outside (all of it where there is nothing else)."""
        stripped = text.strip()
        if not stripped:
            return self.around(index, "")
        lead = len(text) - len(text.lstrip())
        return text[:lead] + self.around(index, stripped) + text[lead + len(stripped) :]

    def _number(self, index: int) -> str:
        return "".join(self._digits[index >> bit & 1] for bit in range(self._width))

    def tells(self, text: str, index: int) -> bool:
        """Whether any of a content's marks is left."""
        number = self._number(index)
        return self._open + number in text or self._close + number in text

    def without(self, text: str) -> str:
        """The text without marks; the shield stays."""
        return self._all.sub("", text)

    def run(self, text: str) -> Run:
        """A run of plain text as it was typed, and where contents lie in it."""
        out: list[str] = []
        contents: list[tuple[int, int, int]] = []
        opened: dict[str, int] = {}
        length = at = 0
        for found in chain(self._places.finditer(text), (None,)):
            piece = self._typed(text[at : found.start() if found else len(text)])
            out.append(piece)
            length += len(piece)
            if found is None:
                break
            at = found.end()
            if found[1] == self._open:
                opened[found[2]] = length
            else:
                number = sum(1 << bit for bit, digit in enumerate(found[2]) if digit == self._digits[1])
                contents.append((number, opened.pop(found[2], -1), length))
        return Run("".join(out), tuple(contents))

    def _typed(self, text: str) -> str:
        text = self.without(text).replace(self._shield, "")
        for solo, stand_in in self._stand_ins.items():
            text = text.replace(stand_in, solo)
        return text
