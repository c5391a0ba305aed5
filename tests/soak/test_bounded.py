"""What a long run leaves in memory: the same after many switches as after some, on the screen and below it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from textual._styles_cache import StylesCache
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets._footer import FooterKey

from ds4chat.checkpoints.span import SpanInfo
from ds4chat.sessions.session import Message, Session
from ds4chat.sessions.turn import Turn
from ds4chat.ui.app import ChatApp
from ds4chat.ui.entries import Entry
from tests.support.engine_room import EngineRoom, user
from tests.support.scripted_engine import scripted_room

KINDS = (Session, Message, Turn, Widget, StylesCache, Timer, Entry, asyncio.Task, asyncio.Future, SpanInfo)

ROUNDS = 4
"""Between two looks."""


def census() -> Counter[str]:
    """How many objects of the kinds that matter are alive."""
    gc.collect()
    return Counter(kind.__name__ for thing in gc.get_objects() for kind in KINDS if isinstance(thing, kind))


def grown(before: Counter[str], after: Counter[str], spare: int = 4) -> dict[str, tuple[int, int]]:
    """Of which kind there are more than there were."""
    return {kind: (before[kind], n) for kind, n in after.items() if n > before[kind] + spare}


async def test_turns_and_switches_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, script):
        app = ChatApp(room.manager)
        async with app.run_test(size=(100, 30)) as pilot:
            chats: list[str] = []

            async def until(condition: Callable[[], bool]) -> None:
                while not condition():
                    await pilot.pause(0.01)

            def keys() -> set[str]:
                return {key.description for key in app.query(FooterKey)}

            async def go_round(number: int) -> None:
                app.chat.open_new()
                script.hold = True
                app.chat.prompt.put(f"question {number}")
                await pilot.press("enter")
                # The footer shows other keys while a reply is written: it is made anew twice in each round.
                await until(lambda: "Stop" in keys())
                script.go_on()
                await until(lambda: "Stop" not in keys())
                chats.append(app.chat.current_id)
                app.chat.open(chats[len(chats) // 2])
                await pilot.press("ctrl+o")
                await until(lambda: app.screen is not app.chat)
                await pilot.press("escape")
                await until(lambda: app.screen is app.chat)
                if len(chats) > 2:
                    app.chat.trash(chats.pop(0), "gone")
                # What the test's own parts keep is no matter of the program's.
                room.events.clear()
                script.commands.clear()

            async with asyncio.timeout(60):
                await until(lambda: app.chat.transcript.session is not None)
                for number in range(ROUNDS):
                    await go_round(number)
                before = census()
                for number in range(ROUNDS):
                    await go_round(ROUNDS + number)
                assert grown(before, census()) == {}


def test_restores_leave_nothing_behind(tmp_path: Path, tiny: dict[str, Path]) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("\n")

    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with EngineRoom(tiny["dense"], tmp_path / "kv") as room:

        def go_round(times: int) -> None:
            for number in range(times):
                text = f"chat {number % 3}: " + "the harbour master counts the gulls " * 12
                reply = room.chat([user(text)], session=str(number % 3), max_tokens=4)
                assert reply.done is not None
            room.flush()

        go_round(6)
        before, maps, files = census(), mapped(), descriptors()
        go_round(18)
        assert grown(before, census()) == {}
        assert mapped() <= maps + 4 and descriptors() <= files + 2
