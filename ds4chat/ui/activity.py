"""What every session is doing, gathered from the manager's events alone, and the words for it."""

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
from ds4chat.ui.listing import restore_words
from ds4chat.ui.wording import context_words, engine_words

BAR = 8
"""Cells of the bar that shows how full the context is."""

LONG_MS = 500
"""What takes longer is told with the time it takes."""


def bar(part: float, cells: int = BAR) -> str:
    """A bar that is `part` full (0 to 1), told by its shapes alone."""
    full = max(0, min(cells, round(part * cells)))
    if part > 0:
        full = max(full, 1)
    return "▰" * full + "▱" * (cells - full)


def time_left(seconds: float) -> str:
    """How long something still takes, never more exact than it is known."""
    if seconds < 1:
        return "about 1 s left"
    if seconds < 90:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left"


@dataclass
class SessionActivity:
    """One session's doings. `phase` is "", "queued", "reading" (prefill) or "writing"."""

    phase: str = ""
    ahead: int = 0
    progress: tuple[int, int] | None = None
    tokens: int | None = None
    n_ctx: int = 0
    restored: str = ""
    restore_ms: float | None = None
    seconds_left: float | None = None
    last_rate: float = 0.0
    _since: tuple[float, int] | None = field(default=None, repr=False)
    _read_since: tuple[float, int] | None = field(default=None, repr=False)
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
                at._read_since, at.seconds_left = None, None
            case PromptProgress(done=done, total=total):
                at.progress = (done, total)
                self._estimate(at, now)
            case ContextRestored(tokens=tokens, ms=ms):
                at.restore_ms = None
                at.restored = f"restored {tokens:,} tokens in {ms:,.0f} ms"
            case TextStreamed():
                at.phase = "writing"
            case ContextUsed(tokens=tokens, n_ctx=n_ctx):
                at.tokens, at.n_ctx = tokens, n_ctx
                if at.phase == "writing":
                    self._measure(at, tokens, now)
            case TurnEnded(stats=stats):
                at.phase, at.progress, at._since, at.restore_ms = "", None, None, None
                at.last_rate = stats.tokens_per_second
            case _:
                pass

    @staticmethod
    def _estimate(at: SessionActivity, now: float) -> None:
        """The time a prompt still takes, from how fast it was read so far."""
        assert at.progress is not None
        done, total = at.progress
        if at._read_since is None or done < at._read_since[1]:
            at._read_since = (now, done)
        elif now > at._read_since[0] and done > at._read_since[1]:
            rate = (done - at._read_since[1]) / (now - at._read_since[0])
            at.seconds_left = max(total - done, 0) / rate

    def expect_restore(self, session_id: str, ms: float | None) -> None:
        """The session's context is about to come from disk, which takes `ms`."""
        self.of(session_id).restore_ms = ms

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
            parts += self._reading(at)
        elif at.phase == "writing":
            parts.append(f"writing, {at.rate:.0f} tok/s" if at.rate else "writing")
        elif at.last_rate:
            parts.append(f"last reply {at.last_rate:.0f} tok/s")
        parts.append(at.restored)
        if elsewhere:
            parts.append(f"{elsewhere} busy elsewhere")
        return [part for part in parts if part]

    @staticmethod
    def _reading(at: SessionActivity) -> list[str]:
        if at.progress is None:
            if at.restore_ms is not None and at.restore_ms > LONG_MS and not at.restored:
                return [f"restoring, about {restore_words(at.restore_ms)}"]
            return ["reading prompt"]
        done, total = at.progress
        parts = [f"reading prompt {done:,} / {total:,}"]
        if at.seconds_left is not None:
            parts.append(time_left(at.seconds_left))
        return parts

    def holds(self, session_id: str, saved_tokens: int = 0) -> bool:
        """Whether any of the session has ever been computed."""
        return self._context(session_id, saved_tokens)[0] > 0

    def right(self, session_id: str, saved_tokens: int = 0) -> str:
        """How full the session's context is; `saved_tokens` is what its last turn took, before any event
        told.
        """
        return context_words(*self._context(session_id, saved_tokens))

    def right_forms(self, session_id: str, saved_tokens: int = 0) -> list[str]:
        """The same with a bar, and shorter forms of it."""
        tokens, n_ctx = self._context(session_id, saved_tokens)
        words = context_words(tokens, n_ctx)
        if n_ctx <= 0:
            return [words]
        return [
            f"{bar(tokens / n_ctx)} {words}",
            words,
            f"{bar(tokens / n_ctx, 4)} {100 * tokens / n_ctx:.0f}%",
        ]

    def _context(self, session_id: str, saved_tokens: int) -> tuple[int, int]:
        at = self.of(session_id)
        return saved_tokens if at.tokens is None else at.tokens, at.n_ctx or self.engine.n_ctx
