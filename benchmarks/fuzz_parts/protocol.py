"""Lines of the pipe, both ways: what the parent makes of the engine's, and the engine of the parent's."""

from __future__ import annotations

import asyncio
import io
import logging
import random
from pathlib import Path
from typing import Any, cast

import msgspec

from benchmarks.fuzz_parts.mutate import json_bytes, mutate_bytes, mutate_tree, value
from benchmarks.fuzz_parts.target import Outcome, Target, UncaughtError
from ds4chat.engine import client as client_module
from ds4chat.engine import protocol as p
from ds4chat.engine.client import EngineClient
from ds4chat.engine.worker import Engine, _read_commands

LINE_LIMIT = 1_000_000
"""Instead of the program's own 64 MB, so that some lines are beyond it."""

IDS = ("0a1b2c3d", 7)

EVENTS: list[p.Event] = [
    p.Loading(0.25),
    p.Loaded("Tiny", "/models/tiny.gguf", "llama", 2048, 8192, "dense", "ab" * 16, 1000),
    p.LoadFailed("The model is not there."),
    p.Restored(*IDS, 512, 2, 3.5),
    p.Prefill(*IDS, 10, 20),
    p.Started(*IDS, 532, 512, 20),
    p.Token(*IDS, "Hello é日", [1, 2, 3]),
    p.Done(*IDS, "stop", 532, 512, 20, 3, 3.5, 10.0, 20.0, 535, [500, 32, 3]),
    p.ContextFull(*IDS, 2000, 2048, [1000, 1000]),
    p.Prepared(*IDS, 512, 532),
    p.Failed(*IDS, "It failed."),
    p.Stored(IDS[0], "cd" * 20, 0, 512, "cold", 100_000),
    p.Notice("The disk is full."),
]

MESSAGES = [
    p.ChatMessage("system", "Be brief."),
    p.ChatMessage("user", "Hi"),
    p.ChatMessage("assistant", "Ho", [4]),
]

COMMANDS: list[p.Command] = [
    p.Load("/models/tiny.gguf", n_ctx=2048, kv=p.KvOptions(directory="/kv", budget_mb=5)),
    p.Generate(*IDS, MESSAGES, p.Sampling(seed=3), 20),
    p.Prepare(*IDS, MESSAGES, prefill=True),
    p.Cancel(*IDS),
    p.Expendable(["ab" * 20]),
    p.Forget(IDS[0], ["ab" * 20], ["cd" * 20]),
]


class _Lines(Target):
    """Some lines, most of them hostile, and a good one at the end that must arrive."""

    examples: list[bytes]

    def make(self, draw: random.Random) -> bytes:
        return b"".join(self._line(draw) for _ in range(draw.choice((1, 1, 2, 4))))

    def _line(self, draw: random.Random) -> bytes:
        example = draw.choice(self.examples)
        kind = draw.randrange(10)
        if kind < 3:
            line = mutate_bytes(draw, example, self.examples)
        elif kind < 7:
            line = json_bytes(draw, mutate_tree(draw, msgspec.json.decode(example)))
        elif kind == 7:
            tag = msgspec.json.decode(example)["type"]
            line = json_bytes(draw, {"type": tag} | {f"{value(draw, 4)}": value(draw) for _ in range(4)})
        elif kind == 8:
            line = draw.randbytes(draw.choice((1, 10, 1000)))
        else:
            line = draw.choice(
                (b"[" * 100_000, b'{"a":' * 50_000, b"x" * LINE_LIMIT * 2, b'"' + b"a" * 900_000, b"", b"\r")
            )
        return line + draw.choice((b"\n", b"\n", b"\n", b"\r\n", b"", b"\x00\n"))


class EventLines(_Lines):
    """The engine's lines, read by the parent."""

    name = "protocol events"

    def prepare(self) -> None:
        self.examples = [p.encode(event).rstrip() for event in EVENTS]
        logging.disable(logging.CRITICAL)

    def feed(self, data: bytes) -> Outcome:
        last = p.Notice("the last line")
        got = asyncio.run(self._read(data + b"\n" + p.encode(last)))
        if not got or got[-1] != last:
            raise UncaughtError("the line behind it was not read")
        for event in got:
            p.encode(event)
        return "accepted" if len(got) > 1 else "refused"

    @staticmethod
    async def _read(data: bytes) -> list[p.Event]:
        got: list[p.Event] = []
        ends: list[int] = []
        reading = EngineClient(got.append, ends.append)
        stream = asyncio.StreamReader(limit=LINE_LIMIT)

        class Process:
            stdout = stream

            @staticmethod
            async def wait() -> int:
                return 0

        stream.feed_data(data)
        stream.feed_eof()
        await reading._read(cast(Any, Process()))
        if ends != [0]:
            raise UncaughtError("the engine's end was not told once")
        return got


class CommandLines(_Lines):
    """The parent's lines, read by the engine."""

    name = "protocol commands"

    def prepare(self) -> None:
        self.examples = [p.encode(command).rstrip() for command in COMMANDS]
        logging.disable(logging.CRITICAL)

    def feed(self, data: bytes) -> Outcome:
        engine = Engine(lambda event: None)
        last = p.Forget("the last line")
        file = io.BytesIO(data + b"\n" + p.encode(last))
        _read_commands(file, engine)
        got: list[p.Command] = []
        while not engine.commands.empty():
            got.append(engine.commands.get())
        # A line that means Quit ends the reading, as it should.
        if (not got or got[-1] != last) and not _quits(data):
            raise UncaughtError("the line behind it was not read")
        for command in got:
            p.encode(command)
        return "accepted" if len(got) > 1 or engine._cancelled else "refused"


def _quits(data: bytes) -> bool:
    for line in data.split(b"\n"):
        try:
            if isinstance(p.decode_command(line), p.Quit):
                return True
        except msgspec.DecodeError:
            continue
    return False


def folder_of(home: Path, name: str) -> Path:
    """A folder of its own for a target."""
    folder = home / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


assert client_module.LINE_LIMIT >= LINE_LIMIT
