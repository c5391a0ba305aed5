"""Conversations of ChatGPT's data export: a tree of nodes named `mapping`, of which `current_node` is on the screen."""

from __future__ import annotations

import re
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

SOURCE = "chatgpt"

_CITATION = re.compile("\ue200[^\ue200\ue201]*\ue201")
"""A mark that the web page replaces by a link; the link itself is not in the text."""

_ASSETS = {
    "image_asset_pointer": "images",
    "audio_asset_pointer": "audio clips",
    "real_time_user_audio_video_asset_pointer": "audio clips",
    "video_container_asset_pointer": "videos",
}

_SILENT = frozenset({"reasoning_recap", "model_editable_context"})
"""Kinds of content that say nothing anybody wrote."""

_OF_TOOLS = frozenset({"execution_output", "tether_browsing_display", "tether_quote", "sonic_webpage"})


class _Author(msgspec.Struct):
    role: Any = None


class _Content(msgspec.Struct):
    content_type: Any = None
    parts: list[Any] | None = None
    text: Any = None
    language: Any = None
    thoughts: list[Any] | None = None


class _Metadata(msgspec.Struct):
    model_slug: Any = None
    is_visually_hidden_from_conversation: Any = None


class _Message(msgspec.Struct):
    author: _Author | None = None
    content: _Content | None = None
    metadata: _Metadata | None = None
    create_time: Any = None
    recipient: Any = None


class _Node(msgspec.Struct):
    message: _Message | None = None
    parent: str | None = None


class _Conversation(msgspec.Struct):
    mapping: dict[str, _Node]
    title: Any = None
    create_time: Any = None
    update_time: Any = None
    current_node: Any = None
    conversation_id: Any = None
    id: Any = None
    default_model_slug: Any = None
    is_archived: Any = None
    is_starred: Any = None


def read(data: bytes) -> ForeignChat:
    """A conversation. Raises InterchangeError."""
    conversation = decode(data, _Conversation)
    chat = ForeignChat(
        SOURCE,
        key=text_of(conversation.conversation_id) or text_of(conversation.id),
        title=text_of(conversation.title),
        model=text_of(conversation.default_model_slug),
        created=seconds(conversation.create_time),
        updated=seconds(conversation.update_time),
        pinned=conversation.is_starred is True,
        archived=conversation.is_archived is True,
        head=text_of(conversation.current_node) or None,
    )
    for key, node in conversation.mapping.items():
        _take(chat, key, node)
    return chat


def _take(chat: ForeignChat, key: str, node: _Node) -> None:
    message, parent = node.message, node.parent
    if message is None or message.content is None:
        chat.pass_over(key, parent)
        return
    content = message.content
    said = message.author.role if message.author is not None else None
    kind = text_of(content.content_type) or "text"
    metadata = message.metadata or _Metadata()
    if said == "system":
        if metadata.is_visually_hidden_from_conversation is not True:
            chat.instruct(_text(chat, content))
        chat.pass_over(key, parent)
        return
    if kind == "user_editable_context":
        chat.pass_over(key, parent, "custom instructions")
        return
    if kind in _SILENT:
        chat.pass_over(key, parent)
        return
    if said == "tool" or kind in _OF_TOOLS:
        # A picture that was made by one is in what the tool says.
        for part in content.parts or []:
            if isinstance(part, dict) and (asset := _ASSETS.get(text_of(part.get("content_type")))):
                chat.leave_out(asset)
        chat.pass_over(key, parent, "tool messages")
        return
    if metadata.is_visually_hidden_from_conversation is True:
        chat.pass_over(key, parent, "hidden messages")
        return
    role = role_of(said)
    if role is None:
        chat.pass_over(key, parent, unknown_role(said))
        return
    if role == "assistant" and text_of(message.recipient) not in ("", "all"):
        chat.pass_over(key, parent, "tool messages")
        return
    created, model = seconds(message.create_time), text_of(metadata.model_slug)
    if kind == "thoughts":
        chat.add(key, parent, role, "", reasoning=_thoughts(content), created=created, model=model)
        return
    before = chat.left_out.total()
    text = _text(chat, content)
    if role == "user" and not text.strip() and chat.left_out.total() > before:
        text = ATTACHMENT_ONLY
    chat.add(key, parent, role, text, created=created, model=model)


def _text(chat: ForeignChat, content: _Content) -> str:
    """What a content says; what it cannot say in text is counted."""
    kind = text_of(content.content_type) or "text"
    if kind == "code":
        language = text_of(content.language)
        language = language if language.isalnum() and language != "unknown" else ""
        code = text_of(content.text)
        return f"```{language}\n{code}\n```" if code.strip() else ""
    texts = [text_of(content.text)]
    for part in content.parts or []:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            inner = text_of(part.get("content_type"))
            if spoken := text_of(part.get("text")):
                texts.append(spoken)
            else:
                chat.leave_out(_ASSETS.get(inner, f"parts of kind {inner[:40] or 'unknown'}"))
    if kind not in ("text", "multimodal_text", "system_error", "code") and not any(texts):
        chat.leave_out(f"messages of kind {kind[:40]}")
    return _CITATION.sub("", "\n\n".join(text for text in texts if text.strip()))


def _thoughts(content: _Content) -> str:
    parts: list[str] = []
    for thought in content.thoughts or []:
        if isinstance(thought, dict):
            summary, text = text_of(thought.get("summary")), text_of(thought.get("content"))
            parts.append("\n".join(line for line in (summary, text) if line.strip()))
    return "\n\n".join(part for part in parts if part)
