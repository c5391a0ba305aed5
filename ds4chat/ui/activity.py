"""What every session is doing, gathered from the manager's events alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from ds4chat.sessions.events import (
    ContextRestored,
    ContextUsed,
    EngineChanged,
    EngineStatus,
    ManagerEvent,
    PromptProgress,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
)
from ds4chat.ui.wording import context_words, engine_words


@dataclass
class SessionActivity:
    """One session's doings. `phase` is "", "queued", "reading" (prefill) or "writing"."""

    phase: str = ""
    ahead: int = 0
    progress: tuple[int, int] | None = None
    tokens: int | None = None
    n_ctx: int = 0
    restored: str = ""
    last_rate: float = 0.0
    _since: tuple[float, int] | None = field(default=None, repr=False)
    rate: float = 0.0


class Activity:
    """Follows the events; answers with words for the status line."""

    def __init__(self, engine: EngineStatus) -> None:
        self.engine = engine
        self._sessions: dict[str, SessionActivity] = {}

    def of(self, session_id: str) -> SessionActivity:
        return self._sessions.setdefault(session_id, SessionActivity())

    def apply(self, event: ManagerEvent, now: float) -> None:
        """Take in an event; `now` is in seconds on any steady clock."""
        if isinstance(event, EngineChanged):
            self.engine = event.status
            return
        session_id = getattr(event, "session_id", "")
        if not session_id:
            return
        at = self.of(session_id)
        match event:
            case TurnQueued(ahead=ahead):
                at.ahead = ahead
                at.phase = at.phase or "queued"
            case TurnStarted():
                at.phase, at.progress, at.restored = "reading", None, ""
                at._since, at.rate = None, 0.0
            case PromptProgress(done=done, total=total):
                at.progress = (done, total)
            case ContextRestored(tokens=tokens, ms=ms):
                at.restored = f"restored {tokens:,} tokens in {ms:,.0f} ms"
            case TextStreamed():
                at.phase = "writing"
            case ContextUsed(tokens=tokens, n_ctx=n_ctx):
                at.tokens, at.n_ctx = tokens, n_ctx
                if at.phase == "writing":
                    self._measure(at, tokens, now)
            case TurnEnded(stats=stats):
                at.phase, at.progress, at._since = "", None, None
                at.last_rate = stats.tokens_per_second
            case _:
                pass

    @staticmethod
    def _measure(at: SessionActivity, tokens: int, now: float) -> None:
        if at._since is None:
            at._since = (now, tokens)
        elif now > at._since[0]:
            at.rate = (tokens - at._since[1]) / (now - at._since[0])

    def left(self, session_id: str, *, elsewhere: int = 0) -> list[str]:
        """The parts of the status line's left side, the most important first."""
        at = self.of(session_id)
        parts = [engine_words(self.engine)]
        if at.phase == "queued":
            parts.append(f"queued behind {at.ahead}" if at.ahead else "queued")
        elif at.phase == "reading":
            done = at.progress
            parts.append(f"reading prompt {done[0]:,} / {done[1]:,}" if done else "reading prompt")
        elif at.phase == "writing":
            parts.append(f"writing, {at.rate:.0f} tok/s" if at.rate else "writing")
        elif at.last_rate:
            parts.append(f"last reply {at.last_rate:.0f} tok/s")
        parts.append(at.restored)
        if elsewhere:
            parts.append(f"{elsewhere} busy elsewhere")
        return [part for part in parts if part]

    def right(self, session_id: str, saved_tokens: int = 0) -> str:
        """How full the session's context is; `saved_tokens` is what its last turn took, before any event
        told.
        """
        at = self.of(session_id)
        return context_words(saved_tokens if at.tokens is None else at.tokens, at.n_ctx or self.engine.n_ctx)
