"""Chats of Open WebUI: an export holds rows of its database, whose `chat` has the tree `history.messages`."""

from __future__ import annotations

import html
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

SOURCE = "open-webui"

_DETAILS = re.compile(
    r'<details type="(?P<type>[a-z_]+)"[^>]*>\s*(?:<summary>[^<]*</summary>)?(?P<inside>.*?)</details>\s*',
    re.DOTALL,
)
"""How it writes thoughts and calls of tools into a reply."""

_DETAILS_END = "</details>"


class _Message(msgspec.Struct):
    id: Any = None
    parentId: Any = None  # noqa: N815
    role: Any = None
    content: Any = None
    timestamp: Any = None
    model: Any = None
    files: Any = None


class _History(msgspec.Struct):
    messages: dict[str, _Message] | None = None
    currentId: Any = None  # noqa: N815


class _Inner(msgspec.Struct):
    title: Any = None
    models: Any = None
    system: Any = None
    params: Any = None
    history: _History | None = None
    messages: list[_Message] | None = None
    tags: Any = None
    timestamp: Any = None


class _Row(msgspec.Struct):
    chat: _Inner
    id: Any = None
    title: Any = None
    created_at: Any = None
    updated_at: Any = None
    archived: Any = None
    pinned: Any = None
    meta: Any = None


def read(data: bytes) -> ForeignChat:
    """A row of an export. Raises InterchangeError."""
    return _chat(decode(data, _Row))


def read_inner(data: bytes) -> ForeignChat:
    """What a row's `chat` holds, alone. Raises InterchangeError."""
    return _chat(_Row(decode(data, _Inner)))


def read_row(data: bytes, **columns: Any) -> ForeignChat:
    """A row of the database, with its column `chat` as it is. Raises InterchangeError."""
    return _chat(_Row(decode(data, _Inner), **columns))


def _chat(row: _Row) -> ForeignChat:
    inner = row.chat
    models = inner.models if isinstance(inner.models, list) else []
    meta = row.meta if isinstance(row.meta, dict) else {}
    tags = meta.get("tags") or inner.tags
    chat = ForeignChat(
        SOURCE,
        key=text_of(row.id),
        title=text_of(row.title) or text_of(inner.title),
        model=next((text_of(model) for model in models if text_of(model)), ""),
        created=seconds(row.created_at) or seconds(inner.timestamp),
        updated=seconds(row.updated_at),
        pinned=row.pinned in (True, 1),
        archived=row.archived in (True, 1),
        tags=[tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
    )
    params = inner.params if isinstance(inner.params, dict) else {}
    chat.instruct(text_of(inner.system) or text_of(params.get("system")))
    if inner.history is not None and inner.history.messages:
        chat.head = text_of(inner.history.currentId) or None
        for key, message in inner.history.messages.items():
            _take(chat, key, text_of(message.parentId) or None, message)
    else:
        before: str | None = None
        for i, message in enumerate(inner.messages or []):
            _take(chat, str(i), before, message)
            before = str(i)
    return chat


def _take(chat: ForeignChat, key: str, parent: str | None, message: _Message) -> None:
    files = len(message.files) if isinstance(message.files, list) else 0
    chat.leave_out("files", files)
    text, images = _content(message.content)
    chat.leave_out("images", images)
    if text_of(message.role) == "system":
        chat.instruct(text)
        chat.pass_over(key, parent)
        return
    role = role_of(message.role)
    if role is None:
        chat.pass_over(key, parent, unknown_role(message.role))
        return
    reasoning = ""
    if role == "assistant":
        text, reasoning = _without_details(chat, text)
    elif not text.strip() and files + images:
        text = ATTACHMENT_ONLY
    created, model = seconds(message.timestamp), text_of(message.model)
    chat.add(key, parent, role, text, reasoning=reasoning, created=created, model=model)


def _content(content: Any) -> tuple[str, int]:
    """The text, and how many images go with it."""
    if not isinstance(content, list):
        return text_of(content), 0
    parts = [part for part in content if isinstance(part, dict)]
    texts = [text_of(part.get("text")) for part in parts if part.get("type") in ("text", "output_text", None)]
    return "\n\n".join(filter(str.strip, texts)), sum(part.get("type") == "image_url" for part in parts)


def _without_details(chat: ForeignChat, text: str) -> tuple[str, str]:
    """A reply without what is folded in it, and the thoughts among that."""
    end = text.rfind(_DETAILS_END) + len(_DETAILS_END)
    if '<details type="' not in text or end < len(_DETAILS_END):
        return text, ""
    thoughts: list[str] = []

    def take(match: re.Match[str]) -> str:
        if match["type"] == "reasoning":
            lines = html.unescape(match["inside"]).strip().splitlines()
            thoughts.append("\n".join(line.removeprefix(">").removeprefix(" ") for line in lines))
        else:
            chat.leave_out("tool calls and results")
        return ""

    # Behind the last end there is none to be found, and looking for one from every beginning would take long.
    text = _DETAILS.sub(take, text[:end]) + text[end:]
    return text.lstrip("\n"), "\n\n".join(thoughts)
