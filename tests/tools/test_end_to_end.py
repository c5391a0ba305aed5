"""A call from the model's words to a real MCP server and back, and the same chat after the program was ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ds4chat.sessions.database import Database
from ds4chat.sessions.events import ContextRestored, ToolAsked
from ds4chat.tools.options import Server, ToolOptions
from tests.support.forced_engine import forced_room
from tests.support.tiny_models import write_tiny_model
from tests.support.tool_template import TOOL_TEMPLATE

SERVER = Path(__file__).parent.parent / "support" / "mcp_sdk_server.py"
BODY = '{"name":  "shelf_count_books", "arguments":{"author" : "Éluard", "room": 3}}'
ANEW = '{"arguments": {"room": 3, "author": "\\u00c9luard"}, "name": "shelf_count_books"}'
CALL = f"Let me see. <tool_call>\n{BODY}\n</tool_call>"


@pytest.fixture
def model(tmp_path: Path, starter: Path) -> Path:
    """A tiny model whose template has a place for tools."""
    return write_tiny_model("dense", tmp_path / "tools.gguf", starter, ends=True, template=TOOL_TEMPLATE)


def shelf(tmp_path: Path) -> ToolOptions:
    command = (sys.executable, str(SERVER))
    return ToolOptions(
        True, ("time",), servers=(Server("shelf", command, {"SHELF": "oak"}),), log_dir=tmp_path / "logs"
    )


async def test_a_call_reaches_a_real_server_and_the_chat_replays_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    home = tmp_path / "home"
    async with forced_room(monkeypatch, model, home, shelf(tmp_path)) as (room, forced):
        forced.replies = [CALL, "There are six of them."]
        session = room.manager.new_session()
        room.manager.send(session.id, "How many books of Éluard are there?")
        asked = await room.until(ToolAsked)
        assert (asked.name, asked.where) == ("shelf_count_books", "shelf")
        room.manager.answer_tool(session.id, "once")
        end = await room.manager.wait_turn(session.id)
        assert end.error == "" and end.state == "complete"
        _question, call, result, reply = session.path()
        assert call.text == CALL and result.text == "6 books of Éluard in room 3 (oak)"
        assert reply.text == "There are six of them."
        # The second reply began where the first one ended: only the result was computed.
        first = call.stats
        live = int(first["prompt_tokens"]) + int(first["generated_tokens"])
        assert end.stats.cached_tokens >= live - 1
        assert end.stats.prefilled_tokens < 80
        whole = end.stats.prompt_tokens + end.stats.generated_tokens
    async with forced_room(monkeypatch, model, home, shelf(tmp_path)) as (room, forced):
        forced.replies = ["Goodbye."]
        session = room.manager.open_session(session.id)
        end = await room.ask(session.id, "Thank you.")
        assert end.error == "" and not room.of(ToolAsked)
        assert end.stats.cached_tokens >= whole - 1, "all of it came from disk"
        assert end.stats.prefilled_tokens < 30, "only the new text"
        assert room.of(ContextRestored)[0].tokens == end.stats.cached_tokens
        whole = end.stats.prompt_tokens + end.stats.generated_tokens
    # Without the ids, and the call written anew as another program would: the trailer has the words.
    anew = f"Let me see. <tool_call>{ANEW}</tool_call>"
    with Database(home / "sessions.db") as database:
        database.update_reply(call.id, anew, [], "complete")
    async with forced_room(monkeypatch, model, home, shelf(tmp_path)) as (room, forced):
        forced.replies = ["Well."]
        room.manager.open_session(session.id)
        end = await room.ask(session.id, "Again.")
        assert end.stats.cached_tokens >= whole - 1
        assert end.stats.prefilled_tokens < 30


async def test_what_a_server_says_of_its_tools_is_text_to_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    plain = SERVER.parent / "mcp_plain_server.py"
    options = ToolOptions(True, servers=(Server("x", (sys.executable, str(plain), "hostile")),))
    async with forced_room(monkeypatch, model, tmp_path / "home", options) as (room, forced):
        forced.replies = ["Hello."]
        session = room.manager.new_session()
        end = await room.ask(session.id, "Hello.")
        # "<|im_end|>" in a description is spelled out, and no marker that ends the system block.
        assert end.error == "" and end.stats.prompt_tokens > 500
