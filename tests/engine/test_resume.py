"""A chat that was quit goes on as if it never had been: the same tokens, only the new text computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4chat.engine.protocol import ChatMessage
from tests.support import memos
from tests.support.engine_room import SMALL, EngineRoom, Reply, started, system, user

QUESTIONS = [
    "Tell me about the sea and the ships that sail on it, from the first rafts to the great tankers of today.",
    "And the mountains? I would like to hear of snow, of passes and of the people who live up there.",
    "Thank you. One more word about rivers, please.",
]
SYSTEM = (
    "You are a patient guide. You answer in plain words. You never hurry, and you like long sentences. " * 4
)


def uninterrupted(model: Path, kv_dir: Path | None, max_tokens: int = 40, **load: object) -> list[Reply]:
    """All questions in one process."""
    history: list[ChatMessage] = [system(SYSTEM)]
    replies = []
    with EngineRoom(model, kv_dir, **load) as room:  # type: ignore[arg-type]
        for i, question in enumerate(QUESTIONS):
            history.append(user(question))
            replies.append(room.chat(history, max_tokens=max_tokens, cold=i == 0))
            history.append(replies[-1].message)
    return replies


def broken_up(
    model: Path, kv_dir: Path, cuts: list[int | None], max_tokens: int = 40, **load: object
) -> list[Reply]:
    """The same with a process each turn; a number in `cuts` quits the reply after so many tokens and continues it."""
    history: list[ChatMessage] = [system(SYSTEM)]
    replies = []
    for i, (question, cut) in enumerate(zip(QUESTIONS, cuts, strict=True)):
        history.append(user(question))
        with EngineRoom(model, kv_dir, **load) as room:  # type: ignore[arg-type]
            reply = room.chat(history, max_tokens=max_tokens, cold=i == 0, stop_after=cut)
        if cut is not None:
            assert len(reply.tokens) == cut
            with EngineRoom(model, kv_dir, **load) as room:  # type: ignore[arg-type]
                rest = room.chat(
                    [*history, reply.message], max_tokens=max_tokens - cut, continue_reply=True, cold=False
                )
            assert rest.done is not None
            assert rest.done.prefilled_tokens == 1, "only the pending token is computed again"
            reply.text, reply.tokens = reply.text + rest.text, reply.tokens + rest.tokens
        replies.append(reply)
        history.append(reply.message)
    return replies


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_quit_and_resume_gives_the_tokens_of_the_uninterrupted_chat(
    tiny_model: Path, tmp_path: Path, kv_type: str
) -> None:
    whole = uninterrupted(tiny_model, tmp_path / "whole", kv_type=kv_type)
    parts = broken_up(tiny_model, tmp_path / "parts", [None, 7, None], kv_type=kv_type)
    assert [r.tokens for r in parts] == [r.tokens for r in whole]
    assert all(len(set(r.tokens)) > 5 for r in whole), "a degenerate reply would prove nothing"


def test_quit_at_the_first_and_the_last_token_of_a_reply(tiny_model: Path, tmp_path: Path) -> None:
    whole = uninterrupted(tiny_model, tmp_path / "whole")
    parts = broken_up(tiny_model, tmp_path / "parts", [1, 39, 20])
    assert [r.tokens for r in parts] == [r.tokens for r in whole]


def test_the_starter_model_resumes_with_the_same_tokens(starter: Path, tmp_path: Path) -> None:
    known = {"max_tokens": 12, "memo": str(memos.ROOM)}
    whole = uninterrupted(starter, tmp_path / "whole", **known)
    parts = broken_up(starter, tmp_path / "parts", [5, None, 8], **known)
    assert [r.tokens for r in parts] == [r.tokens for r in whole]


def test_the_same_chat_with_and_without_checkpoints(tiny_model: Path, tmp_path: Path) -> None:
    assert [r.tokens for r in uninterrupted(tiny_model, tmp_path)] == [
        r.tokens for r in uninterrupted(tiny_model, None)
    ]


def test_a_new_process_computes_only_the_new_text(tiny_model: Path, tmp_path: Path) -> None:
    history = [system(SYSTEM), user(QUESTIONS[0])]
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat(history)
    assert first.done is not None and first.done.cached_tokens == 0
    history += [first.message, user("And now?")]
    with EngineRoom(tiny_model, tmp_path) as room:
        second = room.chat(history, cold=False)
    assert second.done is not None
    assert second.done.cached_tokens == first.done.prompt_tokens + len(first.tokens) - 1
    assert second.done.prompt_tokens == second.done.cached_tokens + second.done.prefilled_tokens
    assert second.done.prefilled_tokens < 30
    assert started(second).cached_tokens == second.restored


def test_a_chat_of_a_few_tokens_is_restored_too(tiny_model: Path, tmp_path: Path) -> None:
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat([user("Hi")], stop_after=1)
    with EngineRoom(tiny_model, tmp_path) as room:
        rest = room.chat([user("Hi"), first.message], continue_reply=True, max_tokens=2)
    assert rest.done is not None and rest.done.prefilled_tokens == 1


def test_switching_sessions_stores_the_tail_and_comes_back_to_it(tiny_model: Path, tmp_path: Path) -> None:
    a, b = [user(QUESTIONS[0])], [user(QUESTIONS[1])]
    with EngineRoom(tiny_model, None) as room:
        alone = [room.chat(a, session="a")]
        alone.append(room.chat([*a, alone[0].message, user("More?")], session="a"))
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat(a, session="a")
        room.chat(b, session="b")
        again = room.chat([*a, first.message, user("More?")], session="a")
    assert [first.tokens, again.tokens] == [r.tokens for r in alone]
    assert again.done is not None and again.restored == again.done.cached_tokens > 0


def test_regenerate_costs_one_turn_at_most(tiny_model: Path, tmp_path: Path) -> None:
    """Models that cannot be rewound come back to the end of the prompt, the others cut back to it."""
    history = [system(SYSTEM), user(QUESTIONS[0])]
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat(history)
        second = room.chat([*history, first.message, user(QUESTIONS[1])], cold=False)
        again = room.chat([*history, first.message, user(QUESTIONS[1])], cold=False)
    assert again.tokens == second.tokens
    assert again.done is not None
    assert again.done.prefilled_tokens == 1


def test_a_changed_past_is_recomputed_from_where_it_changed(tiny_model: Path, tmp_path: Path) -> None:
    history = [system(SYSTEM), user(QUESTIONS[0])]
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat(history)
        room.chat([*history, first.message, user(QUESTIONS[1])], cold=False)
        edited = [*history, first.message, user("Something else entirely, then.")]
        with_past = room.chat(edited, cold=False)
    with EngineRoom(tiny_model, None) as room:
        room.chat(history)
        alone = room.chat(edited, cold=False)
    assert with_past.tokens == alone.tokens
    assert with_past.done is not None
    assert with_past.done.cached_tokens > len(SYSTEM) // 8, (
        "the system prompt and the first question are kept"
    )


def test_prepare_restores_ahead_of_the_next_message(tiny_model: Path, tmp_path: Path) -> None:
    history = [system(SYSTEM), user(QUESTIONS[0])]
    with EngineRoom(tiny_model, tmp_path) as room:
        first = room.chat(history)
    with EngineRoom(tiny_model, tmp_path) as room:
        prepared = room.prepare([*history, first.message])
        second = room.chat([*history, first.message, user("And now?")], cold=False)
    assert first.done is not None and second.done is not None
    assert prepared.live_tokens >= first.done.prompt_tokens + len(first.tokens) - 1
    assert second.restored == 0, "it was live already"
    assert second.done.cached_tokens >= prepared.live_tokens


def test_a_cold_prompt_stores_the_system_block_for_other_sessions(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    with EngineRoom(tiny["dense"], tmp_path) as room:
        room.chat([system(SYSTEM), user(QUESTIONS[0])], session="a")
    with EngineRoom(tiny["dense"], tmp_path) as room:
        other = room.chat([system(SYSTEM), user("Good morning!")], session="b")
    assert other.done is not None
    # All but the user's own turn: its header, its text, the reply's header.
    assert other.done.prefilled_tokens < 40
    assert other.restored >= SMALL.min_tokens
