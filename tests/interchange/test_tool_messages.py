"""What a tool said is kept by all that keeps chats, and shown by all that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.sessions import session_json
from ds4chat.sessions.database import Database
from ds4chat.sessions.exporting.html import to_html
from ds4chat.sessions.exporting.jsonl import to_jsonl
from ds4chat.sessions.importing import markdown, openai
from ds4chat.sessions.interchange import from_toml, to_markdown, to_toml
from ds4chat.sessions.session import Message, Session, is_unfinished
from tests.interchange.test_html import PLAIN

CALL = 'So: <tool_call>{"name": "calc", "arguments": {"e": "6*7"}}</tool_call>'
ABOUT: dict[str, float | int | str] = {"tool": "calc", "call": "call_1", "outcome": "ran"}


def chat() -> Session:
    session = Session("0000aaaa", title="Sums", model="m")
    session.append(Message(1, None, "user", "Calculate.", created=1.0))
    session.append(Message(2, 1, "assistant", CALL, tokens=[5, 6], fingerprint="f", model="m", created=2.0))
    session.append(Message(3, 2, "tool", "forty-two <b>\x1b[31m", created=3.0, stats=dict(ABOUT)))
    session.append(Message(4, 3, "assistant", "It is 42.", model="m", created=4.0))
    return session


def said(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in session.path()]


def test_json_keeps_all_of_it() -> None:
    again = session_json.from_json(session_json.to_json(chat()), "x")
    assert session_json.same_messages(again, chat())
    assert again.messages[3] == chat().messages[3]


def test_toml_keeps_which_call_it_answers() -> None:
    again = from_toml(to_toml(chat()), "x")
    assert said(again) == said(chat()) and again.messages[3].stats == ABOUT


def test_the_database_keeps_and_finds_it(tmp_path: Path) -> None:
    session = chat()
    with Database(tmp_path / "sessions.db") as database:
        database.create_session(session)
        assert said(database.load_session(session.id)) == said(chat())
        assert database.load_session(session.id).path()[2].stats == ABOUT
        (hit,) = database.search("forty-two", 10)
        assert hit.role == "tool"
        assert "forty-two" not in database.prompt_history(10)


def test_markdown_and_json_lines_keep_who_says_it() -> None:
    text = to_markdown(chat())
    assert "## Tool (calc)\n\nforty-two" in text
    assert [role for role, _ in said(markdown.read(text).session())] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    rows = json.loads(to_jsonl(chat()))["messages"]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert said(openai.read(to_jsonl(chat())).session()) == said(chat())


def test_a_tool_s_words_on_a_page_are_no_markup() -> None:
    page = to_html(chat(), PLAIN, PLAIN)
    assert "forty-two &lt;b&gt;␛[31m" in page and "Tool calc" in page and "<b>" not in page


@pytest.mark.parametrize(("last", "unfinished"), [(3, True), (4, False), (2, False)])
def test_a_result_that_no_reply_followed_can_be_gone_on_from(last: int, unfinished: bool) -> None:
    assert is_unfinished(chat().path(last)) is unfinished
