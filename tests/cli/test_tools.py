"""Calls of tools with `-p` and in the line mode."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ds4chat.plain import PlainChat
from ds4chat.printing import print_reply
from ds4chat.sessions.database import Database
from ds4chat.tools.options import ToolOptions
from tests.cli.conftest import Line
from tests.cli.test_plain import Reader
from tests.interchange.test_tool_messages import chat
from tests.support.scripted_engine import scripted_manager

ON = ToolOptions(enabled=True, builtin=("calculator",))
CALL = 'So: <tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>'


def printed(
    monkeypatch: pytest.MonkeyPatch, home: Path, form: str, *allowed: str, options: ToolOptions = ON
) -> tuple[str, str]:
    manager, script = scripted_manager(monkeypatch, home, options)
    script.replies = [CALL, "It is 42."]
    out, err = io.StringIO(), io.StringIO()
    code = print_reply(
        manager,
        "Calculate.",
        session_id=None,
        output_format=form,  # type: ignore[arg-type]
        out=out,
        err=err,
        allow_tools=allowed,
    )
    assert code == 0
    return out.getvalue(), err.getvalue()


def test_an_allowed_tool_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, err = printed(monkeypatch, tmp_path, "text", "calculator")
    assert (out, err) == ("So: \nIt is 42.\n", "")
    with Database(tmp_path / "sessions.db") as database:
        path = database.load_session(database.list_sessions()[0].id).path()
    assert [(m.role, m.text) for m in path][1:3] == [("assistant", CALL), ("tool", "42")]


def test_any_other_is_refused_with_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, err = printed(monkeypatch, tmp_path, "text", "time")
    assert out.endswith("It is 42.\n")
    assert (
        err == "ds4chat: The call of the tool calculator was refused: --allow-tool calculator lets it run.\n"
    )


def test_json_has_the_last_reply_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, _ = printed(monkeypatch, tmp_path, "json", "calculator")
    assert json.loads(out)["text"] == "It is 42."


def test_stream_json_has_the_call_and_its_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, _ = printed(monkeypatch, tmp_path, "stream-json", "calculator")
    rows = [json.loads(row) for row in out.splitlines()]
    (call,) = [row for row in rows if row["type"] == "tool_call"]
    (result,) = [row for row in rows if row["type"] == "tool_result"]
    assert call["name"] == "calculator" and call["arguments"] == {"expression": "6*7"} and call["allowed"]
    assert (result["text"], result["outcome"], result["call"]) == ("42", "ran", call["call"])
    assert rows[-1]["text"] == "It is 42."


def test_what_only_looks_like_a_call_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, said in enumerate(("a < b and <tool", "<tool_call> of duty", "[TOOL", "x <tool_call>{")):
        manager, script = scripted_manager(monkeypatch, tmp_path / str(number), ON)
        script.replies = [said]
        out = io.StringIO()
        print_reply(manager, "x", session_id=None, output_format="text", out=out, err=io.StringIO())
        assert out.getvalue() == f"{said}\n"


def test_allow_tool_is_for_print(line: Line) -> None:
    result = line("--plain", "--allow-tool", "time")
    assert result.code == 2 and "--allow-tool is for --print" in result.err


@pytest.mark.parametrize(
    ("word", "said"), [("y", "42"), ("n", "refused"), ("", "refused"), ("what?", "refused")]
)
async def test_the_line_mode_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str, said: str
) -> None:
    manager, script = scripted_manager(monkeypatch, tmp_path, ON)
    script.replies = [CALL, "Well then."]
    out = io.StringIO()
    await PlainChat(manager, Reader(["Calculate.", word]), out).run(None)  # type: ignore[arg-type]
    text = out.getvalue()
    assert "The model calls calculator (built in) with" in text and '"expression": "6*7"' in text
    assert said in script.asked.messages[-1].text
    assert text.rstrip().endswith("Well then.")


async def test_the_end_of_the_input_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manager, script = scripted_manager(monkeypatch, tmp_path, ON)
    script.replies = [CALL, "Well then."]
    await PlainChat(manager, Reader(["Calculate."]), io.StringIO()).run(None)  # type: ignore[arg-type]
    assert "refused" in script.asked.messages[-1].text


async def test_tools_are_listed_and_switched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manager, script = scripted_manager(monkeypatch, tmp_path, ToolOptions(builtin=("calculator",)))
    out = io.StringIO()
    lines = ["Hello.", "/tools on", "Hello.", "/tools off", "Hello.", "/tools maybe"]
    await PlainChat(manager, Reader(lines), out).run(None)  # type: ignore[arg-type]
    assert [bool(question.tools) for question in script.questions] == [False, True, False]
    text = out.getvalue()
    assert "calculator (built in): Works out" in text and "Tools are on in this chat" in text
    assert 'Say on or off, or nothing, and not "maybe".' in text


def test_show_names_the_tool(line: Line) -> None:
    line.database.parent.mkdir(parents=True, exist_ok=True)
    with Database(line.database) as database:
        database.create_session(chat())
    out = line("show", "0000aaaa").out
    assert "Tool calc:\nforty-two <b>" in out and "It is 42." in out
    found = line("search", "forty-two").out
    assert "tool: forty-two" in found
