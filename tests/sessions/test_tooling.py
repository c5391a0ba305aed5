"""Calls of tools in a chat: asked for, run, refused, stopped, bounded; with a scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.errors import UsageError
from ds4chat.sessions.events import EngineNotice, TextStreamed, ToolAsked, ToolRunning, TurnEnded
from ds4chat.sessions.session import Message, Session
from ds4chat.tools import toolbox
from ds4chat.tools.options import ToolOptions
from ds4chat.tools.tool import Arguments, Result, Tool
from tests.support.manager_room import ManagerRoom
from tests.support.scripted_engine import Script, scripted_room

ON = ToolOptions(enabled=True, builtin=("calculator", "time"))


def call(expression: str = "6*7", name: str = "calculator") -> str:
    body = f'{{"name": "{name}",  "arguments": {{"expression": "{expression}"}}}}'
    return f"I work it out. <tool_call>\n{body}\n</tool_call>"


def roles(session: Session) -> list[str]:
    return [message.role for message in session.path()]


def results(session: Session) -> list[Message]:
    return [message for message in session.path() if message.role == "tool"]


async def asked(room: ManagerRoom, after: int = 0) -> ToolAsked:
    return await room.until(ToolAsked, after=after)


def put_in(monkeypatch: pytest.MonkeyPatch, run: Callable[[Arguments], object]) -> None:
    """The tool "calculator" does something else."""

    async def wrapped(arguments: Arguments) -> Result:
        return await run(arguments)  # type: ignore[misc,no-any-return]

    tool = Tool("calculator", "Calculates.", {"type": "object", "properties": {}}, "built in", wrapped)
    monkeypatch.setattr(toolbox, "builtin_tools", lambda _options: [tool])


async def test_a_call_is_asked_for_runs_and_the_model_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "It is 42."]
        session = room.manager.new_session()
        room.manager.send(session.id, "What is six times seven?")
        question = await asked(room)
        assert (question.name, question.where) == ("calculator", "built in")
        assert json.loads(question.arguments) == {"expression": "6*7"}
        assert room.manager.is_busy(session.id) and room.manager.asked_tool(session.id) == question
        assert roles(session) == ["user", "assistant"], "nothing ran yet"
        assert room.manager.answer_tool(session.id, "once")
        assert not room.manager.answer_tool(session.id, "once"), "one word is enough"
        end = await room.manager.wait_turn(session.id)
        assert end.state == "complete" and not room.manager.is_busy(session.id)
        assert [(m.role, m.text) for m in session.path()[1:]] == [
            ("assistant", call()),
            ("tool", "42"),
            ("assistant", "It is 42."),
        ]
        assert results(session)[0].stats["outcome"] == "ran"
        first, second = script.questions
        assert first.tools == second.tools and "calculator" in first.tools
        assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
        assert second.messages[1].text == call() and second.messages[1].tokens, "as it was sampled"


async def test_a_refusal_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def run(_arguments: Arguments) -> Result:
        raise AssertionError("it must not run")

    put_in(monkeypatch, run)
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "As you like."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "refuse")
        await room.manager.wait_turn(session.id)
        assert results(session)[0].stats["outcome"] == "refused"
        assert "refused" in script.asked.messages[-1].text
        assert not room.of(ToolRunning)
        assert session.path()[-1].text == "As you like."


async def test_allowed_for_the_session_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [
            call("1+1"),
            call("2+2"),
            "Done.",
            call("3+3"),
            call("", "time"),
            "Later.",
            call("4+4"),
        ]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "session")
        await room.manager.wait_turn(session.id)
        assert [m.text for m in results(session)] == ["2", "4"]
        room.manager.send(session.id, "More.")
        other = await room.until(ToolAsked, lambda e: e.name == "time")
        assert len(room.of(ToolAsked)) == 2, other
        room.manager.answer_tool(session.id, "refuse")
        await room.manager.wait_turn(session.id)
        elsewhere = room.manager.new_session()
        room.manager.send(elsewhere.id, "Calculate.")
        assert (await room.until(ToolAsked, lambda e: e.session_id == elsewhere.id)).name == "calculator"


async def test_several_calls_of_one_reply_are_worked_off_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [f"{call('1+1')} {call('2+3')} {call('x', 'nosuch')}", "Done."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "refuse")
        seen = len(room.events)
        await asked(room, after=seen)
        room.manager.answer_tool(session.id, "once")
        await room.manager.wait_turn(session.id)
        assert [m.stats["outcome"] for m in results(session)] == ["refused", "ran", "failed"]
        assert "calculator, time" in results(session)[-1].text
        assert [m.role for m in script.asked.messages] == ["user", "assistant", "tool", "tool", "tool"]


async def test_stopping_a_running_tool_ends_the_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def run(_arguments: Arguments) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    put_in(monkeypatch, run)
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "Never."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "once")
        await room.until(ToolRunning)
        assert room.manager.stop(session.id)
        end = await room.manager.wait_turn(session.id)
        assert end.state == "stopped" and cancelled.is_set() and len(script.questions) == 1
        assert results(session)[0].stats["outcome"] == "stopped"
        await room.ask(session.id, "Go on.")
        assert [m.role for m in script.asked.messages] == ["user", "assistant", "tool", "user"]


async def test_stopping_instead_of_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call()]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        assert room.manager.stop(session.id)
        assert (await room.manager.wait_turn(session.id)).state == "stopped"
        assert room.manager.asked_tool(session.id) is None and len(script.questions) == 1


async def test_a_message_does_not_come_between_a_call_and_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "Done."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        with pytest.raises(UsageError, match="waits for your word"):
            room.manager.send(session.id, "And?")
        room.manager.answer_tool(session.id, "once")
        await room.manager.wait_turn(session.id)
        assert roles(session) == ["user", "assistant", "tool", "assistant"]


async def test_who_writes_on_meanwhile_leaves_the_call_unanswered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies, script.hold = [call(), "Well."], True
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await room.until(TextStreamed)
        room.manager.send(session.id, "Or rather not.")
        script.go_on()
        await room.manager.wait_turn(session.id)
        assert roles(session) == ["user", "assistant", "user", "assistant"] and not room.of(ToolAsked)
        assert any("went on before" in notice.message for notice in room.of(EngineNotice))


async def test_rounds_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(f"{i}+1") for i in range(12)]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate for ever.")
        await asked(room)
        room.manager.answer_tool(session.id, "session")
        await room.manager.wait_turn(session.id)
        assert len(results(session)) == 8 and len(script.questions) == 9
        assert any("8 times in a row" in notice.message for notice in room.of(EngineNotice))
        script.replies = [call("1+1"), "Done."]
        await room.ask(session.id, "Once more.")
        assert len(results(session)) == 9, "the next message goes on"


async def test_a_slow_tool_and_a_loud_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def run(arguments: Arguments) -> Result:
        if arguments["expression"] == "slow":
            await asyncio.Event().wait()
        if arguments["expression"] == "bad":
            raise RuntimeError("secret words")
        return Result("x\x1b[31m" * 5000)

    put_in(monkeypatch, run)
    options = ToolOptions(enabled=True, builtin=("calculator",), seconds=0.05)
    async with scripted_room(monkeypatch, tmp_path, tools=options) as (room, script):
        script.replies = [f"{call('slow')} {call('loud')} {call('bad')}", "Done."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Go.")
        await asked(room)
        room.manager.answer_tool(session.id, "session")
        await room.manager.wait_turn(session.id)
        slow, loud, bad = results(session)
        assert "within 0.05 seconds" in slow.text and slow.stats["outcome"] == "failed"
        assert "\x1b" not in loud.text and len(loud.text) < 2100 and "cut here: 2,000 of 5,000" in loud.text
        assert "RuntimeError" in bad.text and "secret" not in bad.text


async def test_a_model_without_tools_says_so_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON, start=False) as (room, script):
        script.tools = False
        script.replies = [call(), "Well."]
        await room.manager.start_engine()
        await room.ready()
        session = room.manager.new_session()
        await room.ask(session.id, "Calculate.")
        await room.ask(session.id, "Again.")
        assert roles(session) == ["user", "assistant", "user", "assistant"]
        assert [q.tools for q in script.questions] == ["", ""]
        assert len([n for n in room.of(EngineNotice) if "no place for tools" in n.message]) == 1


async def test_results_are_told_in_words_to_a_model_without_tools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "It is 42."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "once")
        await room.manager.wait_turn(session.id)
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, script):
        script.tools = False
        await room.manager.start_engine()
        await room.ready()
        room.manager.open_session(session.id)
        await room.ask(session.id, "And?")
        assert [m.role for m in script.asked.messages] == ["user", "assistant", "user", "assistant", "user"]
        assert script.asked.messages[2].text == "Result of calculator:\n42"


async def test_nothing_runs_by_itself_after_a_quit_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call()]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        session = room.manager.open_session(session.id)
        assert not room.manager.is_busy(session.id) and not script.questions
        await room.ask(session.id, "Go on.")
        assert not room.of(ToolAsked) and len(script.questions) == 1
        assert session.path()[-1].text == "so be it"


async def test_a_chat_keeps_its_tools_and_can_do_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        session = room.manager.new_session()
        await room.ask(session.id, "Hello.")
        declared = script.asked.tools
    later = ToolOptions(enabled=False, builtin=("calculator", "time"))
    async with scripted_room(monkeypatch, tmp_path, tools=later) as (room, script):
        room.manager.open_session(session.id)
        await room.ask(session.id, "Hello again.")
        assert script.asked.tools == declared, "the same bytes"
        room.manager.set_tools(session.id, False)
        await room.ask(session.id, "And now?")
        assert script.asked.tools == ""
        other = room.manager.new_session()
        await room.ask(other.id, "Hello.")
        assert script.asked.tools == "" and not room.manager.has_tools_on(other.id)


async def test_incognito_keeps_nothing_of_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call("123456789+1"), "Done."]
        session = room.manager.new_session(incognito=True)
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "once")
        await room.manager.wait_turn(session.id)
        assert results(session)[0].text == "123456790"
        assert room.manager.list_sessions() == []
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"12345679" not in path.read_bytes()


async def test_a_reply_can_be_regenerated_behind_a_result_and_a_turn_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call(), "It is 42.", "Forty-two.", "Bye."]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        room.manager.answer_tool(session.id, "once")
        await room.manager.wait_turn(session.id)
        room.manager.regenerate(session.id, session.path()[-1].id)
        await room.manager.wait_turn(session.id)
        assert session.path()[-1].text == "Forty-two."
        await room.ask(session.id, "Thanks.")
        ids = room.manager.delete_turn(session.id, session.path()[2].id)
        assert len(ids) == 4 and roles(session) == ["user", "assistant"]


async def test_an_end_that_fails_is_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path, tools=ON) as (room, script):
        script.replies = [call()]
        session = room.manager.new_session()
        room.manager.send(session.id, "Calculate.")
        await asked(room)
        await room.manager.aclose()
        assert isinstance(room.of(TurnEnded)[-1], TurnEnded) and not room.manager.is_busy(session.id)


def test_script_has_tools() -> None:
    assert Script().tools
