"""Files that nobody wrote in good faith: whatever they hold, a chat or a sentence comes of it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing import markdown, reading
from ds4chat.sessions.importing.chats import ForeignChat
from ds4chat.sessions.importing.detect import file_kind
from ds4chat.sessions.session_json import from_json, to_json
from tests.interchange.reading_room import SAMPLES, Steps

WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "human",
        "text",
        "thoughts",
        "n1",
        "n2",
        "code",
        "",
        "\ud83d",
        "2024-01-01",
        '<details type="reasoning">',
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def mutated(value: Any, draw: st.DrawFn) -> Any:
    """The value with some of its parts replaced by others."""
    if draw(st.integers(0, 11)) == 0:
        return draw(VALUES)
    if isinstance(value, dict):
        return {key: mutated(item, draw) for key, item in value.items()}
    if isinstance(value, list):
        return [mutated(item, draw) for item in value]
    return value


NAMES = ["chatgpt.json", "claude.json", "open-webui.json", "openai-chat.json", "openai-chats.json"]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    value = json.loads((SAMPLES / draw(st.sampled_from(NAMES))).read_text())
    first = value if isinstance(value, dict) else value[draw(st.integers(0, len(value) - 1))]
    return json.dumps([mutated(first, draw)]).encode()


@given(files())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chat_of_other_shapes_is_a_session_or_a_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    for found in reading.chats(path, "json", Steps()):
        if found.chat is None:
            assert found.fault
            continue
        try:
            session = found.chat.session()
        except InterchangeError:
            continue
        # It is a tree as ours are, or it would not be read back.
        session.id = "00000001"
        assert from_json(to_json(session), "it").messages.keys() == session.messages.keys()


@given(st.text(max_size=80), st.binary(max_size=80))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_is_told(tmp_path: Path, text: str, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"[{" + data)
    assert all(found.fault for found in reading.chats(path, file_kind(path), Steps()))
    if markdown.looks_like(text):
        markdown.read(text)
    else:
        with pytest.raises(InterchangeError):
            markdown.read(text)


@pytest.mark.parametrize(
    "text",
    [
        "**" * 50_000,
        "# " + "*" * 50_000,
        "(" * 50_000 + ":",
        "User " + "(" * 50_000,
        "`" * 50_000 + "\n" + "~" * 50_000,
        "> " * 50_000,
    ],
    ids=range(6),
)
@pytest.mark.timeout(5)
def test_long_lines_take_no_time(text: str) -> None:
    assert not markdown.looks_like(text)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_whose_packed_bytes_are_damaged_is_told(tmp_path: Path, method: int) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("conversations.json", (SAMPLES / "chatgpt.json").read_bytes())
    data = bytearray(path.read_bytes())
    start = data.index(b"conversations.json") + len("conversations.json")
    for at in range(start + 20, start + 400, 7):
        data[at] ^= 0xFF
    path.write_bytes(data)
    assert file_kind(path) == "export zip"
    with pytest.raises(InterchangeError, match="damaged zip"):
        list(reading.chats(path, "export zip", Steps()))


def test_what_stays_out_is_told_in_one_line() -> None:
    chat = ForeignChat("any")
    chat.leave_out("parts of kind a\n\x1b[31mb\tc")
    assert chat.left_out == {"parts of kind a b c": 1}
