"""What `benchmarks/soak.py` says of the bytes that were written."""

from __future__ import annotations

from benchmarks.soak_parts.spans import Parts, Row, parts

ROW = 100


def span(session: str, name: str, start: int, end: int) -> Row:
    return session, name, start, end, (end - start) * ROW + 7


def test_rows_that_stand_in_two_files_of_a_chat_are_told_apart() -> None:
    chain = [span("a", "a1", 0, 40), span("a", "a2", 40, 50)]
    assert parts(chain, ROW, 5100) == Parts(once=5000, again=0, around=14, beside=86)
    anew = [*chain, span("b", "b1", 0, 30), span("b", "b2", 0, 45)]
    assert parts(anew, ROW, 12600) == Parts(once=5000 + 4500, again=3000, around=28, beside=72)


def test_what_a_fork_shares_with_its_source_counts_once() -> None:
    rows = [span("a", "a1", 0, 40), span("b", "a1", 0, 40), span("b", "b2", 40, 45), span("a", "a2", 40, 60)]
    assert parts(rows, ROW, 6521) == Parts(once=6500, again=0, around=21, beside=0)
