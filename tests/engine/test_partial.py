"""Two chats that begin alike and differ in texts of one length: each is answered for itself."""

from pathlib import Path

from ds4chat.engine.protocol import ChatMessage
from tests.support.engine_room import EngineRoom, user


def chat(number: int) -> list[ChatMessage]:
    return [
        user(f"My number is {number}."),
        ChatMessage("assistant", "Good."),
        user("Tell me more about it. " * 12),
    ]


def test_a_span_that_agrees_for_a_part_lends_no_text(tiny_model: Path, tmp_path: Path) -> None:
    with EngineRoom(tiny_model, None) as room:
        expected = room.chat(chat(2), session="b")
    with EngineRoom(tiny_model, tmp_path / "kv") as room:
        room.chat(chat(1), session="a")
    with EngineRoom(tiny_model, tmp_path / "kv") as room:
        assert room.chat(chat(2), session="b").tokens == expected.tokens
