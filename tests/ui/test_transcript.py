"""How the conversation is painted: literally, lazily, and where the reader left it."""

from __future__ import annotations

import unicodedata

import pytest

from ds4chat.ui.widgets.steady_scrollbar import SteadyScrollBar
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

MARKUP = "[bold]x[/bold] [/INST] A=b, [@click=app.quit]no[/] <b>tag</b> <think>hm</think> $text"


async def test_markup_is_painted_literally(manager: FakeManager) -> None:
    session = manager.make("[red]title[/red]", [MARKUP, MARKUP])
    async with running(manager, session_id=session.id, size=(140, 30)) as chat:
        await chat.until(lambda: chat.shown().count(MARKUP) == 2)
        listed = [chat.screen.sessions.render_line(y).text for y in range(4)]
        assert any("[red]title[/red]" in line for line in listed)
        manager.send(session.id, "and [live]?")
        manager.begin()
        manager.stream("[/live] and")
        await chat.until_shown("and [live]?", "[/live] and")


async def test_control_characters_are_shown_and_not_obeyed(manager: FakeManager) -> None:
    evil = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\x7f\u202ee"
    session = manager.make("t", [evil, evil])
    async with running(manager, session_id=session.id) as chat:
        await chat.until(lambda: chat.shown().count("a␛]0;title␇b␛[2Jc\\x9bd␡<U+202E>e") == 2)
        svg_free = "".join(chat.transcript.render_line(y).text for y in range(chat.transcript.size.height))
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in svg_free)


async def test_a_fence_left_open_is_code_all_the_same(manager: FakeManager) -> None:
    session = manager.make("t", ["code?", "Sure:\n\n```python\ndef f():\n    return 1"])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("Sure:", " python", "def f():", "    return 1")
        assert "```" not in chat.shown()


async def test_a_long_open_fence_streams_in_pieces_and_ends_whole(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "write")
        reply = manager.begin()
        manager.stream("```python\n")
        for n in range(200):
            manager.stream(f"x{n} = {n}\n")
        await chat.until_shown("x199 = 199", "writing…")
        height = chat.transcript.virtual_size.height
        manager.stream("```\nDone.")
        manager.finish()
        await chat.until_shown("x199 = 199", "Done.", "tok/s")
        # One line for the paragraph and the gap before it; every line of code is there once.
        assert chat.transcript.virtual_size.height == height + 2
        entry = chat.transcript.message(reply.id)
        assert entry is not None
        assert sum(strip.text.strip().startswith("x") for strip in entry.strips) == 200


async def test_a_long_list_keeps_its_numbers(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "count")
        reply = manager.begin()
        for n in range(1, 81):
            manager.stream(f"{n}. item {n}\n")
            if n % 10 == 0:
                await chat.until_shown(f"item {n}")
        manager.finish()
        await chat.until_shown("tok/s")
        entry = chat.transcript.message(reply.id)
        assert entry is not None
        lines = [strip.text.split() for strip in entry.strips if "item" in strip.text]
        assert lines == [[str(n), "item", str(n)] for n in range(1, 81)]


async def test_a_thousand_messages_cost_no_more_than_a_few(manager: FakeManager) -> None:
    texts = [f"question {n}" if n % 2 == 0 else f"answer {n}\n\n- with\n- a list" for n in range(1000)]
    session = manager.make("long", texts)
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("answer 999")
        assert len(chat.screen.query("*")) < 30
        entries = [chat.transcript.message(m.id) for m in session.path()]
        assert sum(bool(e and e.strips) for e in entries) < 40
        await chat.pilot.press("ctrl+home")
        await chat.until_shown("question 0", "answer 1")
        await chat.pilot.press("ctrl+end")
        await chat.until_shown("answer 999")


async def test_scrolling_up_meets_every_line_once(manager: FakeManager) -> None:
    texts = [f"q{n}" if n % 2 == 0 else f"start{n}\n\n" + "word " * 60 for n in range(24)]
    session = manager.make("long", texts)
    async with running(manager, session_id=session.id, size=(60, 20)) as chat:
        await chat.until_shown("word word")
        seen: list[str] = []
        for _ in range(600):
            seen.append(chat.lines()[0])
            if chat.transcript.scroll_offset.y == 0:
                break
            chat.transcript.scroll_relative(y=-1, animate=False)
            await chat.pilot.pause()
        marks = [line.split()[-1] for line in reversed(seen) if "start" in line]
        # The heights above were only estimated: learning the true ones must not make the view jump.
        assert marks == sorted(marks, key=lambda mark: int(mark.removeprefix("start")))
        assert marks[0] == "start1"
        assert len(marks) == len(set(marks)) >= 9


async def test_the_view_follows_only_a_reader_at_the_end(manager: FakeManager) -> None:
    session = manager.make("t", ["q", "\n\n".join(f"line {n}" for n in range(60))])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("line 59")
        manager.send(session.id, "more")
        manager.begin()
        manager.stream("new text")
        await chat.until_shown("new text")
        await chat.pilot.press("pageup", "pageup")
        before = chat.lines()
        manager.stream("\n\n".join(f"further {n}" for n in range(60)))
        frames = chat.transcript.frames
        await chat.until(lambda: chat.transcript.frames > frames)
        assert chat.lines() == before
        await chat.pilot.press("ctrl+end")
        await chat.until_shown("further 59")
        manager.stream("\n\nlast")
        await chat.until_shown("last")


async def test_a_session_is_found_again_where_it_was_left(manager: FakeManager) -> None:
    one = manager.make("one", ["q", "\n\n".join(f"line {n}" for n in range(90))], updated=2)
    manager.make("two", ["c", "d"], updated=1)
    async with running(manager, session_id=one.id) as chat:
        await chat.until_shown("line 89")
        await chat.pilot.press("pageup", "pageup")
        before = chat.lines()
        await chat.pilot.press("f4")
        await chat.until_shown("d")
        await chat.pilot.press("f3")
        await chat.until(lambda: chat.lines() == before)


async def test_a_resize_in_mid_stream_wraps_anew(manager: FakeManager) -> None:
    session = manager.make("t", ["q", "word " * 80])
    async with running(manager, session_id=session.id, size=(120, 40)) as chat:
        manager.send(session.id, "more")
        manager.begin()
        for n in range(30):
            manager.stream(f"streamed{n} ")
        await chat.until_shown("streamed29")
        for size in ((40, 10), (200, 60), (60, 15)):
            await chat.pilot.resize_terminal(*size)
            manager.stream(f"at{size[0]} ")
            await chat.until_shown(f"at{size[0]}")
            width = chat.transcript.scrollable_content_region.width
            assert all(chat.transcript.render_line(y).cell_length == width for y in range(size[1] // 2))
        manager.finish()
        await chat.until_shown("tok/s")


@pytest.mark.parametrize("size", [(40, 10), (20, 6), (200, 60)])
async def test_small_and_large_screens_work(manager: FakeManager, size: tuple[int, int]) -> None:
    session = manager.make(
        "t", ["q", "# Heading\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n\nend"]
    )
    async with running(manager, session_id=session.id, size=size) as chat:
        await chat.pilot.press(*"typed", "enter")
        manager.begin()
        manager.stream("an answer")
        for keys in (("f1", "escape"), ("ctrl+o", "escape"), ("ctrl+home", "ctrl+end"), ("f2", "escape")):
            await chat.pilot.press(*keys)
        manager.finish()
        await chat.until(lambda: "last reply" in chat.status)
        assert chat.prompt.region.bottom < size[1]


async def test_a_theme_switch_in_mid_stream_repaints_everything(manager: FakeManager) -> None:
    session = manager.make("t", ["q", "before the switch"])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "more")
        manager.begin()
        manager.stream("one\n\ntwo\n\n")
        await chat.until_shown("two")

        def colours() -> set[object]:
            height = chat.transcript.size.height
            strips = [chat.transcript.render_line(y) for y in range(height)]
            return {segment.style.bgcolor for strip in strips for segment in strip if segment.style}

        dark = colours()
        await chat.until(lambda: "paper" in chat.app.available_themes)
        chat.app.theme = "paper"
        manager.stream("three")
        await chat.until(lambda: not (colours() & dark))
        await chat.until_shown("before the switch", "one", "two", "three")


async def test_a_line_shows_where_the_window_starts(manager: FakeManager) -> None:
    session = manager.make("t", ["old question", "old answer", "new question", "new answer"])
    third = session.path()[2].id
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("new answer")
        manager.move_window(session.id, third)
        await chat.until_shown("older messages no longer reach the model")
        lines = chat.lines()
        rule = next(i for i, line in enumerate(lines) if "no longer reach" in line)
        assert any("old answer" in line for line in lines[:rule])
        assert any("new question" in line for line in lines[rule:])
        # Where the session itself says so, it is there from the start.
        chat.screen.open(manager.make("other", ["a", "b"]).id)
        chat.screen.open(session.id)
        await chat.until(lambda: chat.shown().count("no longer reach the model") == 1)


async def test_wide_characters_and_right_to_left_text_fit(manager: FakeManager) -> None:
    text = "日本語のテキスト" * 20 + "\n\n" + "مرحبا بالعالم " * 20 + "\n\n" + "👩‍👩‍👧 café 한국어 " * 10
    session = manager.make("t", [text, text])
    async with running(manager, session_id=session.id, size=(61, 40)) as chat:
        await chat.until_shown("日本語", "مرحبا", "한국어")
        width = chat.transcript.scrollable_content_region.width
        for y in range(chat.transcript.size.height):
            assert chat.transcript.render_line(y).cell_length == width


async def test_a_megabyte_on_one_line_does_not_hold_up_the_screen(manager: FakeManager) -> None:
    session = manager.make("big", ["x" * 1_000_000, "y " * 400_000])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("y y y")
        await chat.pilot.press("ctrl+home")
        await chat.until_shown("xxxx")


async def test_selected_text_is_copied_without_the_margin(manager: FakeManager) -> None:
    session = manager.make("t", ["question", "first line\n\nsecond line"])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("second line")
        lines = chat.lines()
        first = next(i for i, line in enumerate(lines) if "first line" in line)
        second = next(i for i, line in enumerate(lines) if "second line" in line)
        await chat.pilot.mouse_down(chat.transcript, offset=(4, first))
        await chat.pilot.hover(chat.transcript, offset=(lines[second].index("line"), second))
        await chat.pilot.mouse_up(chat.transcript, offset=(lines[second].index("line"), second))
        assert chat.screen.get_selected_text() is not None
        await chat.pilot.press("ctrl+c")
        assert chat.app.clipboard.startswith("first line\n\nsecond")


async def test_streaming_makes_few_frames(manager: FakeManager) -> None:
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "go")
        manager.begin()
        before = chat.transcript.frames
        for n in range(500):
            manager.stream(f"w{n} ")
        await chat.until_shown("w499")
        assert chat.transcript.frames - before < 20


async def test_the_scroll_bar_is_painted_only_when_it_looks_different(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = 0
    paint = SteadyScrollBar.render

    def render(bar: SteadyScrollBar) -> object:
        nonlocal painted
        painted += 1
        return paint(bar)

    monkeypatch.setattr(SteadyScrollBar, "render", render)
    session = manager.make("t", ["word\n\n" * 800])
    async with running(manager, session_id=session.id, size=(80, 24)) as chat:
        await chat.until_shown("word")
        manager.send(session.id, "go")
        manager.begin()
        await chat.pilot.pause()
        bar, before, frames = chat.transcript.vertical_scrollbar, painted, chat.transcript.frames
        for n in range(12):
            manager.stream(f"w{n}\n\n")
            await chat.until_shown(f"w{n}")
        assert chat.transcript.frames - frames >= 12 and painted - before <= 4
        assert bar.window_virtual_size == chat.transcript.virtual_size.height
        assert bar.position == chat.transcript.scroll_y == chat.transcript.max_scroll_y
        before = painted
        await chat.pilot.press("pageup")
        await chat.until(lambda: painted > before)


PERSIAN = "سلام دنیا این یک متن طولانی است که باید در چند سطر شکسته شود و هیچ حرفی گم نشود"
HEBREW = "שָׁלוֹם עוֹלָם זֶה טֶקְסְט עִם נִקּוּד"


@pytest.mark.parametrize("text", [PERSIAN, HEBREW, f"English, then {PERSIAN}, then 日本語 {HEBREW}!"])
async def test_right_to_left_text_keeps_its_order_and_its_marks(manager: FakeManager, text: str) -> None:
    """The terminal turns it around, if it can: what is painted is in the order it was written, marks with letters."""
    session = manager.make("t", [text, f"{text}\n\n- {text}\n\n> {text}"])
    async with running(manager, session_id=session.id, size=(44, 60)) as chat:
        await chat.until_shown("◆")
        shown = [line.strip(" ▌•│") for line in chat.lines()]
        width = chat.transcript.scrollable_content_region.width
        assert all(chat.transcript.render_line(y).cell_length == width for y in range(len(shown)))
        words = " ".join(" ".join(shown).split())
        assert words.count(text) == 4
        assert not any(line and unicodedata.combining(line[0]) for line in shown)


async def test_signs_of_several_characters_are_not_torn(manager: FakeManager) -> None:
    text = "e\u0301" * 50 + "👩🏽‍🚀" * 20 + "각" * 30
    session = manager.make("t", [text, text])
    async with running(manager, session_id=session.id, size=(41, 40)) as chat:
        await chat.until_shown("◆")
        shown = [line.strip(" ▌") for line in chat.lines()]
        assert not any(line and unicodedata.combining(line[0]) for line in shown)
        assert "".join(shown).count("e\u0301") == 100
        assert "".join(shown).count("👩🏽‍🚀") == 40


async def test_the_reader_keeps_the_place_at_a_resize_and_a_theme_switch(manager: FakeManager) -> None:
    texts = [f"q{n}" if n % 2 == 0 else f"mark{n} " + "word " * 80 for n in range(60)]
    session = manager.make("long", texts)
    async with running(manager, session_id=session.id, size=(80, 24)) as chat:
        await chat.until_shown("word word")
        entry = chat.transcript.message(session.path()[31].id)
        assert entry is not None
        chat.transcript.scroll_to_line(chat.transcript.span_of(entry)[0])  # type: ignore[index]
        await chat.until(lambda: "mark31" in chat.lines()[1])
        await chat.until(lambda: "paper" in chat.app.available_themes)
        chat.app.theme = "paper"
        await chat.until(lambda: "mark31" in chat.lines()[1])
        for size in ((50, 24), (120, 40), (40, 10), (80, 24)):
            await chat.pilot.resize_terminal(*size)
            await chat.until(lambda: "mark31" in chat.lines()[1])
        assert not chat.transcript.following


async def test_code_still_open_when_the_stream_ends_and_a_theme_switch_in_between(
    manager: FakeManager,
) -> None:
    """Case 22."""
    session = manager.make("t", [])
    async with running(manager, session_id=session.id) as chat:
        manager.send(session.id, "write")
        manager.begin()
        manager.stream("<think>hm</think>Sure:\n\n```python\ndef f():\n")
        await chat.until_shown("def f():")
        await chat.until(lambda: "paper" in chat.app.available_themes)
        chat.app.theme = "paper"
        manager.stream("    return 1\n\n[bold]x[/bold]")
        manager.finish("stopped")
        await chat.until_shown(
            "▸ thought", "Sure:", " python", "def f():", "    return 1", "[bold]x[/bold]", "Ctrl+G"
        )
        assert "```" not in chat.shown()
        await chat.pilot.press("tab", "b")
        assert chat.app.clipboard == "def f():\n    return 1\n\n[bold]x[/bold]"
