"""Damaged, missing and foreign checkpoints cost time, never an answer; and the store is whole again afterwards."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.checkpoints.format import read_header
from ds4chat.engine.protocol import ChatMessage, Notice
from tests.engine.test_turn import SENTENCE, Room, done
from tests.support.engine_room import Reply, system, user

HISTORY = [system("You like ships. " * 10), user("".join(SENTENCE.format(i, i) for i in range(5)))]
NEXT = user("And the cat?")


@pytest.fixture(params=["dense", "hybrid"])
def model(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Path:
    return tiny[request.param]


def files(kv_dir: Path) -> list[Path]:
    """Span files, the first span's first."""
    return sorted(kv_dir.glob("*/*/*.kv"), key=lambda path: read_header(path)[0].end)


def ask(model: Path, kv_dir: Path | None, messages: list[ChatMessage] = HISTORY) -> Reply:
    with Room(model, kv_dir) as room:
        return room.chat(messages, max_tokens=20)


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A model's directory with a chain of several spans, to copy."""

    @functools.cache
    def made(model: Path) -> Path:
        folder = tmp_path_factory.mktemp("undamaged")
        ask(model, folder)
        assert len(files(folder)) >= 4
        return folder

    return made


@pytest.fixture
def kv_dir(model: Path, tmp_path: Path, undamaged: Callable[[Path], Path]) -> Path:
    return Path(shutil.copytree(undamaged(model), tmp_path / "kv"))


@functools.cache
def alone(model: Path) -> list[int]:
    """The reply without checkpoints."""
    return ask(model, None).tokens


@functools.cache
def cost(model: Path) -> int:
    """Tokens computed when the question comes again and nothing is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        return [done(ask(model, Path(folder))).prefilled_tokens for _ in range(2)][1]


def whole(kv_dir: Path, model: Path) -> None:
    """The same question costs no more than with a directory that never was damaged."""
    again = ask(model, kv_dir)
    assert done(again).prefilled_tokens <= cost(model) < 32
    assert again.tokens == alone(model)


def damage_all(change: Callable[[bytearray, int], None]) -> Callable[[Path], None]:
    def run(kv_dir: Path) -> None:
        for path in files(kv_dir):
            payload_at = path.stat().st_size - read_header(path)[0].payload_bytes
            content = bytearray(path.read_bytes())
            change(content, payload_at)
            path.write_bytes(content)

    return run


def flip(at: Callable[[int, int], int]) -> Callable[[bytearray, int], None]:
    def change(content: bytearray, payload_at: int) -> None:
        content[at(payload_at, len(content))] ^= 0x10

    return change


def cut(content: bytearray, payload_at: int) -> None:
    del content[-1:]


def empty(content: bytearray, payload_at: int) -> None:
    content.clear()


def zeros_for_the_payload(content: bytearray, payload_at: int) -> None:
    content[payload_at:] = bytes(len(content) - payload_at)


DAMAGES = {
    "first payload byte": flip(lambda payload, _size: payload),
    "middle payload byte": flip(lambda payload, size: (payload + size) // 2),
    "last payload byte": flip(lambda _payload, size: size - 1),
    "version": flip(lambda _payload, _size: 3),
    "end": flip(lambda _payload, _size: 8),
    "start": flip(lambda _payload, _size: 20),
    "text": flip(lambda _payload, _size: 150),
    "token": flip(lambda payload, _size: payload - 2),
    "cut by a byte": cut,
    "empty": empty,
    "zeros": zeros_for_the_payload,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_with_every_file_damaged_all_is_computed_and_then_stored_again(
    model: Path, kv_dir: Path, name: str
) -> None:
    damage_all(DAMAGES[name])(kv_dir)
    reply = ask(model, kv_dir)
    assert done(reply).cached_tokens == 0 and reply.restored == 0
    assert reply.tokens == alone(model)
    whole(kv_dir, model)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("how", ["deleted", "flipped"])
def test_one_span_gone_costs_it_and_what_follows(model: Path, kv_dir: Path, number: int, how: str) -> None:
    victim = files(kv_dir)[number]
    start = read_header(victim)[0].start
    if how == "deleted":
        victim.unlink()
    else:
        content = bytearray(victim.read_bytes())
        content[-100] ^= 1
        victim.write_bytes(content)
    messages = [*HISTORY, ChatMessage("assistant", ""), NEXT]
    with Room(model, kv_dir) as room:
        first = room.chat(HISTORY, max_tokens=20)
        assert done(first).cached_tokens <= max(start, done(first).prompt_tokens - 1)
        if number != -1:
            assert done(first).cached_tokens == start
        messages[2] = first.message
        second = room.chat(messages, max_tokens=20, cold=False)
    with Room(model, None) as room:
        assert room.chat(HISTORY, max_tokens=20).tokens == first.tokens
        assert room.chat(messages, max_tokens=20, cold=False).tokens == second.tokens
    whole(kv_dir, model)


def test_two_files_under_each_others_names(model: Path, kv_dir: Path) -> None:
    one, two = files(kv_dir)[1:3]
    start = read_header(one)[0].start
    swap = kv_dir / "swap"
    one.rename(swap)
    two.rename(one)
    swap.rename(two)
    reply = ask(model, kv_dir)
    assert done(reply).cached_tokens <= start
    assert reply.tokens == alone(model)
    whole(kv_dir, model)


def test_a_span_of_other_weights_under_the_right_name(
    model: Path, kv_dir: Path, tiny: dict[str, Path], tmp_path: Path
) -> None:
    other = tiny["recurrent"]
    ask(other, tmp_path / "other")
    victim = files(kv_dir)[0]
    shutil.copy(files(tmp_path / "other")[0], victim)
    reply = ask(model, kv_dir)
    assert done(reply).cached_tokens == 0
    assert reply.tokens == alone(model)
    whole(kv_dir, model)


def test_foreign_files_are_left_alone(model: Path, kv_dir: Path) -> None:
    folder = files(kv_dir)[0].parent
    names = ["notes.txt", "x.kv", "A" * 40 + ".kv", "0" * 39 + ".kv", "0" * 40 + ".KV", ".hidden"]
    for name in names:
        (folder / name).write_bytes(b"not a span")
    (folder / ("0" * 40 + ".kv")).write_bytes(b"KVC garbage")
    (folder / ("1" * 40 + ".kv")).mkdir()
    (kv_dir / "stray").write_text("x")
    whole(kv_dir, model)
    assert all((folder / name).read_bytes() == b"not a span" for name in names)


def test_random_damage_never_changes_an_answer(model: Path, kv_dir: Path) -> None:
    expected = alone(model)
    draw = random.Random(7)
    for _ in range(12):
        path = draw.choice(files(kv_dir))
        content = bytearray(path.read_bytes())
        for _ in range(draw.randint(1, 3)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        if draw.random() < 0.3:
            del content[draw.randrange(len(content)) :]
        path.write_bytes(content)
        if content[:3] != b"KVC" or len(content) < 144:
            path.unlink()
        assert ask(model, kv_dir).tokens == expected
    whole(kv_dir, model)


@pytest.mark.parametrize("kind", ["dense", "swa"])
def test_damage_found_by_a_chat_that_is_in_part_live(
    tiny: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """What was live is gone when the restore that was to replace it fails: it must not be counted as there."""
    shared = system("You like ships. " * 30)
    one = [shared, user("Hello")]
    two = [shared, user("".join(SENTENCE.format(i, i) for i in range(8)))]
    with Room(tiny[kind], tmp_path) as room:
        expected = room.chat(two, session="two")
    counts = done(expected).message_tokens
    for path in files(tmp_path):
        if read_header(path)[0].start >= counts[0] - 1:
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
    with Room(tiny[kind], tmp_path) as room:
        room.chat(one, session="one", max_tokens=4)
        reply = room.chat(two, session="two")
        assert room.engine._turns is not None
        assert len(room.engine._turns.live) == done(reply).live_tokens - 1
    assert reply.tokens == expected.tokens
    assert done(reply).prompt_tokens == done(expected).prompt_tokens
    assert done(reply).cached_tokens == reply.restored


# ---- the directory itself ---------------------------------------------------------------------------------------


def two_turns(model: Path, kv_dir: Path | None, between: Callable[[], None]) -> list[Reply]:
    with Room(model, kv_dir) as room:
        first = room.chat(HISTORY, max_tokens=20)
        room.flush()
        between()
        second = room.chat([*HISTORY, first.message, NEXT], max_tokens=20, cold=False)
        room.flush()
        other = room.chat(
            [user("".join(SENTENCE.format(i, 2) for i in range(3)))], session="t", max_tokens=20
        )
        room.flush()
        back = room.chat([*HISTORY, first.message, NEXT], max_tokens=20, cold=False)
        room.flush()
        replies = [first, second, other, back]
    replies[0].events += [e for e in drain(room) if isinstance(e, Notice)]
    for reply in replies[1:]:
        replies[0].events += [e for e in reply.events if isinstance(e, Notice)]
    return replies


def drain(room: Room) -> list[object]:
    events: list[object] = []
    while not room.events.empty():
        events.append(room.events.get())
    return events


def test_the_directory_deleted_between_two_turns(model: Path, tmp_path: Path) -> None:
    kv_dir = tmp_path / "kv"
    replies = two_turns(model, kv_dir, lambda: shutil.rmtree(kv_dir))
    expected = two_turns(model, tmp_path / "other", lambda: None)
    assert [r.tokens for r in replies] == [r.tokens for r in expected]
    assert ask(model, kv_dir).tokens == alone(model)
    whole(kv_dir, model)


def test_the_directory_becomes_a_file_between_two_turns(model: Path, tmp_path: Path) -> None:
    kv_dir = tmp_path / "kv"

    def between() -> None:
        shutil.rmtree(kv_dir)
        kv_dir.write_text("not a directory")

    replies = two_turns(model, kv_dir, between)
    assert [r.tokens for r in replies[:3]] == [r.tokens for r in two_turns(model, None, lambda: None)[:3]]
    assert done(replies[3]).stop_reason == "length"
    notices = [e for e in replies[0].events if isinstance(e, Notice)]
    assert len(notices) == 1 and "--kv-disk-dir" in notices[0].message
    assert kv_dir.read_text() == "not a directory"


def test_a_directory_that_is_a_file_from_the_start(model: Path, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("not a directory")
    assert ask(model, tmp_path / "kv").tokens == alone(model)


def test_every_span_deleted_between_two_turns(model: Path, tmp_path: Path) -> None:
    """The folder stays: what is live still counts, and spans go on from what is on disk."""
    kv_dir = tmp_path / "kv"

    def between() -> None:
        for path in files(kv_dir):
            path.unlink()

    replies = two_turns(model, kv_dir, between)
    expected = two_turns(model, tmp_path / "other", lambda: None)
    assert [r.tokens for r in replies] == [r.tokens for r in expected]
    assert done(replies[1]).prefilled_tokens == done(expected[1]).prefilled_tokens, "it was live"
    assert ask(model, kv_dir).tokens == alone(model)
    whole(kv_dir, model)
