"""What of a session still fits in the context, and what falls out when it is full. Pure: plain numbers.

Positions in the cache are never shifted, so letting turns fall out means computing what stays once more. That
is why it happens rarely and then generously: above `FULL_PERCENT` whole turns go, oldest first, until
`ROOM_PERCENT` is reached.
"""

from __future__ import annotations

from collections.abc import Sequence

FULL_PERCENT = 85
"""Above this share of the context turns fall out. The remaining 15% is room for the reply that is being asked
for: 600 tokens of a context of 4,096."""

WARN_PERCENT = 75
"""From this share of the context on it is said that turns will fall out: a turn or two before they do."""

ROOM_PERCENT = 50
"""Turns fall out down to this share: the prefill of what stays buys a third of the context."""


def is_full(tokens: int, n_ctx: int) -> bool:
    """Whether `tokens` take more than `FULL_PERCENT` of a context of `n_ctx` tokens."""
    return tokens * 100 > n_ctx * FULL_PERCENT


def is_nearly_full(tokens: int, n_ctx: int) -> bool:
    """Whether `tokens` take `WARN_PERCENT` of a context of `n_ctx` tokens or more."""
    return tokens * 100 >= n_ctx * WARN_PERCENT > 0


def plan(
    message_tokens: Sequence[int], roles: Sequence[str], n_ctx: int, *, prompt_tokens: int | None = None
) -> int:
    """The index of the first message that stays in the window, the system prompt aside.

    A system prompt at index 0 always stays and is never the answer: while nothing falls out the answer is 1
    behind one, else 0. A turn is a user's message and what follows it up to the next user's message; replies
    before the first user's message are one, too. Once something falls out the answer is a user's message: the
    first from which the prompt takes at most `ROOM_PERCENT` of the context, or the last user's message when
    none does. Without a user's message nothing falls out.

    Args:
        message_tokens: tokens each message takes with its markers.
        roles: of the same messages: "system" (index 0 only), "user", "assistant".
        n_ctx: context length, tokens.
        prompt_tokens: what the engine counted for the whole prompt. What that is above the sum (the opening
            of the reply, text the template adds) stays whatever falls out. The sum itself when None.

    Raises:
        ValueError: the two sequences differ in length, or a length is negative.
    """
    if len(message_tokens) != len(roles):
        raise ValueError(f"{len(message_tokens)} token counts for {len(roles)} messages")
    if n_ctx < 0 or any(n < 0 for n in message_tokens):
        raise ValueError("token counts must not be negative")
    first = 1 if roles and roles[0] == "system" else 0
    total = sum(message_tokens)
    used = total if prompt_tokens is None else max(total, prompt_tokens)
    if not is_full(used, n_ctx):
        return first
    starts = [i for i in range(first, len(roles)) if roles[i] == "user"]
    if not starts:
        return first
    at = first
    for start in starts:
        used -= sum(message_tokens[at:start])
        at = start
        if used * 100 <= n_ctx * ROOM_PERCENT:
            break
    return at


def turns_between(roles: Sequence[str], start: int, end: int) -> int:
    """How many turns lie in `[start, end)`: its user messages, and one more if it opens with a reply."""
    part = roles[max(0, start) : end]
    opens_with_reply = bool(part) and part[0] == "assistant"
    return sum(role == "user" for role in part) + opens_with_reply
