"""What goes when the store is full: values, ties and the order of a tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.checkpoints.policy import (
    Entry,
    ds4_score,
    effective_hits,
    fits_budget,
    over_budget,
    span_value,
    value_class,
    victims,
)
from ds4chat.checkpoints.reason import Reason

HOUR = 3600.0
DAY = 24 * HOUR


def entry(id_: str, parent: str | None = None, **changes: object) -> Entry:
    fields: dict[str, object] = {
        "id": id_,
        "parent": parent,
        "nbytes": 1000,
        "tokens": 100,
        "hits": 0,
        "age_seconds": 0.0,
        "cost_us_per_token": 1000,
        "reason": Reason.CONTINUED,
    }
    return Entry(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hits", "tokens", "nbytes", "score"), [(0, 512, 1024, 0.5), (3, 100, 200, 2.0), (9, 1000, 100, 100.0)]
)
def test_ds4_score_golden_numbers(hits: int, tokens: int, nbytes: int, score: float) -> None:
    assert ds4_score(hits, tokens, nbytes) == score


def test_hits_halve_every_half_life_and_are_forgotten_below_a_hundredth() -> None:
    assert effective_hits(8, 0, 6 * HOUR) == 8
    assert effective_hits(8, 6 * HOUR, 6 * HOUR) == 4
    assert effective_hits(8, 18 * HOUR, 6 * HOUR) == 1
    assert effective_hits(1, 6 * 6 * HOUR, 6 * HOUR) == pytest.approx(1 / 64)
    assert effective_hits(1, 7 * 6 * HOUR, 6 * HOUR) == 0
    assert effective_hits(2**32 - 1, 10 * 365 * DAY, 6 * HOUR) == 0
    assert effective_hits(5, -100, 6 * HOUR) == 5


def test_value_is_time_saved_for_a_byte_twice_that_for_anchors() -> None:
    assert span_value(0, 1000, 100, 1000, anchor=False) == 100
    assert span_value(1, 1000, 100, 1000, anchor=False) == 200
    assert span_value(0, 1000, 100, 1000, anchor=True) == 200
    assert value_class(100) == value_class(127) == 6
    assert value_class(128) == 7
    assert value_class(span_value(0, 0, 0, 0, anchor=False)) == 0


def test_nothing_goes_within_the_slack_and_then_all_that_is_over() -> None:
    entries = [entry("a", age_seconds=3), entry("b", age_seconds=2), entry("c", age_seconds=1)]
    assert victims(entries, 30, 3000) == []
    assert victims(entries, 31, 3000) == ["a"]
    assert victims(entries, 1100, 3000) == ["a", "b"]
    assert victims(entries, 10**9, 0) == []
    assert over_budget(1010, 1000) is False
    assert over_budget(1011, 1000) is True


def test_decayed_hits_tie_break_by_age() -> None:
    entries = [
        entry("new", hits=3, age_seconds=30 * DAY),
        entry("old", hits=9, age_seconds=31 * DAY),
        entry("newest", hits=0, age_seconds=29 * DAY),
    ]
    assert victims(entries, 0, 1) == ["old", "new", "newest"]


def test_hits_that_still_count_beat_age() -> None:
    entries = [entry("hit", hits=7, age_seconds=HOUR), entry("young", age_seconds=1)]
    assert victims(entries, 0, 1000) == ["young"]


def test_a_fresh_short_tail_outlives_a_month_old_span() -> None:
    row = 23_052
    month_old = entry("old", tokens=512, nbytes=512 * row, hits=4, age_seconds=30 * DAY)
    tail = entry("tail", tokens=7, nbytes=7 * row + 200, reason=Reason.IDLE)
    anchor = entry("anchor", tokens=512, nbytes=512 * row, age_seconds=30 * DAY, reason=Reason.COLD)
    tail_again = entry("tail2", tokens=512, nbytes=512 * row, reason=Reason.EVICT)
    assert victims([tail, month_old], 0, 512 * row) == ["old"]
    assert victims([tail_again, anchor], 0, 512 * row) == ["anchor"]


def test_unusable_builds_go_first() -> None:
    entries = [entry("cheap", age_seconds=DAY), entry("dead", hits=99, reason=Reason.COLD, usable=False)]
    assert victims(entries, 0, 1000) == ["dead"]


def test_what_only_deleted_chats_stand_on_goes_before_all_that_is_of_use() -> None:
    entries = [
        entry("forgotten", age_seconds=DAY),
        entry("deleted", hits=99, reason=Reason.COLD, expendable=True),
        entry("shared", hits=99, expendable=True),
        entry("fork", "shared", age_seconds=2 * DAY),
        entry("dead", usable=False),
    ]
    assert victims(entries, 0, 1) == ["dead", "deleted", "fork", "shared", "forgotten"]
    assert victims(entries, 0, 1, protected=["deleted", "fork"]) == ["dead", "forgotten"]


def test_children_go_first() -> None:
    entries = [
        entry("root", age_seconds=9 * DAY),
        entry("mid", "root", age_seconds=8 * DAY),
        entry("leaf", "mid", hits=50),
        entry("other", "root", hits=80),
    ]
    assert victims(entries, 0, 1) == ["leaf", "mid", "other", "root"]


def test_protected_and_pinned_chains_stay_with_all_they_stand_on() -> None:
    entries = [
        entry("root", age_seconds=DAY),
        entry("live", "root", age_seconds=DAY),
        entry("tail", "live"),
        entry("pin-root", age_seconds=DAY),
        entry("pin", "pin-root", age_seconds=DAY, pinned=True),
        entry("stray", hits=100),
    ]
    assert victims(entries, 0, 1, protected=["live"]) == ["tail", "stray"]


def test_an_oversize_store_fits_no_budget() -> None:
    assert fits_budget(1000, 1000)
    assert not fits_budget(1001, 1000)
    assert fits_budget(10**15, 0)


@st.composite
def forests(draw: st.DrawFn) -> list[Entry]:
    entries: list[Entry] = []
    for i in range(draw(st.integers(0, 25))):
        parent = draw(st.none() | st.sampled_from([e.id for e in entries] or ["missing"]))
        entries.append(
            entry(
                f"n{i}",
                parent,  # type: ignore[arg-type]
                nbytes=draw(st.integers(0, 5000)),
                hits=draw(st.integers(0, 10)),
                age_seconds=draw(st.floats(0, 1e7)),
                reason=draw(st.sampled_from(Reason)),
                usable=draw(st.booleans()),
                pinned=draw(st.integers(0, 9)) == 0,
            )
        )
    return draw(st.permutations(entries))


@settings(deadline=None)
@given(forests(), st.integers(0, 5000), st.integers(1, 60_000), st.data())
def test_any_forest_is_cut_from_the_leaves_and_only_as_far_as_needed(
    entries: list[Entry], need: int, budget: int, data: st.DataObject
) -> None:
    by_id = {e.id: e for e in entries}
    protected = data.draw(st.lists(st.sampled_from(sorted(by_id)), max_size=3)) if by_id else []
    chosen = victims(entries, need, budget, protected)
    assert len(chosen) == len(set(chosen))
    gone: set[object] = set()
    for id_ in chosen:
        assert all(e.id in gone for e in entries if e.parent == id_)
        gone.add(id_)
    kept = [*protected, *(e.id for e in entries if e.pinned)]
    for id_ in kept:
        while id_ in by_id:
            assert id_ not in gone
            id_ = by_id[id_].parent
    total = need + sum(e.nbytes for e in entries)
    if not over_budget(total, budget):
        assert chosen == []
    elif chosen:
        left = total - sum(by_id[id_].nbytes for id_ in chosen)
        assert left + by_id[chosen[-1]].nbytes > budget
