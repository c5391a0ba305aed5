"""What falls out of a full context."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ds4chat.sessions.window import FULL_PERCENT, ROOM_PERCENT, is_full, plan, turns_between

PAIR = ["user", "assistant"]


@pytest.mark.parametrize(
    ("used", "full"),
    [(850, False), (851, True), (0, False), (1000, True)],
    ids=["85%", "above", "none", "all"],
)
def test_is_full_only_above_85_percent(used: int, full: bool) -> None:
    assert is_full(used, 1000) is full


def test_nothing_falls_out_at_85_percent() -> None:
    assert plan([450, 400], PAIR, 1000) == 0
    assert plan([50, 400, 400], ["system", *PAIR], 1000) == 1


def test_whole_turns_fall_out_down_to_half_the_context() -> None:
    roles = ["system", *PAIR * 4, "user"]
    assert (
        plan([100] * 10, roles, 1000) == 7
    )  # the system prompt and two turns: 400; with one more it would be 600


def test_exactly_half_is_little_enough() -> None:
    assert plan([300, 100, 300, 200], PAIR * 2, 1000) == 2


def test_the_last_user_message_stays_however_long_it_is() -> None:
    assert plan([10, 10, 5000], [*PAIR, "user"], 1000) == 2
    assert plan([5000], ["user"], 1000) == 0
    assert plan([5000, 700, 10], ["system", *PAIR], 1000) == 1


def test_the_last_turns_reply_stays_with_it() -> None:
    assert plan([10, 10, 20, 5000], PAIR * 2, 1000) == 2


def test_unanswered_messages_are_turns_of_their_own() -> None:
    assert plan([400, 300, 300], ["user"] * 3, 1000) == 2


def test_replies_before_the_first_user_message_can_fall_out() -> None:
    assert plan([600, 200, 100], ["assistant", "user", "assistant"], 1000) == 1


def test_what_the_template_adds_counts_and_stays() -> None:
    tokens, roles = [200, 200, 200, 200, 40], [*PAIR, *PAIR, "user"]
    assert plan(tokens, roles, 1000) == 0
    assert plan(tokens, roles, 1000, prompt_tokens=860) == 2
    assert plan(tokens, roles, 1000, prompt_tokens=920) == 4  # 80 that stay: 520 would be left after one turn


def test_nothing_to_let_fall_out() -> None:
    assert plan([], [], 1000) == 0
    assert plan([2000], ["system"], 1000) == 1
    assert plan([2000], ["assistant"], 1000) == 0


@pytest.mark.parametrize(
    ("tokens", "roles", "n_ctx"), [([1], [], 10), ([-1], ["user"], 10), ([1], ["user"], -1)]
)
def test_nonsense_is_refused(tokens: list[int], roles: list[str], n_ctx: int) -> None:
    with pytest.raises(ValueError):
        plan(tokens, roles, n_ctx)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[int], list[str]]:
    roles = draw(st.lists(st.sampled_from(PAIR), max_size=30))
    if draw(st.booleans()):
        roles = ["system", *roles]
    return [draw(st.integers(0, 500)) for _ in roles], roles


@given(conversations(), st.integers(0, 8000))
def test_what_plan_promises(conversation: tuple[list[int], list[str]], n_ctx: int) -> None:
    tokens, roles = conversation
    first = plan(tokens, roles, n_ctx)
    begin = 1 if roles[:1] == ["system"] else 0
    users = [i for i, role in enumerate(roles) if role == "user"]
    left = sum(tokens[:begin]) + sum(tokens[first:])
    assert begin <= first <= max(begin, len(roles) - 1)
    if not is_full(sum(tokens), n_ctx) or not users:
        assert first == begin
        return
    assert roles[first] == "user"
    if first != users[-1]:
        assert left * 100 <= n_ctx * ROOM_PERCENT
    # Not more than needed fell out: with the turn before it would have been too much.
    earlier = [i for i in users if i < first]
    if earlier:
        assert (left + sum(tokens[earlier[-1] : first])) * 100 > n_ctx * ROOM_PERCENT


@given(conversations(), st.integers(1, 8000))
def test_planning_what_is_left_changes_nothing_once_it_fits(
    conversation: tuple[list[int], list[str]], n_ctx: int
) -> None:
    tokens, roles = conversation
    first = plan(tokens, roles, n_ctx)
    begin = 1 if roles[:1] == ["system"] else 0
    tokens, roles = tokens[:begin] + tokens[first:], roles[:begin] + roles[first:]
    assume(sum(tokens) * 100 <= n_ctx * FULL_PERCENT)
    assert plan(tokens, roles, n_ctx) == begin


def test_turns_between_counts_what_fell_out() -> None:
    roles = ["system", *PAIR * 3, "user"]
    assert turns_between(roles, 1, 1) == 0
    assert turns_between(roles, 1, 5) == 2
    assert turns_between(roles, 1, 8) == 4
    assert turns_between(["assistant", "user", "assistant", "user"], 0, 3) == 2
