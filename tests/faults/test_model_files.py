"""Model files that are damaged, foreign, in parts, gone or cut off while in use: what is said; the chat stays."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.config import check_model
from ds4chat.engine.llama import Model
from ds4chat.errors import ModelError
from ds4chat.gguf_file import FaultError, read_contents
from ds4chat.sessions.events import EngineChanged, EngineNotice, TextStreamed
from tests.support.manager_room import manager_room
from tests.support.program import Program
from tests.support.terminal import Terminal

Value = int | str | list[int] | list[str]


def packed(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def header(*entries: tuple[str, Value], tensors: int = 1, version: int = 3, keys: int | None = None) -> bytes:
    """A GGUF file of one f32 tensor of eight numbers, or none."""
    body = b""
    for name, value in entries:
        body += packed(name)
        match value:
            case str():
                body += struct.pack("<I", 8) + packed(value)
            case int():
                body += struct.pack("<II", 4, value)
            case list() if value and isinstance(value[0], str):
                body += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(packed(str(v)) for v in value)
            case list():
                body += struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *map(int, value))
    for _ in range(tensors):
        body += packed("x.weight") + struct.pack("<IQIQ", 1, 8, 0, 0)
    count = len(entries) if keys is None else keys
    start = b"GGUF" + struct.pack("<IQQ", version, tensors, count) + body
    return start + bytes(-len(start) % 32) + bytes(32 * tensors)


LLAMA: tuple[str, Value] = ("general.architecture", "llama")
VOCABULARY: tuple[str, Value] = ("tokenizer.ggml.tokens", ["a", "b"])
AGAIN, OTHER = "download or copy it again", "choose another"

FAULTS: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "is empty", AGAIN),
    "PNG": (
        b"\x89PNG\r\n\x1a\n" + bytes(99),
        "is not a GGUF file but a PNG picture",
        "give one in the GGUF format",
    ),
    "ZIP": (b"PK\x03\x04" + bytes(99), "is not a GGUF file but a ZIP archive", "give one in the GGUF format"),
    "PyTorch": (
        b"PK\x03\x04" + bytes(26) + b"archive/data.pkl",
        "is not a GGUF file but a PyTorch file",
        "give one in the GGUF format",
    ),
    "pickle": (b"\x80\x02}q\x00", "is not a GGUF file but a PyTorch file", "give one in the GGUF format"),
    "safetensors": (
        struct.pack("<Q", 70) + b'{"__metadata__":{}}',
        "is not a GGUF file but a safetensors file",
        "give one in the GGUF format",
    ),
    "web page": (b"<!DOCTYPE html><html>", "is not a GGUF file but a web page", AGAIN),
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "is not a GGUF file but a Git LFS pointer, and the model was never downloaded",
        AGAIN,
    ),
    "text": (b"Once upon a time\n", "is not a GGUF file", "give one in the GGUF format"),
    "old GGML": (
        b"tjgg" + bytes(9),
        "is not a GGUF file but a GGML file of before 2023",
        "give one in the GGUF format",
    ),
    "version 1": (
        header(LLAMA, version=1),
        "is a GGUF file of version 1, which is no longer read",
        "get one of version 3",
    ),
    "version 99": (
        header(LLAMA, version=99),
        "is a GGUF file of version 99, and versions 2 and 3 are known",
        "get one of version 3",
    ),
    "big-endian": (
        b"GGUF" + struct.pack(">IQQ", 3, 1, 1),
        "is written for big-endian processors",
        "get the little-endian file, which nearly all GGUF files are",
    ),
    "only a magic": (b"GGUF", "is cut off in its header, at 4 bytes", AGAIN),
    "cut in the metadata": (header(LLAMA)[:50], "is cut off in its header, at 50 bytes", AGAIN),
    "cut in the tensors": (header(LLAMA)[:-1], "is cut off: it has 159 bytes of 160 bytes", AGAIN),
    "absurd entries": (
        header(LLAMA, keys=2**60),
        "is damaged: its header counts 1,152,921,504,606,846,976 entries",
        AGAIN,
    ),
    "absurd tensors": (
        b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0) + bytes(64),
        "is damaged: its header counts 1,099,511,627,776 tensors",
        AGAIN,
    ),
    "absurd list": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + packed("x") + struct.pack("<IIQ", 9, 8, 2**50) + bytes(64),
        "is damaged: its header counts 1,125,899,906,842,624 strings",
        AGAIN,
    ),
    "absurd string": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63) + bytes(64),
        "is cut off in its header, at 96 bytes",
        AGAIN,
    ),
    "absurd kind": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + packed("x") + struct.pack("<I", 77) + bytes(64),
        "is damaged: its header has a value of unknown kind 77",
        AGAIN,
    ),
    "projector": (
        header(("general.architecture", "clip")),
        "is a projector of pictures, not a model",
        "give the model's own file, which lies beside it",
    ),
    "adapter": (
        header(LLAMA, ("general.type", "adapter")),
        "is a LoRA adapter, not a model",
        "give a model that has it built in",
    ),
    "embeddings": (
        header(("general.architecture", "nomic-bert")),
        "is an embedding model (nomic-bert), which reads text and writes none",
        OTHER,
    ),
    "vocabulary": (header(LLAMA, VOCABULARY, tensors=0), "has no weights, only a vocabulary", OTHER),
    "nothing in it": (header(LLAMA, tensors=0), "has no weights", OTHER),
    "nameless": (header(VOCABULARY), "does not say what kind of model it is", AGAIN),
    "second part": (
        header(LLAMA, ("split.no", 1), ("split.count", 3)),
        "is part 2 of 3 of a model",
        "give its first part",
    ),
    "first part, renamed": (
        header(LLAMA, ("split.no", 0), ("split.count", 3)),
        "is the first of 3 parts of a model, and its name does not tell the others'",
        "name it NAME-00001-of-00003.gguf, as it was",
    ),
}


def fault(path: Path) -> tuple[str, str]:
    with pytest.raises(FaultError) as caught:
        read_contents(path)
    return caught.value.fault.what, caught.value.fault.way_out


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_file(name: str, tmp_path: Path) -> None:
    data, what, way_out = FAULTS[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    began = time.perf_counter()
    assert fault(path) == (what, way_out)
    assert time.perf_counter() - began < 1


def test_what_is_no_file_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault(tmp_path) == ("is a folder", "give the path of a GGUF file in it")
    assert fault(tmp_path / "gone.gguf") == ("is not there", "put it back")
    os.mkfifo(tmp_path / "pipe")
    assert fault(tmp_path / "pipe") == ("is not a regular file", OTHER)

    def denied(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "locked.gguf").write_bytes(header(LLAMA))
    monkeypatch.setattr(Path, "open", denied)
    assert fault(tmp_path / "locked.gguf") == ("cannot be read (Permission denied)", "change its permissions")


def test_the_parts_of_a_split_model(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    first.write_bytes(header(LLAMA, VOCABULARY, ("split.no", 0), ("split.count", 2)))
    assert fault(first) == (
        "lacks part m-00002-of-00002.gguf of its 2 parts",
        "download or copy that too",
    )
    second.write_bytes(header(("split.no", 1), ("split.count", 2)))
    assert read_contents(first).weights == 64
    second.write_bytes(second.read_bytes()[:-7])
    size = second.stat().st_size
    assert fault(first)[0] == (
        f"is not whole, for its part m-00002-of-00002.gguf is cut off: it has {size} bytes of {size + 7} bytes"
    )


def test_sound_models_are_sound(tiny: dict[str, Path], starter: Path) -> None:
    for path in (*tiny.values(), starter):
        contents = read_contents(path)
        assert contents.vocabulary > 1000 and contents.kind
        assert 0 < path.stat().st_size - contents.weights < 10_000_000


@given(data=st.data())
def test_damage_is_a_fault_or_nothing(
    tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(tiny["dense"].read_bytes()[:60_000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, 2_000))
        raw[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    path = tmp_path_factory.mktemp("g") / "a.gguf"
    path.write_bytes(raw)
    began = time.perf_counter()
    with pytest.raises(FaultError):
        read_contents(path)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("PNG", "is not a GGUF file but a PNG picture"),
        ("version 99", "is a GGUF file of version 99, and versions 2 and 3 are known"),
    ],
)
def test_the_start_of_a_file_is_looked_at_before_an_engine_is_started(
    name: str, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(FAULTS[name][0])
    with pytest.raises(ModelError) as caught:
        check_model(path, "given by --model", "give the path of a GGUF file")
    assert str(caught.value) == f"The model {path} given by --model {what}: give the path of a GGUF file."


def other_bytes(model: Path, path: Path, *changes: tuple[bytes, bytes]) -> Path:
    data = model.read_bytes()
    for old, new in changes:
        assert len(old) == len(new) and old in data
        data = data.replace(old, new)
    path.write_bytes(data)
    return path


def test_what_only_the_engine_can_know(tiny: dict[str, Path], tmp_path: Path) -> None:
    dense = tiny["dense"]
    unknown = other_bytes(dense, tmp_path / "new.gguf", (packed("llama"), packed("lluma")))
    with pytest.raises(ModelError) as caught:
        Model.load(unknown)
    assert str(caught.value).startswith(
        f"The model {unknown} is of a kind that this engine does not know (lluma; llama-cpp-"
    )
    lacking = other_bytes(
        dense, tmp_path / "less.gguf", (packed("output_norm.weight"), packed("output_nurm.weight"))
    )
    with pytest.raises(ModelError) as caught:
        Model.load(lacking)
    assert str(caught.value) == (
        f"The model {lacking} could not be loaded (tensor 'output_norm.weight' not found): download or copy it again, "
        "or choose another with --model (in a chat: /model); the engine's log has the details."
    )


# ---- the program itself -----------------------------------------------------------------------------------------


def test_a_download_that_broke_off(tiny: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    data = tiny["dense"].read_bytes()
    path.write_bytes(data[: len(data) - 100_000])
    done = Program(tmp_path / "home").run("-p", "Hello?", "-m", str(path))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"ds4chat: The model {path} is cut off: it has {(len(data) - 100_000) / 1e6:.1f} MB of {len(data) / 1e6:.1f} "
        "MB: download or copy it again, or choose another with --model (in a chat: /model).\n"
    )


def test_the_screen_says_it_and_keeps_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "bert.gguf"
    path.write_bytes(FAULTS["embeddings"][0])
    with Terminal(Program(tmp_path / "home"), "-m", str(path), columns=160) as terminal:
        terminal.until(r"The model .*bert.gguf is an embedding model")
        terminal.send_message("Nobody answers")
        terminal.until(r"failed: The model ")
        assert "Nobody answers" in terminal.text


# ---- while it is in use -----------------------------------------------------------------------------------------


async def loses_its_model(
    tiny: dict[str, Path], tmp_path: Path, harm: Callable[[Path], object]
) -> tuple[list[str], str, str]:
    """A chat whose model is harmed between two turns: what is said, the second turn's error, and the model's path."""
    model = tmp_path / "mine.gguf"
    shutil.copy(tiny["dense"], model)
    async with manager_room(model, tmp_path / "home", max_tokens=8) as room:
        session = room.manager.new_session()
        assert (await room.ask(session.id, "Hello?")).error == ""
        harm(model)
        ended = await room.ask(session.id, "And now?")
        if not ended.error:
            room.kill_engine()
            await room.until(EngineChanged, lambda e: e.status.phase == "failed")
            ended = await room.ask(session.id, "Still there?")
        else:
            await room.until(EngineChanged, lambda e: e.status.phase == "failed")
        assert [m.role for m in session.path()][:3] == ["user", "assistant", "user"]
        return [e.message for e in room.of(EngineNotice)], room.manager.engine.message, str(model)


async def test_a_model_deleted_while_in_use_answers_on_and_is_missed_at_the_next_load(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    said, failed, path = await loses_its_model(tiny, tmp_path, Path.unlink)
    assert said[0] == "The engine was ended by SIGKILL and is started again; what was shown is kept."
    assert failed == (
        f"The model {path} is not there: put it back, or choose another with --model (in a chat: /model)."
    )
    async with manager_room(tiny["recurrent"], tmp_path / "home", max_tokens=4) as room:
        (info,) = room.manager.list_sessions()
        session = room.manager.open_session(info.id)
        ended = await room.ask(session.id, "Who are you?")
        assert ended.error == "" and session.path()[0].text == "Hello?"
        notice = room.of(EngineNotice)[0]
        assert notice.message == f"The model {path} of this chat is gone: recurrent answers from now on."
        assert notice.session_id == session.id


async def test_a_model_cut_off_while_in_use_ends_the_engine_and_not_the_chat(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    said, failed, path = await loses_its_model(tiny, tmp_path, lambda model: os.truncate(model, 4096))
    assert said[0] == (
        "The engine was ended by SIGBUS: the file of mine was cut off or changed while it was in use, or its disk "
        "fails. It is started again; what was shown is kept."
    )
    assert failed == (
        f"The model {path} is cut off in its header, at 4,096 bytes: download or copy it again, or choose another with "
        "--model (in a chat: /model)."
    )


async def test_a_model_replaced_by_another_is_loaded_as_what_it_is(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    model = tmp_path / "mine.gguf"
    shutil.copy(tiny["dense"], model)
    async with manager_room(model, tmp_path / "home", max_tokens=40) as room:
        session = room.manager.new_session()
        await room.ask(session.id, "Hello?")
        shutil.copy(tiny["swa"], tmp_path / "new.gguf")
        (tmp_path / "new.gguf").replace(model)
        room.manager.send(session.id, "And now?")
        seen = len(room.events)
        await room.until(TextStreamed, after=seen)
        room.kill_engine()
        await room.until(EngineChanged, lambda e: e.status.phase == "ready", after=len(room.events))
        ended = await room.ask(session.id, "Still there?")
        assert ended.error == "" and ended.stats.cached_tokens == 0, (
            "nothing of the other weights' is taken for its own"
        )
