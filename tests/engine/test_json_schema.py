"""Schemas as grammars: each text of the grammar is JSON that fits the schema, judged by the jsonschema package."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat import gbnf
from ds4chat.json_schema import MAX_NESTING, SchemaError, to_gbnf
from tests.support.grammar_texts import draw

PERSON = {
    "type": "object",
    "title": "Person",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20, "description": "In full"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["glad", 'so "so"', "back\\slash", None, 3, {"a": [1]}]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["name", "age"],
}

SCHEMAS: dict[str, Any] = {
    "person": PERSON,
    "anything": {},
    "any object": {"type": "object"},
    "no properties": {"type": "object", "additionalProperties": False},
    "a map": {"additionalProperties": {"type": "number"}},
    "required, not named": {"type": "object", "required": ["x"], "additionalProperties": {"type": "null"}},
    "all may be left out": {
        "properties": {"a": {"type": "boolean"}, "b": {"const": 1}, "c": {"type": "null"}}
    },
    "one in the middle": {"properties": {"a": {}, "b": {}, "c": {}, "d": {}}, "required": ["c"]},
    "names in need of escapes": {
        "properties": {'a"b': {"const": "\n"}, "\\": {"const": "é😀\x7f"}},
        "required": ["\\"],
    },
    "types": {
        "type": ["string", "null", "array"],
        "maxLength": 2,
        "items": {"type": "integer"},
        "maxItems": 2,
    },
    "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 5},
    "from zero": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 3},
    "a range": {"type": "integer", "exclusiveMinimum": -3, "maximum": 2.5},
    "narrower": {"type": "integer", "minimum": 1, "exclusiveMinimum": 4, "maximum": 9, "exclusiveMaximum": 7},
    "lengths": {
        "type": "array",
        "items": {"type": "string", "minLength": 2, "maxLength": 3},
        "minItems": 2,
        "maxItems": 4,
    },
    "one item": {"type": "array", "items": {"const": 1}, "maxItems": 1},
    "no item": {"type": "array", "items": {"const": 1}, "maxItems": 0},
    "a tuple": {"type": "array", "prefixItems": [{"const": 1}, {"type": "boolean"}], "items": False},
    "a tuple and more": {"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3, "maxItems": 4},
    "a tuple of old": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"const": 1}, {"const": 2}],
    },
    "formats": {
        "properties": {k: {"type": "string", "format": k} for k in ("date", "uuid")},
        "required": ["date", "uuid"],
    },
    "choice": {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
        ]
    },
    "choice and more": {
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "oneOf": [
            {"properties": {"b": {"const": 2}}, "required": ["b"]},
            {"properties": {"c": {"const": 3}}, "required": ["c"]},
        ],
    },
    "all of": {
        "allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}],
        "$defs": {"a": {"properties": {"x": {"const": 1}}, "required": ["x"]}},
    },
    "all of numbers": {
        "allOf": [{"type": "number", "minimum": 2}, {"type": "integer", "minimum": 3, "maximum": 5}]
    },
    "a list of itself": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["v", "next"],
            }
        },
    },
    "a tree": {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["kids"],
    },
    "two of one name": {
        "$defs": {"a": {"x": {"const": 1}}, "b": {"x": {"const": 2}}},
        "prefixItems": [{"$ref": "#/$defs/a/x"}, {"$ref": "#/$defs/b/x"}],
        "items": False,
    },
    "escaped pointers": {"$defs": {"a/b~c d": {"const": 1}}, "$ref": "#/$defs/a~1b~0c%20d"},
    "like a shared rule": {
        "$defs": {"string": {"const": 1}, "root": {"const": 2}},
        "prefixItems": [{"$ref": "#/$defs/string"}, {"$ref": "#/$defs/root"}, {"type": "string"}],
        "items": False,
    },
    "a property that cannot be": {"properties": {"a": False, "b": {"const": 1}}, "required": ["b"]},
}


def texts(schema: Any, count: int, seed: int = 0) -> list[str]:
    grammar, _ = to_gbnf(json.dumps(schema))
    rules = gbnf.parse(grammar)
    choice = random.Random(seed)
    return [draw(rules, choice) for _ in range(count)]


def check(schema: Any, text: str) -> Any:
    value = json.loads(text)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator(schema, format_checker=validator.FORMAT_CHECKER).validate(value)
    return value


@pytest.mark.parametrize("name", SCHEMAS)
def test_all_that_the_grammar_allows_is_json_that_fits(name: str) -> None:
    schema = SCHEMAS[name]
    for text in texts(schema, 60):
        if name == "formats":
            # The 29th of February of a year without one is a date to a grammar.
            text = text.replace("-02-29", "-02-28")
        check(schema, text)
        assert text == text.rstrip(), "nothing comes behind the end"


def test_what_may_be_left_out_is_and_what_may_come_does() -> None:
    seen = {tuple(json.loads(text)) for text in texts(PERSON, 200)}
    assert {("name", "age"), ("name", "age", "mood", "tags"), ("name", "age", "tags")} <= seen
    assert {tuple(json.loads(t)) for t in texts(SCHEMAS["all may be left out"], 200)} >= {
        (),
        ("a",),
        ("a", "c"),
    }
    assert {json.loads(text) for text in texts(SCHEMAS["a range"], 200)} == {-2, -1, 0, 1, 2}
    assert {json.loads(text) for text in texts(SCHEMAS["narrower"], 100)} == {5, 6}


SIMPLE = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": -2, "maximum": 2},
        {"type": "number"},
        {"enum": ["a", 1, None]},
        {"type": "boolean"},
        {},
    ]
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(
            lambda items, low: {"type": "array", "items": items, "minItems": low}, inner, st.integers(0, 3)
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda parts, must: {
                "type": "object",
                "properties": parts,
                "required": sorted(set(must) & set(parts)),
            },
            st.dictionaries(st.text(max_size=4), inner, max_size=4),
            st.lists(st.text(max_size=4), max_size=3),
        ),
    ),
    max_leaves=8,
)


@given(schema=NESTED, seed=st.integers(0, 1000))
def test_any_schema(schema: Any, seed: int) -> None:
    for text in texts(schema, 3, seed):
        check(schema, text)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (PERSON, []),
        ({"type": "integer", "minimum": 5}, ["minimum"]),
        ({"type": "number", "minimum": 0, "multipleOf": 2}, ["multipleOf"]),
        ({"properties": {"a": {"type": "string", "pattern": "^x"}}}, ["pattern at a"]),
        ({"items": {"uniqueItems": True, "contains": {}}}, ["uniqueItems at items", "contains at items"]),
        ({"type": "array", "uniqueItems": False}, []),
        ({"not": {"const": 1}, "minProperties": 1}, ["not", "minProperties"]),
        ({"type": "string", "format": "email", "title": "Mail", "x-mine": 1}, []),
    ],
)
def test_what_is_not_held_to_is_named(schema: Any, named: list[str]) -> None:
    assert to_gbnf(json.dumps(schema))[1] == named


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"const": NaN}', "NaN is no JSON"),
        ("true", "no JSON object"),
        ("[]", "no JSON object"),
        ('{"type": "strin"}', "type must be one of object, array"),
        ('{"properties": {"a": {"type": 5}}}', "type at a must be one of"),
        ('{"properties": []}', "properties must be an object"),
        ('{"properties": {"a": 1}}', "a schema must be an object or true at a, not 1"),
        ('{"required": "a"}', "list of names"),
        ('{"required": ["b"], "additionalProperties": false}', "asks for b"),
        ('{"enum": []}', "enum must be a list"),
        ('{"anyOf": {}}', "anyOf must be a list"),
        ('{"anyOf": [false]}', "nothing fits the schema false"),
        ('{"type": "string", "minLength": -1}', "minLength must be a whole number"),
        ('{"type": "string", "maxLength": 1e999}', "maxLength must be"),
        ('{"type": "string", "maxLength": 2000}', "1,999 at most"),
        ('{"type": "string", "minLength": 3, "maxLength": 2}', "nothing fits minLength 3 with maxLength 2"),
        ('{"type": "integer", "minimum": "0"}', "minimum must be a number"),
        ('{"type": "integer", "minimum": 1e999}', "minimum must be a number"),
        ('{"type": "integer", "minimum": 2, "maximum": 1}', "no whole number"),
        ('{"items": false, "minItems": 1}', "more items than there may be"),
        ('{"$ref": "https://example.com/schema"}', "only name a part of the schema"),
        ('{"items": {"$ref": "other.json#/a"}}', "only name a part of the schema"),
        ('{"$ref": "#/$defs/gone"}', "leads nowhere"),
        ('{"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}', "leads back to itself"),
        ('{"allOf": [{"const": 1}, {"const": 2}]}', "ask for another const"),
        ('{"allOf": [{"$ref": "#"}, {"title": "x"}], "type": "string"}', "multiply|ask for another|deep"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why) as refused:
        to_gbnf(schema)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    ],
)
def test_what_goes_in_a_circle_is_left_to_the_grammar(schema: Any) -> None:
    with pytest.raises(gbnf.GrammarError, match="begins with itself"):
        gbnf.parse(to_gbnf(json.dumps(schema))[0])


def test_hostile_schemas_end_in_words() -> None:
    deep: Any = {"type": "string"}
    for _ in range(MAX_NESTING + 1):
        deep = {"type": "array", "items": deep}
    part = {"properties": {"a": {}}}
    defs = {f"d{i}": {**part, "anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 3} for i in range(40)}
    wide = {"$ref": "#/$defs/d0", "title": "x", "$defs": {**defs, "d40": {"type": "string"}}}
    long = {"properties": {f"p{i}": {} for i in range(2000)}}
    for schema in (deep, wide, long, {"const": "x" * 300_000}):
        with pytest.raises((SchemaError, gbnf.GrammarError)) as refused:
            gbnf.parse(to_gbnf(json.dumps(schema))[0])
        assert len(str(refused.value)) < 200


def test_as_many_properties_as_people_write_are_no_problem() -> None:
    schema = {"properties": {f"property number {i}": {"type": "string"} for i in range(200)}}
    rules = gbnf.parse(to_gbnf(json.dumps(schema))[0])
    for seed in range(3):
        check(schema, draw(rules, random.Random(seed)))


def test_only_what_is_used_is_in_the_grammar() -> None:
    grammar, _ = to_gbnf('{"const": "string value"}')
    assert re.findall(r"^(\S+) ::=", grammar, re.MULTILINE) == ["root"]
