"""The sentences under messages and in the status line: pure, from the chat's state to words."""

from __future__ import annotations

from collections.abc import Mapping

from ds4chat.sessions.events import EngineStatus
from ds4chat.sessions.session import UNFINISHED, Message

CONTINUE_KEY = "Ctrl+G"

_STATES = {
    "stopped": "stopped",
    "cut": "cut off",
    "length": "stopped at the length limit",
}


def stats_line(stats: Mapping[str, float | int | str]) -> str:
    """The measures of a reply in a few words: "12 tokens · 84 tok/s · 412 cached"."""
    generated = int(stats.get("generated_tokens", 0) or 0)
    if not generated:
        return ""
    parts = [f"{generated:,} token" + ("s" if generated != 1 else "")]
    ms = float(stats.get("generate_ms", 0) or 0)
    if ms > 0:
        rate = 1000 * generated / ms
        parts.append(f"{rate:.0f} tok/s" if rate >= 10 else f"{rate:.1f} tok/s")
    if cached := int(stats.get("cached_tokens", 0) or 0):
        parts.append(f"{cached:,} cached")
    return " · ".join(parts)


def count_words(words: int) -> str:
    """ "1 word", "1,204 words"."""
    return f"{words:,} word" + ("s" if words != 1 else "")


def thought_words(words: int, seconds: float | None, *, growing: bool, closed: bool) -> str:
    """The line of a folded thought: "thought for 4 s, 212 words".

    Args:
        seconds: it took so far, None when nobody watched.
        growing: the model is still at it.
        closed: the model said that it was done.
    """
    many = count_words(words)
    if growing:
        return f"thinking… {duration(seconds)}, {many}" if seconds is not None else f"thinking… {many}"
    said = f"thought for {duration(seconds)}, {many}" if seconds is not None else f"thought, {many}"
    return said if closed else f"{said}, not finished"


def duration(seconds: float) -> str:
    """A span of time in words: "4 s", "2 min 5 s"."""
    whole = max(round(seconds), 1)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def result_words(text: str) -> str:
    """How much a tool said: "empty", "12 characters", "3 lines, 1,204 characters"."""
    if not text:
        return "empty"
    lines, many = text.count("\n") + 1, f"{len(text):,} character{'s' * (len(text) != 1)}"
    return many if lines == 1 else f"{lines:,} lines, {many}"


def tools_line(on: bool) -> str:
    """How it stands with the tools of a chat, and what changes that."""
    if on:
        return "Tools are on in this chat, and each call is asked for. /tools off switches them off."
    return "Tools are off in this chat. /tools on switches them on."


def message_status(
    message: Message,
    *,
    is_last: bool,
    error: str = "",
    ahead: int | None = None,
    progress: tuple[int, int] | None = None,
) -> tuple[str, str]:
    """The line that goes with a message, and its severity.

    Args:
        is_last: it is the message the conversation stands on, so it can be continued.
        error: why its turn failed.
        ahead: turns that go before a queued one.
        progress: prompt tokens computed of those to compute, while its reply waits for them.
    """
    state = message.state
    if state == "failed" or (error and state not in UNFINISHED):
        return (f"failed: {error}" if error else "failed"), "error"
    if message.role == "tool":
        asks = is_last and state == "complete"
        return (f"not answered · {CONTINUE_KEY} answers", "warning") if asks else ("", "information")
    if message.role == "user":
        if state == "queued":
            return (f"queued behind {ahead}" if ahead else "queued"), "information"
        if is_last and state == "complete":
            return f"not answered · {CONTINUE_KEY} answers", "warning"
        return ("not answered" if state in ("stopped", "cut") else ""), "information"
    if state == "streaming":
        if message.text:
            return "writing…", "information"
        return (
            f"reading prompt {progress[0]:,} / {progress[1]:,}" if progress else "reading prompt…"
        ), "information"
    stats = stats_line(message.stats)
    if state in UNFINISHED:
        parts = [_STATES[state], f"{CONTINUE_KEY} continues" if is_last else "", stats]
        return " · ".join(part for part in parts if part), "warning"
    return stats, "information"


def engine_words(engine: EngineStatus) -> str:
    """The engine's state in a few words."""
    if engine.phase == "failed":
        return engine.message or "the engine failed"
    if engine.silent:
        return f"{engine.model or 'the engine'} does not answer · Esc starts it anew"
    if engine.phase == "ready":
        name = engine.model or "ready"
        return f"{name} at {engine.place}" if engine.place else name
    if engine.phase == "off":
        return "engine off"
    if engine.place:
        return f"connecting to {engine.place}"
    name = engine.model or "model"
    return (
        f"starting {name}" if engine.phase == "starting" else f"loading {name} {100 * engine.progress:.0f}%"
    )


def context_words(tokens: int, n_ctx: int) -> str:
    """How full the context is: "1,204 / 8,192 · 15%"."""
    if n_ctx <= 0:
        return f"{tokens:,} tokens" if tokens else ""
    return f"{tokens:,} / {n_ctx:,} · {100 * tokens / n_ctx:.0f}%"


def age(seconds: float) -> str:
    """A span of time in two or three characters: "now", "5m", "3h", "12d", "2y"."""
    for limit, size, unit in (
        (60, 0, "now"),
        (3600, 60, "m"),
        (86_400, 3600, "h"),
        (31_536_000, 86_400, "d"),
    ):
        if seconds < limit:
            return f"{seconds // size:.0f}{unit}" if size else unit
    return f"{seconds // 31_536_000:.0f}y"


def placeholder(engine: EngineStatus, *, busy: bool, read_only: bool) -> str:
    """What the empty prompt box says."""
    if read_only:
        return "Read only: open in another ds4chat. F5 goes on in a copy"
    if engine.phase == "failed":
        return "The engine is not running. What you write is kept"
    if busy:
        return "Write on while the reply comes. Esc stops it"
    if engine.phase != "ready":
        return "Write already: messages wait for the model"
    return "Write a message. Enter sends, Ctrl+J starts a new line"
