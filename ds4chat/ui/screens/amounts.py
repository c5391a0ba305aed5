"""Numbers in the panels as people say them: sizes, lengths, what a change will cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ds4chat.sessions.session import Message


def size_words(nbytes: int) -> str:
    """Bytes in at most four digits: "92 MB", "4.1 GB"; decimal, as disks are sold."""
    value, unit = float(nbytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 9.95 and unit not in ("B", "kB") else f"{value:.0f} {unit}"


def tokens_words(tokens: int) -> str:
    """A length in at most four characters and a letter: "812", "8k", "131k"."""
    if tokens < 1000:
        return str(tokens)
    if tokens % 1024 == 0:
        return f"{tokens // 1024}k"
    return f"{tokens / 1000:.1f}k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"


def seconds_words(seconds: float) -> str:
    """ "under 1 s", "12 s", "3 min"."""
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def prefill_rate(messages: Iterable[Message]) -> float:
    """Tokens a second that prompts of these messages were computed with, 0 when nothing was measured."""
    tokens = ms = 0.0
    for message in messages:
        done, took = (message.stats.get(key, 0) for key in ("prefilled_tokens", "prefill_ms"))
        if isinstance(done, int | float) and isinstance(took, int | float) and done > 0 and took > 0:
            tokens, ms = tokens + done, ms + took
    return 1000 * tokens / ms if ms else 0.0


def recompute_words(tokens: int, rate: float) -> str:
    """What a change costs that the stored state of a chat does not survive, "" when there is nothing of it."""
    if tokens <= 0:
        return ""
    about = f", about {seconds_words(tokens / rate)}" if rate > 0 else ""
    unit = "token" if tokens == 1 else "tokens"
    return f"{tokens:,} {unit} of this chat will be computed again{about}."


def bar(part: float, width: int) -> str:
    """A bar of that many cells, filled to a part from 0 to 1; anything above nothing shows."""
    filled = min(max(round(part * width), 1 if part > 0 else 0), width)
    return "█" * filled + "░" * (width - filled)
