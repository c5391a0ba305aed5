"""Chat template -> rendered text, with what was typed kept apart from the template's own markers.

Promises: a control token's text inside of a message comes out as text, never as a marker, whatever the template does to
it; the rendering without any mark is what decides, marks only tell where contents lie in it. Must not know: the
engine, tokens, sessions. Templates come from model files, so they run in Jinja's immutable sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For models that bring no template: the markers most fine-tunes know."""

_NONCHARACTERS = [chr(c) for c in range(0xFDD0, 0xFDF0)]
"""Code points that Unicode keeps free for a program's own use: never part of exchanged text."""


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


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


class ChatTemplate:
    """One compiled chat template."""

    def __init__(
        self, source: str, *, control_texts: Iterable[str] = (), bos: str = "", eos: str = ""
    ) -> None:
        """Raises TemplateError when the source does not compile. `control_texts` are what a tokenizer reads as
        control."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], keep_trailing_newline=True
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source or CHATML)
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateError(str(error)) from error
        self._bos, self._eos = bos, eos
        # Longest first, so that of two texts where one begins the other the longer wins, as in the tokenizer.
        texts = sorted((t for t in control_texts if t), key=len, reverse=True)
        self._markers = re.compile("|".join(map(re.escape, texts))) if texts else re.compile(r"(?!)")

    def render(self, messages: Sequence[tuple[str, str]], *, reply_follows: bool) -> list[Part]:
        """Render (role, text) pairs. `reply_follows` adds the header of the assistant's answer. Raises TemplateError.

        Where the template has no place for a system prompt, it goes ahead of the first user message.
        """
        texts = [text for _role, text in messages]
        free = [c for c in _NONCHARACTERS if not any(c in text for text in texts)]
        if len(free) < 3:
            texts = [text.translate({ord(c): None for c in _NONCHARACTERS}) for text in texts]
            free = _NONCHARACTERS
        shield, opening, closing = free[:3]
        shielded = [self._markers.sub(lambda m: m[0][0] + shield + m[0][1:], text) for text in texts]
        roles = [role for role, _text in messages]
        plain = self._rendered(roles, shielded, reply_follows)
        # A template may trim contents: marks inside of the white space then tell the same places.
        for mark in (_around, _inside):
            marked_texts = [mark(text, opening, closing) for text in shielded]
            try:
                marked = self._rendered(roles, marked_texts, reply_follows)
            except TemplateError:
                continue
            if marked.replace(opening, "").replace(closing, "") == plain:
                return self._parts(marked, roles, shield, opening, closing)
        return self._parts(plain, roles, shield, opening, closing)

    def _rendered(self, roles: list[str], texts: list[str], reply_follows: bool) -> str:
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        try:
            return self._run(messages, reply_follows)
        except TemplateError:
            if len(messages) < 2 or roles[0] != "system":
                raise
        folded = [{"role": roles[1], "content": texts[0] + "\n\n" + texts[1]}, *messages[2:]]
        return self._run(folded, reply_follows)

    def _run(self, messages: list[dict[str, str]], reply_follows: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=reply_follows,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=None,
                documents=None,
            )
        except (
            jinja2.TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise TemplateError(str(error)) from error

    def _parts(self, text: str, roles: list[str], shield: str, opening: str, closing: str) -> list[Part]:
        parts: list[Part] = []
        # Templates keep the order; one that leaves messages out leaves out the oldest.
        message = iter(range(len(roles) - text.count(closing), len(roles)))
        at = 0
        for found in self._markers.finditer(text):
            self._add_run(parts, text[at : found.start()], message, shield, opening, closing)
            parts.append(Marker(found[0]))
            at = found.end()
        self._add_run(parts, text[at:], message, shield, opening, closing)
        return parts

    @staticmethod
    def _add_run(
        parts: list[Part], text: str, message: Iterator[int], shield: str, opening: str, closing: str
    ) -> None:
        if not text:
            return
        out: list[str] = []
        contents: list[tuple[int, int, int]] = []
        length, start = 0, -1
        for piece in re.split(f"([{opening}{closing}])", text):
            if piece == opening:
                start = length
            elif piece == closing:
                contents.append((next(message), start, length))
                start = -1
            else:
                piece = piece.replace(shield, "")
                out.append(piece)
                length += len(piece)
        parts.append(Run("".join(out), tuple(contents)))


def _around(text: str, opening: str, closing: str) -> str:
    return opening + text + closing


def _inside(text: str, opening: str, closing: str) -> str:
    stripped = text.strip()
    if not stripped:
        return opening + closing
    lead = len(text) - len(text.lstrip())
    return text[:lead] + opening + stripped + closing + text[lead + len(stripped) :]
