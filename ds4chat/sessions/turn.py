"""A turn as the manager sees it: what it answers, how far it came, and what of a session the engine is given.

Pure: no engine, no database, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from ds4chat.engine.protocol import ChatMessage, Done
from ds4chat.sessions.events import TurnStats
from ds4chat.sessions.session import IMPORTED, Message, Session, called
from ds4chat.sessions.window import plan, turns_between

SUMMARY_HEADER = "Summary of the conversation so far: "
"""Stands before a summary behind the system prompt."""

RESULT_HEADER = "Result of {}:"
"""Stands before what a tool said, for a model that knows of none."""


@dataclass
class Turn:
    """One reply in the making.

    Attributes:
        user_id: the message it answers (when continuing: the one the reply answered; when compacting: none, 0).
        kind: "compact": no reply, a summary of what lies before the window.
        head_before: what the session stood on when another reply was asked for; it does again when none comes to be.
        reply: grows while it streams; None until the engine takes the turn up.
        cancelled, closing: the user stopped it, or left the program.
        given: the first message of each entry the engine was given (see `entries`), for what it counts a message.
        saved: the reply's length in tokens when it was last written.
        instructions: what the user wants of a summary.    summary: as far as it was written.
        first_kept: the first message that stays in the window when the summary takes the place of what lies before.
        grammar: GBNF that the reply must follow, "" for none.
    """

    number: int
    session_id: str
    user_id: int
    continue_reply: bool = False
    reply: Message | None = None
    running: bool = False
    cancelled: bool = False
    closing: bool = False
    forced: bool = False
    n_ctx: int = 0
    stats: TurnStats = field(default_factory=TurnStats)
    given: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    saved: int = 0
    announced: int = 0
    kind: Literal["reply", "compact"] = "reply"
    head_before: int | None = None
    instructions: str = ""
    summary: str = ""
    first_kept: int | None = None
    grammar: str = ""

    def add_stats(self, done: Done) -> None:
        """Take in one engine turn's measures; a reply that went on past a full context has several."""
        old = self.stats
        self.stats = TurnStats(
            stop_reason=done.stop_reason,
            prompt_tokens=done.prompt_tokens,
            cached_tokens=done.cached_tokens,
            prefilled_tokens=done.prefilled_tokens,
            generated_tokens=old.generated_tokens + done.generated_tokens,
            restore_ms=old.restore_ms + done.restore_ms,
            prefill_ms=old.prefill_ms + done.prefill_ms,
            generate_ms=old.generate_ms + done.generate_ms,
        )

    def stats_dict(self) -> dict[str, float | int | str]:
        return msgspec.structs.asdict(self.stats)


@dataclass(frozen=True)
class Entry:
    """One message for the engine and the first of the session's messages it stands for (None: the system prompt)."""

    message: ChatMessage
    first_id: int | None


def entries(session: Session, path: list[Message], fingerprint: str, *, tools: bool = False) -> list[Entry]:
    """What the engine is given of a path: the system prompt, then the window with empty replies left out, and with them
    the questions the engine failed on (one too long for the context would stand in the way for ever).

    User's messages that follow one another (one was never answered) become one, because templates want the roles to
    take turns. Sampled ids go along only for the weights that sampled them. Without `tools` (a model whose template has
    no place for them) what a tool said is told in a user's words.
    """
    system = system_text(session, path)
    result = [Entry(ChatMessage("system", system), None)] if system else []
    for message in _answerable(path):
        author = message.fingerprint.removeprefix(IMPORTED)
        tokens = message.tokens if message.role == "assistant" and author == fingerprint else []
        last = result[-1] if result else None
        role, text = message.role, message.text
        if role == "tool" and not tools:
            role, text = "user", f"{RESULT_HEADER.format(called(message) or 'a tool')}\n{text}"
        if last is not None and last.message.role == role and role != "tool":
            text = f"{last.message.text}\n\n{text}"
            result[-1] = replace(last, message=ChatMessage(role, text))
        else:
            imported = bool(tokens) and author != message.fingerprint
            result.append(Entry(ChatMessage(role, text, tokens, imported), message.id))
    return result


def system_text(session: Session, path: list[Message]) -> str:
    """The system prompt of a path, with the summary of what lies before the window where there is one.

    A summary belongs to the branch it was written on: one that has no part in what the window begins with goes without.
    """
    if not session.summary or not path:
        return session.system
    if all(message.id != session.window_start_id for message in session.lineage(path[-1].id)):
        return session.system
    return "\n\n".join(part for part in (session.system, SUMMARY_HEADER + session.summary) if part)


def window_to(session: Session, message_id: int) -> list[Message]:
    """What reaches the model of the path to a message; all of it when it does not lead through the window's first."""
    lineage = session.lineage(message_id)
    start = next((i for i, message in enumerate(lineage) if message.id == session.window_start_id), 0)
    return [message for message in lineage[start:] if not message.hidden]


def _answerable(path: list[Message]) -> list[Message]:
    kept: list[Message] = []
    for message in path:
        if message.role == "assistant" and not message.text and not message.tokens:
            while message.state == "failed" and kept and kept[-1].role == "user":
                kept.pop()
        else:
            kept.append(message)
    return kept


def next_window(
    session: Session, given: list[int], counts: list[int], n_ctx: int, tokens: int
) -> tuple[int, int] | None:
    """Where the window goes on when the context is full: its first message and the turns that fall out.

    Args:
        given: the first message of each entry the engine was given, 0 for the system prompt.
        counts: tokens each entry takes.
        tokens: of the whole prompt.

    Returns:
        None when nothing more can fall out.
    """
    if len(counts) != len(given):
        raise ValueError(f"{len(counts)} token counts for {len(given)} entries")
    roles = ["system" if id_ == 0 else session.messages[id_].role for id_ in given]
    first = plan(counts, roles, n_ctx, prompt_tokens=tokens)
    oldest = 1 if roles[0] == "system" else 0
    return (given[first], turns_between(roles, oldest, first)) if first > oldest else None
