"""The values of JSON text one by one, wherever it is cut into blocks."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.sessions.importing import splitter
from ds4chat.sessions.importing.splitter import Value, values

ODD = st.text(alphabet='a"\\{}[],: \n\u00e9\U0001f600\x00', max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | ODD
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(ODD, JSON, max_size=3) | st.lists(JSON, max_size=3)


def split(data: bytes, block: int = splitter.BLOCK, most: int = splitter.MAX_VALUE) -> list[Value]:
    """The values, of a file that gives at most so many bytes at once."""
    file = io.BytesIO(data)
    return list(values(lambda number: file.read(min(number, block)), most))


@given(st.lists(OBJECTS, max_size=4), st.integers(1, 9), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=50, deadline=None)
def test_the_values_of_a_list_are_found(
    items: list[Any], block: int, ascii_: bool, indent: int | None
) -> None:
    data = b"\xef\xbb\xbf" * (block % 2) + json.dumps(items, ensure_ascii=ascii_, indent=indent).encode()
    found = split(data, block)
    assert [json.loads(value.data) for value in found] == items
    assert not any(value.fault for value in found) and all(value.inside for value in found)
    assert all(data[value.start :].startswith(value.data) for value in found)


@given(st.lists(st.dictionaries(ODD, JSON, max_size=3), max_size=4), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_values_behind_each_other_are_found(items: list[Any], block: int) -> None:
    found = split("\n".join(map(json.dumps, items)).encode(), block)
    assert [json.loads(value.data) for value in found] == items
    assert [value.group for value in found] == list(range(len(items)))


def faults(data: bytes, most: int = splitter.MAX_VALUE) -> list[tuple[bytes, str]]:
    return [(value.data, value.fault) for value in split(data, 7, most)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'[{"a": 1}, {"b": [2', [(b'{"a": 1}', ""), (b"", "it ends in the middle: the file was cut off")]),
        (b'[{"a": 1}, ', [(b'{"a": 1}', ""), (b"", "the list is not closed: it was cut off")]),
        (b'[{"a": 1}, 7, "x]", {"b": 2}]', [(b'{"a": 1}', ""), (b"7", ""), (b'"x]"', ""), (b'{"b": 2}', "")]),
        (b'[{"a" 1}, {"b": 2}] }', [(b'{"a" 1}', ""), (b'{"b": 2}', ""), (b"}", "")]),
        (b"[]", []),
        (b"", []),
    ],
)
def test_damage_costs_what_it_is_in(data: bytes, found: list[tuple[bytes, str]]) -> None:
    assert faults(data) == found


def test_what_is_too_large_is_passed_over() -> None:
    large = b'{"a": [' + b"[1], " * 50 + b"[1]]}"
    assert faults(b'[{"b": 1}, ' + large + b', {"c": 2}]', 100) == [
        (b'{"b": 1}', ""),
        (b"", "it is larger than 0 MB"),
        (b'{"c": 2}', ""),
    ]
    assert faults(b'[{"b": 1}, {"a": "' + b"x" * 500, 100) == [
        (b'{"b": 1}', ""),
        (b"", "it holds a text of more than 100 bytes"),
    ]
