"""Writing, streaming, stopping, and going from session to session."""

from __future__ import annotations

import asyncio

import pytest
from textual.events import Paste

from ds4chat.ui.screens import viewing
from ds4chat.ui.screens.switcher import SwitcherScreen
from ds4chat.ui.widgets.session_list import SessionList
from tests.ui.driving import running
from tests.ui.fake_manager import MODEL, FakeManager


async def test_a_message_is_sent_and_the_reply_streams(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hello", "enter")
        await chat.until_shown("You", "hello")
        assert chat.prompt.text == ""
        manager.begin()
        for piece in ("A **bold** ", "answer", "\n\n- one\n- two"):
            manager.stream(piece)
        await chat.until_shown(MODEL, "A bold answer", "• two", "writing…")
        manager.used(1204)
        await chat.until(lambda: "1,204 / 8,192 · 15%" in chat.status)
        manager.finish()
        await chat.until_shown("tok/s · 412 cached")
        assert "writing" not in chat.status


async def test_text_typed_before_the_model_is_there_is_kept_and_queues(manager: FakeManager) -> None:
    manager.auto_ready = False
    async with running(manager) as chat:
        await chat.until(lambda: f"loading {MODEL} 43%" in chat.status)
        await chat.pilot.press(*"early", "enter")
        await chat.until_shown("early", "queued")
        assert len(manager.queue) == 1


async def test_ctrl_j_breaks_the_line_and_the_box_grows_to_a_third(manager: FakeManager) -> None:
    async with running(manager, size=(100, 30)) as chat:
        await chat.pilot.press("a", "ctrl+j", "b")
        assert chat.prompt.text == "a\nb"
        assert chat.prompt.size.height == 2
        chat.prompt.put("\n".join("line" for _ in range(40)))
        await chat.pilot.pause()
        assert chat.prompt.outer_size.height <= 10
        await chat.pilot.press("enter")
        assert manager.sessions[chat.screen.current_id].path()[0].text.count("\n") == 39


async def test_many_pasted_lines_are_one_message(manager: FakeManager) -> None:
    async with running(manager) as chat:
        chat.app.post_message(Paste("one\r\ntwo\rthree\x1b[31m\n"))
        await chat.until(lambda: "three" in chat.prompt.text)
        assert manager.queue == []
        await chat.pilot.press("enter")
        await chat.until(lambda: len(manager.queue) == 1)
        path = manager.sessions[chat.screen.current_id].path()
        assert [m.text for m in path] == ["one\ntwo\nthree␛[31m"]


async def test_typing_and_pasting_go_on_while_a_reply_streams(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hi", "enter")
        manager.begin()
        manager.stream("first ")
        await chat.pilot.press("a")
        manager.stream("second ")
        chat.app.post_message(Paste("bc\nd"))
        manager.stream("third")
        await chat.until_shown("first second third")
        assert chat.prompt.text == "abc\nd"


async def test_esc_stops_the_reply_and_keeps_what_is_typed(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hi", "enter")
        manager.begin()
        manager.stream("half an ans")
        await chat.pilot.press(*"next", "escape")
        await chat.until_shown("half an ans", "stopped · Ctrl+G continues")
        assert chat.prompt.text == "next"
        await chat.pilot.press("escape", "escape")
        assert chat.prompt.text == "next"
        assert chat.app.is_running


async def test_esc_drops_a_queued_message_and_leaves_its_text(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"waits", "enter")
        await chat.until_shown("queued")
        await chat.pilot.press("escape")
        await chat.until(lambda: "queued" not in chat.shown())
        assert manager.queue == []
        assert "waits" in chat.shown()


async def test_esc_in_a_dialog_closes_only_the_dialog(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hi", "enter")
        manager.begin()
        await chat.pilot.press(*"draft", "f1")
        await chat.pilot.press("escape")
        assert chat.app.screen is chat.screen
        assert manager.running is not None
        assert chat.prompt.text == "draft"


async def test_a_reply_that_was_cut_goes_on(manager: FakeManager) -> None:
    session = manager.make("Cut", ["go", "once upon a"])
    session.path()[-1].state = "cut"
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("cut off · Ctrl+G continues")
        await chat.pilot.press("ctrl+g")
        manager.stream(" time")
        await chat.until_shown("once upon a time", "writing…")


async def test_a_failed_turn_keeps_what_came_and_says_why(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hi", "enter")
        manager.begin()
        manager.stream("some text")
        manager.finish("failed", error="The engine ended.")
        manager.set_engine("failed", message="The engine ended twice; Ctrl+Q and look into the log.")
        await chat.until_shown("some text", "failed: The engine ended.")
        assert chat.status.startswith("The engine ended twice")
        assert "The engine is not running" in str(chat.prompt.placeholder)
        await chat.pilot.press(*"still alive")
        assert chat.prompt.text == "still alive"


async def test_prompt_progress_and_restore_are_told(manager: FakeManager) -> None:
    async with running(manager) as chat:
        await chat.pilot.press(*"hi", "enter")
        manager.begin()
        manager.restored(6144, 41.2)
        manager.progress(1024, 6204)
        await chat.until_shown("reading prompt 1,024 / 6,204")
        assert "reading prompt 1,024 / 6,204" in chat.status
        assert "restored 6,144 tokens in 41 ms" in chat.status


async def test_switching_does_not_stop_a_reply(manager: FakeManager) -> None:
    other = manager.make("Other", ["a", "b"])
    async with running(manager) as chat:
        await chat.pilot.press(*"first", "enter")
        first = chat.screen.current_id
        manager.begin()
        manager.stream("seen ")
        chat.screen.open(other.id)
        manager.stream("unseen ")
        await chat.pilot.press(*"second", "enter")
        await chat.until_shown("second", "queued behind 1")
        assert "1 busy elsewhere" in chat.status
        assert manager.busy_sessions() == {first: "running", other.id: "queued"}
        chat.screen.open(first)
        manager.stream("seen again")
        await chat.until_shown("seen unseen seen again")
        manager.finish()
        manager.begin()
        await chat.until(lambda: manager.busy_sessions() == {other.id: "running"})


async def test_a_reply_opened_in_the_middle_shows_each_character_once(manager: FakeManager) -> None:
    other = manager.make("Other", ["a", "b"])
    async with running(manager) as chat:
        await chat.pilot.press(*"go", "enter")
        first = chat.screen.current_id
        manager.begin()
        chat.screen.open(other.id)
        # The events are on their way, the text is in the session already.
        manager.stream("abc")
        chat.screen.open(first)
        manager.stream("def")
        await chat.until_shown("abcdef")
        assert "abcabc" not in chat.shown()


async def test_each_session_keeps_its_draft(manager: FakeManager) -> None:
    one, two = manager.make("One", ["a", "b"], updated=2), manager.make("Two", ["c", "d"], updated=1)
    async with running(manager, session_id=one.id) as chat:
        await chat.pilot.press(*"for one", "f4")
        assert chat.screen.current_id == two.id
        assert chat.prompt.text == ""
        await chat.pilot.press(*"for two", "f3")
        assert chat.screen.current_id == one.id
        assert chat.prompt.text == "for one"
        await chat.pilot.press("alt+down")
        assert chat.prompt.text == "for two"
        assert manager.left == [one.id, two.id, one.id]


async def test_numbers_open_sessions(manager: FakeManager) -> None:
    sessions = [manager.make(f"Number {n}", ["a", "b"], updated=100 - n) for n in range(1, 12)]
    async with running(manager, session_id=sessions[0].id) as chat:
        await chat.pilot.press("x", "alt+3")
        assert chat.screen.current_id == sessions[2].id
        await chat.pilot.press("f2", "5")
        assert chat.screen.current_id == sessions[4].id
        await chat.pilot.press("ctrl+o", "2")
        assert chat.screen.current_id == sessions[1].id
        await chat.pilot.press("alt+1")
        assert chat.prompt.text == "x"


async def test_the_switcher_finds_by_letters(manager: FakeManager) -> None:
    for n in range(300):
        manager.make(f"Talk number {n}", ["a", "b"], updated=n)
    wanted = manager.make("Borrow checker [bold]woes[/bold]", ["a", "b"], updated=0)
    async with running(manager) as chat:
        await chat.pilot.press("ctrl+o")
        assert isinstance(chat.app.screen, SwitcherScreen)
        await chat.pilot.press(*"brwchk")
        found = chat.app.screen.query_one(SessionList)
        assert [row.session_id for row in found.rows] == [wanted.id]
        assert "[bold]woes[/bold]" in found.render_line(0).text
        await chat.pilot.press("enter")
        assert chat.screen.current_id == wanted.id


async def test_the_switcher_moves_and_starts_new_chats(manager: FakeManager) -> None:
    one, two = manager.make("One", ["a", "b"], updated=2), manager.make("Two", ["c", "d"], updated=1)
    async with running(manager, session_id=one.id) as chat:
        await chat.pilot.press("ctrl+o", "enter")
        assert chat.screen.current_id == two.id
        await chat.pilot.press("ctrl+o", *"zzz")
        await chat.pilot.press("escape")
        assert chat.screen.current_id == two.id
        await chat.pilot.press("ctrl+o", "ctrl+n")
        assert chat.screen.current_id not in (one.id, two.id)
        assert chat.screen.has_class("-empty")


async def test_picking_opens_the_switcher_first(manager: FakeManager) -> None:
    session = manager.make("Pick me", ["a", "b"])
    async with running(manager, pick=True) as chat:
        await chat.until(lambda: isinstance(chat.app.screen, SwitcherScreen))
        await chat.pilot.press("enter")
        assert chat.screen.current_id == session.id


async def test_context_is_restored_when_the_eye_rests_or_the_user_types(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [manager.make(f"S{n}", ["a", "b"], updated=100 - n) for n in range(5)]
    monkeypatch.setattr(viewing, "REST_SECONDS", 600)
    async with running(manager, session_id=sessions[0].id) as chat:
        await chat.pilot.press("f4", "f4", "f4")
        assert manager.rested == []
        await chat.pilot.press("x", "y")
        await chat.until(lambda: manager.rested == [sessions[3].id])
        monkeypatch.setattr(viewing, "REST_SECONDS", 0.01)
        await chat.pilot.press("f4")
        await chat.until(lambda: manager.rested == [sessions[3].id, sessions[4].id])


async def test_a_locked_session_is_read_only_and_can_be_forked(manager: FakeManager) -> None:
    session = manager.make("Elsewhere", ["a question", "an answer"])
    manager.locked.add(session.id)
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("an answer", "open in another ds4chat")
        await chat.pilot.press(*"more", "enter")
        assert manager.queue == []
        assert chat.prompt.text == "more"
        await chat.pilot.press("f5")
        assert chat.screen.current_id != session.id
        assert chat.prompt.text == "more"
        await chat.pilot.press("enter")
        await chat.until(lambda: len(manager.queue) == 1)


async def test_a_session_that_is_not_there_leads_to_a_new_one(manager: FakeManager) -> None:
    async with running(manager, session_id="deadbeef") as chat:
        assert chat.screen.has_class("-empty")
        assert chat.screen.resumable is None


async def test_an_empty_chat_welcomes_and_is_not_multiplied(manager: FakeManager) -> None:
    manager.make("Recent one", ["a", "b"])
    async with running(manager) as chat:
        welcome = chat.screen.welcome
        await chat.until(lambda: welcome.size.height > 0 and MODEL in chat.status)
        text = "\n".join(welcome.render_line(y).text for y in range(welcome.size.height))
        assert MODEL in text and "Ctrl+O" in text and "Recent one" in text
        count = len(manager.sessions)
        await chat.pilot.press("ctrl+n", "ctrl+n")
        assert len(manager.sessions) == count


async def test_notices_stand_in_the_session_they_concern(manager: FakeManager) -> None:
    one, two = manager.make("One", ["a", "b"]), manager.make("Two", ["c", "d"])
    async with running(manager, session_id=one.id) as chat:
        manager.notice("Storing is off: the disk is full [red].", two.id, "warning")
        manager.notice("The engine was restarted.", one.id)
        await chat.until_shown("i The engine was restarted.")
        assert "disk is full" not in chat.shown()
        chat.screen.open(two.id)
        await chat.until_shown("! Storing is off: the disk is full [red].")


async def test_renaming_and_deleting(manager: FakeManager) -> None:
    session = manager.make("Old", ["a", "b"])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("f9", "end", *" name", "enter")
        await chat.until(lambda: session.title == "Old name")
        await chat.pilot.press("f8")
        await chat.until(lambda: session.id not in manager.sessions)
        assert chat.screen.has_class("-empty")


async def test_earlier_messages_come_back_with_up(manager: FakeManager) -> None:
    session = manager.make("History", ["first", "b", "second", "d"])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("up")
        assert chat.prompt.text == "second"
        await chat.pilot.press("up")
        assert chat.prompt.text == "first"
        await chat.pilot.press("down", "down")
        assert chat.prompt.text == ""


@pytest.mark.parametrize("keys", [("ctrl+q",), ("ctrl+c", "ctrl+c")])
async def test_leaving_waits_for_the_manager(manager: FakeManager, keys: tuple[str, ...]) -> None:
    manager.close_gate = asyncio.Event()
    session = manager.make("Kept", ["a", "b"])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press(*keys)
        await chat.until(lambda: chat.status.startswith("saving…"))
        assert chat.app.is_running
        manager.close_gate.set()
        await chat.until(lambda: not chat.app.is_running)
    assert manager.closed
    assert chat.app.return_value == session.id


async def test_asked_twice_it_leaves_at_once(manager: FakeManager) -> None:
    manager.close_gate = asyncio.Event()
    async with running(manager) as chat:
        await chat.pilot.press("ctrl+q")
        await chat.until(lambda: chat.status.startswith("saving…"))
        await chat.pilot.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    assert chat.app.return_value is None
    assert not manager.closed


async def test_the_sidebar_hides_itself_and_by_a_key(manager: FakeManager) -> None:
    async with running(manager, size=(100, 30)) as chat:
        sidebar = chat.screen.query_one("#sidebar")
        assert sidebar.display
        await chat.pilot.press("ctrl+b")
        assert not sidebar.display
        await chat.pilot.press("ctrl+b")
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: not sidebar.display)
        await chat.pilot.press("ctrl+b")
        assert sidebar.display


async def test_marks_in_the_list_are_not_colour_alone(manager: FakeManager) -> None:
    one, two = manager.make("One", ["a", "b"], updated=2), manager.make("Two", ["c", "d"], updated=1)
    async with running(manager, session_id=one.id) as chat:
        manager.send(one.id, "x")
        manager.send(two.id, "y")
        manager.begin()
        rows = chat.screen.sessions
        await chat.until(lambda: any("●" in rows.render_line(y).text for y in range(rows.line_count)))
        texts = {row.session_id: rows.render_line(rows.line_of(i)).text for i, row in enumerate(rows.rows)}
        assert texts[one.id].startswith("▸") and "●" in texts[one.id]
        assert not texts[two.id].startswith("▸") and "○" in texts[two.id]


async def test_actions_are_in_the_command_palette(manager: FakeManager) -> None:
    session = manager.make("One", ["a", "b"])
    async with running(manager, session_id=session.id) as chat:
        titles = [command.title for command in chat.app.get_system_commands(chat.screen)]
        assert {"New", "Open", "Fork", "Rename", "Delete", "Themes", "Quit"} <= set(titles)
        assert "Continue" not in titles
