"""Sessions as JSON Lines, a chat a line as in fine-tuning files: `{"messages": [{"role": ..., "content": ...}]}`."""

from __future__ import annotations

import msgspec

from ds4chat.sessions.reasoning import visible_answer
from ds4chat.sessions.session import Session


def to_jsonl(session: Session) -> bytes:
    """The path to the head as one line, with the system prompt first and without what the model only thought."""
    messages = [{"role": "system", "content": session.system}] if session.system else []
    for message in session.path():
        text = message.text if message.role != "assistant" else visible_answer(message.text, whole=True)
        messages.append({"role": message.role, "content": text})
    return msgspec.json.encode({"messages": messages}) + b"\n"
