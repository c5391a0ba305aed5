"""Which calls are in a reply."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.sessions.calls import calls_in


def test_calls_in_order_and_none_in_thoughts() -> None:
    text = (
        '<think><tool_call>{"name": "no", "arguments": {}}</tool_call></think>\n'
        'One <tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call> two '
        '<tool_call>\n{"name": "b", "arguments": "{\\"y\\": 2}"}\n</tool_call>'
    )
    assert [(c.name, c.arguments) for c in calls_in(text)] == [("a", {"x": 1}), ("b", {"y": 2})]


def test_a_list_of_calls_and_a_bare_one() -> None:
    listed = '[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]'
    assert [call.name for call in calls_in(listed)] == ["a", "b"]
    bare = '{"name": "a", "parameters": {"x": 1}}'
    assert [call.arguments for call in calls_in(bare, ["a"])] == [{"x": 1}]
    assert calls_in(bare) == [] == calls_in(f"As in {bare}", ["a"])


@pytest.mark.parametrize("text", ["", "<tool_call>", "<tool_call>{}", '<tool_call>{"name": "a"', "{", "{}"])
def test_half_a_call_is_none(text: str) -> None:
    assert calls_in(text, ["a"]) == []


def test_what_is_no_object_or_no_text_is_made_valid_or_refused() -> None:
    def one(arguments: str) -> object:
        (call,) = calls_in(f'<tool_call>{{"name": "a", "arguments": {arguments}}}</tool_call>')
        return call.arguments

    assert one("3") is None and one('"no json"') is None and one("[" * 60 + "]" * 60) is None
    assert one('{"x": ' + "[" * 60 + "]" * 60 + "}") is None
    assert one('{"x": "\\ud800", "y": NaN}') == {"x": "\ufffd", "y": None}


def test_there_is_an_end_to_them() -> None:
    text = '<tool_call>{"name": "a", "arguments": {}}</tool_call>' * 40
    assert len(calls_in(text)) == 16


@given(st.text(alphabet='<tool_cal>/{}[]":, \n\\x1', max_size=80))
def test_any_text_is_read(text: str) -> None:
    for call in calls_in(text, ["x"]):
        assert json.loads(call.shown) == call.arguments
