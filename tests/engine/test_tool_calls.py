"""Tool calls keep the exact text the model wrote."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ds4chat.checkpoints.format import open_span
from ds4chat.checkpoints.trailers import Trailer, pack_trailers
from ds4chat.engine.protocol import ChatMessage
from ds4chat.engine.tool_calls import blocks, call_id, pack, put_back, unpack
from tests.support.engine_room import EngineRoom, user

WROTE = 'Let me look. <tool_call>\n{"name":"add",  "arguments": {"b": 2, "a": 1}}\n</tool_call> Done.'
ANEW = 'Let me look. <tool_call>{"arguments": {"a": 1, "b": 2}, "name": "add"}</tool_call> Done.'


def test_a_call_written_anew_is_put_back_as_the_model_wrote_it() -> None:
    known = {block.id: block.text for block in blocks(WROTE)}
    assert len(known) == 1
    assert put_back(ANEW, known) == WROTE
    assert put_back(WROTE, known) == WROTE
    assert put_back(ANEW, {}) == ANEW


def test_a_call_is_known_by_its_own_id() -> None:
    assert call_id('{"id": "call_7", "name": "add"}') == "call_7"
    assert call_id('[{"id": "a"}, {"id": "b"}]') == "a+b"


def test_other_arguments_are_another_call() -> None:
    assert call_id('{"name": "add", "arguments": {"a": 1}}') != call_id(
        '{"name": "add", "arguments": {"a": 2}}'
    )


def test_what_is_no_json_object_is_no_call() -> None:
    for text in (
        "<tool_call>hello</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>3</tool_call>",
        "<tool_call>{",
    ):
        assert list(blocks(text)) == []


def test_the_forms_of_other_models() -> None:
    assert len(list(blocks('[TOOL_CALLS] [{"name": "a", "arguments": {}}]\n'))) == 1
    assert len(list(blocks('<function_call>{"name": "a"}</function_call>'))) == 1


def test_a_damaged_trailer_holds_no_call() -> None:
    assert unpack(b"\xff") == unpack(b'{"a": 1}') == unpack(b"[]") == {}


@given(st.dictionaries(st.text(), st.text()))
def test_trailer_round_trip(calls: dict[str, str]) -> None:
    assert unpack(pack(calls)) == calls


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x, max_size=4),
        max_leaves=12,
    )
)
def test_white_space_and_order_do_not_change_the_id(arguments: object) -> None:
    call = {"name": "f", "arguments": arguments}
    spaced = json.dumps(dict(reversed(call.items())), indent=2)
    assert call_id(json.dumps(call)) == call_id(spaced)


@given(st.text())
def test_any_text_stays_itself(text: str) -> None:
    assert put_back(text, {block.id: block.text for block in blocks(text)}) == text


def test_a_replayed_call_written_anew_finds_its_checkpoint(tiny: dict[str, Path], tmp_path: Path) -> None:
    """The model's reply with a call is stored; another program hands it back as data, in other bytes, without
    tokens."""
    wrote = ChatMessage("assistant", WROTE)
    history = [user("What is one and two?"), wrote, user("Thank you.")]
    with EngineRoom(tiny["hybrid"], tmp_path) as room:
        first = room.chat(history)
    anew = [history[0], ChatMessage("assistant", ANEW), history[2], first.message, user("And one more?")]
    with EngineRoom(tiny["hybrid"], tmp_path) as room:
        replayed = room.chat(anew, cold=False)
    assert first.done is not None and replayed.done is not None
    assert replayed.done.cached_tokens == first.done.prompt_tokens + len(first.tokens) - 1
    assert replayed.done.prefilled_tokens < 30, "only the new text"


def test_a_span_without_calls_has_no_trailer_and_unknown_trailers_are_passed_over(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    with EngineRoom(tiny["dense"], tmp_path) as room:
        first = room.chat([user("Hello there, how are you?")])
    for path in tmp_path.rglob("*.kv"):
        with open_span(path) as span:
            assert span.trailers == []
        path.write_bytes(path.read_bytes() + pack_trailers([Trailer(b"XYZ\0", 7, b"of a later version")]))
    with EngineRoom(tiny["dense"], tmp_path) as room:
        second = room.chat([user("Hello there, how are you?"), first.message, user("Well?")], cold=False)
    assert second.restored > 0
