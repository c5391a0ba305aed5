"""A turn as the manager sees it: what it answers, how far it came, and what of a session the engine is given.

Pure: no engine, no database, no clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from ds4chat.engine.protocol import ChatMessage, Done
from ds4chat.sessions.events import TurnStats
from ds4chat.sessions.session import Message, Session
from ds4chat.sessions.window import plan, turns_between


@dataclass
class Turn:
    """One reply in the making.

    Attributes:
        user_id: the message it answers (when continuing: the one the reply answered).
        reply: grows while it streams; None until the engine takes the turn up.
        given: the first message of each entry the engine was given (see `entries`), for what it counts a message.
        saved: the reply's length in tokens when it was last written.
    """

    number: int
    session_id: str
    user_id: int
    continue_reply: bool = False
    reply: Message | None = None
    running: bool = False
    cancelled: bool = False
    forced: bool = False
    stats: TurnStats = field(default_factory=TurnStats)
    given: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    saved: int = 0
    announced: int = 0

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
        return asdict(self.stats)


@dataclass(frozen=True)
class Entry:
    """One message for the engine and the first of the session's messages it stands for (None: the system prompt)."""

    message: ChatMessage
    first_id: int | None


def entries(session: Session, path: list[Message], fingerprint: str) -> list[Entry]:
    """What the engine is given of a path: the system prompt, then the window with empty replies left out, and with them
    the questions the engine failed on (one too long for the context would stand in the way for ever).

    User's messages that follow one another (one was never answered) become one, because templates want the roles to
    take turns. Sampled ids go along only for the weights that sampled them.
    """
    result = [Entry(ChatMessage("system", session.system), None)] if session.system else []
    for message in _answerable(path):
        tokens = message.tokens if message.role == "assistant" and message.fingerprint == fingerprint else []
        last = result[-1] if result else None
        if last is not None and last.message.role == message.role:
            text = f"{last.message.text}\n\n{message.text}"
            result[-1] = replace(last, message=ChatMessage(message.role, text))
        else:
            result.append(Entry(ChatMessage(message.role, message.text, tokens), message.id))
    return result


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
