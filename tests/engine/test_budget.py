"""A budget of 64 MB and a chat that outgrows it, in proportion: here a MB has 1,000 bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from ds4chat.checkpoints import store
from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.policy import SLACK
from ds4chat.engine.protocol import ChatMessage, KvOptions, Notice
from tests.support.engine_room import SMALL, EngineRoom, user

MB = 1_000
BUDGET = 64
KV = msgspec.structs.replace(SMALL, budget_mb=BUDGET)
N_CTX = 2048


@contextmanager
def watched(folder: Path) -> Iterator[list[int]]:
    """Bytes of all checkpoint files, half-written ones too, looked at all the time."""
    sizes, over = [0], threading.Event()

    def size(path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def look() -> None:
        while not over.wait(0.002):
            sizes.append(sum(size(path) for path in folder.glob("*/*/*.kv*")))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        over.set()
        thread.join()


def kept_chain(folder: Path) -> int:
    """Where the longest whole chain from the root ends, tokens."""
    headers = {path.stem: read_header(path)[0] for path in folder.glob("*/*/*.kv")}

    def end(name: str) -> int:
        header = headers[name]
        parent = header.parent.hex()
        return header.end if header.start == 0 or (parent in headers and end(parent)) else 0

    return max(map(end, headers), default=0)


@pytest.mark.parametrize("kind", ["dense", "swa", "hybrid"])
def test_budget_64_mb_and_a_chat_that_outgrows_it(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(store, "MB", MB)
    folder, history, told = tmp_path / "kv", [], list[Notice]()

    def talk(room: EngineRoom, turns: int) -> list[ChatMessage]:
        said: list[ChatMessage] = []
        for turn in range(turns):
            said.append(user(f"Tell me of ship number {turn}, of her crew and of all that she carries. " * 3))
            reply = room.chat(said, max_tokens=40, cold=turn == 0)
            assert reply.done is not None
            told.extend(event for event in reply.events if isinstance(event, Notice))
            said.append(reply.message)
        return said

    def another(folder: Path, kv: KvOptions) -> None:
        with EngineRoom(tiny[kind], folder, kv, n_ctx=N_CTX, threads=1) as room:
            room.chat([user("Something about mountains. " * 30)], session="other")

    with watched(folder) as sizes:
        # Another session's checkpoints are there already, and are what makes room first.
        another(folder, KV)
        with EngineRoom(tiny[kind], folder, KV, n_ctx=N_CTX, threads=1) as room:
            history = talk(room, 9)
            room.flush()
            per_token = room.loaded.kv_bytes_per_token
        kept = kept_chain(folder)
        with EngineRoom(tiny[kind], folder, KV, n_ctx=N_CTX, threads=1) as room:
            again = room.chat([*history, user("And then?")], max_tokens=10, cold=False)
    assert again.done is not None
    assert again.done.prompt_tokens * per_token > 2 * BUDGET * MB, "the chat has outgrown the budget"
    assert BUDGET * MB / 2 < max(sizes) <= BUDGET * MB * (1 + SLACK)
    assert told == []
    assert again.restored == kept > 0
    another(tmp_path / "unlimited", SMALL)
    with EngineRoom(tiny[kind], tmp_path / "unlimited", SMALL, n_ctx=N_CTX, threads=1) as room:
        assert talk(room, 9) == history, "the chat goes on as without a budget"
