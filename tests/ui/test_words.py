"""The pure parts below the screen: text made safe, blocks of Markdown, sentences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ds4chat.sessions.events import (
    ContextUsed,
    EngineChanged,
    EngineStatus,
    PromptProgress,
    TextStreamed,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    TurnStats,
)
from ds4chat.sessions.session import Message
from ds4chat.ui.activity import Activity
from ds4chat.ui.finding import find
from ds4chat.ui.listing import Row
from ds4chat.ui.markdown import LIST_PIECE, take_finished
from ds4chat.ui.text import clip, fit, visible, wrap
from ds4chat.ui.wording import age, context_words, engine_words, message_status, stats_line


@given(st.text())
def test_visible_text_has_nothing_a_terminal_would_obey(text: str) -> None:
    shown = visible(text)
    assert not any((ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert visible(shown) == shown
    shown.encode("utf-8")


@given(st.text(), st.integers(0, 20))
def test_visible_may_be_cut_anywhere(text: str, at: int) -> None:
    assert visible(text[:at]) + visible(text[at:]) == visible(text)


@given(st.text(alphabet="ab \t\n日é👩", max_size=200), st.integers(4, 30))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.text(alphabet="ab日👩 ", max_size=40), st.integers(1, 30))
def test_fit_is_exact(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width
    assert cell_len(clip(text, width)) <= width


MARKDOWN = (
    "# Title\n\nA paragraph\nof two lines.\n\n- one\n- two\n\n  more\n\n```python\na = 1\n\nb = 2\n```\n"
    "> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. x\n2. y\n\nend <b>html</b>\n\n    indented\n\n---\n\nlast"
)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=200))
def test_blocks_of_a_stream_are_those_of_the_whole(steps: list[int]) -> None:
    """However a reply is cut into chunks, its blocks end where they end in the whole text, and nothing is
    lost.
    """
    whole, rest = take_finished(MARKDOWN)
    blocks, live, at = [], "", 0
    for step in [*steps, len(MARKDOWN)]:
        live += MARKDOWN[at : at + step]
        at += step
        finished, live = take_finished(live)
        blocks += finished
    assert "".join(b.source for b in blocks) + live == MARKDOWN
    assert [b.source for b in blocks] == [b.source for b in whole]
    assert live == rest == "last"


def test_an_open_fence_stays_live() -> None:
    blocks, live = take_finished("before\n\n```\n# not a heading\n\n- not a list\n")
    assert [b.source for b in blocks] == ["before\n\n"]
    assert live.startswith("```")


def test_finished_items_of_a_long_list_leave_the_live_block() -> None:
    source = "".join(f"- item {n}\n  - inner\n" for n in range(LIST_PIECE + 1))
    blocks, live = take_finished(source)
    assert [b.joined for b in blocks] == [True]
    assert live == f"- item {LIST_PIECE}\n  - inner\n"
    assert take_finished(source.rsplit("- item", 1)[0])[0] == []


def test_the_status_line_follows_a_turn() -> None:
    activity = Activity(EngineStatus("loading", "M", 0.43))
    assert activity.left("s") == ["loading M 43%"]
    activity.apply(EngineChanged(EngineStatus("ready", "M", 1.0, 8192)), 0)
    activity.apply(TurnQueued("s", 1, 2), 0)
    assert activity.left("s") == ["M", "queued behind 2"]
    activity.apply(TurnStarted("s", 1, 2), 0)
    activity.apply(PromptProgress("s", 1024, 6204), 0)
    assert activity.left("s") == ["M", "reading prompt 1,024 / 6,204"]
    activity.apply(TextStreamed("s", 2, "x"), 1)
    activity.apply(ContextUsed("s", 1000, 8192), 1)
    activity.apply(ContextUsed("s", 1168, 8192), 3)
    assert activity.left("s", elsewhere=1) == ["M", "writing, 84 tok/s", "1 busy elsewhere"]
    assert activity.right("s") == "1,168 / 8,192 · 14%"
    activity.apply(TurnEnded("s", 1, 2, "complete", TurnStats(generated_tokens=10, generate_ms=100)), 4)
    assert activity.left("s") == ["M", "last reply 100 tok/s"]
    assert activity.right("other", 12) == "12 / 8,192 · 0%"


def test_sentences() -> None:
    assert stats_line({"generated_tokens": 12, "generate_ms": 142.8, "cached_tokens": 412}) == (
        "12 tokens · 84 tok/s · 412 cached"
    )
    assert stats_line({"generated_tokens": 1, "generate_ms": 1000}) == "1 token · 1.0 tok/s"
    assert stats_line({}) == ""
    assert context_words(1204, 8192) == "1,204 / 8,192 · 15%"
    assert engine_words(EngineStatus("failed", "M", 0, 0, "No such file.")) == "No such file."
    assert [age(s) for s in (5, 300, 7200, 200_000, 70_000_000)] == ["now", "5m", "2h", "2d", "2y"]
    cut = Message(2, 1, "assistant", "x", "cut")
    assert message_status(cut, is_last=True) == ("cut off · Ctrl+G continues", "warning")
    assert message_status(cut, is_last=False) == ("cut off", "warning")
    queued = Message(1, None, "user", "x", "queued")
    assert message_status(queued, is_last=True, ahead=2)[0] == "queued behind 2"


def test_finding_prefers_whole_words_and_knows_ids() -> None:
    rows = [
        Row("aa11bb22", "The rain"),
        Row("cc33dd44", "Train times"),
        Row("ee55ff66", "Rusty anchor in ice"),
    ]
    assert find(rows, "rain")[0].session_id == "aa11bb22"
    assert [row.session_id for row in find(rows, "cc33")] == ["cc33dd44"]
    assert find(rows, "zzz") == []
    assert find(rows, " ") == rows
