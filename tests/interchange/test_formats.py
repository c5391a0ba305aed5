"""What comes in from files of other programs, and what is said to be left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing import chatgpt, claude, markdown, open_webui, openai, reading
from ds4chat.sessions.importing.chats import ForeignChat, digest, seconds
from ds4chat.sessions.importing.detect import file_kind
from tests.interchange.reading_room import SAMPLES, Steps, read, told, tree


def sample(name: str) -> list[Any]:
    """The values of a sample in JSON."""
    found: list[Any] = json.loads((SAMPLES / name).read_text())
    return found


def test_the_tree_of_a_chatgpt_conversation() -> None:
    chat = chatgpt.read(json.dumps(sample("chatgpt.json")[0]).encode())
    session = chat.session()
    assert tree(session) == {
        "Which bird nests on cliffs?": None,
        "The kittiwake.": "Which bird nests on cliffs?",
        "The gannet, for one.": "Which bird nests on cliffs?",
        "And in burrows?": "The gannet, for one.",
        "<think>\nBurrows\nPuffins dig them.\n</think>\n\nThe puffin.": "And in burrows?",
        "What is this?": "<think>\nBurrows\nPuffins dig them.\n</think>\n\nThe puffin.",
        "A guillemot's egg.": "What is this?",
    }
    assert told(session)[-1] == ("assistant", "A guillemot's egg.")
    assert [m.model for m in session.path() if m.role == "assistant"] == ["gpt-4o-mini", "o3", "gpt-4o"]
    assert (session.title, session.created, session.system) == ("Sea birds", 1717400000.5, "")
    assert chat.left_out == {"tool messages": 2, "images": 1}
    assert chat.key == "11111111-aaaa-4000-8000-000000000001"


def test_the_branch_that_is_on_the_screen_is_the_one_it_stands_on() -> None:
    conversation = sample("chatgpt.json")[0] | {"current_node": "a1"}
    assert told(chatgpt.read(json.dumps(conversation).encode()).session()) == [
        ("user", "Which bird nests on cliffs?"),
        ("assistant", "The kittiwake."),
    ]


def test_a_system_prompt_that_is_shown_comes_in_and_an_empty_chat_is_none() -> None:
    salt, empty = (chatgpt.read(json.dumps(item).encode()).session() for item in sample("chatgpt.json")[1:3])
    assert (salt.system, salt.archived) == ("Answer in one sentence.", True)
    assert not empty.messages


def test_claude_with_and_without_a_tree() -> None:
    knots, old, empty = read(SAMPLES / "claude.json")
    session = knots.session()
    question = "How do I tie a bowline?\n\nnotes.txt:\n```\nrabbit, hole, tree\n```"
    reply = "<think>\nStart with the loop.\n</think>\n\nMake a small loop."
    assert tree(session) == {
        question: None,
        reply: question,
        "And a hitch?": reply,
        "And a splice?": reply,
        "Unlay the strands first.": "And a splice?",
    }
    assert told(session)[-1][1] == "Unlay the strands first."
    assert session.created == pytest.approx(1738576800.123456)
    assert knots.left_out == {"tool calls and results": 1, "files": 1}
    assert told(old.session()) == [("user", "Hello"), ("assistant", "Hello! What shall we talk about?")]
    assert old.left_out == {'messages of role "narrator"': 1}
    assert not empty.session().messages


def test_open_webui() -> None:
    (chat,) = read(SAMPLES / "open-webui.json")
    session = chat.session()
    spring = "<think>\nMoon & sun.\n</think>\n\nSpring tide."
    assert tree(session) == {
        "Name a tide.": None,
        spring: "Name a tide.",
        "Neap tide.": "Name a tide.",
        "Another?": spring,
    }
    assert told(session)[-1] == ("user", "Another?")
    assert (session.system, session.archived, session.tags) == ("You know the sea.", True, ["sea"])
    assert chat.left_out == {"files": 1}


def test_openai_chats() -> None:
    (plants,) = read(SAMPLES / "openai-chat.json")
    session = plants.session()
    assert told(session) == [("user", "What grows here?"), ("assistant", "Moss.")]
    assert (session.title, session.system, session.model) == ("Plants", "Be brief.", "local-7b")
    assert plants.left_out == {"images": 1, "tool messages": 2}
    (one,) = read(SAMPLES / "openai-messages.json")
    assert told(one.session()) == [("user", "One?"), ("assistant", "One."), ("user", "Two?")]
    assert [told(chat.session())[0][1] for chat in read(SAMPLES / "openai-chats.json")] == [
        "first",
        "second",
        "third",
    ]


def test_json_lines() -> None:
    (chat,) = read(SAMPLES / "messages.jsonl")
    assert [text for _, text in told(chat.session())] == ["a line each", "indeed", "good"]
    found = list(reading.chats(SAMPLES / "fine-tuning.jsonl", "json lines", Steps()))
    assert [f.chat.session().title if f.chat else f.where for f in found] == [
        "ein Felsen",
        "zwei Felsen",
        "line 3",
        "drei",
    ]
    assert found[2].fault.startswith("it is not valid JSON")


def test_transcripts() -> None:
    (walk,) = read(SAMPLES / "headings.md")
    assert told(walk.session()) == [
        ("user", "Which way?\n\n### Notes\n\n- left\n- right"),
        ("assistant", "Left.\n\n```sh\n## You\necho left\n```"),
        ("user", "Thanks."),
    ]
    assert (walk.title, walk.left_out) == ("A walk", {"lines before the first message": 1})
    (peat,) = read(SAMPLES / "bold.md")
    assert [text for _, text in told(peat.session())] == [
        "What is peat?",
        "Old moss.\n\nIt burns.",
        "And turf?",
    ]
    (heather,) = read(SAMPLES / "plain.txt")
    assert told(heather.session())[1] == (
        "assistant",
        "A shrub: it grows on moors.\nNote: this line is part of it.",
    )


@pytest.mark.parametrize(
    ("line", "speaks"),
    [
        ("## User", True),
        ("# **You:**", True),
        ("### 🤖 ChatGPT (stopped)", True),
        ("## You said:", True),
        ("**Assistant**:", True),
        ("__Claude:__ hi", True),
        ("Human: hi", True),
        ("## GPT-4o", True),
        ("## Users", False),
        ("## The answer", False),
        ("**Answers:** 3", False),
        ("I said to you: no", False),
        ("User:name", False),
    ],
)
def test_lines_that_say_who_speaks(line: str, speaks: bool) -> None:
    assert markdown.looks_like(f"{line}\n\ntext\n") is speaks


def test_what_a_file_is() -> None:
    kinds = {path.name: file_kind(path) for path in SAMPLES.iterdir()}
    assert kinds == {
        "bold.md": "markdown",
        "chatgpt.json": "json",
        "claude.json": "json",
        "fine-tuning.jsonl": "json lines",
        "headings.md": "markdown",
        "messages.jsonl": "json lines",
        "open-webui.json": "json",
        "openai-chat.json": "json",
        "openai-chats.json": "json",
        "openai-messages.json": "json",
        "plain.txt": "markdown",
    }


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('[[messages]]\nrole = "user"\ntext = "**User:** x"\n', "session"),
        ("[params]\ntemperature = 1\n", "session"),
        ('{"format": "ds4chat-session", "messages": []}', "bundle"),
        ('{"anything": 1}', "bundle"),
        ("[]", "json"),
        ('\ufeff [ {"messages": []} ]', "json"),
        ('{\n "messages": []\n}', "json"),
        ('{"role": "user"}\n', "json"),
        ("", "session"),
    ],
)
def test_beginnings(tmp_path: Path, content: str, kind: str) -> None:
    path = tmp_path / "file"
    path.write_text(content, encoding="utf-8")
    assert file_kind(path) == kind


def test_replies_in_pieces_are_one_and_branches_of_them_stay() -> None:
    chat = ForeignChat("x")
    chat.add("q", None, "user", "go")
    chat.add("a", "q", "assistant", "First I look.")
    chat.pass_over("t", "a", "tool messages")
    chat.add("b", "t", "assistant", "Then I say one.", created=5)
    chat.add("c", "t", "assistant", "Then I say two.", created=9)
    chat.add("d", "a", "user", "Stop looking!")
    chat.head = "t"
    assert tree(chat.session()) == {
        "go": None,
        "First I look.": "go",
        "First I look.\n\nThen I say one.": "go",
        "First I look.\n\nThen I say two.": "go",
        "Stop looking!": "First I look.",
    }
    assert told(chat.session())[-1] == ("assistant", "First I look.")


def test_what_begins_with_a_reply_or_hangs_on_nothing() -> None:
    chat = ForeignChat("x")
    chat.add("hello", None, "assistant", "How can I help?")
    chat.add("q", "hello", "user", "Sing.")
    chat.add("one", "two", "user", "round")
    chat.add("two", "one", "assistant", "and round")
    chat.add("q", None, "user", "again")
    session = chat.session()
    assert told(session) == [("user", "Sing.")]
    assert chat.left_out == {
        "greetings": 1,
        "messages that hang on nothing": 2,
        "messages that are there twice": 1,
    }


def test_pieces_that_would_multiply_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ds4chat.sessions.importing.chats.MAX_TEXT", 10_000)
    chat = ForeignChat("x")
    chat.add("0", None, "user", "go")
    for i in range(1, 100):
        chat.add(str(i), str(i - 1), "assistant", "x" * 50)
        chat.add(f"q{i}", str(i), "user", "y")
    with pytest.raises(InterchangeError, match="larger than a session may be"):
        chat.session()


def test_half_surrogates_and_bytes_that_are_no_text_cost_only_themselves() -> None:
    for data in (
        b'[{"role": "user", "content": "a\\ud83d b"}]',
        b'[{"role": "user", "content": "a\xff b"}]',
        b'[{"role": "user", "content": "a\xef\xbf\xbd b", "created": NaN}]',
    ):
        assert told(openai.read_list(data).session()) == [("user", "a\ufffd b")]
    with pytest.raises(InterchangeError, match="nested too deeply"):
        openai.read_list(b'[{"content": ' + b"[" * 100_000)


def test_folded_parts_that_are_never_closed_take_no_time() -> None:
    text = '<details type="reasoning">' * 20_000 + "</details>" + '<details type="reasoning">' * 20_000
    row = {"chat": {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]}}
    assert len(open_webui.read(json.dumps(row).encode()).session().messages) == 2


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1717400000.5, 1717400000.5),
        (1717400000500, 1717400000.5),
        (1717400000500000000, 1717400000.5),
        ("1717400000", 1717400000.0),
        ("2024-06-03T07:33:20Z", 1717400000.0),
        ("2024-06-03 07:33:20.000000", 1717400000.0),
        (None, 0.0),
        (True, 0.0),
        (-5, 0.0),
        (float("nan"), 0.0),
        (10**400, 0.0),
        ("yesterday", 0.0),
        ({}, 0.0),
    ],
)
def test_times_as_others_write_them(value: object, number: float) -> None:
    assert seconds(value) == number


def test_a_digest_is_of_what_is_said_alone() -> None:
    one, other = (claude.read(json.dumps(sample("claude.json")[0]).encode()).session() for _ in range(2))
    other.title, other.tags = "Something else", ["x"]
    assert digest(one) == digest(other)
    other.messages[2].text += "!"
    assert digest(one) != digest(other)
