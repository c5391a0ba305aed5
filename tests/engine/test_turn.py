"""One turn on the engine: how it ends, what it counts, and that a stop in its middle changes nothing that follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.engine import worker
from ds4chat.engine.llama import Context, Model
from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    KvOptions,
    Prefill,
    Sampling,
    Started,
    Token,
)
from ds4chat.engine.template import ChatTemplate
from tests.support.engine_room import GREEDY, SMALL, EngineRoom, Reply, started, system, user
from tests.support.tiny_models import write_tiny_model

SENTENCE = "The {} ship carries {} barrels of salt and a cat, and nobody on board knows its name. "
LONG = "".join(SENTENCE.format(i, i * 7) for i in range(30))
"""About 1,100 tokens of a tiny vocabulary."""

MIDDLE = "".join(SENTENCE.format(i, i * 7) for i in range(6))
"""About 230, more than three sliding windows."""

DEFAULT = KvOptions(budget_mb=0)


class Room(EngineRoom):
    """One thread: tests share the machine, and llama.cpp's threads wait for one another."""

    def __init__(self, model: Path, kv_dir: Path | None, kv: KvOptions = SMALL, *, n_ctx: int = 1024) -> None:
        super().__init__(model, kv_dir, kv, n_ctx=n_ctx, threads=1)


@pytest.fixture(scope="module")
def ending(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose replies end by themselves."""
    return write_tiny_model("dense", tmp_path_factory.mktemp("ending") / "ending.gguf", starter, ends=True)


@pytest.fixture(scope="module")
def any_bytes(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says pieces of characters and control characters."""
    path = tmp_path_factory.mktemp("bytes") / "bytes.gguf"
    return write_tiny_model("dense", path, starter, any_bytes=True)


def done(reply: Reply) -> Done:
    assert reply.done is not None, reply.events
    return reply.done


def only(reply: Reply, kind: type) -> Event:
    """The one event of a kind."""
    (event,) = [e for e in reply.events if isinstance(e, kind)]
    return event


def check_counts(reply: Reply) -> None:
    end = done(reply)
    assert end.prompt_tokens == end.cached_tokens + end.prefilled_tokens
    assert end.generated_tokens == len(reply.tokens)
    progress = [e for e in reply.events if isinstance(e, Prefill)]
    assert [e.done for e in progress] == sorted({e.done for e in progress})
    if end.stop_reason != "cancelled":
        assert progress[-1].done == progress[-1].total == end.prefilled_tokens
        assert started(reply).prompt_tokens == end.prompt_tokens
        assert end.live_tokens == end.prompt_tokens + end.generated_tokens


# ---- how it ends ------------------------------------------------------------------------------------------------


def test_a_reply_ends_by_length_by_itself_or_where_the_context_ends(ending: Path) -> None:
    with Room(ending, None, n_ctx=256) as room:
        short = room.chat([user("Hello")], max_tokens=3)
        whole = room.chat([user("Hello")], max_tokens=200)
        assert (done(short).stop_reason, len(short.tokens)) == ("length", 3)
        assert done(whole).stop_reason == "stop"
        assert whole.tokens[:3] == short.tokens
        check_counts(short)
        check_counts(whole)


def test_the_context_ends_a_reply_one_token_before_it_is_full(tiny: dict[str, Path]) -> None:
    with Room(tiny["dense"], None, n_ctx=256) as room:
        reply = room.chat([user("Hello")], max_tokens=1000)
        assert done(reply).stop_reason == "context"
        assert done(reply).live_tokens == room.loaded.n_ctx
        check_counts(reply)
        again = room.chat([user("Hello")], max_tokens=5)
        assert again.tokens == reply.tokens[:5], "the engine lives on"


@pytest.mark.parametrize("limit", [0, 1])
def test_the_shortest_limits(tiny_model: Path, tmp_path: Path, limit: int) -> None:
    with Room(tiny_model, tmp_path) as room:
        one = room.chat([user("Hello")], max_tokens=limit)
        assert len(one.tokens) == limit and done(one).stop_reason == "length"
        check_counts(one)
        if limit:
            rest = room.chat([user("Hello"), one.message], max_tokens=9, continue_reply=True)
            assert one.tokens + rest.tokens == room.chat([user("Hello")], max_tokens=10).tokens
            assert done(rest).prefilled_tokens == 1


def test_no_limit_ends_by_itself(ending: Path) -> None:
    room = Room(ending, None, n_ctx=512)
    with room:
        room.engine.commands.put(Generate("s", 1, [user("Hello")], GREEDY))
        events: list[Event] = []
        while not events or not isinstance(events[-1], Done):
            events.append(room.events.get(timeout=30))
        assert isinstance(events[-1], Done) and events[-1].stop_reason == "stop"


def test_a_prompt_past_85_percent_is_answered_by_its_counts_and_computes_nothing(tiny_model: Path) -> None:
    messages = [system("Be brief."), user(MIDDLE), ChatMessage("assistant", "Aye."), user("More?")]
    with Room(tiny_model, None, n_ctx=256) as room:
        reply = room.chat(messages)
        full = only(reply, ContextFull)
        assert isinstance(full, ContextFull)
        assert full.n_ctx == room.loaded.n_ctx == 256
        assert 0.85 * full.n_ctx < full.prompt_tokens
        assert sum(full.message_tokens) == full.prompt_tokens
        assert full.message_tokens[1] > full.prompt_tokens // 2
        assert len(full.message_tokens) == 4
        assert reply.events == [full]


def test_force_goes_ahead_past_85_percent(tiny_model: Path) -> None:
    with Room(tiny_model, None, n_ctx=256) as room:
        counts = {}
        for words in range(80, 160, 4):
            text = "ship " * words
            reply = room.chat([user(text)], max_tokens=1)
            if isinstance(full := reply.events[-1], ContextFull):
                break
            counts[done(reply).prompt_tokens] = text
        assert isinstance(full, ContextFull)
        assert max(counts) <= 0.85 * 256 < full.prompt_tokens
        forced = room.chat([user(text)], force=True, max_tokens=1000)
        assert done(forced).stop_reason == "context"
        assert done(forced).prompt_tokens == full.prompt_tokens


def test_a_message_longer_than_the_context_is_a_sentence_with_the_way_out(tiny_model: Path) -> None:
    with Room(tiny_model, None, n_ctx=256) as room:
        failed = only(room.chat([user(LONG)], force=True), Failed)
        assert isinstance(failed, Failed)
        assert "256" in failed.message and "--ctx" in failed.message and failed.message.endswith(".")
        prepared = room.prepare([user(LONG)], prefill=True)
        assert prepared.live_tokens == 0 and prepared.total_tokens > 256
        full = room.full([user("Hello"), user(LONG)])
        assert full.prompt_tokens > 256 and len(full.message_tokens) == 2
        assert done(room.chat([user("Hello")])).stop_reason == "length"


def test_no_messages_at_all(tiny_model: Path, tmp_path: Path) -> None:
    """The answer to nothing: the template's bare header, or a sentence; and then the engine goes on."""
    with Room(tiny_model, tmp_path) as room:
        for going_on in (False, True):
            last = room.chat([], continue_reply=going_on, max_tokens=3).events[-1]
            assert isinstance(last, Done | Failed)
        assert room.prepare([]).live_tokens >= 0
        assert done(room.chat([user("Hello")], max_tokens=3)).generated_tokens == 3


def test_what_the_template_refuses_is_a_sentence_and_the_next_turn_works(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not this word') }}{% endif %}"
        "{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"
    )
    monkeypatch.setattr(
        worker.Engine,
        "_template",
        lambda _engine, model: ChatTemplate(source, control_texts=model.control_texts),
    )
    with Room(tiny["dense"], None) as room:
        failed = only(room.chat([user("no")]), Failed)
        assert isinstance(failed, Failed) and "not this word" in failed.message
        room.engine.commands.put(worker.Prepare("s", 77, [user("no")]))
        prepared = room.events.get(timeout=30)
        assert isinstance(prepared, Failed) and prepared.turn == 77
        assert done(room.chat([user("yes")])).generated_tokens == 24


def test_a_template_that_does_not_compile_gives_way_to_chatml(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "chat_template", property(lambda _model: "{% for %}"))
    with Room(tiny["dense"], None) as room:
        broken = room.chat([system("x"), user("Hello")])
    monkeypatch.setattr(Model, "chat_template", property(lambda _model: ""))
    with Room(tiny["dense"], None) as room:
        assert room.chat([system("x"), user("Hello")]).tokens == broken.tokens


# ---- cancelled --------------------------------------------------------------------------------------------------


ASKED = [system("Be brief."), user(LONG)]


@functools.cache
def never_cancelled(model: Path, kv: KvOptions) -> list[Reply]:
    """Two turns, the second a short question."""
    with Room(model, None, kv, n_ctx=2048) as room:
        first = room.chat(ASKED)
        return [first, room.chat([*ASKED, first.message, user("And then?")], cold=False)]


@pytest.mark.parametrize(("kv", "stored"), [(SMALL, True), (DEFAULT, False)], ids=["stored", "not stored"])
def test_cancelled_between_two_batches_of_a_prompt(
    tiny_model: Path, tmp_path: Path, kv: KvOptions, stored: bool
) -> None:
    messages, expected = ASKED, never_cancelled(tiny_model, kv)
    with Room(tiny_model, tmp_path if stored else None, kv, n_ctx=2048) as room:
        room.cancel_at(Prefill, 1)
        cancelled = room.chat(messages)
        assert done(cancelled).stop_reason == "cancelled"
        assert cancelled.tokens == [] and not [e for e in cancelled.events if isinstance(e, Started)]
        assert 0 < done(cancelled).prefilled_tokens < 1000
        check_counts(cancelled)
        room.hook = None
        again = room.chat(messages)
        assert again.tokens == expected[0].tokens
        assert done(again).cached_tokens == done(cancelled).prefilled_tokens, (
            "what was computed is not computed again"
        )
        after = room.chat([*messages, again.message, user("And then?")], cold=False)
        assert after.tokens == expected[1].tokens


def stop_inside(monkeypatch: pytest.MonkeyPatch, room: EngineRoom, session: str, calls: int) -> None:
    """Cancel the coming turn when the abort callback was asked so many times."""
    real, asked = Context.set_abort, 0

    def set_abort(context: Context, should_stop: Callable[[], bool] | None) -> None:
        def counting() -> bool:
            nonlocal asked
            asked += 1
            if asked == calls:
                room.engine.cancel(Cancel(session, room._turn))
            return should_stop is not None and should_stop()

        real(context, counting if should_stop is not None else None)

    monkeypatch.setattr(Context, "set_abort", set_abort)


@pytest.mark.parametrize(("calls", "stored"), [(5, True), (150, True), (150, False)])
def test_cancelled_inside_of_a_batch(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, calls: int
) -> None:
    """Hybrid and recurrent states are lost with the batch: cleared, never stored, and restored from the chain."""
    messages, expected = ASKED, never_cancelled(tiny_model, SMALL)
    with Room(tiny_model, tmp_path if stored else None, n_ctx=2048) as room:
        with monkeypatch.context() as patch:
            stop_inside(patch, room, "s", calls)
            cancelled = room.chat(messages)
            assert done(cancelled).stop_reason == "cancelled"
        assert done(cancelled).prefilled_tokens < 1000 and cancelled.tokens == []
        again = room.chat(messages)
        assert again.tokens == expected[0].tokens
        after = room.chat([*messages, again.message, user("And then?")], cold=False)
        assert after.tokens == expected[1].tokens
    if stored:
        # And what the cancelled turn left on disk is good too.
        with Room(tiny_model, tmp_path, n_ctx=2048) as room:
            assert room.chat(messages).tokens == expected[0].tokens


def test_a_turn_that_waits_is_cancelled_before_it_computes(tiny_model: Path) -> None:
    with Room(tiny_model, None, n_ctx=2048) as room:
        room.engine.cancel(Cancel("s", 1))
        reply = room.chat([user(LONG)])
        assert done(reply).stop_reason == "cancelled"
        assert (done(reply).prompt_tokens, done(reply).prefilled_tokens) == (0, 0)
        assert done(room.chat([user("Hello")])).stop_reason == "length"


def test_a_cancel_of_another_turn_stops_nothing(tiny: dict[str, Path]) -> None:
    with Room(tiny["dense"], None) as room:
        for other in (Cancel("s", 7), Cancel("t", 1), Cancel("", 0)):
            room.engine.cancel(other)
        assert done(room.chat([user("Hello")])).stop_reason == "length"


def test_a_cancelled_prepare_keeps_what_it_computed(tiny_model: Path) -> None:
    with Room(tiny_model, None, n_ctx=2048) as room:
        room.cancel_at(Prefill, 2)
        prepared = room.prepare([user(LONG)], prefill=True)
        assert 0 < prepared.live_tokens < prepared.total_tokens
        room.hook = None
        reply = room.chat([user(LONG)])
        assert done(reply).cached_tokens == prepared.live_tokens
    with Room(tiny_model, None, n_ctx=2048) as room:
        assert room.chat([user(LONG)]).tokens == reply.tokens


def test_a_whole_prepare_leaves_one_token_to_compute(tiny_model: Path) -> None:
    with Room(tiny_model, None, n_ctx=2048) as room:
        prepared = room.prepare([user(MIDDLE)], prefill=True)
        reply = room.chat([user(MIDDLE)])
        assert prepared.live_tokens == prepared.total_tokens - 1 == done(reply).cached_tokens
        assert done(reply).prefilled_tokens == 1
    with Room(tiny_model, None, n_ctx=2048) as room:
        assert room.chat([user(MIDDLE)]).tokens == reply.tokens


# ---- text -------------------------------------------------------------------------------------------------------


def pieces(room: EngineRoom, tokens: list[int]) -> bytes:
    assert room.engine._turns is not None
    return b"".join(room.engine._turns._model.piece(t) for t in tokens)


def test_pieces_of_characters_are_never_sent(any_bytes: Path) -> None:
    """Each text is whole characters; all together they are what the bytes say, broken ones as U+FFFD."""
    broken = 0
    with Room(any_bytes, None) as room:
        for seed in range(4):
            reply = room.chat([user("Hello")], max_tokens=120, sampling=Sampling(temperature=1.5, seed=seed))
            texts = [e.text for e in reply.events if isinstance(e, Token)]
            raw = pieces(room, reply.tokens)
            assert all(text.encode().decode() == text and "\x00" not in text for text in texts)
            expected = raw.decode("utf-8", "replace").replace("\x00", "")
            # What may still become a character is not sent as a broken one.
            assert reply.text in (expected, expected.removesuffix("\ufffd"))
            broken += expected.count("\ufffd")
    assert broken, "the model said no broken character: this proves nothing"


def emoji_reply(monkeypatch: pytest.MonkeyPatch, model: Path, text: bytes) -> list[int]:
    """Make the model say these bytes, a token a byte, whatever it would have said. Returns the ids."""
    loaded = Model.load(model, extra_buffers=False)
    of_byte = {loaded.piece(t): t for t in range(loaded.n_vocab) if not loaded.is_control(t)}
    ids = [of_byte[bytes([byte])] for byte in text]
    end = next(t for t in range(loaded.n_vocab) if loaded.is_eog(t))
    loaded.close()
    queue = [*ids, end]
    monkeypatch.setattr("ds4chat.engine.turn.Sampler.sample", lambda _sampler: queue.pop(0))
    return ids


@pytest.mark.parametrize("cut", [1, 2, 4, 5])
def test_a_reply_stopped_mid_emoji_goes_on_to_the_whole_one(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """The parts of its text together are the text, and its ids still stand for it in the next turn."""
    raw = "a😀é".encode()
    ids = emoji_reply(monkeypatch, tiny_model, raw)
    with Room(tiny_model, tmp_path) as room:
        first = room.chat([user("Hello")], max_tokens=cut)
        assert first.tokens == ids[:cut]
        assert first.text == raw[:cut].decode("utf-8", "ignore")
        rest = room.chat([user("Hello"), first.message], continue_reply=True)
        assert done(rest).prefilled_tokens == 1 and done(rest).stop_reason == "stop"
        assert first.text + rest.text == "a😀é"
        assert first.tokens + rest.tokens == ids
        whole = ChatMessage("assistant", "a😀é", ids)
        queue_free = room.chat([user("Hello"), whole, user("Bye")], max_tokens=0, cold=False)
        assert done(queue_free).cached_tokens == done(first).prompt_tokens + len(ids)


def test_a_reply_stopped_mid_emoji_and_not_continued_keeps_its_ids(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = emoji_reply(monkeypatch, tiny["dense"], "a😀".encode())
    with Room(tiny["dense"], None) as room:
        first = room.chat([user("Hello")], max_tokens=3)
        again = room.chat([user("Hello"), first.message, user("Bye")], max_tokens=0, cold=False)
        assert first.text == "a" and first.tokens == ids[:3]
        assert done(again).cached_tokens == done(first).prompt_tokens + 2


def test_a_reply_that_ends_by_itself_mid_emoji_shows_the_broken_character(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = emoji_reply(monkeypatch, tiny["dense"], b"a" + "😀".encode()[:2])
    with Room(tiny["dense"], None) as room:
        first = room.chat([user("Hello")])
        assert done(first).stop_reason == "stop"
        assert (first.text, first.tokens) == ("a\ufffd", ids)
        again = room.chat([user("Hello"), first.message, user("Bye")], max_tokens=0, cold=False)
        assert done(again).cached_tokens == done(first).prompt_tokens + 3


# ---- the same numbers -------------------------------------------------------------------------------------------


def long_chat(model: Path, kv_dir: Path | None, *, rooms: int, kv: KvOptions = DEFAULT) -> list[Reply]:
    """Three turns whose first prompt is longer than two batches, in one process or in three."""
    history = [system("You like ships. " * 20), user(LONG)]
    replies: list[Reply] = []
    for _part in range(rooms):
        with Room(model, kv_dir, kv, n_ctx=2048) as room:
            for _ in range(3 // rooms):
                replies.append(room.chat(history, max_tokens=30, cold=not replies))
                history += [replies[-1].message, user(f"And number {len(replies)}?")]
    return replies


def test_long_prompts_with_checkpoints_without_and_in_pieces(tiny_model: Path, tmp_path: Path) -> None:
    without = long_chat(tiny_model, None, rooms=1)
    assert done(without[0]).prompt_tokens > 1100
    for rooms, folder in ((1, "one"), (3, "three")):
        replies = long_chat(tiny_model, tmp_path / folder, rooms=rooms)
        assert [r.tokens for r in replies] == [r.tokens for r in without]
        assert all(done(r).prefilled_tokens < 60 for r in replies[1:])
        for reply in replies:
            check_counts(reply)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("stored", [True, False])
def test_past_the_sliding_window_regenerate_and_edit_equal_a_run_that_never_went_back(
    tiny: dict[str, Path], tmp_path: Path, stored: bool, resumed: bool
) -> None:
    model, kv_dir = tiny["swa"], tmp_path if stored else None
    first_turn = [system("Be brief."), user(MIDDLE)]
    edited = [system("Be brief."), user(MIDDLE[:-40] + "Where is the cat?")]

    def straight(*questions: list[ChatMessage]) -> Reply:
        with Room(model, None) as room:
            for messages in questions:
                reply = room.chat(messages, max_tokens=100)
            return reply

    room = Room(model, kv_dir)
    with room:
        first = room.chat(first_turn, max_tokens=100)
        following = [*first_turn, first.message, user("And then?")]
        second = room.chat(following, max_tokens=100)
        if not resumed:
            regenerated = room.chat(following, max_tokens=100)
            changed = room.chat(edited, max_tokens=100)
            again = room.chat(first_turn, max_tokens=100)
    if resumed:
        with Room(model, kv_dir) as room:
            regenerated = room.chat(following, max_tokens=100)
            changed = room.chat(edited, max_tokens=100)
            again = room.chat(first_turn, max_tokens=100)
    assert len(set(second.tokens)) > 20
    assert again.tokens == first.tokens
    assert changed.tokens == straight(edited).tokens
    if stored:
        assert regenerated.tokens == second.tokens
        assert done(regenerated).prefilled_tokens < 65
    else:
        # Computed from text in batches where it was sampled one by one: other floats, but a whole reply.
        assert len(regenerated.tokens) == 100
    if stored and not resumed:
        assert done(changed).cached_tokens > done(first).prompt_tokens // 2


def test_the_same_seed_says_the_same_and_another_one_something_else(tiny_model: Path) -> None:
    def sampling(seed: int | None) -> Sampling:
        return Sampling(temperature=1.2, top_k=0, top_p=1.0, min_p=0.0, seed=seed)

    with Room(tiny_model, None) as room:
        said = [room.chat([user("Hello")], sampling=sampling(seed)).tokens for seed in (1, 1, 2, 2**40 + 1)]
    assert said[0] == said[1] != said[2]
    assert said[3] == said[0], "32 bits of a seed count"


def test_the_repeat_penalty_looks_back_over_a_continued_reply(tiny: dict[str, Path]) -> None:
    sampling = Sampling(temperature=0.0, repeat_penalty=1.8, repeat_last_n=64)
    with Room(tiny["dense"], None) as room:
        whole = room.chat([user("Hello")], max_tokens=40, sampling=sampling)
        half = room.chat([user("Hello")], max_tokens=20, sampling=sampling)
        rest = room.chat([user("Hello"), half.message], max_tokens=20, sampling=sampling, continue_reply=True)
        free = room.chat([user("Hello")], max_tokens=40)
    assert half.tokens + rest.tokens == whole.tokens
    assert whole.tokens != free.tokens
