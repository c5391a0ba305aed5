"""Sessions as TOML, Markdown and JSON."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import InterchangeError
from ds4chat.sessions import interchange
from ds4chat.sessions.interchange import from_toml, import_file, to_dict, to_json, to_markdown, to_toml
from ds4chat.sessions.session import Message, Session, clean_tags, clean_text, clean_title

MINIMAL = '[[messages]]\nrole = "user"\ntext = "hi"\n'

texts = st.text(st.characters(exclude_categories=())).map(clean_text)
visible = texts.filter(lambda text: bool(text.strip()))
times = st.just(0.0) | st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(
    lambda d: d.replace(tzinfo=UTC).timestamp()
)

params = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15) | texts.map(lambda t: t[:1000])


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    session = Session("", title=clean_title(draw(visible))[:200].strip() or "title", system=draw(texts))
    session.model, session.created = draw(texts.map(lambda t: t[:1000])), draw(times)
    session.append(Message(1, None, "user", draw(visible), created=draw(times)))
    for i in range(2, draw(st.integers(2, 6))):
        role = draw(st.sampled_from(["user", "assistant"]))
        text = draw(visible if role == "user" else texts)
        session.append(Message(i, i - 1, role, text, created=draw(times)))  # type: ignore[arg-type]
    session.updated = max(session.created, *(m.created for m in session.messages.values()), 0.0)
    session.pinned, session.archived = draw(st.booleans()), draw(st.booleans())
    session.tags = clean_tags(draw(st.lists(visible, max_size=3)))
    session.params = draw(st.dictionaries(texts.map(lambda t: t[:1000]), params, max_size=3))
    session.summary = draw(texts)
    if session.summary and len(session.messages) > 1:
        # A window that begins with the first message is none.
        session.window_start_id = draw(st.none() | st.integers(2, len(session.messages)))
    return session


@given(sessions())
def test_toml_round_trip(session: Session) -> None:
    assert from_toml(to_toml(session), "x") == session


def test_the_format_is_the_documented_one() -> None:
    session = from_toml(
        'title = "Baking bread"\nsystem = "Be patient."\nmodel = "Smol"\ncreated = 2025-03-01T08:30:00Z\n'
        '[[messages]]\nrole = "user"\ntext = """\nWhy does my loaf\nnot rise?"""\ncreated = 2025-03-01T09:30:05+01:00\n'
        '[[messages]]\nrole = "assistant"\ntext = "Cold."\n',
        "bread.toml",
    )
    assert (session.id, session.title, session.system, session.model) == (
        "",
        "Baking bread",
        "Be patient.",
        "Smol",
    )
    question, answer = session.path()
    assert question.text == "Why does my loaf\nnot rise?"
    assert question.created - session.created == 5.0
    assert (answer.role, answer.text, answer.created, answer.parent_id) == (
        "assistant",
        "Cold.",
        0.0,
        question.id,
    )
    assert session.updated == question.created
    assert to_toml(session).count("[[messages]]\nrole = ") == 2


def test_only_the_path_to_the_head_is_written() -> None:
    session = Session("1a2b3c4d", title="t")
    session.append(Message(1, None, "user", "seen"))
    session.append(Message(2, 1, "assistant", "not seen"))
    session.append(
        Message(3, 1, "assistant", "chosen", "stopped", model="Smol", stats={"generated_tokens": 3})
    )
    for written in (to_toml(session), to_markdown(session), to_json(session)):
        assert "chosen" in written and "not seen" not in written
    assert "## Assistant (stopped)\n\nchosen\n" in to_markdown(session)
    assert json.loads(to_json(session)) == to_dict(session)
    assert to_dict(session)["messages"][1] == {
        "id": 3,
        "role": "assistant",
        "text": "chosen",
        "state": "stopped",
        "created": 0.0,
        "model": "Smol",
        "stats": {"generated_tokens": 3},
    }
    with pytest.raises(ValueError):
        to_toml(Session("1a2b3c4d"))


def test_turns_that_were_deleted_are_not_written() -> None:
    session = Session("1a2b3c4d", title="t")
    session.append(Message(1, None, "user", "first"))
    session.append(Message(2, 1, "assistant", "gone", hidden=True))
    session.append(Message(3, 2, "user", "second"))
    session.append(Message(4, 3, "assistant", "third"))
    session.summary, session.window_start_id = "short", 2
    for text in (to_toml(session), to_markdown(session), to_json(session)):
        assert "second" in text and "gone" not in text
    read = from_toml(to_toml(session), "x")
    assert [m.text for m in read.window()] == ["second", "third"]
    assert read.summary == "short"


def test_a_title_is_made_from_the_first_message_when_there_is_none() -> None:
    assert from_toml(MINIMAL, "x").title == "hi"


FAULTS = {
    "": "f.toml is empty: a session file needs at least one [[messages]] table.",
    "  \n\n": "f.toml is empty: a session file needs at least one [[messages]] table.",
    "not toml": "f.toml is not a TOML file (",
    "a\x00b = 1": "f.toml is not a TOML file (",
    'x = "\\ud800"': "f.toml is not a TOML file (",
    "x = " + "[" * 100_000: "f.toml is not a TOML file (it is nested too deeply)",
    "x = " + "1" * 5000: "f.toml is not a TOML file (",
    "messages = 1": "f.toml: messages must be 1 to 20,000 tables [[messages]]",
    "messages = []": "f.toml: messages must be 1 to 20,000 tables [[messages]]",
    'title = "x"': 'f.toml: the key "messages" is missing: give title, system, model, created, pinned',
    "titel = 1\n" + MINIMAL: 'f.toml: unknown key "titel": allowed are title, system, model, created',
    "title = 1\n" + MINIMAL: "f.toml: title must be a string of at most 200 characters, not of type int.",
    f'title = "{"x" * 201}"\n' + MINIMAL: "f.toml: title must be a string of at most 200 characters.",
    "system = []\n" + MINIMAL: "f.toml: system must be a string, not of type array.",
    "created = 5\n" + MINIMAL: "f.toml: created must be a date and time with a time zone",
    "created = 2025-01-01T00:00:00\n" + MINIMAL: "f.toml: created has no time zone: write it like 2025-",
    "created = 9999-12-31T23:59:59-23:00\n" + MINIMAL: "f.toml: created is beyond the calendar",
    MINIMAL
    + "created = 2025-01-01\n": "f.toml: messages[0].created must be a date and time with a time zone",
    MINIMAL + "created = 2025-01-01T00:00:00\n": "f.toml: messages[0].created has no time zone",
    MINIMAL
    + "mood = 1\n": 'f.toml: unknown key "mood" in messages[0]: allowed are role, text and, if known, created;',
    MINIMAL + '[[messages]]\nrole = "system"\ntext = "a"': "f.toml: messages[1].role must be "
    '"user", "assistant" or "tool" (the system prompt is the key system), not \'system\'.',
    MINIMAL
    + '[[messages]]\nrole = "user"': 'f.toml: the key "text" is missing in messages[1]: give role, text',
    MINIMAL
    + '[[messages]]\nrole = "user"\ntext = 3': "f.toml: messages[1].text must be a string, not of type int.",
    MINIMAL + '[[messages]]\nrole = "user"\ntext = " \\u0000 "': "f.toml: messages[1].text is blank",
    "pinned = 1\n" + MINIMAL: "f.toml: pinned must be true or false, not of type int.",
    "tags = [1]\n"
    + MINIMAL: "f.toml: tags[0] must be a string of at most 1,000 characters, not of type int.",
    "params = {a = [1]}\n"
    + MINIMAL: "f.toml: params[...] must be a number, a short string, true or false, not of type array.",
    "summarized = 1\n"
    + MINIMAL: "f.toml: summarized is 1, but of the 1 messages at least the last must stay beside the summary.",
    '[[messages]]\nrole = "assistant"\ntext = "a"': 'f.toml: messages[0].role is "assistant", but a session begins',
}


@pytest.mark.parametrize("source", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_told_by_file_key_and_what_is_allowed(source: str) -> None:
    with pytest.raises(InterchangeError) as caught:
        from_toml(source, "f.toml")
    sentence = str(caught.value)
    assert sentence.startswith(FAULTS[source])
    assert sentence.endswith(".") and sentence.isprintable() and len(sentence) < 500


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_nothing_but_an_interchange_error_comes_of_rubbish(source: str) -> None:
    with pytest.raises(InterchangeError):
        from_toml(source, "x")


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert import_file(path).path()[0].text == "hi"


def make_unreadable(path: Path, kind: str) -> None:
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "empty":
            path.touch()
        case "not UTF-8":
            path.write_bytes(b'title = "\xff\xfe"')
        case "binary":
            path.write_bytes(bytes(range(256)))
        case "loop":
            path.symlink_to(path)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("missing", "cannot be read (No such file or directory): check its name."),
        ("folder", "is a folder: name the session files in it."),
        ("pipe", "is not a regular file"),
        ("empty", "is empty"),
        ("not UTF-8", "is not UTF-8 text (byte 9 does not fit)"),
        ("binary", "is not UTF-8 text"),
        ("loop", "cannot be read ("),
    ],
)
def test_what_cannot_be_read_as_a_file_is_told(tmp_path: Path, kind: str, told: str) -> None:
    path = tmp_path / "s.toml"
    make_unreadable(path, kind)
    with pytest.raises(InterchangeError) as caught:
        import_file(path)
    assert str(caught.value).startswith(f"{path} {told}")


def test_a_name_with_a_nul_is_told() -> None:
    with pytest.raises(InterchangeError, match="cannot be read"):
        import_file(Path("a\x00b"))


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interchange, "MAX_FILE_BYTES", 2_000_000)
    path = tmp_path / "s.toml"
    path.write_bytes(b"#" * 2_000_001)
    with pytest.raises(InterchangeError, match="larger than 2 MB"):
        import_file(path)
