"""Calls of tools on the screen: the question, the call, what it came to."""

from __future__ import annotations

import pytest

from ds4chat.ui.entries.tool import may_call, with_calls
from ds4chat.ui.screens import tool_question
from ds4chat.ui.screens.tool_question import ToolQuestion
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

CALL = (
    'So: <tool_call>{"name": "calculator", "arguments": {"expression": "[b]6*7[/b]\\u001b[31m"}}</tool_call>'
)


@pytest.fixture(autouse=True)
def no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_question, "GUARD_SECONDS", 0.0)


async def test_a_call_is_a_block_and_is_asked_for(manager: FakeManager) -> None:
    session = manager.make("t", ["question", CALL])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("calculator", "[b]6*7[/b]")
        assert "tool_call" not in chat.shown()
        manager.ask_for_tool(session.id, arguments='{\n  "expression": "[b]6*7[/b]\x1b[31m"\n}')
        await chat.until(lambda: isinstance(chat.app.screen, ToolQuestion))
        words = "\n".join(str(static.render()) for static in chat.app.screen.query("Static"))
        assert "calculator (built in)" in words and "[b]6*7[/b]␛[31m" in words
        assert chat.app.screen.query_one("#call").border_subtitle == "a once · s in this chat · r no"
        await chat.until_shown("calculator waits for your word")
        await chat.pilot.press("a")
        await chat.until(lambda: manager.tool_answers == ["once"])
        manager.add_result(session.id, "42\n[b]and more[/b]")
        await chat.until_shown("▸ Tool calculator · 2 lines, 18 characters")
        assert "and more" not in chat.shown() and "waits for" not in chat.shown()
        await chat.pilot.press("tab", "space")
        await chat.until_shown("▾ Tool calculator", "│ 42", "│ [b]and more[/b]")


@pytest.mark.parametrize(("key", "answer"), [("s", "session"), ("r", "refuse"), ("escape", "refuse")])
async def test_the_other_words(manager: FakeManager, key: str, answer: str) -> None:
    session = manager.make("t", ["question", CALL])
    async with running(manager, session_id=session.id, size=(40, 10)) as chat:
        manager.ask_for_tool(session.id, arguments="\n".join(f"line {i}" for i in range(50)))
        await chat.until(lambda: isinstance(chat.app.screen, ToolQuestion))
        box = chat.app.screen.query_one("#call")
        assert box.size.width <= 40 and box.region.bottom <= 10, "it fits"
        await chat.pilot.press("x", "enter")
        assert manager.tool_answers == [], "no other key answers"
        await chat.pilot.press(key)
        await chat.until(lambda: manager.tool_answers == [answer])


async def test_a_key_that_was_meant_for_the_message_allows_nothing(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_question, "GUARD_SECONDS", 1000.0)
    session = manager.make("t", ["question", CALL])
    async with running(manager, session_id=session.id) as chat:
        manager.ask_for_tool(session.id)
        await chat.until(lambda: isinstance(chat.app.screen, ToolQuestion))
        await chat.pilot.press("a", "s")
        assert manager.tool_answers == [] and isinstance(chat.app.screen, ToolQuestion)
        await chat.pilot.press("r")
        await chat.until(lambda: manager.tool_answers == ["refuse"])


async def test_a_question_goes_when_the_call_is_stopped(manager: FakeManager) -> None:
    session = manager.make("t", ["question", CALL])
    async with running(manager, session_id=session.id) as chat:
        manager.ask_for_tool(session.id)
        await chat.until(lambda: isinstance(chat.app.screen, ToolQuestion))
        del manager.asked[session.id]
        manager.notice("stopped")
        await chat.until(lambda: chat.app.screen is chat.screen)
        assert manager.tool_answers == []


async def test_elsewhere_it_is_told_and_asked_when_the_chat_is_opened(manager: FakeManager) -> None:
    session, other = manager.make("t", ["question", CALL]), manager.make("u", ["hello", "Hi."])
    async with running(manager, session_id=other.id) as chat:
        manager.ask_for_tool(session.id)
        await chat.until(lambda: any("waits for your word" in text for text in chat.toasts))
        assert chat.app.screen is chat.screen
        chat.screen.open(session.id)
        await chat.until(lambda: isinstance(chat.app.screen, ToolQuestion))


async def test_tools_are_listed_and_switched(manager: FakeManager) -> None:
    session = manager.make("t", ["question", "Answer."])
    async with running(manager, session_id=session.id) as chat:
        chat.prompt.put("/tools on")
        await chat.pilot.press("enter")
        await chat.until_shown("Tools are on in this chat", "calculator (built in)")
        assert session.params["tools"] is True


def test_calls_as_blocks_of_code() -> None:
    assert with_calls("No call.") == "No call." and not may_call("<tool_call> of duty")
    shown = with_calls('A <tool_call>{"name": "f", "arguments": {"code": "```x```"}}</tool_call> B')
    assert shown.startswith("A\n\n````call\nf {") and shown.endswith("````\n\n B")


async def test_a_call_that_streams_becomes_a_block(manager: FakeManager) -> None:
    session = manager.make("t", ["question", "Answer."])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "calculate")
        manager.begin()
        for at in range(0, len(CALL), 7):
            manager.stream(CALL[at : at + 7])
            await chat.pilot.pause()
        await chat.until_shown("calculator {")
        assert "tool_call" not in chat.shown()
