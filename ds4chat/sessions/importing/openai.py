"""Chats as lists of messages with `role` and `content`, as OpenAI's interfaces and fine-tuning files have them, and
ShareGPT's `conversations` of `from` and `value`."""

from __future__ import annotations

from typing import Any

import msgspec

from ds4chat.engine.tool_calls import blocks
from ds4chat.errors import InterchangeError
from ds4chat.sessions.importing.chats import (
    ATTACHMENT_ONLY,
    ForeignChat,
    role_of,
    seconds,
    text_of,
    unknown_role,
)
from ds4chat.sessions.importing.decoding import decode

SOURCE = "openai"

_TEXT = frozenset({"text", "input_text", "output_text", ""})
_LOST = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "input_audio": "audio clips",
    "audio": "audio clips",
    "file": "files",
    "input_file": "files",
}


class _Message(msgspec.Struct):
    role: Any = None
    content: Any = None
    from_: Any = msgspec.field(name="from", default=None)
    value: Any = None
    tool_calls: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    model: Any = None
    created: Any = None
    created_at: Any = None
    timestamp: Any = None


class _Chat(msgspec.Struct):
    messages: list[_Message] | None = None
    conversations: list[_Message] | None = None
    id: Any = None
    title: Any = None
    name: Any = None
    system: Any = None
    model: Any = None
    created: Any = None
    created_at: Any = None
    updated_at: Any = None


def read(data: bytes) -> ForeignChat:
    """An object that holds messages. Raises InterchangeError."""
    found = decode(data, _Chat)
    chat = ForeignChat(
        SOURCE,
        key=str(found.id) if isinstance(found.id, str | int) and not isinstance(found.id, bool) else "",
        title=text_of(found.title) or text_of(found.name),
        model=text_of(found.model),
        created=seconds(found.created) or seconds(found.created_at),
        updated=seconds(found.updated_at),
    )
    # A number counts the chats of one file, and means another one in the next.
    if chat.key.isdecimal() and len(chat.key) < 12:
        chat.key = ""
    chat.instruct(text_of(found.system))
    if found.messages is None and found.conversations is None:
        raise InterchangeError('it holds no list "messages"')
    _take_all(chat, found.messages if found.messages is not None else found.conversations or [])
    return chat


def read_list(data: bytes) -> ForeignChat:
    """A list of messages. Raises InterchangeError."""
    return _of(decode(data, list[_Message]))


def read_messages(parts: list[bytes]) -> ForeignChat:
    """Messages that stand one behind the other in a file. Raises InterchangeError."""
    return _of([decode(part, _Message) for part in parts])


def _of(messages: list[_Message]) -> ForeignChat:
    chat = ForeignChat(SOURCE)
    _take_all(chat, messages)
    return chat


def _take_all(chat: ForeignChat, messages: list[_Message]) -> None:
    before: str | None = None
    called = False
    for i, message in enumerate(messages):
        key = str(i)
        called = _take(chat, key, before, message, called)
        before = key


def _take(chat: ForeignChat, key: str, parent: str | None, message: _Message, called: bool) -> bool:
    """Take a message in. `called`: the one before calls tools in its text, or is what one of them said; returned for
    the next one."""
    said = text_of(message.role) or text_of(message.from_)
    lost: list[str] = []
    text = _text(message.content if message.content is not None else message.value, lost)
    for kind in lost:
        chat.leave_out(kind)
    if said.lower() in ("system", "developer"):
        chat.instruct(text)
        chat.pass_over(key, parent)
        return False
    if said.lower() == "tool" and called and text.strip():
        chat.add(key, parent, "tool", text, created=seconds(message.created))
        return True
    if said.lower() in ("tool", "function", "observation", "function_call"):
        chat.pass_over(key, parent, "tool messages")
        return called
    role = role_of(said)
    if role is None:
        chat.pass_over(key, parent, unknown_role(said))
        return False
    if message.tool_calls and not text.strip():
        chat.pass_over(key, parent, "tool messages")
        return False
    if role == "user" and not text.strip() and lost:
        text = ATTACHMENT_ONLY
    chat.add(
        key,
        parent,
        role,
        text,
        reasoning=text_of(message.reasoning_content) or text_of(message.reasoning),
        created=seconds(message.created) or seconds(message.created_at) or seconds(message.timestamp),
        model=text_of(message.model),
    )
    return role == "assistant" and any(blocks(text))


def _text(content: Any, lost: list[str]) -> str:
    if not isinstance(content, list):
        return text_of(content)
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind = text_of(part.get("type"))
            if kind in _TEXT:
                texts.append(text_of(part.get("text")))
            else:
                lost.append(_LOST.get(kind, f"parts of kind {kind[:40]}"))
    return "\n\n".join(text for text in texts if text.strip())
