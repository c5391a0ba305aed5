"""Escape sequences and their like on the screen: whatever is shown is painted as something visible."""

from __future__ import annotations

import time

from textual.events import Paste

from ds4chat.safe_text import visible
from ds4chat.ui import clipboard
from ds4chat.ui.attention import title_words
from tests.support.hostile import ACTS, EVERYTHING, acting
from tests.ui.conftest import manager as manager
from tests.ui.conftest import no_clipboard as no_clipboard
from tests.ui.driving import Chat, running
from tests.ui.fake_manager import FakeManager

MEGABYTE = 1_000_000
OPEN_SECONDS, KEY_SECONDS = 6.0, 1.0
"""Of the processor's time, for a message of a megabyte on one line; a busy machine doubles what is usual."""


def painted(chat: Chat) -> str:
    """All that the screen on top sends to the terminal, styles aside."""
    strips = chat.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


def hostile(manager: FakeManager, text: str) -> str:
    session = manager.make(f"t {text}", ["question " + text, "answer " + text, text, "last"])
    session.model, session.system, session.tags = text, text, [text[:40]]
    for message in session.messages.values():
        message.model = text
    return session.id


async def test_a_chat_full_of_it(manager: FakeManager) -> None:
    for text in ACTS.values():
        hostile(manager, text)
    everything = hostile(manager, EVERYTHING)
    async with running(manager, session_id=everything, size=(110, 60)) as chat:
        await chat.until_shown("last")
        assert acting(painted(chat)) == []
        assert "\u241b" in painted(chat)
        for key in ("tab", "up", "escape", "ctrl+f", "escape", "ctrl+p", "escape"):
            await chat.pilot.press(key)
            await chat.pilot.pause()
            assert acting(painted(chat)) == [], key


async def test_replies_as_they_come(manager: FakeManager) -> None:
    session = manager.make("t", ["question"])
    async with running(manager, session_id=session.id) as chat:
        texts = list(ACTS.values())
        for i, text in enumerate(" ".join(texts[at::4]) for at in range(4)):
            manager.send(session.id, "go")
            manager.begin()
            whole = f"{text} end{i}"
            for at in range(0, len(whole), 23):
                manager.stream(whole[at : at + 23])
            await chat.until(lambda i=i: f"end{i}" in chat.shown())  # type: ignore[misc]
            assert acting(painted(chat)) == [], text
            manager.finish()
            await chat.pilot.pause()
            assert acting(painted(chat)) == [], text


async def test_a_paste_is_shown_and_sent_as_something_visible(manager: FakeManager) -> None:
    session = manager.make("t", ["question", "answer"])
    async with running(manager, session_id=session.id) as chat:
        chat.prompt.post_message(Paste(EVERYTHING + "\x00\ud800"))
        await chat.until(lambda: "algo" in chat.prompt.text)
        assert acting(painted(chat)) == []
        assert acting(chat.prompt.text) == []


async def test_notices_and_errors(manager: FakeManager) -> None:
    session = manager.make("t", ["question", "answer"])
    async with running(manager, session_id=session.id) as chat:
        chat.app.notify(EVERYTHING, markup=False)
        manager.notice(EVERYTHING)
        await chat.until(lambda: len(chat.toasts) > 1)
        assert [acting(toast) for toast in chat.toasts] == [[], []]
        assert all("pwned" in toast for toast in chat.toasts)


def test_the_terminals_title() -> None:
    for text in (*ACTS.values(), EVERYTHING):
        assert acting(title_words(text, unread=0, writing=False)) == []


def test_what_is_copied_goes_as_base64() -> None:
    for environ in ({}, {"TMUX": "x"}, {"STY": "x"}):
        sent = clipboard.osc52(EVERYTHING + "\ud800", environ)
        assert "pwned" not in sent and "\u202e" not in sent


async def test_a_megabyte_on_one_line(manager: FakeManager) -> None:
    line = "word " * (MEGABYTE // 10) + "x" * (MEGABYTE // 2)
    session = manager.make("t", ["question", line, "short", "last"])
    began = time.process_time()
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("last")
        opened = time.process_time() - began
        began = time.process_time()
        await chat.pilot.press("h", "e", "l", "l", "o")
        await chat.until(lambda: chat.prompt.text == "hello")
        typed = (time.process_time() - began) / 5
        await chat.pilot.resize_terminal(60, 20)
        await chat.until_shown("last")
    assert opened < OPEN_SECONDS
    assert typed < KEY_SECONDS


def test_a_megabyte_made_visible_is_quick() -> None:
    began = time.process_time()
    assert len(visible("\x1b" * MEGABYTE)) == MEGABYTE
    assert len(visible("a" * MEGABYTE)) == MEGABYTE
    assert time.process_time() - began < 2
