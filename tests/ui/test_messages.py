"""Choosing a message, and what is done with it: copy, code, edit, quote, delete, fork."""

from __future__ import annotations

import pytest

from ds4chat.ui.app import ChatApp
from tests.ui.driving import THEMES, Chat, running
from tests.ui.fake_manager import FakeManager

TEXTS = ["first question", "first answer", "second question", "second answer"]

CODE = "Two:\n\n```python\na = 1\nb = 2\n```\n\nand\n\n- in a list\n\n  ```sh\n  make\n  ```\n\nend"


class TestChoosing:
    async def test_tab_chooses_the_last_message_and_arrows_move_on(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        ids = [message.id for message in session.path()]
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("second answer")
            await chat.pilot.press("tab")
            assert chat.chosen == ids[3]
            await chat.pilot.press("up")
            assert chat.chosen == ids[2]
            await chat.pilot.press("k", "j", "home")
            assert chat.chosen == ids[0]
            await chat.pilot.press("up", "end")
            assert chat.chosen == ids[3]
            assert chat.prompt.text == ""

    async def test_the_chosen_message_is_marked_in_shape_and_colour(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("second answer")
            assert "┃" not in chat.shown()
            await chat.pilot.press("tab", "up")
            marked = [line for line in chat.lines() if "┃" in line]
            assert [line.split("▌ ")[1].strip() for line in marked] == ["You", "second question"]
            strip = chat.transcript.render_line(chat.row_of("second question"))
            bar = next(segment for segment in strip if "┃" in segment.text)
            base = chat.app.palette().base
            assert bar.style is not None and bar.style.color != base.color
            assert strip.cell_length == chat.transcript.scrollable_content_region.width
            await chat.pilot.press("escape")
            assert "┃" not in chat.shown()

    @pytest.mark.parametrize("key", ["escape", "enter"])
    async def test_it_leads_back_to_the_prompt(self, manager: FakeManager, key: str) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab")
            assert chat.has_focus(chat.transcript)
            await chat.pilot.press(key)
            assert chat.has_focus(chat.prompt)
            assert chat.chosen is None
            assert chat.prompt.text == "draft"
            assert manager.queue == []

    async def test_other_letters_go_to_the_prompt(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "H", "e")
            assert chat.prompt.text == "He"
            assert chat.has_focus(chat.prompt)
            await chat.until(lambda: chat.chosen is None)

    async def test_a_key_that_does_nothing_here_is_not_text(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "e")
            assert chat.prompt.text == ""
            assert chat.has_focus(chat.transcript)

    async def test_the_footer_shows_the_keys(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab")
            shown = {a.binding.description for a in chat.screen.active_bindings.values() if a.binding.show}
            assert {"Copy", "Code", "Edit", "Redo", "Quote", "Fork", "Drop", "Link", "Back"} <= shown

    async def test_the_view_follows(self, manager: FakeManager) -> None:
        session = manager.make("t", [f"text {n}" for n in range(60)])
        ids = [message.id for message in session.path()]
        async with running(manager, session_id=session.id, size=(80, 20)) as chat:
            await chat.until_shown("text 59")
            await chat.pilot.press("tab", *["up"] * 20)
            assert chat.chosen == ids[39]
            await chat.until_shown("text 39")
            assert "┃" in chat.lines()[chat.row_of("text 39")]
            await chat.pilot.press(*["down"] * 10)
            await chat.until_shown("text 49")
            assert not chat.transcript.following
            await chat.pilot.press("end", "down")
            assert chat.transcript.following

    async def test_after_scrolling_away_it_goes_on_from_what_is_seen(self, manager: FakeManager) -> None:
        session = manager.make("t", [f"text {n}" for n in range(60)])
        async with running(manager, session_id=session.id, size=(80, 20)) as chat:
            await chat.until_shown("text 59")
            await chat.pilot.press("tab", "ctrl+home")
            await chat.until_shown("text 0")
            await chat.pilot.press("up")
            assert "┃" in chat.shown()
            assert chat.lines()[0].endswith("You")

    async def test_a_click_chooses(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        ids = [message.id for message in session.path()]
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("first answer")
            await chat.pilot.click(chat.transcript, offset=(6, chat.row_of("first answer")))
            await chat.until(lambda: chat.chosen == ids[1])
            await chat.pilot.click(chat.prompt)
            await chat.until(lambda: chat.chosen is None)

    async def test_a_message_far_away_is_revealed(self, manager: FakeManager) -> None:
        session = manager.make("t", [f"text {n}" + " word" * 90 * (n % 3) for n in range(300)])
        ids = [message.id for message in session.path()]
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("word")
            assert chat.transcript.reveal(ids[100])
            await chat.until_shown("text 100")
            assert "┃" in chat.lines()[chat.row_of("text 100")]
            assert chat.chosen == ids[100]
            assert not chat.transcript.reveal(99_999)

    async def test_an_empty_chat_has_nothing_to_choose(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            await chat.pilot.press("tab", "escape")
            assert chat.has_focus(chat.prompt)


class TestCopying:
    async def test_a_message_is_copied_whole(self, manager: FakeManager) -> None:
        session = manager.make("t", ["question", "an **answer**\n\nin two"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "c")
            assert chat.app.clipboard == "an **answer**\n\nin two"
            await chat.until(lambda: bool(chat.toasts))
            assert chat.toasts == ["sent 21 characters to the terminal (OSC 52)"]

    async def test_the_last_reply_is_copied_from_the_prompt(self, manager: FakeManager) -> None:
        session = manager.make("t", [*TEXTS, "unanswered"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"typed", "alt+c")
            assert chat.app.clipboard == "second answer"
            assert chat.prompt.text == "typed"

    async def test_blocks_of_code_one_after_the_other(self, manager: FakeManager) -> None:
        session = manager.make("t", ["question", CODE])
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("a = 1")
            await chat.pilot.press("tab", "b")
            assert chat.app.clipboard == "a = 1\nb = 2"
            marked = [line for line in chat.lines() if "▐" in line]
            assert len(marked) == 3 and "python" in marked[0] and "b = 2" in marked[2]
            await chat.until(lambda: "code block 1 of 2, python" in chat.status)
            await chat.pilot.press("b")
            assert chat.app.clipboard == "make"
            assert [line.split()[-1] for line in chat.lines() if "▐" in line] == ["copy", "make"]
            await chat.pilot.press("b")
            assert chat.app.clipboard == "a = 1\nb = 2"
            await chat.pilot.press("up")
            assert "▐" not in chat.shown()

    async def test_code_of_the_users_own(self, manager: FakeManager) -> None:
        session = manager.make("t", ["look:\n```c\nint x;\n```\nwell?", "yes"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "up", "b")
            assert chat.app.clipboard == "int x;"
            assert ["int x;" in line for line in chat.lines() if "▐" in line] == [False, True, False]

    async def test_a_click_on_the_head_of_a_block_copies_it(self, manager: FakeManager) -> None:
        session = manager.make("t", ["question", CODE])
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("make")
            row = chat.row_of(" sh ")
            await chat.pilot.click(chat.transcript, offset=(chat.lines()[row].index("copy") + 1, row))
            await chat.until(lambda: chat.app.clipboard == "make")

    async def test_no_code_is_said(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("tab", "b")
            await chat.until(lambda: "no block of code" in chat.status)


class TestEditing:
    async def test_an_edit_makes_a_branch_and_gives_the_draft_back(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "home", "e")
            assert chat.edited() == session.path()[0].id
            assert chat.prompt.text == "first question"
            assert "editing your message 1 of 2" in str(chat.prompt.border_title)
            await chat.pilot.press(*" anew", "enter")
            await chat.until_shown("first question anew", "< 2/2 >")
            assert chat.edited() is None
            assert chat.prompt.text == "draft"
            assert not chat.prompt.border_title
            assert "second question" not in chat.shown()
            assert [m.text for m in session.path()] == ["first question anew"]
            manager.begin()
            manager.stream("another answer")
            await chat.until_shown("another answer")

    async def test_esc_gives_up_and_loses_nothing(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "up", "e", *"!!", "escape")
            assert chat.edited() is None
            assert chat.prompt.text == "draft"
            assert [m.text for m in session.path()] == TEXTS
            await chat.pilot.press("alt+z")
            assert chat.prompt.text == "second question!!"
            assert chat.edited() == session.path()[2].id
            await chat.pilot.press("escape")
            assert chat.prompt.text == "draft"

    async def test_an_edit_waits_in_its_session(self, manager: FakeManager) -> None:
        session = manager.make("one", TEXTS, updated=2)
        manager.make("two", ["a", "b"], updated=1)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "up", "e", "!", "f4")
            assert chat.edited() is None and not chat.prompt.border_title
            await chat.pilot.press("f3")
            assert chat.prompt.text == "second question!"
            assert "editing" in str(chat.prompt.border_title)

    async def test_what_stood_in_the_box_is_saved_with_the_edit(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "up", "e", "!")
            chat.screen.show_closing()
            assert session.draft == "draft\n\nsecond question!"

    async def test_an_edit_that_cannot_be_sent_goes_on(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            manager.send(session.id, "running")
            manager.begin()
            await chat.until_shown("running")
            await chat.pilot.press("tab", "home", "e", "!", "enter")
            await chat.until(lambda: bool(chat.toasts))
            assert chat.prompt.text == "first question!"
            assert chat.edited() == session.path()[0].id


class TestQuotingAndDeleting:
    async def test_a_quote_stands_behind_what_is_written(self, manager: FakeManager) -> None:
        session = manager.make("t", ["question", "line one\n\nline two"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"see", "tab", "q", *"so")
            assert chat.prompt.text == "see\n\n> line one\n>\n> line two\n\nso"

    async def test_a_turn_is_deleted_and_brought_back(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        ids = [message.id for message in session.path()]
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("first question")
            await chat.pilot.press("tab", "home", "d")
            await chat.until(lambda: "first question" not in chat.shown())
            assert "first answer" not in chat.shown() and "second answer" in chat.shown()
            assert chat.chosen == ids[2]
            await chat.until(lambda: "Alt+Z" in chat.status)
            await chat.pilot.press("alt+z")
            await chat.until_shown(*TEXTS)
            assert [message.id for message in session.path()] == ids

    async def test_a_fork_ends_with_the_chosen_message(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "tab", "home", "down", "f")
            await chat.until(lambda: chat.screen.current_id != session.id)
            await chat.until_shown("first answer")
            assert "second question" not in chat.shown()
            assert chat.prompt.text == "draft"
            assert len(session.path()) == 4


class TestSummary:
    async def test_it_grows_stands_above_the_line_and_is_taken_back(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("second answer")
            await chat.pilot.press("alt+w")
            await chat.until_shown("summarising what lies above…")
            manager.compact_progress("It was ")
            manager.compact_progress("about anchors.")
            await chat.until_shown("summarising what lies above… 4 words", "│ It was about anchors.")
            manager.compact_done("Anchors were talked about.")
            await chat.until_shown("▸ Summary of what lies above, 4 words", "no longer reach")
            assert "summarising" not in chat.shown()
            order = [
                chat.row_of(t) for t in ("first answer", "Summary of", "no longer reach", "second question")
            ]
            assert order == sorted(order)
            await chat.pilot.press("tab", "up", "up", "space")
            await chat.until_shown("▾ Summary", "│ Anchors were talked about.")
            await chat.pilot.press("u")
            await chat.until(lambda: "Summary" not in chat.shown())
            assert "no longer reach" not in chat.shown()
            assert session.summary == ""

    async def test_a_click_unfolds_it(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        session.summary, session.window_start_id = "Much was said.", session.path()[2].id
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("Summary of what lies above, 3 words")
            await chat.pilot.click(chat.transcript, offset=(8, chat.row_of("Summary")))
            await chat.until_shown("│ Much was said.")

    async def test_a_command_takes_it_back(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        session.summary, session.window_start_id = "Much was said.", session.path()[2].id
        async with running(manager, session_id=session.id) as chat:
            await chat.until_shown("Summary of what lies above")
            chat.prompt.put("/compact undo")
            await chat.pilot.press("enter")
            await chat.until(lambda: "Summary" not in chat.shown())
            assert session.summary == ""

    async def test_it_can_be_stopped(self, manager: FakeManager) -> None:
        session = manager.make("t", TEXTS)
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("alt+w")
            await chat.until_shown("summarising what lies above…")
            await chat.pilot.press("escape")
            await chat.until_shown("nothing changed")
            assert "summarising" not in chat.shown()

    async def test_too_little_to_summarise_is_said(self, manager: FakeManager) -> None:
        session = manager.make("t", ["a", "b"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("alt+w")
            await chat.until(lambda: bool(chat.toasts))


async def test_what_looks_like_markup_is_chosen_copied_edited_and_quoted_literally(
    manager: FakeManager,
) -> None:
    """Case 21: typed and generated, in the transcript, the toasts, the status line and the prompt box's title."""
    markup = "[/INST] [bold]x[/bold] A=b, [@click=app.quit]no[/] [link=x]"
    session = manager.make("[red]t[/red]", [markup, f"{markup}\n\n```[b]\n{markup}\n```"])

    async def press(chat: Chat, *keys: str) -> None:
        await chat.pilot.press(*keys)
        await chat.until_shown("┃")

    async with running(manager, session_id=session.id, size=(140, 40)) as chat:
        await chat.until(lambda: chat.shown().count(markup) == 3)
        await press(chat, "tab", "b")
        assert chat.app.clipboard == markup
        await chat.until(lambda: "code block 1 of 1, [b]" in chat.status)
        await press(chat, "up", "c")
        assert chat.app.clipboard == markup
        await chat.pilot.press("q")
        assert chat.prompt.text == f"> {markup}\n\n"
        await chat.pilot.press("tab", "up", "e", "x", "enter")
        await chat.until_shown(markup + "x", "< 2/2 >")
        assert chat.app.is_running


async def test_the_palette_lists_what_can_be_done_with_messages(manager: FakeManager) -> None:
    session = manager.make("t", TEXTS)
    async with running(manager, session_id=session.id) as chat:
        commands = {command.title: command for command in chat.app.get_system_commands(chat.screen)}
        assert {"Copy reply", "Regenerate", "Compact", "Message: Copy", "Message: Edit"} <= set(commands)
        assert "Message: Undo summary" not in commands
        await commands["Message: Edit"].callback()
        # Without a choice it is the last one that it makes sense for.
        assert chat.prompt.text == "second question"


@pytest.mark.parametrize(
    ("command", "text"), [("/quote", "> second answer\n\n"), ("/edit", "second question")]
)
async def test_slash_commands_do_the_same(manager: FakeManager, command: str, text: str) -> None:
    session = manager.make("t", TEXTS)
    async with running(manager, session_id=session.id) as chat:
        chat.prompt.put(command)
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.prompt.text == text)
        assert len(session.path()) == 4


async def test_what_is_typed_before_the_first_session_is_there_stays(manager: FakeManager) -> None:
    session = manager.make("t", TEXTS)
    session.draft = "draft"
    app = ChatApp(manager, session_id=session.id, theme_directories=[THEMES])  # type: ignore[arg-type]
    app.chat.begin, begin = lambda palette: None, app.chat.begin  # type: ignore[method-assign]
    async with app.run_test() as pilot:
        await pilot.press(*"Name")
        begin(app.palette())
        await pilot.pause()
        assert app.chat.prompt.text == "draft\nName"
