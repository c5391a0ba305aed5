"""What a model thinks: folded to a line, timed, growing while it thinks, whole when it is unfolded."""

from __future__ import annotations

import pytest

from ds4chat.ui.entries import reply
from ds4chat.ui.wording import thought_words
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

THOUGHT = "<think>\nLet me see.\n\nIt is two words more.\n</think>\n\nThe **answer**."


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reply, "monotonic", clock)
    return clock


async def test_it_is_one_line_until_it_is_unfolded(manager: FakeManager) -> None:
    session = manager.make("t", ["question", THOUGHT])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("▸ thought, 8 words", "The answer.")
        assert "Let me see" not in chat.shown() and "think>" not in chat.shown()
        await chat.pilot.press("tab", "space")
        await chat.until_shown(
            "▾ thought, 8 words", "│ Let me see.", "│ It is two words more.", "The answer."
        )
        await chat.pilot.press("space")
        await chat.until(lambda: "Let me see" not in chat.shown())


async def test_a_click_on_the_line_unfolds_it(manager: FakeManager) -> None:
    session = manager.make("t", ["question", THOUGHT])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("▸ thought")
        await chat.pilot.click(chat.transcript, offset=(8, chat.row_of("▸ thought")))
        await chat.until_shown("│ Let me see.")


async def test_it_grows_in_three_lines_and_is_timed(manager: FakeManager, clock: Clock) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id, size=(60, 30)) as chat:
        manager.send(session.id, "think")
        manager.begin()
        manager.stream("<thi")
        await chat.until_shown("writing…")
        assert "<thi" not in chat.shown()
        manager.stream("nk>")
        for n in range(60):
            manager.stream(f"word{n} ")
        clock.now += 2.2
        manager.stream("word60 ")
        await chat.until_shown("▸ thinking… 2 s, 61 words", "word60")
        assert sum("│ " in line for line in chat.lines()) == 3
        assert "word0 " not in chat.shown()
        clock.now += 2
        manager.stream("</think>\n\nHere it is.")
        await chat.until_shown("▸ thought for 4 s, 61 words", "Here it is.", "writing…")
        assert "word60" not in chat.shown()
        clock.now += 50
        manager.stream(" And more.")
        manager.finish()
        await chat.until_shown("▸ thought for 4 s, 61 words", "And more.", "tok/s")
        # The time is known as long as the program runs.
        chat.screen.open(manager.make("other", ["a", "b"]).id)
        chat.screen.open(session.id)
        await chat.until_shown("▸ thought for 4 s, 61 words")


async def test_it_can_be_watched_whole_while_it_grows(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "think")
        manager.begin()
        manager.stream("<think>one\n\ntwo\n\nthree\n\nfour\n\nfive")
        await chat.until_shown("▸ thinking…", "│ five")
        assert "│ two" not in chat.shown()
        await chat.pilot.press("tab", "space")
        await chat.until_shown("▾ thinking…", "│ one", "│ five")
        manager.stream("\n\nsix")
        await chat.until_shown("│ one", "│ six")


async def test_one_that_was_never_closed_is_no_answer(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "think")
        manager.begin()
        manager.stream("<think>on and on")
        manager.finish("stopped")
        await chat.until_shown("3 words, not finished", "stopped", "Ctrl+G continues")
        manager.continue_reply(session.id)
        manager.stream(" it goes</think>Done.")
        await chat.until_shown("▸ thought", "5 words", "Done.")
        assert "not finished" not in chat.shown()


async def test_tags_later_on_are_text(manager: FakeManager) -> None:
    session = manager.make("t", ["q", "Use `<think>` or <think>this</think> here."])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("Use <think> or <think>this</think> here.")
        assert "thought" not in chat.shown()


async def test_what_is_copied_and_quoted_is_the_answer(manager: FakeManager) -> None:
    session = manager.make("t", ["question", THOUGHT])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("tab", "c", "q")
        assert chat.app.clipboard == "The **answer**."
        assert chat.prompt.text == "> The **answer**.\n\n"


async def test_blocks_of_the_answer_are_painted_once(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "think")
        message = manager.begin()
        manager.stream("<think>hm</think>first block\n\nsecond")
        await chat.until_shown("first block", "second")
        entry = chat.transcript.message(message.id)
        assert entry is not None
        first = entry.strips[chat.row_of("first block") - chat.row_of("◆")]
        manager.stream(" and third\n\nfourth")
        await chat.until_shown("fourth")
        assert any(strip is first for strip in entry.strips)


def test_words() -> None:
    assert thought_words(212, 4.2, growing=False, closed=True) == "thought for 4 s, 212 words"
    assert thought_words(1, None, growing=False, closed=True) == "thought, 1 word"
    assert thought_words(1204, 125, growing=False, closed=True) == "thought for 2 min 5 s, 1,204 words"
    assert thought_words(3, 0.2, growing=True, closed=False) == "thinking… 1 s, 3 words"
