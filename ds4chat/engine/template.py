"""Chat template -> rendered text, with what was typed kept apart from the template's own markers.

Promises: a control token's text inside of a message comes out as text, never as a marker, whatever the template does to
it; the rendering without any mark is what decides, marks only tell where contents lie in it. A template that takes more
time, memory or text than it may is given up for ChatML, and says so once. Must not know: the engine, tokens, sessions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, product
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser

from ds4chat.engine.sandbox import Sandbox, TemplateError, TemplateLimitError, text_limit

__all__ = ["CHATML", "ChatTemplate", "Marker", "Part", "Run", "TemplateError", "TemplateLimitError"]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For models that bring no template: the markers most fine-tunes know."""

_OWN_USE = (range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
"""Code points to mark places with: those Unicode keeps free for a program's own use, then its private planes."""


MAX_REASON = 300
"""Characters of what a template says of itself."""


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
    raise TemplateError(str(message)[:MAX_REASON])


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
        self._source = source or CHATML
        self._bos, self._eos = bos, eos
        self._controls = _Controls(control_texts)
        self._compile()
        self._literals = _literals(self._source, self._controls)

    def _compile(self) -> None:
        self._sandbox = Sandbox([loopcontrols, _GenerationBlock])
        self._sandbox.filters["tojson"] = _tojson
        self._sandbox.globals["raise_exception"] = _raise_exception
        try:
            # What is constant in a template is worked out when it is compiled, however much that is.
            self._template = self._sandbox.limited(lambda: self._sandbox.from_string(self._source))
        except TemplateError:
            raise
        except Exception as error:
            # Python's own compiler refuses some of what Jinja takes.
            raise TemplateError(str(error)) from error

    def render(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        reply_follows: bool,
        tools: Sequence[Any] | None = None,
    ) -> list[Part]:
        """Render (role, text) pairs. `reply_follows` adds the header of the assistant's answer. Raises TemplateError.

        `tools` are declarations of functions (JSON values); nothing in them is ever a marker, as in the messages.
        Where the template has no place for a system prompt, it goes ahead of the first user message. After a
        TemplateLimitError ChatML stands in for the template.
        """
        words = [*(text for _role, text in messages), *_strings(tools)]
        self._sandbox.most = text_limit(sum(map(len, words)))
        try:
            return self._sandbox.limited(lambda: self._render(messages, reply_follows, tools))
        except TemplateLimitError:
            if self._source != CHATML:
                self._source = CHATML
                self._compile()
            raise

    def knows_tools(self) -> bool:
        """Whether a model is told by it of the tools it may call and of what a call came to."""
        if "tools" not in self._source:
            return False
        declared = {"name": "a_tool_to_see", "description": "Seen?", "parameters": {"type": "object"}}
        call = '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
        talk = [("user", "Hello"), ("assistant", call), ("tool", "so it came out")]
        self._sandbox.most = text_limit(1000)
        tools = [{"type": "function", "function": declared}]
        try:
            parts = self._sandbox.limited(lambda: self._render(talk, True, tools))
        except TemplateError:
            return False
        shown = "".join(part.text for part in parts)
        return all(text in shown for text in ("a_tool_to_see", call, "so it came out"))

    def _render(
        self, messages: Sequence[tuple[str, str]], reply_follows: bool, tools: Sequence[Any] | None = None
    ) -> list[Part]:
        roles = [role for role, _text in messages]
        known = [*(text for _role, text in messages), *_strings(tools), self._source, self._bos, self._eos]
        marks = _Marks(known, len(roles), self._controls.firsts)
        texts = [marks.shielded(text, self._controls) for _role, text in messages]
        safe = _each_string(tools, lambda text: marks.shielded(text, self._controls)) if tools else None
        rendering = _Rendering(self, reply_follows, datetime.now(), safe)
        folded = False
        try:
            plain = rendering.run(roles, texts, folded)
        except TemplateLimitError:
            raise
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
        insides = dict.fromkeys(map(frozenset, (set(), others, padded & {"assistant"}, padded)))
        # Without any character that a control text begins with, contents spell none whatever is cut out of them or put
        # together. A template that looks for such texts in them must find those, and others need them as they are.
        typed, literals = marks.typed(plain), rendering.template._literals
        bare = [marks.bare(text) for text in texts]
        for kept, inside in product(("nothing", "literals", "all") if bare != texts else ("all",), insides):
            variant = texts if kept == "all" else bare
            if kept == "literals":
                variant = [marks.bare(text, literals) for text in texts]
            marked_texts = [
                marks.inside(i, text) if role in inside else marks.around(i, text)
                for i, (role, text) in enumerate(zip(roles, variant, strict=True))
            ]
            try:
                marked = rendering.run(roles, marked_texts, folded)
            except TemplateLimitError:
                raise
            except TemplateError:
                continue
            if marks.typed(marked) == typed:
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


def _strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _each_string(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with all its strings changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _each_string(item, change) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_each_string(item, change) for item in value]
    return value


def _literals(source: str, controls: _Controls) -> re.Pattern[str]:
    """The texts that a template may look for in contents, such as `</think>`: what it quotes, but for control texts."""
    quoted = {text for pair in re.findall(r"'([^'\\]+)'|\"([^\"\\]+)\"", source) for text in pair if text}
    wanted = [
        text for text in quoted if controls.begins_in(text) and not any(controls.find(text, alike=True))
    ]
    return re.compile("|".join(map(re.escape, sorted(wanted, key=len, reverse=True))) or "(?!)")


class _Controls:
    """Finds the texts of control tokens. Some vocabularies have thousands: one regular expression takes seconds."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = {text for text in texts if text}
        # Longest first, so that of two texts where one begins the other the longer wins, as in the tokenizer.
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        self._lower = {text.lower() for text in self._texts}
        self.firsts = sorted({text[0] for text in self._texts})
        first = "".join(map(re.escape, self.firsts))
        self._first = re.compile(f"[{first}]" if first else "(?!)")

    def begins_in(self, text: str) -> bool:
        """Whether a character is in it that one begins with."""
        return self._first.search(text) is not None

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def find(self, text: str, *, alike: bool = False) -> Iterator[tuple[int, str]]:
        """Where each begins, and which; they may overlap. `alike`: those too that a change of case makes of it."""
        for found in self._first.finditer(text):
            begin = found.start()
            for length in self._lengths:
                part = text[begin : begin + length]
                if part in self._texts or (alike and part.lower() in self._lower):
                    yield begin, part
                    break


@dataclass(frozen=True)
class _Rendering:
    """The renderings of one conversation, at one moment."""

    template: ChatTemplate
    reply_follows: bool
    now: datetime
    tools: Any = None

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
                tools=self.tools,
                documents=None,
                strftime_now=self.now.strftime,
            )
        except (TemplateError, SecurityError, MemoryError, OverflowError, RecursionError):
            raise
        except Exception as error:
            # A model file's code: it may fail in any way.
            raise TemplateError(str(error)[:MAX_REASON] or type(error).__name__) from error


class _Marks:
    """Characters that none of the texts has, to mark places in a rendering.

    The shield keeps a typed control text from being one, and is taken out again. An opening and a closing mark, each
    with the message's number in binary (templates reorder, repeat and leave out), tell where a content lies.
    """

    def __init__(self, texts: Iterable[str], count: int, firsts: Sequence[str]) -> None:
        """`firsts`: what control texts begin with. Raises TemplateError when the texts leave no character free."""
        used = set().union(*texts)
        self._free = (c for c in map(chr, chain(*_OWN_USE)) if c not in used)
        self._shield = self._take()
        self._open, self._close = self._take(), self._take()
        self._digits = self._take() + self._take()
        self._width = max(1, count.bit_length())
        self._stand_ins: dict[str, str] = {}
        self._places = re.compile(f"([{self._open}{self._close}])([{self._digits}]{{{self._width}}})")
        self._all = re.compile(f"[{self._open}{self._close}{self._digits}]")
        self._bare = {first: self._take() for first in firsts}

    def _take(self) -> str:
        try:
            return next(self._free)
        except StopIteration:
            raise TemplateError("the messages use every character there is") from None

    def shielded(self, text: str, controls: _Controls) -> str:
        """The text without any control text in it, for `run` to put right."""
        out: list[str] = []
        at = 0
        for begin, _control in controls.find(text, alike=True):
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

    def bare(self, text: str, but: re.Pattern[str] | None = None) -> str:
        """The text with other characters in the place of those that control texts begin with, save in what `but`
        finds."""
        if but is not None:
            kept, between = but.findall(text), but.split(text)
            return "".join(chain(*zip(map(self.bare, between), [*kept, ""], strict=True)))
        for first, bare in self._bare.items():
            text = text.replace(first, bare)
        return text

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
            piece = self.typed(text[at : found.start() if found else len(text)])
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

    def typed(self, text: str) -> str:
        """A rendering as it would be of the contents as they are."""
        text = self.without(text).replace(self._shield, "")
        for own, stand_in in chain(self._bare.items(), self._stand_ins.items()):
            text = text.replace(stand_in, own)
        return text
