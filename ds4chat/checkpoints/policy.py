"""Where spans end, and which of them go when the store is full.

Promises plain arithmetic: integers and floats in, lists out, the same answer for the same arguments. It must
know neither clock nor file nor engine. Lengths and ends are in tokens, sizes in bytes, ages in seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace

from ds4chat.checkpoints.reason import Reason
from ds4chat.errors import UsageError

SYSTEM_MIN_TOKENS = 64
"""A system block shorter than this is prefilled again sooner than a file of its own pays."""

MAX_GROWN_INTERVAL_TOKENS = 8_192
"""How far the interval grows for models whose spans have a fixed cost: what a power cut may lose at most."""

MAX_TOKENS = 2**31 - 1
"""llama.cpp counts positions in 32-bit signed integers."""

FORGOTTEN_HITS = 0.01
"""Hits decayed below this count as none, so that age alone decides between spans nobody came back to."""

SLACK = 0.01
"""Share of the budget by which the store may exceed it before anything is deleted; see `victims`."""


@dataclass(frozen=True)
class Policy:
    """When spans are stored. All defaults are for a span that costs only its own rows.

    Attributes:
        min_tokens: shortest first prompt that is stored cold; never gates a lookup or a tail.
        cold_max_tokens: aligned frontiers of a first prompt past this count as `continued`.
        interval_tokens: distance of `continued` spans, before rounding up to `align_tokens`.
        trim_tokens: tokens kept off the end of a cold prompt, where the next one is likely to differ.
        align_tokens: what cold frontiers are multiples of.
        half_life_seconds: time in which the hits of a span lose half of their weight.

    Raises `UsageError`, with one sentence naming the option, for a value out of range.
    """

    min_tokens: int = 512
    cold_max_tokens: int = 30_000
    interval_tokens: int = 512
    trim_tokens: int = 32
    align_tokens: int = 512
    half_life_seconds: float = 21_600.0

    def __post_init__(self) -> None:
        _check_tokens("--kv-cache-min-tokens", self.min_tokens, 1)
        _check_tokens("--kv-cache-cold-max-tokens", self.cold_max_tokens, 0)
        _check_tokens("--kv-cache-continued-interval-tokens", self.interval_tokens, 1)
        _check_tokens("--kv-cache-boundary-trim-tokens", self.trim_tokens, 0)
        _check_tokens("--kv-cache-boundary-align-tokens", self.align_tokens, 1)
        if not (math.isfinite(self.half_life_seconds) and self.half_life_seconds > 0):
            raise UsageError(
                "hit_half_life_seconds in --kv-options must be a number of seconds above 0, "
                f"not {self.half_life_seconds}."
            )

    @property
    def interval(self) -> int:
        """Distance of `continued` frontiers in tokens: `interval_tokens` rounded up to a multiple of
        `align_tokens`."""
        return -(-self.interval_tokens // self.align_tokens) * self.align_tokens

    def for_model(self, fixed_bytes: int, bytes_per_token: int) -> Policy:
        """This policy, with frontiers apart far enough for a model whose every span costs `fixed_bytes` (a
        recurrent state) on top of `bytes_per_token` of KV rows: the interval grows until the rows weigh as
        much as that.

        The alignment grows with it, so that cold frontiers lie no closer. `MAX_GROWN_INTERVAL_TOKENS` is the
        limit where there are few rows or none; an interval the user set larger stays.
        """
        if fixed_bytes <= 0:
            return self
        wanted = -(-fixed_bytes // bytes_per_token) if bytes_per_token > 0 else MAX_GROWN_INTERVAL_TOKENS
        wanted = min(wanted, MAX_GROWN_INTERVAL_TOKENS)
        if wanted <= self.interval:
            return self
        grown = -(-wanted // self.align_tokens) * self.align_tokens
        return replace(self, interval_tokens=grown, align_tokens=grown)


def _check_tokens(option: str, value: int, least: int) -> None:
    if not least <= value <= MAX_TOKENS:
        raise UsageError(
            f"{option} must be a whole number of tokens from {least} to {MAX_TOKENS}, not {value}."
        )


# ---- where spans end ---------------------------------------------------------------------------------------


def store_len(n: int, policy: Policy) -> int:
    """How many of a first prompt's `n` tokens are worth storing before generation (after ds4): `n` less the
    trim, floored to the alignment; all `n` where that leaves less than `min_tokens`."""
    if n > policy.min_tokens + policy.trim_tokens:
        aligned = (n - policy.trim_tokens) // policy.align_tokens * policy.align_tokens
        if aligned >= policy.min_tokens:
            return aligned
    return n


def is_continued_frontier(length: int, policy: Policy) -> bool:
    """Whether a live state of `length` tokens is at an absolute multiple of the interval."""
    return length > 0 and length % policy.interval == 0


def frontiers(
    start: int,
    n: int,
    policy: Policy,
    system_end: int = 0,
    cold: bool = False,
    rewindable: bool = True,
) -> list[tuple[int, Reason]]:
    """Where spans are stored while tokens `start..n-1` of a prompt are prefilled: `(end, reason)`, ascending.

    No end reaches `n`: the last token stays pending, since a stored state holds no logits. Where several
    reasons meet
    in one end the one that makes it an anchor wins: cold, then prompt, then continued.

    Args:
        start: tokens live already.
        n: length of the prompt.
        system_end: where the system block ends, 0 without one.
        cold: this is the session's first prompt of at least `min_tokens` (shorter ones are not stored cold).
        rewindable: the model's state can be cut back to any length.
    """
    last = n - 1
    reasons: dict[int, Reason] = {}
    for end in _multiples(policy.interval, start, last):
        reasons[end] = Reason.CONTINUED
    if cold:
        for end in _cold_frontiers(start, n, policy):
            if end <= policy.cold_max_tokens:
                reasons[end] = Reason.COLD
            else:
                reasons.setdefault(end, Reason.CONTINUED)
    if not rewindable and last > start and reasons.get(last) is not Reason.COLD:
        reasons[last] = Reason.PROMPT
    if cold and n >= policy.min_tokens and system_end >= SYSTEM_MIN_TOKENS and start < system_end <= last:
        reasons[system_end] = Reason.COLD
    return sorted(reasons.items())


def batch_ends(
    start: int,
    n: int,
    batch_tokens: int,
    policy: Policy,
    system_end: int = 0,
    cold: bool = False,
) -> list[int]:
    """Where the prefill batches of tokens `start..n-1` end, ascending, the last one at `n`.

    They do not depend on whether anything is stored, because other batch shapes give other floats: a run
    without checkpoints computes the same numbers. Every end that `frontiers` can give is among them, whatever
    `rewindable` is. Cuts are absolute (multiples of `batch_tokens` and of the interval), so that two prompts
    with a common prefix share its batches. The prompt's last token is always decoded alone: its logits are
    then the same after a restore to `n - 1`. No batch is longer than `batch_tokens`, which must be positive.
    """
    if batch_tokens < 1:
        raise ValueError(f"a batch needs at least one token, not {batch_tokens}")
    if start >= n:
        return []
    last = n - 1
    ends = {n}
    ends.update(_multiples(batch_tokens, start, last))
    ends.update(_multiples(policy.interval, start, last))
    if system_end >= SYSTEM_MIN_TOKENS and start < system_end <= last:
        ends.add(system_end)
    if cold:
        ends.update(_cold_frontiers(start, n, policy))
    if last > start:
        ends.add(last)
    return sorted(ends)


def _cold_frontiers(start: int, n: int, policy: Policy) -> list[int]:
    """Multiples of the alignment up to `store_len(n)`, and that length itself (`n - 1` where it is all of
    `n`)."""
    if n < policy.min_tokens:
        return []
    target = min(store_len(n, policy), n - 1)
    ends = list(_multiples(policy.align_tokens, start, target))
    if target > start and (not ends or ends[-1] != target):
        ends.append(target)
    return ends


def _multiples(step: int, after: int, upto: int) -> range:
    """Multiples of `step` in `(after, upto]`."""
    return range((after // step + 1) * step, upto + 1, step)


# ---- what a span is worth ----------------------------------------------------------------------------------


def ds4_score(hits: int, tokens: int, nbytes: int) -> float:
    """The score of ds4's disk cache, `(hits + 1) * tokens / bytes`: for comparison only."""
    return (hits + 1) * tokens / max(nbytes, 1)


def effective_hits(hits: int, age_seconds: float, half_life_seconds: float) -> float:
    """`hits`, halved for every half-life since the last use; 0 below `FORGOTTEN_HITS`. A clock that went back
    counts as no age."""
    decayed = hits * 0.5 ** (max(age_seconds, 0.0) / half_life_seconds)
    return decayed if decayed >= FORGOTTEN_HITS else 0.0


def span_value(hits: float, cost_us_per_token: int, tokens: int, nbytes: int, anchor: bool) -> float:
    """Prefill time a span may save for a byte of disk: microseconds a byte, twice that for anchors.

    `hits` are effective hits. A span of unknown cost (0) counts as one microsecond a token.
    """
    saved = (hits + 1.0) * max(cost_us_per_token, 1) * max(tokens, 1)
    return saved / max(nbytes, 1) * (2.0 if anchor else 1.0)


def value_class(value: float) -> int:
    """The power of two at or below a positive value: spans in one class are equally worth keeping, and the
    last use decides among them."""
    return math.floor(math.log2(value))


# ---- what goes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """What eviction knows of one file.

    Attributes:
        id: names the file; any hashable value.
        parent: id of the span it continues, None at the root. It need not be among the entries.
        nbytes: the file's size.
        age_seconds: time since the last use.
        usable: this build can restore it: format, payload and the whole chain up to it.
        pinned: neither this span nor any it stands on may go.
        expendable: only chats that were deleted stand on it.
    """

    id: Hashable
    parent: Hashable | None
    nbytes: int
    tokens: int
    hits: int
    age_seconds: float
    cost_us_per_token: int
    reason: Reason
    usable: bool = True
    pinned: bool = False
    expendable: bool = False


def fits_budget(nbytes: int, budget_bytes: int) -> bool:
    """Whether a file of this size may be stored at all; a budget of 0 is no limit."""
    return budget_bytes == 0 or nbytes <= budget_bytes


def over_budget(total_bytes: int, budget_bytes: int, slack: float = SLACK) -> bool:
    """Whether so many bytes call for an eviction: more than the budget and its slack of 1%."""
    return budget_bytes != 0 and total_bytes > budget_bytes * (1.0 + slack)


def victims(
    entries: Collection[Entry],
    need_bytes: int,
    budget_bytes: int,
    protected: Iterable[Hashable] = (),
    half_life_seconds: float = 21_600.0,
    slack: float = SLACK,
) -> list[Hashable]:
    """Which files to delete, in order, so that `need_bytes` more fit; empty when they fit as it is.

    The slack keeps a full store from evicting one span for each it stores: nothing goes until all files and
    `need_bytes` exceed the budget by more than 1%, then they go until the budget itself holds. The list is
    shorter than needed when what is left must stay.

    What this build cannot use goes first; then what is expendable, whatever it is worth; then the lower
    `value_class`, then what was used longest ago. A span goes only after all of its children. The `protected`
    ids, pinned entries, and all spans these stand on, stay.
    """
    total = sum(entry.nbytes for entry in entries) + need_bytes
    if not over_budget(total, budget_bytes, slack):
        return []
    by_id = {entry.id: entry for entry in entries}
    kept = _with_ancestors([*protected, *(entry.id for entry in entries if entry.pinned)], by_id)

    children: dict[Hashable, int] = {}
    for entry in entries:
        if entry.parent in by_id:
            children[entry.parent] = children.get(entry.parent, 0) + 1

    order = {
        entry.id: (*_rank(entry, half_life_seconds), position)
        for position, entry in enumerate(entries)
        if entry.id not in kept
    }
    heap = [(order[id_], id_) for id_ in order if not children.get(id_)]
    heapq.heapify(heap)
    chosen: list[Hashable] = []
    while heap and total > budget_bytes:
        _, id_ = heapq.heappop(heap)
        entry = by_id[id_]
        chosen.append(id_)
        total -= entry.nbytes
        if entry.parent in by_id:
            children[entry.parent] -= 1
            if children[entry.parent] == 0 and entry.parent in order:
                heapq.heappush(heap, (order[entry.parent], entry.parent))
    return chosen


def _rank(entry: Entry, half_life_seconds: float) -> tuple[bool, bool, int, float]:
    """Sorts what goes first to the front."""
    hits = effective_hits(entry.hits, entry.age_seconds, half_life_seconds)
    value = span_value(hits, entry.cost_us_per_token, entry.tokens, entry.nbytes, entry.reason.is_anchor)
    return entry.usable, not entry.expendable, value_class(value), -entry.age_seconds


def _with_ancestors(ids: Iterable[Hashable], by_id: dict[Hashable, Entry]) -> set[Hashable]:
    found: set[Hashable] = set()
    for start in ids:
        id_: Hashable | None = start
        while id_ is not None and id_ not in found:
            found.add(id_)
            entry = by_id.get(id_)
            id_ = entry.parent if entry is not None else None
    return found
