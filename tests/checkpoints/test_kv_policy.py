"""Where spans end: golden numbers, and what must hold for any prompt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.checkpoints.policy import (
    SYSTEM_MIN_TOKENS,
    Policy,
    batch_ends,
    frontiers,
    is_continued_frontier,
    store_len,
)
from ds4chat.checkpoints.reason import Reason
from ds4chat.errors import UsageError

DS4 = Policy(min_tokens=512, trim_tokens=32, align_tokens=2048)

policies = st.builds(
    Policy,
    min_tokens=st.integers(1, 600),
    cold_max_tokens=st.integers(0, 3000),
    interval_tokens=st.integers(16, 900),
    trim_tokens=st.integers(0, 64),
    align_tokens=st.integers(16, 700),
)
prompts = st.integers(0, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(0, n)))


@pytest.mark.parametrize(
    ("n", "policy", "length"),
    [
        (11011, DS4, 10240),
        (1695, DS4, 1695),
        (3500, Policy(align_tokens=1000, trim_tokens=0), 3000),
        (544, Policy(), 544),
        (545, Policy(), 512),
        (100, Policy(), 100),
        (1056, Policy(), 1024),
        (1055, Policy(), 512),
    ],
)
def test_store_len_golden_numbers(n: int, policy: Policy, length: int) -> None:
    assert store_len(n, policy) == length


@settings(deadline=None)
@given(st.integers(0, 50_000), policies)
def test_store_len_is_all_or_an_aligned_length_behind_the_trim(n: int, policy: Policy) -> None:
    length = store_len(n, policy)
    if length != n:
        assert length % policy.align_tokens == 0
        assert policy.min_tokens <= length <= n - policy.trim_tokens


@pytest.mark.parametrize(
    ("interval", "align", "effective"), [(512, 512, 512), (10_000, 2048, 10_240), (1, 512, 512)]
)
def test_interval_is_rounded_up_to_the_alignment(interval: int, align: int, effective: int) -> None:
    policy = Policy(interval_tokens=interval, align_tokens=align)
    assert policy.interval == effective
    assert is_continued_frontier(effective, policy)
    assert is_continued_frontier(3 * effective, policy)
    assert not is_continued_frontier(effective - 1, policy)
    assert not is_continued_frontier(0, policy)


def test_cold_prompt_has_its_system_block_and_aligned_frontiers() -> None:
    assert frontiers(0, 1600, Policy(), system_end=100, cold=True) == [
        (100, Reason.COLD),
        (512, Reason.COLD),
        (1024, Reason.COLD),
        (1536, Reason.COLD),
    ]


def test_what_is_live_already_is_not_stored_again() -> None:
    assert frontiers(512, 1600, Policy(), system_end=100, cold=True) == [
        (1024, Reason.COLD),
        (1536, Reason.COLD),
    ]


def test_short_system_block_has_no_span() -> None:
    ends = dict(frontiers(0, 1600, Policy(), system_end=SYSTEM_MIN_TOKENS - 1, cold=True))
    assert SYSTEM_MIN_TOKENS - 1 not in ends
    assert SYSTEM_MIN_TOKENS in dict(frontiers(0, 1600, Policy(), system_end=SYSTEM_MIN_TOKENS, cold=True))


def test_a_prompt_below_min_tokens_is_not_cold() -> None:
    assert frontiers(0, 511, Policy(), system_end=100, cold=True) == []
    assert frontiers(0, 512, Policy(), system_end=100, cold=True) == [(100, Reason.COLD), (511, Reason.COLD)]


def test_frontiers_past_cold_max_are_continued() -> None:
    policy = Policy(cold_max_tokens=1024)
    assert frontiers(0, 1600, policy, cold=True) == [
        (512, Reason.COLD),
        (1024, Reason.COLD),
        (1536, Reason.CONTINUED),
    ]


def test_a_later_prompt_is_continued_and_on_models_without_rewind_its_end_is_stored() -> None:
    assert frontiers(500, 1100, Policy(), system_end=100) == [
        (512, Reason.CONTINUED),
        (1024, Reason.CONTINUED),
    ]
    assert frontiers(500, 1100, Policy(), rewindable=False)[-1] == (1099, Reason.PROMPT)


def test_an_anchor_wins_where_reasons_meet() -> None:
    assert frontiers(0, 1025, Policy(), rewindable=False) == [(512, Reason.CONTINUED), (1024, Reason.PROMPT)]
    assert frontiers(0, 513, Policy(), cold=True, rewindable=False) == [(512, Reason.COLD)]


@settings(deadline=None)
@given(prompts, policies, st.integers(1, 700), st.booleans(), st.booleans())
def test_every_frontier_is_a_batch_end_and_no_batch_is_too_long(
    prompt: tuple[int, int, int], policy: Policy, batch: int, cold: bool, rewindable: bool
) -> None:
    start, n, system_end = prompt
    ends = batch_ends(start, n, batch, policy, system_end, cold)
    stored = frontiers(start, n, policy, system_end, cold, rewindable)
    assert {end for end, _ in stored} <= set(ends)
    assert [end for end, _ in stored] == sorted({end for end, _ in stored})
    assert all(start < end < n for end, _ in stored)
    if start == n:
        assert ends == []
        return
    assert ends[-1] == n
    assert ends == sorted(set(ends))
    assert all(0 < b - a <= batch for a, b in zip([start, *ends], ends, strict=False))
    assert ends[-2:-1] in ([], [n - 1])


@settings(deadline=None)
@given(prompts, policies, st.integers(1, 700))
def test_batches_behind_a_cut_do_not_depend_on_where_prefill_began(
    prompt: tuple[int, int, int], policy: Policy, batch: int
) -> None:
    start, n, system_end = prompt
    whole = batch_ends(0, n, batch, policy, system_end)
    assert batch_ends(start, n, batch, policy, system_end) == [end for end in whole if end > start]


def test_a_batch_needs_a_token() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        batch_ends(0, 5, 0, Policy())


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("min_tokens", 0, "--kv-cache-min-tokens"),
        ("cold_max_tokens", -1, "--kv-cache-cold-max-tokens"),
        ("interval_tokens", 0, "--kv-cache-continued-interval-tokens"),
        ("trim_tokens", -5, "--kv-cache-boundary-trim-tokens"),
        ("align_tokens", 2**31, "--kv-cache-boundary-align-tokens"),
        ("half_life_seconds", 0.0, "hit_half_life_seconds"),
        ("half_life_seconds", float("nan"), "hit_half_life_seconds"),
    ],
)
def test_a_value_out_of_range_names_its_option(field: str, value: float, option: str) -> None:
    with pytest.raises(UsageError, match=option) as error:
        Policy(**{field: value})  # type: ignore[arg-type]
    assert str(value) in str(error.value)


def test_the_interval_grows_until_a_fixed_cost_is_no_more_than_the_rows() -> None:
    policy = Policy()
    assert policy.for_model(0, 1000) is policy
    assert policy.for_model(500_000, 1000) is policy
    grown = policy.for_model(1_000_000, 1000)
    assert grown.interval == grown.align_tokens == 1024
    assert policy.for_model(10**7, 0).interval == 8192
    wide = Policy(interval_tokens=20_000)
    assert wide.for_model(10**9, 0) is wide
