"""What a model can do is found out by trying, remembered, and kept to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.checkpoints.format import Flag, read_header
from ds4chat.checkpoints.reason import Reason
from ds4chat.engine import probe as probing
from ds4chat.engine.llama import Context, ContextSettings, Model
from ds4chat.engine.probe import Ability, ability, probe
from ds4chat.errors import CheckpointError
from tests.support.engine_room import EngineRoom, system, user

SYSTEM = "You are a patient guide. You answer in plain words and like long sentences. " * 4


@pytest.fixture
def context(tiny_model: Path) -> Iterator[Context]:
    model = Model.load(tiny_model, extra_buffers=False)
    context = Context(model, ContextSettings(n_ctx=512))
    yield context
    context.close()
    model.close()


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("flash_attention", [True, False])
def test_every_kind_brings_its_state_back(tiny_model: Path, kv_type: str, flash_attention: bool) -> None:
    if not flash_attention and kv_type != "f16":
        pytest.skip("llama.cpp quantizes V with flash attention only")
    model = Model.load(tiny_model, extra_buffers=False)
    context = Context(model, ContextSettings(n_ctx=512, kv_type=kv_type, flash_attention=flash_attention))
    found = probe(context)
    assert found == Ability("spans", rewinds=model.memory in ("dense", "sliding-window"))
    context.close()
    model.close()


def test_the_answer_is_remembered(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memo = tmp_path / "models.json"
    first = ability(context, "a", memo)
    monkeypatch.setattr(probing, "probe", lambda _: pytest.fail("probed again"))
    assert ability(context, "a", memo) == first
    with pytest.raises(pytest.fail.Exception):
        ability(context, "b", memo)


def test_a_damaged_memory_is_made_anew(context: Context, tmp_path: Path) -> None:
    memo = tmp_path / "models.json"
    memo.write_text("{")
    found = ability(context, "a", memo)
    assert ability(context, "a", memo) == found
    assert ability(context, "a", tmp_path / "missing" / "models.json") == found


def test_a_model_whose_spans_do_not_come_back_keeps_whole_states(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = Context.restore

    def whole_only(self: Context, address: int, size: int, start: int, end: int) -> None:
        if start:
            raise CheckpointError("only from the start")
        restore(self, address, size, start, end)

    monkeypatch.setattr(Context, "restore", whole_only)
    assert _probe(tiny["dense"]) == Ability("snapshots", rewinds=True)


def test_a_model_whose_state_does_not_come_back_stores_nothing(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "restore", lambda *_: None)
    assert _probe(tiny["dense"]).storing == "none"
    with EngineRoom(tiny["dense"], tmp_path) as room:
        room.chat([system(SYSTEM), user("Hello?")])
    assert not list(tmp_path.rglob("*.kv"))


def test_a_cut_back_that_gives_other_logits_is_not_done(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "rewind", lambda *_: None)
    assert _probe(tiny["dense"]) == Ability("spans", rewinds=False)


def test_whole_states_of_any_kind_resume_regenerate_and_stay_few(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What recurrent models do by themselves, on all: snapshots at prompts and turn ends, three of them."""
    monkeypatch.setattr(probing, "probe", lambda _: Ability("snapshots", rewinds=False))
    questions = ["Tell me about the sea, please.", "And the hills?", "And rivers?", "And the sky?"]
    history, whole = [system(SYSTEM)], []
    with EngineRoom(tiny_model, None) as room:
        for question in questions:
            history.append(user(question))
            whole.append(room.chat(history))
            history.append(whole[-1].message)
    history, parts = [system(SYSTEM)], []
    for question in questions:
        history.append(user(question))
        with EngineRoom(tiny_model, tmp_path) as room:
            parts.append(room.chat(history, cold=not parts))
            room.flush()
            again = room.chat(history, cold=False)
            assert again.tokens == parts[-1].tokens
            assert again.done is not None and again.done.prefilled_tokens == 1, (
                "regenerate costs the pending token"
            )
        history.append(parts[-1].message)
    assert [r.tokens for r in parts] == [r.tokens for r in whole]
    last = parts[-1].done
    assert last is not None and last.prefilled_tokens < 30
    headers = [read_header(path)[0] for path in tmp_path.rglob("*.kv")]
    assert all(h.flags & Flag.SNAPSHOT and h.start == 0 for h in headers)
    assert len([h for h in headers if h.reason is not Reason.COLD]) <= 3


def _probe(path: Path) -> Ability:
    model = Model.load(path, extra_buffers=False)
    context = Context(model, ContextSettings(n_ctx=512))
    found = probe(context)
    context.close()
    model.close()
    return found
