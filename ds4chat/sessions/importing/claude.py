"""Conversations of Anthropic's data export: `chat_messages`, each of a `sender`; newer ones name the message above."""

from __future__ import annotations

from typing import Any

import msgspec

from ds4chat.sessions.importing.chats import (
    ATTACHMENT_ONLY,
    ForeignChat,
    role_of,
    seconds,
    text_of,
    unknown_role,
)
from ds4chat.sessions.importing.decoding import decode

SOURCE = "claude"

_TOOLS = frozenset({"tool_use", "tool_result", "server_tool_use", "web_search_tool_result"})

_FENCE = "```"


class _Message(msgspec.Struct):
    uuid: Any = None
    sender: Any = None
    text: Any = None
    content: Any = None
    created_at: Any = None
    parent_message_uuid: Any = None
    attachments: Any = None
    files: Any = None


class _Conversation(msgspec.Struct):
    chat_messages: list[_Message]
    uuid: Any = None
    name: Any = None
    model: Any = None
    created_at: Any = None
    updated_at: Any = None
    current_leaf_message_uuid: Any = None
    is_starred: Any = None


def read(data: bytes) -> ForeignChat:
    """A conversation. Raises InterchangeError."""
    conversation = decode(data, _Conversation)
    chat = ForeignChat(
        SOURCE,
        key=text_of(conversation.uuid),
        title=text_of(conversation.name),
        model=text_of(conversation.model),
        created=seconds(conversation.created_at),
        updated=seconds(conversation.updated_at),
        pinned=conversation.is_starred is True,
        head=text_of(conversation.current_leaf_message_uuid) or None,
    )
    messages = conversation.chat_messages
    keys = [text_of(message.uuid) or f"#{i}" for i, message in enumerate(messages)]
    known = set(keys)
    # Where no message names one that is there, they follow each other.
    is_tree = any(text_of(message.parent_message_uuid) in known for message in messages)
    before: str | None = None
    for key, message in zip(keys, messages, strict=True):
        parent: str | None = before
        if is_tree:
            above = text_of(message.parent_message_uuid)
            parent = above if above in known else None
        _take(chat, key, parent, message)
        before = key
    return chat


def _take(chat: ForeignChat, key: str, parent: str | None, message: _Message) -> None:
    role = role_of(message.sender)
    if role is None:
        chat.pass_over(key, parent, unknown_role(message.sender))
        return
    texts: list[str] = []
    thoughts: list[str] = []
    lost = 0
    for block in message.content if isinstance(message.content, list) else []:
        if not isinstance(block, dict):
            continue
        kind = text_of(block.get("type"))
        if kind in ("text", ""):
            texts.append(text_of(block.get("text")))
        elif kind == "thinking":
            thoughts.append(text_of(block.get("thinking")))
        elif kind in _TOOLS:
            chat.leave_out("tool calls and results")
        elif kind != "token_budget":
            lost += 1
            chat.leave_out("images" if kind == "image" else f"parts of kind {kind[:40]}")
    text = "\n\n".join(part for part in texts if part.strip()) or text_of(message.text)
    for attachment in message.attachments if isinstance(message.attachments, list) else []:
        if not isinstance(attachment, dict):
            continue
        if extracted := text_of(attachment.get("extracted_content")):
            text += _block(text_of(attachment.get("file_name")) or "attachment", extracted)
        else:
            lost += 1
            chat.leave_out("files")
    files = len(message.files) if isinstance(message.files, list) else 0
    chat.leave_out("files", files)
    if role == "user" and not text.strip() and lost + files:
        text = ATTACHMENT_ONLY
    chat.add(
        key,
        parent,
        role,
        text.strip("\n"),
        reasoning="\n\n".join(thoughts),
        created=seconds(message.created_at),
    )


def _block(name: str, text: str) -> str:
    """A file behind the message, in a fence that nothing in it closes."""
    fence = _FENCE
    while fence in text:
        fence += "`"
    return f"\n\n{' '.join(name.split())}:\n{fence}\n{text.rstrip()}\n{fence}"
