"""Few files may be open: a sentence says so, and a chain of many checkpoints needs no more of them than a short one."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ds4chat.engine.client import EngineClient
from ds4chat.engine.live import MAPPED_AT_ONCE
from ds4chat.engine.llama import Context
from ds4chat.errors import EngineError
from ds4chat.streams import check_free_files
from tests.support.engine_room import SMALL, EngineRoom, user
from tests.support.program import Program

TOO_MANY = "ds4chat: Too many files are open: close other programs, or raise the limit with `ulimit -n`.\n"


def open_files() -> list[str]:
    """Descriptors of this process."""
    return sorted(path.name for path in Path("/dev/fd").iterdir())


def limited(most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@pytest.mark.parametrize("most", [7, 8, 13])
def test_with_too_few_files_a_sentence_says_so(tmp_path: Path, most: int) -> None:
    program = Program(tmp_path)
    done = subprocess.run(
        program.command("-p", "Hello?"),
        env=program.env,
        capture_output=True,
        text=True,
        preexec_fn=limited(most),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", TOO_MANY)


def test_24_files_are_enough_for_a_long_chat_with_many_checkpoints(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    program = Program(tmp_path)
    options = ("--max-tokens", "4", "--output-format", "json", "-m", str(tiny["dense"]))
    options += ("--kv-cache-continued-interval-tokens", "32", "--kv-cache-boundary-align-tokens", "32")
    texts = ("word " * 450, "And then?")
    for text, more in zip(texts, ((), ("-c",)), strict=True):
        done = subprocess.run(
            program.command("-p", text, *options, *more),
            env=program.env,
            capture_output=True,
            text=True,
            preexec_fn=limited(24),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert len(program.kv_files) > 24
    assert json.loads(done.stdout)["cached_tokens"] > 32 * 24, "all of it came from them"


def test_a_restore_holds_no_file_open(tmp_path: Path, tiny: dict[str, Path]) -> None:
    question = [user("word " * 400)]
    with EngineRoom(tiny["dense"], tmp_path, n_ctx=2048) as room:
        room.chat(question, max_tokens=2)
    with EngineRoom(tiny["dense"], tmp_path, n_ctx=2048) as room:
        before = len(open_files())
        assert room.chat(question, max_tokens=2).restored > 700
        assert len(open_files()) <= before + 2


def test_a_restore_does_not_run_ahead_of_the_thread_that_lets_go_of_files(
    tmp_path: Path, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = [user("word " * 400)]
    kv = msgspec.structs.replace(SMALL, continued_interval_tokens=32, boundary_align_tokens=32)
    with EngineRoom(tiny["dense"], tmp_path, kv, n_ctx=2048) as room:
        room.chat(question, max_tokens=2)
    with EngineRoom(tiny["dense"], tmp_path, kv, n_ctx=2048) as room:
        turns, gate, seen = room.engine._turns, threading.Event(), list[int]()
        assert turns is not None
        restore = Context.restore

        def late(context: Context, *span: int) -> None:
            if not seen:
                turns.live._ahead.later(gate.wait, 10)
                threading.Timer(0.5, gate.set).start()
            seen.append(len(open_files()))
            restore(context, *span)

        monkeypatch.setattr(Context, "restore", late)
        assert room.chat(question, max_tokens=2).restored > 700
    assert len(seen) > 20 and max(seen) <= seen[0] + MAPPED_AT_ONCE + 3


def test_an_engine_that_cannot_be_started_for_want_of_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> None:
        await EngineClient(lambda event: None, lambda code: None, tmp_path / "engine.log").start()

    async def none_left(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", none_left)
    with pytest.raises(EngineError) as caught:
        asyncio.run(start())
    assert str(caught.value) == (
        "The engine process could not be started (Too many open files): raise the limit with `ulimit -n` and try again."
    )


def test_looking_for_free_files_leaves_them_free() -> None:
    before = open_files()
    check_free_files()
    assert open_files() == before
