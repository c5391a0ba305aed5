"""Grammars in GBNF, the notation of llama.cpp: read and held against limits before an engine sees them.

llama.cpp's own reader is the one that counts, but it is made for grammars that somebody trusts: deep nesting overflows
its stack, hidden left recursion never ends, rules that name each other in many ways take as long as they like. What
passes here does not do that. Pure: no engine, no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

MAX_CHARS = 200_000
"""Of a grammar."""

MAX_NESTING = 100
"""Groups within groups."""

MAX_ELEMENTS = 1_000_000
"""Characters, ranges and references, repeated ones as often as they are repeated: what llama.cpp keeps in memory."""

MAX_REPEATS = 1_999
"""llama.cpp takes a higher limit for none at all."""

MAX_DEPTH = 500
"""Rules that begin with one another, in a row."""

MAX_LOOKS = 1_000_000
"""Ways in which rules begin with one another: llama.cpp goes all of them when it looks for left recursion."""

ROOT = "root"

EXAMPLE = 'root ::= "yes" | "no"'


class GrammarError(ValueError):
    """What is wrong with a grammar, to stand behind "The grammar ... cannot be used: "."""


@dataclass(frozen=True)
class Literal:
    """Characters one after the other."""

    text: str


@dataclass(frozen=True)
class Chars:
    """One character out of some ranges of code points, or any other than these."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True)
class Ref:
    """A rule by its name, and where in the text it is named."""

    name: str
    at: int


@dataclass(frozen=True)
class Repeat:
    """Something `least` to `most` times (None: without end)."""

    node: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Group:
    """Alternatives, each a sequence."""

    alternatives: tuple[tuple[Node, ...], ...]


Node = Literal | Chars | Ref | Repeat | Group

ANY = Chars((), negated=True)

_NAME = re.compile(r"[A-Za-z0-9-]+")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_CLASS = re.compile(r"\[(\^?)((?:[^\]\\]|\\.)*)\]", re.DOTALL)
_COUNT = re.compile(r"\{[ \t]*(\d+)[ \t]*(?:(,)[ \t]*(\d*)[ \t]*)?\}")
_CHAR = re.compile(
    r'\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([trn\\"\[\]-]))|([^\\])', re.DOTALL
)
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAMED_ESCAPES = {"t": "\t", "r": "\r", "n": "\n"}
_TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(text: str) -> dict[str, Group]:
    """The rules of a grammar by name. Raises GrammarError for what llama.cpp could not read, or not in good time."""
    if len(text) > MAX_CHARS:
        raise GrammarError(f"it is longer than {MAX_CHARS:,} characters")
    if "\0" in text:
        raise GrammarError("it holds a NUL character")
    if not is_text(text):
        raise GrammarError("it is no UTF-8 text")
    rules = _Reader(text).rules()
    if not rules:
        raise GrammarError(f"it has no rule; a grammar is like {EXAMPLE}")
    for rule in rules.values():
        for node in _walk(rule):
            if isinstance(node, Ref) and node.name not in rules:
                raise GrammarError(f"line {_line(text, node.at)}: there is no rule {short(node.name)}")
    if ROOT not in rules:
        raise GrammarError(f"it has no rule called root, with which an answer begins, as in {EXAMPLE}")
    for name, rule in rules.items():
        for node in _walk(rule):
            # To llama.cpp this is a rule that begins with itself.
            if isinstance(node, Repeat) and node.most is None and _is_empty(node.node, rules):
                raise GrammarError(f"the rule {short(name)} repeats without end what may be empty")
    if sum(_elements(group) for group in rules.values()) > MAX_ELEMENTS:
        raise GrammarError("its repetitions make it too large")
    _Beginnings(rules).check()
    return rules


def short(text: str, most: int = 40) -> str:
    """A name or a piece of a grammar for an error."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"


def is_text(text: str) -> bool:
    """Whether UTF-8 can hold it: no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def literal(text: str) -> str:
    """A text as a grammar spells it, in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02X}", escaped) + '"'


# ---- reading -------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._names: set[str] = set()
        self._unnamed = 0
        """Rules that llama.cpp makes of groups and repetitions."""

    def rules(self) -> dict[str, Group]:
        """All of them; one that is defined twice is what it was defined as last, as in llama.cpp."""
        rules: dict[str, Group] = {}
        self._space(lines=True)
        while self._at < len(self._text):
            name = self._match(_NAME)
            if name is None:
                self._fail(f"a rule is expected, as in {EXAMPLE}")
            self._space()
            if not self._text.startswith("::=", self._at):
                # Names have no other characters, which is the mistake that is made most.
                self._fail(f"::= is expected behind {short(name[0])} (names have letters, digits and -)")
            self._at += 3
            self._space(lines=True)
            self._names.add(name[0])
            rules[name[0]] = self._alternatives(0)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._fail(f"{short(self._text[self._at : self._at + 10], 10)} cannot stand there")
            self._space(lines=True)
        return rules

    def _alternatives(self, nesting: int) -> Group:
        if nesting > MAX_NESTING:
            self._fail(f"groups are nested more than {MAX_NESTING} deep")
        found = [self._sequence(nesting)]
        while self._text.startswith("|", self._at):
            self._at += 1
            self._space(lines=True)
            found.append(self._sequence(nesting))
        return Group(tuple(found))

    def _sequence(self, nesting: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        weight = 1
        while self._at < len(self._text):
            start, before = self._text[self._at], self._known
            if start in "*+?{":
                least, most = self._times(start)
                if not nodes or nodes[-1] == Literal(""):
                    self._fail(f"there is nothing that {start} could repeat")
                nodes[-1] = Repeat(nodes[-1], least, most)
                weight *= most or least or 1
                self._unnamed += 1 if most is None else most - least
            elif (node := self._node(start, nesting)) is not None:
                nodes.append(node)
                weight = max(1, self._known - before) if isinstance(node, Group) else 1
            else:
                break
            if weight > MAX_REPEATS:
                self._fail(f"what is repeated here is too much: more than {MAX_REPEATS:,} parts")
            self._space(lines=nesting > 0)
        return tuple(nodes)

    @property
    def _known(self) -> int:
        """How many rules there are by now; llama.cpp weighs a group by how many it adds."""
        return len(self._names) + self._unnamed

    def _node(self, start: str, nesting: int) -> Node | None:
        if start == '"':
            found = self._match(_LITERAL) or self._fail("a text has no closing quote")
            return Literal("".join(map(chr, self._chars(found[1]))))
        if start == "[":
            found = self._match(_CLASS) or self._fail("a set of characters has no closing ]")
            return Chars(self._ranges(found[2]), negated=bool(found[1]))
        if start == "(":
            self._at += 1
            self._unnamed += 1
            self._space(lines=True)
            group = self._alternatives(nesting + 1)
            if not self._text.startswith(")", self._at):
                self._fail("a group has no closing )")
            self._at += 1
            return group
        if start == ".":
            self._at += 1
            return ANY
        if start in "<!":
            self._fail("tokens by name (<...>) cannot be used: write their text in quotes")
        name = self._match(_NAME)
        if name is None:
            return None
        self._names.add(name[0])
        return Ref(name[0], name.start())

    def _times(self, start: str) -> tuple[int, int | None]:
        if start != "{":
            self._at += 1
            return _TIMES[start]
        found = self._match(_COUNT) or self._fail("a number of times is expected, as in {2} or {1,5}")
        # Numbers of thousands of digits are no numbers to Python.
        least, most = (number[:9] for number in (found[1], found[3] or found[1]))
        if int(least) > MAX_REPEATS or int(most) > MAX_REPEATS:
            self._fail(f"something is repeated more than {MAX_REPEATS:,} times")
        if found[2] and not found[3]:
            return int(least), None
        if int(most) < int(least):
            self._fail(f"{{{least},{most}}} is the wrong way round")
        return int(least), int(most)

    def _ranges(self, text: str) -> tuple[tuple[int, int], ...]:
        ranges: list[tuple[int, int]] = []
        pieces = [match.span() for match in _CHAR.finditer(text)]
        codes = list(self._chars(text))
        at = 0
        while at < len(codes):
            is_range = at + 2 < len(codes) and text[slice(*pieces[at + 1])] == "-"
            last = codes[at + 2] if is_range else codes[at]
            if last < codes[at]:
                self._fail(f"the range {short(text)} is the wrong way round")
            ranges.append((codes[at], last))
            at += 3 if is_range else 1
        if not ranges:
            self._fail("[] holds no character")
        return tuple(ranges)

    def _chars(self, text: str) -> Iterator[int]:
        at = 0
        while at < len(text):
            match = _CHAR.match(text, at) or self._fail(f"the escape {short(text[at : at + 2])} is not known")
            code = match[1] or match[2] or match[3]
            value = int(code, 16) if code else ord(_NAMED_ESCAPES.get(match[4] or "", match[4] or match[5]))
            if value == 0 or value > 0x10FFFF:
                self._fail(f"{short(match[0])} is no character")
            yield value
            at = match.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _space(self, lines: bool = False) -> None:
        self._match(_SPACE_AND_LINES if lines else _SPACE)

    def _fail(self, why: str) -> NoReturn:
        raise GrammarError(f"line {_line(self._text, self._at)}: {why}")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# ---- what it would take --------------------------------------------------------------------------------------------


def _walk(group: Group) -> Iterator[Node]:
    todo: list[Node] = [group]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, Repeat):
            todo.append(node.node)
        elif isinstance(node, Group):
            todo += (inner for sequence in node.alternatives for inner in sequence)


def _is_empty(node: Node, rules: dict[str, Group]) -> bool:
    """Whether one of the ways to write something is to write down nothing."""
    if isinstance(node, Ref):
        node = rules[node.name]
    if not isinstance(node, Group):
        return False
    return any(all(_is_nothing(inner) for inner in sequence) for sequence in node.alternatives)


def _is_nothing(node: Node) -> bool:
    return node == Literal("") or (isinstance(node, Repeat) and node.most == 0)


def _elements(node: Node) -> int:
    match node:
        case Literal(text):
            return len(text)
        case Chars(ranges):
            return 2 * len(ranges) + 1
        case Ref():
            return 1
        case Repeat(inner, least, most):
            size = _elements(inner)
            own = 1 if isinstance(inner, Group) else size
            optional = 1 if most is None else most - least
            return size + least * own + optional * (own + 3)
        case Group(alternatives):
            return 2 + sum(1 + sum(map(_elements, sequence)) for sequence in alternatives)


@dataclass
class _Beginnings:
    """With what each rule may begin: nothing may begin with itself, or with too much."""

    rules: dict[str, Group]
    _empty: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Raises GrammarError."""
        self._find_empty()
        follows = {name: list(self._first(group)) for name, group in self.rules.items()}
        looks: dict[str, int] = {}
        depth: dict[str, int] = {}
        for name in self.rules:
            self._measure(name, follows, looks, depth)
        if max(depth.values()) > MAX_DEPTH:
            raise GrammarError(f"more than {MAX_DEPTH} rules in a row begin with one another")
        if sum(looks.values()) > MAX_LOOKS:
            raise GrammarError("its rules begin with one another in too many ways")

    def _find_empty(self) -> None:
        """Which rules may stand for nothing: looked at again when one they begin with turns out to."""
        users: dict[str, set[str]] = {}
        for name, group in self.rules.items():
            for node in _walk(group):
                if isinstance(node, Ref):
                    users.setdefault(node.name, set()).add(name)
        todo = list(self.rules)
        while todo:
            name = todo.pop()
            if name not in self._empty and self._may_be_empty(self.rules[name]):
                self._empty.add(name)
                todo += users.get(name, ())

    def _may_be_empty(self, node: Node) -> bool:
        match node:
            case Literal(text):
                return not text
            case Chars():
                return False
            case Ref(name):
                return name in self._empty
            case Repeat(inner, least, _):
                return least == 0 or self._may_be_empty(inner)
            case Group(alternatives):
                return any(all(map(self._may_be_empty, sequence)) for sequence in alternatives)

    def _first(self, node: Node) -> Iterator[str]:
        """The names that what a node stands for may begin with, each as often as it may."""
        match node:
            case Ref(name):
                yield name
            case Repeat(inner, _, _):
                yield from self._first(inner)
            case Group(alternatives):
                for sequence in alternatives:
                    for inner in sequence:
                        yield from self._first(inner)
                        if not self._may_be_empty(inner):
                            break

    def _measure(
        self, start: str, follows: dict[str, list[str]], looks: dict[str, int], depth: dict[str, int]
    ) -> None:
        """Fill `looks` and `depth` for a rule and those it begins with, without recursion of our own."""
        open_: set[str] = set()
        todo = [(start, False)]
        while todo:
            name, done = todo.pop()
            if done:
                open_.discard(name)
                looks[name] = min(MAX_LOOKS + 1, 1 + sum(looks[other] for other in follows[name]))
                depth[name] = 1 + max((depth[other] for other in follows[name]), default=0)
            elif name in open_:
                raise GrammarError(f"the rule {short(name)} begins with itself (left recursion)")
            elif name not in looks:
                open_.add(name)
                todo.append((name, True))
                todo += ((other, False) for other in dict.fromkeys(follows[name]))
