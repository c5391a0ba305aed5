"""What is exported comes in as it was, as far as its format can hold it."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.sessions import interchange
from ds4chat.sessions.bundle import Bundle, BundleWriter
from ds4chat.sessions.exporting.jsonl import to_jsonl
from ds4chat.sessions.importing import markdown, openai
from ds4chat.sessions.session import Message, MessageState, Session, clean_tags, clean_text, clean_title
from ds4chat.sessions.session_json import from_json, to_json
from tests.interchange.reading_room import told

ODD = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\r")
    | st.sampled_from("\\\"'#`\n\t \u202e\u2028\u00e9\U0001f600"),
    max_size=20,
).map(clean_text)
SAID = ODD.filter(str.strip)
WORDS = st.text("abc \u00e9\u65e5", min_size=1, max_size=12).map(clean_title).filter(bool)
TIMES = st.floats(1, 4e9).map(lambda t: round(t, 3))
STATES: st.SearchStrategy[MessageState] = st.sampled_from(["complete", "stopped", "cut", "length", "failed"])


@st.composite
def sessions(draw: st.DrawFn, *, branches: bool = True, text: st.SearchStrategy[str] = SAID) -> Session:
    """A session with a tree of up to ten messages, whose replies answer the user."""
    session = Session(
        draw(st.integers(0, 2**32 - 1).map("{:08x}".format)),
        title=draw(WORDS),
        system=draw(ODD),
        model=draw(WORDS),
        created=draw(TIMES),
        updated=draw(TIMES),
        tokens=draw(st.integers(0, 9999)),
        pinned=draw(st.booleans()),
        archived=draw(st.booleans()),
        tags=clean_tags(draw(st.lists(WORDS, max_size=3))),
        draft=draw(ODD),
        params=draw(st.dictionaries(st.sampled_from(["temperature", "top_p"]), st.floats(0, 1), max_size=2)),
    )
    for id_ in range(1, draw(st.integers(2, 11))):
        parent = draw(st.sampled_from(list(session.messages))) if branches and id_ > 1 else id_ - 1 or None
        above = session.messages[parent].role if parent else "assistant"
        role: Literal["user", "assistant"] = "assistant" if above == "user" else "user"
        is_reply = role == "assistant"
        session.append(
            Message(
                id_,
                parent,
                role,
                draw(text),
                draw(STATES) if is_reply else "complete",
                draw(st.lists(st.integers(0, 99), max_size=3)) if is_reply else [],
                created=draw(TIMES),
                model=draw(WORDS) if is_reply else "",
                hidden=branches and draw(st.booleans()),
            )
        )
    if branches:
        session.head_id = draw(st.sampled_from([None, *session.messages]))
        session.window_start_id = draw(st.sampled_from([None, *session.messages]))
        session.summary = draw(ODD)
    return session


@given(sessions())
@settings(max_examples=30, deadline=None)
def test_json_loses_nothing(session: Session) -> None:
    came = from_json(to_json(session), "it")
    assert came == session


@given(sessions())
@settings(max_examples=15, deadline=None)
def test_a_bundle_loses_nothing(session: Session) -> None:
    out = io.BytesIO()
    with BundleWriter(out, session):
        pass
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle.zip"
        path.write_bytes(out.getvalue())
        with Bundle(path) as bundle:
            assert bundle.session == session


@given(sessions(branches=False))
@settings(max_examples=30, deadline=None)
def test_toml_keeps_the_path(session: Session) -> None:
    came = interchange.from_toml(interchange.to_toml(session), "it")
    assert told(came) == told(session)
    assert [m.created for m in came.path()] == [m.created for m in session.path()]
    for key in ("title", "system", "model", "created", "pinned", "archived", "tags", "params"):
        assert getattr(came, key) == getattr(session, key), key


@given(sessions(branches=False, text=SAID.filter(lambda text: not text.lstrip().startswith(("<", "[")))))
@settings(max_examples=30, deadline=None)
def test_json_lines_keep_what_was_said(session: Session) -> None:
    came = openai.read(to_jsonl(session)).session()
    assert told(came) == told(session)
    assert came.system == session.system.strip()


LINES = st.lists(
    st.sampled_from(
        ["some words", "- a list", "## A heading", "### User", "> quote", "`x`", "User: hi", "**User:** hi"]
    ),
    min_size=1,
    max_size=4,
).map("\n".join)


@given(sessions(branches=False, text=LINES))
@settings(max_examples=30, deadline=None)
def test_markdown_keeps_texts_in_which_nobody_else_speaks(session: Session) -> None:
    session.system = session.system.strip()
    session.system = (
        "" if "#" in session.system or "`" in session.system or "~" in session.system else session.system
    )
    came = markdown.read(interchange.to_markdown(session)).session()
    assert told(came) == [(role, text.strip()) for role, text in told(session)]
    assert [m.state for m in came.path()] == [m.state for m in session.path()]
    assert came.title == session.title
