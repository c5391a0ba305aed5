"""What broke programs like this one: the engine and its checkpoints. A test each, named after what must hold.

Short and plain on purpose. The same ground is covered in depth, for every kind of model, beside the code concerned.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from ds4chat.checkpoints import quarantine, store
from ds4chat.engine.llama import Model, Sampler
from ds4chat.engine.protocol import Prefill, Restored
from tests.support.engine_room import SMALL, EngineRoom, Reply, system, user
from tests.support.program import flip_payload_byte

SYSTEM = system("You are a patient guide who answers in plain words and never hurries. " * 6)
SEA, HILLS, RIVERS = user("Tell me about the sea."), user("And about the hills?"), user("And rivers?")
LONG = "The ship went on past the cape, with the wind behind it, and no one spoke. " * 120


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def prefilled(reply: Reply) -> int:
    assert reply.done is not None, reply.events
    return reply.done.prefilled_tokens


def two_turns(model: Path, kv_dir: Path | None) -> tuple[Reply, Reply]:
    """A chat that nothing interrupts."""
    with EngineRoom(model, kv_dir) as room:
        first = room.chat([SYSTEM, SEA])
        return first, room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)


def test_the_first_token_after_a_restore_is_that_of_an_uninterrupted_run(
    tiny_model: Path, tmp_path: Path
) -> None:
    first, second = two_turns(tiny_model, None)
    with EngineRoom(tiny_model, tmp_path) as room:
        room.chat([SYSTEM, SEA])
    with EngineRoom(tiny_model, tmp_path) as room:
        again = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
    assert again.restored > 0
    assert again.tokens[0] == second.tokens[0] and again.tokens == second.tokens
    assert len(set(again.tokens)) > 5, "a reply that loops would prove nothing"


def test_a_restore_that_succeeded_leaves_only_new_text_to_prefill(tiny_model: Path, tmp_path: Path) -> None:
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat([SYSTEM, SEA])
    with EngineRoom(tiny_model, tmp_path) as room:
        again = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
    assert first.done is not None and again.done is not None
    assert again.done.cached_tokens == first.done.prompt_tokens + len(first.tokens) - 1
    assert prefilled(again) == again.done.prompt_tokens - again.done.cached_tokens < 30


@pytest.mark.parametrize("number", [0, -1])
def test_one_flipped_bit_is_noticed_skipped_and_recomputed(
    tiny: dict[str, Path], tmp_path: Path, number: int
) -> None:
    first, second = two_turns(tiny["dense"], None)
    with EngineRoom(tiny["dense"], tmp_path) as room:
        room.chat([SYSTEM, SEA])
    by_end = sorted(files(tmp_path), key=lambda path: store.read_header(path)[0].end)
    flip_payload_byte(by_end[number])
    with EngineRoom(tiny["dense"], tmp_path) as room:
        again = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
        third = room.chat([SYSTEM, SEA, first.message, HILLS, again.message, RIVERS], cold=False)
    assert again.done is not None and again.done.cached_tokens <= store.read_header(by_end[number])[0].start
    assert again.tokens == second.tokens
    with EngineRoom(tiny["dense"], None) as room:
        assert room.chat([SYSTEM, SEA, first.message, HILLS, second.message, RIVERS]).tokens == third.tokens


def test_saving_and_restoring_an_empty_chat_does_nothing(tiny_model: Path, tmp_path: Path) -> None:
    with EngineRoom(tiny_model, tmp_path) as room:
        assert room.prepare([]).live_tokens == 0
        room.flush()
    assert files(tmp_path) == []
    with EngineRoom(tiny_model, tmp_path) as room:
        assert room.prepare([], session="other").live_tokens == 0
        assert room.chat([SEA], max_tokens=2).done is not None, "and the chat goes on"


@pytest.mark.parametrize("kind", ["swa", "hybrid", "recurrent"])
def test_memory_that_cannot_be_cut_back_is_reused_after_restart_edit_and_regenerate(
    tiny: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    edited = user("And about the islands, please?")
    with EngineRoom(tiny[kind], None) as room:
        first = room.chat([SYSTEM, SEA])
        second = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
    with EngineRoom(tiny[kind], None) as room:
        other = room.chat([SYSTEM, SEA, first.message, edited], cold=False)
    with EngineRoom(tiny[kind], tmp_path) as room:
        room.chat([SYSTEM, SEA])
    for question, expected in ((HILLS, second), (edited, other), (HILLS, second), (HILLS, second)):
        with EngineRoom(tiny[kind], tmp_path) as room:
            again = room.chat([SYSTEM, SEA, first.message, question], cold=False)
            assert again.tokens == expected.tokens
            assert again.done is not None and again.done.cached_tokens >= first.done.prompt_tokens  # type: ignore[union-attr]
            regenerated = room.chat([SYSTEM, SEA, first.message, question], cold=False)
            assert regenerated.tokens == expected.tokens
            assert prefilled(regenerated) == 1


def test_a_prompt_longer_than_the_sliding_window_and_then_a_rewind(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    long = user(LONG[:2400])
    with EngineRoom(tiny["swa"], None, n_ctx=2048) as room:
        plain = room.chat([long])
    with EngineRoom(tiny["swa"], None, n_ctx=2048) as room:
        other = room.chat([long, plain.message, SEA], cold=False)
    with EngineRoom(tiny["swa"], tmp_path, n_ctx=2048) as room:
        assert room.chat([long]).tokens == plain.tokens
        assert room.chat([long, plain.message, HILLS], cold=False).done is not None
        rewound = room.chat([long, plain.message, SEA], cold=False)
        assert rewound.tokens == other.tokens
        again = room.chat([long], cold=False)
        assert again.tokens == plain.tokens


STRIPPING = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.index0 < ns.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def say(monkeypatch: pytest.MonkeyPatch, model: Path, text: str) -> None:
    """Make the model say this once, a token a byte, and end."""
    loaded = Model.load(model, extra_buffers=False)
    of_byte = {loaded.piece(t): t for t in range(loaded.n_vocab) if not loaded.is_control(t)}
    script = [of_byte[bytes([byte])] for byte in text.encode()]
    script.append(next(t for t in range(loaded.n_vocab) if loaded.is_eog(t)))
    loaded.close()
    sample = Sampler.sample
    monkeypatch.setattr(Sampler, "sample", lambda self: script.pop(0) if script else sample(self))


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_reasoning_stripped_by_the_template_does_not_cost_the_chat(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(Model, "chat_template", property(lambda _: STRIPPING))
    say(monkeypatch, tiny[kind], "<think>hm, what of it, I wonder, the sea is wide</think>It is wide.")
    with EngineRoom(tiny[kind], tmp_path) as room:
        first = room.chat([SYSTEM, SEA], max_tokens=200)
        second = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
    assert first.text.endswith("It is wide.") and "<think>" in first.text
    assert first.done is not None and second.done is not None
    assert second.done.cached_tokens >= first.done.prompt_tokens - 1
    assert prefilled(second) < 40, "the answer and the new question, not the chat"


def test_eviction_spares_the_chat_that_is_about_to_be_loaded(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MB", 1_000)
    with EngineRoom(tiny["dense"], tmp_path) as room:
        first = room.chat([SYSTEM, SEA], session="a")
        room.flush()
    size = sum(path.stat().st_size for path in files(tmp_path))
    edge = msgspec.structs.replace(SMALL, budget_mb=size // 1_000 + 1)
    with EngineRoom(tiny["dense"], tmp_path, edge) as room:
        # Its tail is what there is no room for, at the very moment in which the first chat is asked for again.
        other = room.chat([user("Something else.")], session="b", max_tokens=8)
        again = room.chat([SYSTEM, SEA, first.message, HILLS], session="a", cold=False)
    assert first.done is not None and again.done is not None and other.done is not None
    assert other.done.live_tokens < SMALL.continued_interval_tokens, "stored before: this proves nothing"
    assert again.restored >= first.done.prompt_tokens and prefilled(again) < 40
    assert sum(path.stat().st_size for path in files(tmp_path)) <= edge.budget_mb * 1_010


def test_a_file_that_fails_in_the_engine_again_is_set_aside_for_good(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    with EngineRoom(tiny["dense"], tmp_path) as room:
        first = room.chat([SYSTEM, SEA])
    blamed = files(tmp_path)[0]
    assert not quarantine.strike(blamed) and blamed.exists(), "once may be chance"
    assert quarantine.strike(blamed) and not blamed.exists()
    for _ in range(2):
        with EngineRoom(tiny["dense"], tmp_path) as room:
            again = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
            assert again.done is not None, "nothing of it reaches the chat"


def test_an_indexed_file_deleted_by_someone_else_is_recomputed(tiny: dict[str, Path], tmp_path: Path) -> None:
    first, second = two_turns(tiny["dense"], None)
    with EngineRoom(tiny["dense"], tmp_path) as room:
        room.chat([SYSTEM, SEA])
        room.chat([RIVERS], session="other", max_tokens=2)
        room.flush()
        by_end = sorted(files(tmp_path), key=lambda path: store.read_header(path)[0].end)
        by_end[1].unlink()
        again = room.chat([SYSTEM, SEA, first.message, HILLS], cold=False)
    assert again.tokens == second.tokens
    assert prefilled(again) > 60


def test_characters_split_across_tokens_stay_whole_in_the_stream_and_at_a_spans_end(
    tiny_model: Path, tmp_path: Path
) -> None:
    odd = user("🏳️‍🌈 日本語 e\u0301 שלום مرحبا 👩‍👩‍👧 " * 12)
    with EngineRoom(tiny_model, None) as room:
        plain = room.chat([odd])
        more = room.chat([odd, plain.message, HILLS], cold=False)
    with EngineRoom(tiny_model, tmp_path) as room:
        assert room.chat([odd]).tokens == plain.tokens
    assert len(files(tmp_path)) > 1, "no span ended within the text: this proves nothing"
    with EngineRoom(tiny_model, tmp_path) as room:
        again = room.chat([odd, plain.message, HILLS], cold=False)
    assert again.tokens == more.tokens and prefilled(again) < 30
    assert "\ufffd" not in plain.text and plain.text == plain.text.encode().decode()


def test_a_paste_of_30_000_characters_stopped_while_it_is_read_goes_on_from_there(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    paste = user((LONG * 4)[:30_000])
    model = tiny["dense"]

    with EngineRoom(model, None, n_ctx=16384) as room:
        whole = room.chat([paste], max_tokens=4, force=True)
    with EngineRoom(model, tmp_path, n_ctx=16384) as room:
        room.cancel_at(Prefill, 40)
        stopped = room.chat([paste], force=True)
        assert stopped.done is not None and not stopped.tokens
    with EngineRoom(model, tmp_path, n_ctx=16384) as room:
        again = room.chat([paste], max_tokens=4, force=True)
    assert whole.done is not None and again.done is not None
    assert again.tokens == whole.tokens
    assert 0 < prefilled(again) < whole.done.prompt_tokens - 1500
    assert any(isinstance(event, Restored) for event in again.events)


def test_the_date_in_the_system_prompt_that_changes_overnight_costs_what_is_behind_it(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = system(f"Today is {datetime(2031, 5, 1):%d %B %Y}. " + SYSTEM.text)
    tomorrow = system(f"Today is {datetime(2031, 5, 2):%d %B %Y}. " + SYSTEM.text)
    with EngineRoom(tiny["dense"], tmp_path) as room:
        first = room.chat([today, SEA])
    with EngineRoom(tiny["dense"], None) as room:
        expected = room.chat([tomorrow, SEA, first.message, HILLS])
    with EngineRoom(tiny["dense"], tmp_path) as room:
        again = room.chat([tomorrow, SEA, first.message, HILLS], cold=False)
    assert again.tokens == expected.tokens, "nothing of yesterday is used under today's date"
