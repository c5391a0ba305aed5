"""An engine that says nothing: noticed, told with the way out, started anew when its reply is stopped."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import time
from pathlib import Path

import pytest

from ds4chat.engine import client, worker
from ds4chat.engine.protocol import Cancel, Event, Pulse
from ds4chat.printing import print_reply
from ds4chat.sessions import conductor, engine_host, silence
from ds4chat.sessions.events import (
    EngineChanged,
    EngineNotice,
    EngineStatus,
    MessageAdded,
    TextStreamed,
    TurnEnded,
)
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.ui.wording import engine_words
from tests.support.manager_room import GREEDY, ManagerRoom, manager_room
from tests.support.scripted_engine import Script, ScriptedClient, scripted_room
from tests.ui.driving import running
from tests.ui.fake_manager import MODEL, FakeManager

SAID = (
    "The engine has said nothing for {} seconds: it waits for the disk, or it is stuck. Stopping the reply starts it "
    "anew, and what was shown is kept."
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(silence, "SECONDS", 0.3)
    return 0.3


def silent_now(room: ManagerRoom, silent: bool = True) -> asyncio.Future[EngineChanged]:
    return asyncio.ensure_future(
        room.until(EngineChanged, lambda e: e.status.silent is silent, len(room.events))
    )


async def test_a_hung_turn_is_told_and_stopping_it_starts_the_engine_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: float
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        script.hold = True
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me.")
        notice = await room.until(EngineNotice)
        assert notice == EngineNotice(SAID.format("0.3"), session.id, "warning")
        assert room.manager.engine.silent and room.manager.engine.phase == "ready"
        seen = len(room.events)
        assert room.manager.stop(session.id)
        ended = await room.until(TurnEnded)
        assert (ended.state, ended.error) == (
            "cut",
            "The engine did not answer and is started again; what was shown is kept.",
        )
        assert session.path()[-1].text == "so"
        await room.until(EngineChanged, lambda e: e.status.phase == "ready" and not e.status.silent, seen)
        assert len(script.clients) == 2
        script.hold = False
        room.manager.continue_reply(session.id)
        assert (await room.manager.wait_turn(session.id)).state == "complete"


async def test_an_engine_that_goes_on_is_no_longer_called_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: float
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        script.hold = True
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me.")
        await room.until(EngineNotice)
        again = silent_now(room, False)
        script.go_on()
        assert (await room.manager.wait_turn(session.id)).state == "complete"
        assert (await again).status.phase == "ready"
        assert len(script.clients) == 1
        told = len(room.of(EngineNotice))
        await asyncio.sleep(2 * short)
        assert len(room.of(EngineNotice)) == told == 1, "nothing is due of an engine that has nothing to do"


async def test_signs_of_life_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: float
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        script.hold = True
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me.")
        for _ in range(12):
            await asyncio.sleep(short / 6)
            script.clients[-1].say(Pulse())
        assert room.of(EngineNotice) == []
        assert room.manager.stop(session.id)
        assert isinstance(script.commands[-1], Cancel), "it is asked to stop as ever"


async def test_an_engine_that_hangs_while_it_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: float
) -> None:
    monkeypatch.setattr(ScriptedClient, "_work", lambda _self, _command: None)
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, script):
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me.")
        notice = await room.until(EngineNotice)
        assert notice.message.startswith(
            "The engine has said nothing for 0.3 seconds while it loads scripted: it waits"
        )
        assert room.manager.stop(session.id)
        failed = await room.until(EngineChanged, lambda e: e.status.phase == "failed")
        assert failed.status.message == (
            "The engine did not answer while it loaded scripted: the next message starts it anew, or choose another "
            "model with --model (in a chat: /model)."
        )
        assert [m.text for m in session.path()] == ["Tell me."]
        room.manager.send(session.id, "Again.")
        await room.until(EngineNotice, after=len(room.events))
        assert len(script.clients) == 2


def test_a_program_that_stood_still_itself_blames_nobody(short: float) -> None:
    """A program that was suspended finds its clock ahead and the events of that time unread."""
    told: list[bool] = []

    async def stand_still() -> None:
        watch = silence.Silence(lambda: True, told.append)
        watch.begin()
        await asyncio.sleep(short / 10)
        time.sleep(2 * short)  # noqa: ASYNC251 - the whole loop is to stand still
        await asyncio.sleep(short / 3)
        assert told == []
        await asyncio.sleep(short)
        assert told == [True]
        watch.end()

    asyncio.run(stand_still())


def test_the_engine_gives_signs_of_life_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Event] = []
    engine = worker.Engine(said.append)
    monkeypatch.setattr(worker, "PULSE_SECONDS", 1000.0)
    engine._emit(Pulse())
    engine._beat()
    assert said == [Pulse()]
    monkeypatch.setattr(worker, "PULSE_SECONDS", 0.0)
    engine._beat()
    assert said == [Pulse(), Pulse()]


def test_print_says_it_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, short: float
) -> None:
    script = Script()
    script.hold = True
    monkeypatch.setattr(ScriptedClient, "script", script, raising=False)
    monkeypatch.setattr(engine_host, "EngineClient", ScriptedClient)
    (tmp_path / "m.gguf").touch()
    manager = SessionManager(tmp_path, EngineOptions(tmp_path / "m.gguf", n_ctx=500), GREEDY)

    class Told(io.StringIO):
        def write(self, text: str) -> int:
            if "nothing for" in text:
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    out, err = io.StringIO(), Told()
    code = 0
    try:
        code = print_reply(manager, "Tell me.", session_id=None, output_format="text", out=out, err=err)
    except Exception as error:
        assert str(error) == "The engine did not answer and is started again; what was shown is kept."
    assert code in (0, 130)
    assert out.getvalue() == "so\n"
    assert err.getvalue().startswith(f"ds4chat: {SAID.format('0.3')}\n")


# ---- on the screen ----------------------------------------------------------------------------------------------


async def test_the_status_line_offers_the_key() -> None:
    assert engine_words(EngineStatus("ready", "m", silent=True)) == "m does not answer · Esc starts it anew"
    manager = FakeManager()
    session = manager.make("A chat", ["Hello", "Hi"])
    async with running(manager, session_id=session.id) as chat:
        await chat.until(lambda: MODEL in chat.status)
        manager._status = EngineStatus("ready", MODEL, 1.0, 8192, silent=True)
        manager.emit(EngineChanged(manager._status))
        await chat.until(lambda: f"{MODEL} does not answer · Esc starts it anew" in chat.status)


# ---- a real child that is stopped -------------------------------------------------------------------------------


async def test_a_stopped_child_is_ended_and_the_chat_goes_on(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        await room.until(TextStreamed)
        monkeypatch.setattr(silence, "SECONDS", 0.5)
        room.manager.send(session.id, "And then?")
        child = room.manager.engine_pid
        assert child is not None
        os.kill(child, signal.SIGSTOP)
        notice = await room.until(EngineNotice)
        assert notice.message == SAID.format("0.5")
        seen = len(room.events)
        monkeypatch.setattr(silence, "SECONDS", 60.0)
        room.manager.stop(session.id)
        ended = await room.until(TurnEnded, after=seen)
        assert ended.state == "cut"
        shown = "".join(e.text for e in room.of(TextStreamed))
        assert session.path()[1].text == shown[: len(session.path()[1].text)] != ""
        await room.until(EngineChanged, lambda e: e.status.phase == "ready", after=seen)
        await room.until(TextStreamed, after=seen)
        assert room.manager.engine_pid != child
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


async def test_a_quit_ends_a_stopped_child(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "CANCEL_SECONDS", 0.1)
    monkeypatch.setattr(client, "GRACE_SECONDS", 0.2)
    async with manager_room(tiny["dense"], tmp_path, max_tokens=2000) as room:
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me a very long story.")
        await room.until(MessageAdded)
        await room.until(TextStreamed)
        child = room.manager.engine_pid
        assert child is not None
        os.kill(child, signal.SIGSTOP)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert session.path()[-1].state == "cut" and re.search(r"\w", session.path()[-1].text)
