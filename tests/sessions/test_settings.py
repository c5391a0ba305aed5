"""What each session runs with: model, system prompt, sampling, context; and how long its restore will take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ds4chat.errors import SessionLockedError, UsageError
from ds4chat.sessions.events import EngineChanged, SettingsChanged
from ds4chat.sessions.session import SessionInfo
from ds4chat.sessions.settings import KEYS, RestoreSpeed, check
from tests.support.manager_room import manager_room
from tests.support.scripted_engine import scripted_room


async def test_parameters_of_one_session_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        mine, other = room.manager.new_session(), room.manager.new_session()
        room.manager.set_params(mine.id, {"temperature": 1, "top_k": 7.0, "max_tokens": 50, "seed": None})
        assert room.of(SettingsChanged) == [SettingsChanged(mine.id)]
        await room.ask(mine.id, "One?")
        assert (script.asked.sampling.temperature, script.asked.sampling.top_k) == (1.0, 7)
        assert script.asked.max_tokens == 50
        await room.ask(other.id, "Two?")
        assert script.asked.sampling.temperature == 0 and script.asked.max_tokens is None
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        room.manager.open_session(mine.id)
        effective = room.manager.effective(mine.id)
        assert set(effective) == {"model", "model_path", "system", *KEYS} - {"tools"}
        assert (effective["temperature"], effective["top_k"], effective["max_tokens"]) == (1.0, 7, 50)
        assert (effective["model"], effective["ctx"], effective["persona"]) == ("scripted", 1000, "")
        room.manager.set_params(mine.id, {})
        assert room.manager.effective(mine.id)["temperature"] == 0


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"colour": 1}, 'no setting "colour": allowed are temperature,'),
        ({"top_k": 1.5}, "top_k must be a whole number"),
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"seed": True}, "seed must be a number"),
    ],
)
def test_what_is_no_setting_is_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(params)


async def test_a_session_may_have_a_context_of_its_own(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, n_ctx=1024, max_tokens=8) as room:
        session, other = room.manager.new_session(), room.manager.new_session()
        first = await room.ask(session.id, "Tell me of the sea. " * 6)
        room.manager.set_params(session.id, {"ctx": 512})
        assert room.manager.effective(session.id)["ctx"] == 512
        second = await room.ask(session.id, "And of the wind?")
        assert room.manager.engine.n_ctx == 512
        assert second.stats.cached_tokens >= first.stats.prompt_tokens, (
            "its checkpoints are of use all the same"
        )
        await room.ask(other.id, "And of the sand?")
        assert room.manager.engine.n_ctx == 1024
    async with manager_room(tiny["dense"], tmp_path, n_ctx=1024, start=False) as room:
        room.manager.open_session(session.id)
        await room.manager.start_engine()
        await room.ready()
        assert room.manager.engine.n_ctx == 512, "the engine starts as the session that is open wants it"


async def test_the_model_changes_in_mid_chat(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Tell me of the sea.")
        room.manager.set_model(session.id, tiny["recurrent"])
        assert room.manager.effective(session.id)["model_path"] == str(tiny["recurrent"])
        assert room.manager.engine.model == "dense", "the next turn loads it"
        await room.ask(session.id, "And of the wind?")
        assert [m.model for m in session.path() if m.model] == ["dense", "recurrent"]
        assert session.path()[1].fingerprint != session.path()[3].fingerprint
        with pytest.raises(UsageError, match="no model at"):
            room.manager.set_model(session.id, tmp_path / "gone.gguf")
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        room.manager.open_session(session.id)
        await room.ask(session.id, "And of the sand?")
        assert session.id and room.manager.engine.model == "recurrent", "the session brings it"


async def test_a_chosen_model_counts_more_than_the_one_named_for_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.touch()
    async with scripted_room(monkeypatch, tmp_path, pinned=True) as (room, script):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        room.manager.set_model(session.id, other)
        await room.ask(session.id, "Two?")
        begun = room.manager.new_session(model_path=str(other))
        assert room.manager.effective(begun.id)["model"] == "other"
        assert [Path(load.model_path).stem for load in script.loads] == ["scripted", "other"]


async def test_another_system_prompt_keeps_what_was_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path, system="Be brief.") as (room, script):
        session = room.manager.new_session()
        await room.ask(session.id, "One?")
        room.manager.set_system(session.id, "Be long.\x00")
        await room.ask(session.id, "Two?")
        assert [m.text for m in script.asked.messages] == ["Be long.", "One?", "so be it", "Two?"]
        assert script.asked.cold, "what all chats with this prompt share is stored once more"
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, _):
        assert room.manager.open_session(session.id).system == "Be long."
        async with scripted_room(monkeypatch, tmp_path, start=False) as (second, _):
            second.manager.open_read_only(session.id)
            with pytest.raises(SessionLockedError):
                second.manager.set_system(session.id, "Mine.")


async def test_new_sessions_begin_with_a_personas_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, _):
        session = room.manager.new_session("You rhyme.", params={"persona": "poet", "temperature": 1.2})
        assert room.manager.effective(session.id)["persona"] == "poet"
        await room.ask(session.id, "One?")
    async with scripted_room(monkeypatch, tmp_path, start=False) as (room, _):
        assert room.manager.open_session(session.id).params == {"persona": "poet", "temperature": 1.2}


async def test_which_session_is_warm(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        assert room.manager.live_session == ""
        a, b = room.manager.new_session(), room.manager.new_session()
        await room.ask(a.id, "One?")
        assert room.manager.live_session == a.id
        await room.ask(b.id, "Two?")
        assert room.manager.live_session == b.id
        seen = len(room.events)
        room.kill_engine()
        await room.until(EngineChanged, lambda e: e.status.phase == "ready", after=seen)
        assert room.manager.live_session == ""


async def test_how_long_a_restore_will_take(tiny: dict[str, Path], tmp_path: Path) -> None:
    async with manager_room(tiny["dense"], tmp_path, max_tokens=8) as room:
        a, b = room.manager.new_session(), room.manager.new_session()
        await room.ask(a.id, "Tell me of the sea. " * 20)
        assert [room.manager.restore_ms(i) for i in room.manager.list_sessions()] == [None]
        await room.ask(b.id, "And of the wind?")
        info = next(i for i in room.manager.list_sessions() if i.id == a.id)
        before = room.manager.restore_ms(info)
        assert before == info.stored_bytes / RestoreSpeed.DEFAULT and info.stored_tokens > 100
        again = await room.ask(a.id, "And of the sand?")
        assert again.stats.restore_ms > 0 and room.manager.restore_ms(info) != before


def test_the_speed_follows_what_was_measured_last() -> None:
    speed = RestoreSpeed()
    assert speed.ms(0) is None and speed.ms(3_000_000) == 2.0
    speed.saw(0, 5)
    speed.saw(1_000, 10)
    assert speed.ms(1_000) == pytest.approx(10)
    for _ in range(30):
        speed.saw(1_000, 1)
    assert speed.ms(1_000) == pytest.approx(1, rel=0.05)


def test_a_row_without_checkpoints_has_no_estimate() -> None:
    info = SessionInfo("0" * 8, "", "", 0, 0, 0.0, 0.0)
    assert RestoreSpeed().ms(info.stored_bytes) is None
