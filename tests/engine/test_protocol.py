"""The lines between parent and child: they come back as they went, and garbage is one kind of error."""

from __future__ import annotations

import contextlib
import json
import types
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.engine import protocol
from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    Command,
    Event,
    Generate,
    Load,
    Quit,
    Sampling,
    Token,
    decode_command,
    decode_event,
    encode,
)

COMMANDS: tuple[type[msgspec.Struct], ...] = typing.get_args(Command)
EVENTS: tuple[type[msgspec.Struct], ...] = typing.get_args(Event)

# Entry to a session ensures that no text has lone surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1)


def values(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Any value of a field's type."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, typing.get_args(kind)))
    if origin is list:
        return st.lists(values(typing.get_args(kind)[0]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    plain = {str: TEXT, int: NUMBERS, bool: st.booleans(), type(None): st.none()}
    return plain[kind] if kind in plain else st.floats(allow_nan=False, allow_infinity=False)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_commands_come_back_as_they_went(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    command = data.draw(structs(kind))
    line = encode(command)  # type: ignore[arg-type]
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_command(line) == command


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_events_come_back_as_they_went(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    event = data.draw(structs(kind))
    line = encode(event)  # type: ignore[arg-type]
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_event(line) == event


@pytest.mark.parametrize(
    "text", ["a\nb\r\n", "\u2028\u2029\x85\x0b", "\x00\x1b[31m", "\ufeff\ufdd0😀", '"\\"']
)
def test_a_line_stays_a_line_whatever_is_said(text: str) -> None:
    line = encode(Token("s", 1, text, [1]))
    assert line.splitlines() == [line[:-1]]
    assert decode_event(line) == Token("s", 1, text, [1])


def test_tags_tell_all_messages_apart() -> None:
    for kinds in (COMMANDS, EVENTS):
        tags = [kind.__struct_config__.tag for kind in kinds]
        assert len(set(tags)) == len(tags) and None not in tags


def test_what_is_left_out_takes_its_default() -> None:
    assert decode_command(b'{"type":"load","model_path":"m.gguf"}') == Load("m.gguf")
    line = b'{"type":"generate","session":"s","turn":1,"messages":[{"role":"user","text":"x"}]}'
    assert decode_command(line) == Generate("s", 1, [ChatMessage("user", "x")], Sampling())


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert decode_command(b'{"type":"cancel","session":"s","turn":1,"later":[{}]}') == Cancel("s", 1)
    assert decode_command(b'{"type":"quit","later":1}') == Quit()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b'"quit"',
        b'{"type":"quit"} {"type":"quit"}',
        b'{"type":"unknown"}',
        b'{"type":7}',
        b'{"type":null}',
        b'{"type":"cancel","session":"s"}',
        b'{"type":"cancel","session":"s","turn":"1"}',
        b'{"type":"cancel","session":"s","turn":1.5}',
        b'{"type":"cancel","session":"s","turn":1e400}',
        b'{"type":"cancel","session":1,"turn":1}',
        b'{"type":"cancel","session":"\xff","turn":1}',
        b'{"type":"cancel","session":"\xed\xa0\x80","turn":1}',
        b'{"type":"generate","session":"s","turn":1,"messages":{}}',
        b'{"type":"generate","session":"s","turn":1,"messages":[{"role":"user"}]}',
        b'{"type":"generate","session":"s","turn":1,"messages":[{"role":"user","text":"x","tokens":[1.5]}]}',
        b'{"type":"load","model_path":"m","kv":{"budget_mb":"all"}}',
        b'{"type":"token","session":"s","turn":1,"text":"x","tokens":["1"]}',
        b'{"type":"done","session":"s","turn":1,"stop_reason":"bored"}',
        b"[" * 100_000,
        b'{"type":' * 50_000,
        b"\x00\x01\x02",
        b"llama_model_loader: loaded meta data",
    ],
    ids=lambda line: line[:50].decode("latin-1"),
)
def test_what_is_no_message_is_a_decode_error(line: bytes) -> None:
    for decode in (decode_command, decode_event):
        with pytest.raises(msgspec.DecodeError):
            decode(line)


def test_a_command_is_no_event_and_an_event_no_command() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_event(encode(Cancel("s", 1)))
    with pytest.raises(msgspec.DecodeError):
        decode_command(encode(Token("s", 1, "x", [1])))


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
TAGS = [kind.__struct_config__.tag for kind in (*COMMANDS, *EVENTS)]
FIELDS = sorted({name for kind in (*COMMANDS, *EVENTS) for name in kind.__struct_fields__})


@given(
    line=st.one_of(
        st.binary(max_size=40),
        ANYTHING.map(lambda value: json.dumps(value).encode()),
        st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=6).flatmap(
            lambda fields: st.sampled_from(TAGS).map(lambda tag: json.dumps({"type": tag, **fields}).encode())
        ),
    )
)
@settings(max_examples=60, deadline=None)
def test_garbage_decodes_or_is_a_decode_error(line: bytes) -> None:
    for decode, kinds in ((decode_command, COMMANDS), (decode_event, EVENTS)):
        with contextlib.suppress(msgspec.DecodeError):
            assert isinstance(decode(line), kinds)


def test_every_message_is_in_one_of_the_unions() -> None:
    tagged = {
        value
        for value in vars(protocol).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__struct_config__.tag
    }
    assert tagged == {*COMMANDS, *EVENTS}
