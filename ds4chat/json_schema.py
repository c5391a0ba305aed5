"""JSON Schema to GBNF: a grammar whose texts are JSON that fits a schema.

What a grammar cannot hold to (a number's range, unique items) is listed, so that it can be said. Objects get the
properties that are named, in their order, and no others: that fits every schema in which others may come. Nothing is
ever fetched. Pure: no engine, no file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote

from ds4chat.gbnf import MAX_CHARS, MAX_REPEATS, is_text, literal, short

MAX_NESTING = 60
"""Schemas within schemas, those that are referred to not counted."""

MAX_PARTS = 20_000
"""Schemas that are looked at: alternatives of alternatives multiply."""

MAX_LISTED = 500
"""Whole numbers of a range that are spelled out, which is how a grammar can hold to it."""

SHARED = {
    # Models like to write over several lines; without a limit some do not stop writing spaces.
    "ws": r'(" " | "\n" " "{0,20})?',
    "char": r'[^"\\\x01-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "string": r'"\"" char* "\""',
    "digits": '"0" | [1-9] [0-9]{0,14}',
    "integer": '"-"? digits',
    "unsigned": 'digits ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "number": '"-"? unsigned',
    "pair": 'string ":" ws value',
    "object": '"{" ws (pair ("," ws pair)*)? ws "}"',
    "array": '"[" ws (value ("," ws value)*)? ws "]"',
    "value": 'object | array | string | number | "true" | "false" | "null"',
    "year": "[1-9] [0-9]{3}",
    "date": 'year "-" (("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9])'
    ' | ("0" [13-9] | "1" [0-2]) "-30" | ("0" [13578] | "1" [02]) "-31")',
    "time": r'([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{3})? '
    r'("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])',
}
"""Rules that schemas share."""

FORMATS = {
    "date": r'"\"" date "\""',
    "time": r'"\"" time "\""',
    "date-time": r'"\"" date "T" time "\""',
    "uuid": r'"\"" [0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12} "\""',
}
"""Of strings; others are notes to the reader."""

NOTES = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"}
    | {"deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator"}
)
"""Keywords that ask nothing of the JSON."""

NOT_KEPT = {
    "string": frozenset({"pattern"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "array": frozenset({"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"}),
    "object": frozenset({"minProperties", "maxProperties", "patternProperties", "propertyNames"})
    | {"dependentRequired", "dependentSchemas", "dependencies"},
    "": frozenset({"not", "if"}),
}
"""Keywords that a grammar does not hold to, by the type they are about."""

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

_TYPE_BY_KEYWORD = {
    "object": {"properties", "required", "additionalProperties"} | NOT_KEPT["object"],
    "array": {"items", "prefixItems", "minItems", "maxItems"} | NOT_KEPT["array"],
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": NOT_KEPT["number"],
}

Schema = Mapping[str, Any]


class SchemaError(ValueError):
    """What is wrong with a schema, to stand behind "The schema ... cannot be used: "."""


def to_gbnf(text: str) -> tuple[str, list[str]]:
    """The grammar of a schema, and what it asks for that the grammar does not hold to, as in "minimum at age".

    Raises SchemaError for what is no schema, and for one that no JSON fits.
    """
    if len(text) > MAX_CHARS:
        raise SchemaError(f"it is longer than {MAX_CHARS:,} characters")
    try:
        schema = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"it is not JSON ({short(str(error), 80)})") from None
    if not isinstance(schema, dict):
        raise SchemaError('it is no JSON object; a schema is like {"type": "object", "properties": ...}')
    converter = _Converter(schema)
    return converter.grammar(), converter.not_kept


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


class _Converter:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._rules: dict[str, str] = {}
        self._refs: dict[str, str] = {}
        self._todo: list[tuple[str, str]] = []
        self._parts = 0
        self.not_kept: list[str] = []

    def grammar(self) -> str:
        self._rules["root"] = self._of(self._root, "", 0)
        while self._todo:
            # One after the other: they may refer to each other in long rows and in circles.
            name, ref = self._todo.pop()
            self._rules[name] = self._of(self._target(ref), ref, 0)
        rules = self._rules | self._shared()
        return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items()) + "\n"

    def _shared(self) -> dict[str, str]:
        """Those of the shared rules that are used, and what these use."""
        used: dict[str, str] = {}
        todo = list(self._rules.values())
        while todo:
            for name in re.findall(
                r"[a-z]+", re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', "", todo.pop())
            ):
                if name in SHARED and name not in used:
                    used[name] = SHARED[name]
                    todo.append(SHARED[name])
        return used

    def _rule(self, body: str) -> str:
        """A name for a rule of its own."""
        name = f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    # ---- one schema ----

    def _of(self, schema: object, at: str, depth: int) -> str:
        """What stands for a schema in a sequence of a grammar."""
        self._parts += 1
        if depth > MAX_NESTING:
            raise SchemaError(f"it is nested more than {MAX_NESTING} deep at {short(at)}")
        if self._parts > MAX_PARTS:
            raise SchemaError("its alternatives multiply to too many")
        if schema is True:
            return "value"
        if schema is False:
            raise SchemaError(f"nothing fits the schema false{_place(at)}")
        if not isinstance(schema, dict):
            raise SchemaError(f"a schema must be an object or true{_place(at)}, not {short(repr(schema))}")
        asks = {key: value for key, value in schema.items() if key not in NOTES}
        if "$ref" in asks:
            return self._reference(asks, at, depth)
        if "allOf" in asks:
            return self._of(self._joined(asks, at), at, depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in asks:
                rest = {k: v for k, v in asks.items() if k != key}
                parts = self._list(asks, key, at)
                return self._any(
                    [self._merged(rest, part, at) if rest else part for part in parts], at, depth
                )
        if "const" in asks:
            return self._constant(asks["const"])
        if "enum" in asks:
            return _group([self._constant(value) for value in self._list(asks, "enum", at)])
        kind = asks["type"] if "type" in asks else _implied(asks)
        if isinstance(kind, list):
            return self._any([{**asks, "type": one} for one in self._list(asks, "type", at)], at, depth)
        return self._typed(kind, asks, at, depth)

    def _typed(self, kind: object, asks: Schema, at: str, depth: int) -> str:
        makers: dict[str, Callable[[Schema, str, int], str]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "number": self._number,
            "integer": self._number,
        }
        self._note(asks, "", at)
        if kind is None:
            return "value"
        if kind == "boolean":
            return '("true" | "false")'
        if kind == "null":
            return '"null"'
        if not isinstance(kind, str) or kind not in makers:
            raise SchemaError(f"type{_place(at)} must be one of {', '.join(TYPES)}, not {short(repr(kind))}")
        return makers[kind](asks, at, depth)

    def _note(self, asks: Schema, kind: str, at: str, kept: Sequence[str] = ()) -> None:
        found = [key for key in asks if key in NOT_KEPT[kind] and key not in kept and asks[key] is not False]
        for key in found:
            told = f"{key}{_place(at)}"
            if told not in self.not_kept:
                self.not_kept.append(told)

    def _any(self, choices: Sequence[object], at: str, depth: int) -> str:
        return _group([self._of(choice, at, depth + 1) for choice in choices])

    def _constant(self, value: object) -> str:
        text = json.dumps(value, ensure_ascii=False)
        # Half a surrogate pair can be spelled, and be no text.
        return literal(text if text.isascii() or is_text(text) else json.dumps(value))

    def _list(self, asks: Schema, key: str, at: str) -> list[Any]:
        value = asks[key]
        if not isinstance(value, list) or not value:
            raise SchemaError(f"{key}{_place(at)} must be a list that is not empty")
        return value

    def _count(self, asks: Schema, key: str, at: str, default: int | None = None) -> int | None:
        value = asks.get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
            raise SchemaError(f"{key}{_place(at)} must be a whole number from 0 up, not {short(repr(value))}")
        if value > MAX_REPEATS:
            raise SchemaError(f"{key}{_place(at)} must be {MAX_REPEATS:,} at most, not {short(repr(value))}")
        return int(value)

    def _times(self, asks: Schema, least: str, most: str, at: str) -> tuple[int, int | None]:
        low, high = self._count(asks, least, at, 0) or 0, self._count(asks, most, at)
        if high is not None and high < low:
            raise SchemaError(f"nothing fits {least} {low} with {most} {high}{_place(at)}")
        return low, high

    # ---- types ----

    def _string(self, asks: Schema, at: str, depth: int) -> str:
        self._note(asks, "string", at)
        if asks.get("format") in FORMATS:
            return FORMATS[asks["format"]]
        least, most = self._times(asks, "minLength", "maxLength", at)
        return "string" if (least, most) == (0, None) else rf'"\"" {_repeated("char", least, most)} "\""'

    def _number(self, asks: Schema, at: str, depth: int) -> str:
        whole = asks.get("type") == "integer"
        low, high = self._bound(asks, "minimum", at), self._bound(asks, "maximum", at)
        if whole and low is not None and high is not None:
            # The next whole number in the range.
            first = math.ceil(low[0]) + (low[0] == math.ceil(low[0]) and low[1])
            last = math.floor(high[0]) - (high[0] == math.floor(high[0]) and high[1])
            if last < first:
                raise SchemaError(f"there is no whole number from minimum to maximum{_place(at)}")
            if last - first < MAX_LISTED:
                self._note(asks, "number", at, _BOUNDS)
                return _group([literal(str(number)) for number in range(first, last + 1)])
        if low is not None and low[0] == 0 and not low[1]:
            self._note(asks, "number", at, ["minimum"])
            return "digits" if whole else "unsigned"
        self._note(asks, "number", at)
        return "integer" if whole else "number"

    def _bound(self, asks: Schema, name: str, at: str) -> tuple[float, bool] | None:
        """A number's lowest or highest value, and whether it is excluded; the narrower of two."""
        found: list[tuple[float, bool]] = []
        for key, excluded in ((name, False), (f"exclusive{name.capitalize()}", True)):
            value = asks.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float | None) or value in _ENDLESS:
                raise SchemaError(f"{key}{_place(at)} must be a number, not {short(repr(value))}")
            if value is not None:
                found.append((value, excluded))
        if name == "minimum":
            return max(found, default=None)
        return min(found, key=lambda bound: (bound[0], not bound[1]), default=None)

    def _array(self, asks: Schema, at: str, depth: int) -> str:
        self._note(asks, "array", at)
        rest, first = asks.get("items", True), asks.get("prefixItems", [])
        if isinstance(rest, list):
            rest, first = asks.get("additionalItems", True), rest
        if not isinstance(first, list):
            raise SchemaError(f"prefixItems{_place(at)} must be a list")
        least, most = self._times(asks, "minItems", "maxItems", at)
        first = first[:most]
        named = [self._of(part, f"{at}/{i}", depth + 1) for i, part in enumerate(first)]
        least, most = max(0, least - len(first)), None if most is None else most - len(first)
        if first and "items" not in asks and not least:
            # More may come, and need not.
            most = 0
        if rest is False or most == 0:
            if least:
                raise SchemaError(f"minItems{_place(at)} asks for more items than there may be")
            items = ' "," ws '.join(named)
        else:
            item = self._rule(self._of(rest, f"{at}/items", depth + 1))
            more = f'("," ws {item})'
            if named:
                items = ' "," ws '.join(named) + " " + _repeated(more, least, most)
            else:
                left = None if most is None else most - 1
                items = f"{item} {_repeated(more, max(0, least - 1), left)}".rstrip()
                items = items if least else f"({items})?"
        return self._rule(f'"[" ws {items} ws "]"' if items else '"[" ws "]"')

    def _object(self, asks: Schema, at: str, depth: int) -> str:
        self._note(asks, "object", at)
        properties, required = asks.get("properties", {}), asks.get("required", [])
        others = asks.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise SchemaError(f"properties{_place(at)} must be an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise SchemaError(f"required{_place(at)} must be a list of names")
        unnamed = {name: others for name in required if name not in properties}
        if unnamed and others is False:
            raise SchemaError(
                f"required{_place(at)} asks for {short(next(iter(unnamed)))}, which no property allows"
            )
        named = {**properties, **unnamed}
        if not named:
            return self._map(others, at, depth)
        pairs = [
            self._rule(f'{self._constant(name)} ":" ws {self._of(part, f"{at}/{name}", depth + 1)}')
            for name, part in named.items()
            if part is not False
        ]
        needed = [name in required for name, part in named.items() if part is not False]
        return self._members(pairs, needed)

    def _map(self, others: object, at: str, depth: int) -> str:
        """An object whose properties may have any names."""
        if others is False:
            return '"{" ws "}"'
        if others is True:
            return "object"
        pair = self._rule(f'string ":" ws {self._of(others, f"{at}/*", depth + 1)}')
        return self._rule(f'"{{" ws ({pair} ("," ws {pair})*)? ws "}}"')

    def _members(self, pairs: Sequence[str], needed: Sequence[bool]) -> str:
        """An object of these properties in their order, those left out that are not needed."""
        # What may follow once there is a property: a rule for each place, so that the text does not multiply.
        tails = [""]
        for pair, must in zip(reversed(pairs), reversed(needed), strict=True):
            more = f'"," ws {pair}' if must else f'("," ws {pair})?'
            tails.append(self._rule(f"{more} {tails[-1]}".rstrip()))
        tails.reverse()
        first = next((i for i, must in enumerate(needed) if must), len(pairs) - 1)
        begins = [f"{pairs[i]} {tails[i + 1]}".rstrip() for i in range(first + 1)]
        members = _group(begins) + ("" if any(needed) else "?")
        return self._rule(f'"{{" ws {members} ws "}}"')

    # ---- several in one ----

    def _reference(self, asks: Schema, at: str, depth: int) -> str:
        ref = asks["$ref"]
        rest = {key: value for key, value in asks.items() if key != "$ref"}
        if rest:
            return self._of(self._merged(rest, self._target(ref), at), at, depth + 1)
        if ref == "#":
            return "root"
        if ref not in self._refs:
            self._target(ref)
            self._refs[ref] = self._rule("")
            self._todo.append((self._refs[ref], ref))
        return self._refs[ref]

    def _target(self, ref: object) -> object:
        """What a reference within the schema leads to."""
        seen: set[str] = set()
        while True:
            if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
                raise SchemaError(
                    f"$ref can only name a part of the schema, as #/$defs/name, not {short(repr(ref))}"
                )
            if ref in seen:
                raise SchemaError(f"$ref {short(ref)} leads back to itself")
            seen.add(ref)
            target: Any = self._root
            for step in ref.split("/")[1:]:
                step = unquote(step).replace("~1", "/").replace("~0", "~")
                try:
                    target = target[int(step)] if isinstance(target, list) else target[step]
                except (KeyError, IndexError, ValueError, TypeError):
                    raise SchemaError(f"$ref {short(ref)} leads nowhere") from None
            if not isinstance(target, dict) or target.keys() - NOTES != {"$ref"}:
                return target
            ref = target["$ref"]

    def _joined(self, asks: Schema, at: str) -> object:
        joined: object = {key: value for key, value in asks.items() if key != "allOf"}
        for part in self._list(asks, "allOf", at):
            joined = self._merged(joined, part, at)
        return joined

    def _merged(self, one: object, other: object, at: str) -> object:
        """What fits both of two schemas."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SchemaError("its alternatives multiply to too many")
        if isinstance(other, dict) and other.keys() - NOTES == {"$ref"}:
            other = self._target(other["$ref"])
        if one is True or other is True:
            return other if one is True else one
        if not isinstance(one, dict) or not isinstance(other, dict):
            return False
        merged = dict(one)
        for key, value in other.items():
            if key not in merged or merged[key] == value or key in NOTES:
                merged[key] = value
            else:
                merged[key] = self._both(key, merged[key], value, at)
        return merged

    def _both(self, key: str, one: Any, other: Any, at: str) -> object:
        try:
            if key == "properties":
                common = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
                return {**one, **other, **common}
            if key == "required":
                return [*one, *other]
            if key in ("minLength", "minItems", "minimum"):
                return max(one, other)
            if key in ("maxLength", "maxItems", "maximum"):
                return min(one, other)
            if key == "enum":
                return [value for value in one if value in other]
            if key == "type":
                return _common_types(one, other)
            if key == "additionalProperties" and False in (one, other):
                return False
        except (AttributeError, TypeError):
            pass
        raise SchemaError(f"two parts{_place(at)} ask for another {key}, which cannot be joined")


_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")

_ENDLESS = (math.inf, -math.inf)


def _implied(asks: Schema) -> str | None:
    """The type that keywords are about; a schema without any fits everything."""
    return next((kind for kind, keys in _TYPE_BY_KEYWORD.items() if keys & asks.keys()), None)


def _common_types(one: object, other: object) -> list[str]:
    sets = [set(kinds if isinstance(kinds, list) else [kinds]) for kinds in (one, other)]
    for kinds in sets:
        if "number" in kinds:
            kinds.add("integer")
    common = sets[0] & sets[1]
    return sorted(common - {"integer"} if "number" in common else common)


def _group(choices: Sequence[str]) -> str:
    unique = list(dict.fromkeys(choices))
    return f"({' | '.join(unique)})"


def _repeated(body: str, least: int, most: int | None) -> str:
    if (least, most) == (0, None):
        return f"{body}*"
    return f"{body}{{{least},{'' if most is None else most}}}"


def _place(at: str) -> str:
    return f" at {short(at[1:], 60)}" if at else ""
