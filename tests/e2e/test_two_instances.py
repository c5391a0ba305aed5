"""Two screens of the program and commands beside them, on one database and one checkpoint directory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.interplay import Interplay, answers, replayed
from tests.support.program import Program
from tests.support.screens import Screens, log_faults
from tests.support.terminal import ctrl
from tests.support.tiny_models import write_tiny_model

BULK = "The harbour master counts the gulls on the pier and writes each of them down. " * 20

CONFIG = """[model]
path = "{model}"
threads = 1
ctx = 2048
[sampling]
temperature = 0.0
max_tokens = 12
[kv]
space_mb = 1
"""


def home(folder: Path, model: Path) -> Program:
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG.format(model=model))
    return Program(folder)


@pytest.fixture
def model(tmp_path: Path, starter: Path) -> Path:
    return write_tiny_model("dense", tmp_path / "tiny.gguf", starter)


@pytest.fixture
def pair(tmp_path: Path, model: Path) -> Iterator[Interplay]:
    with Screens(home(tmp_path / "home", model)) as screens:
        yield Interplay(screens)


def test_two_screens_and_commands_beside_them(pair: Interplay, tmp_path: Path, model: Path) -> None:
    screens = pair.screens
    one, two = pair.sit_down(), pair.sit_down()
    for seat in (one, two, one):
        pair.new(seat)
        pair.say(seat, BULK, wait=False)
    first, theirs, mine = list(pair.said)

    # The same chat on both: the second looks on, and goes on in a copy.
    pair.go(two, mine)
    assert not two.writable
    pair.say(one, "Another question.")
    text = pair.said[mine][-1]
    two.screen.until(f"{text[:4]}(.|\n)*◆")
    copy = pair.fork(two)
    pair.say(two, "In the copy.")
    assert pair.said[mine] == pair.said[copy][:-1]

    # Commands beside them, while both talk.
    pair.go(one, first)
    pair.run("ls")
    pair.run("cache", "verify")
    pair.run("rename", pair.id_of(mine), f"{mine} renamed beside")
    pair.say(one, BULK, wait=False)
    pair.go(two, theirs)
    pair.say(two, BULK)
    one.screen.until(f"{mine} renamed")
    pair.reap()
    pair.run("cache", "prune")

    # Deleted here, while it is looked at there.
    pair.go(one, copy)
    pair.go(two, copy)
    pair.delete(one)
    two.screen.until("was deleted in another")
    pair.reap()

    pair.go(two, mine)
    pair.say(two, "And on.")
    for seat in (one, two):
        seat.screen.type(ctrl("q"))
        assert seat.screen.wait_end() == 0
        assert seat.screen.faults == []
    assert pair.faults() == []
    assert pair.complaints == []
    assert log_faults(pair.program.home) == []
    assert pair.program.run("cache", "verify").returncode == 0
    assert screens.program.kv_files and sum(f.stat().st_size for f in screens.program.kv_files) < 1.02e6

    told = answers(pair.program.home, pair.id_of(theirs))
    alone = home(tmp_path / "alone", model)
    assert replayed(alone, [told[0][0]]) == [told[0][1]]


def test_keys_are_shown_and_nothing_is_lost_while_another_program_writes(pair: Interplay) -> None:
    one = pair.sit_down()
    pair.say(one, "hello")
    other = sqlite3.connect(pair.program.home / "data" / "sessions.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    two = pair.sit_down("-c")
    assert "Read only: open" in two.screen.text
    one.screen.type("M099 sent meanwhile\r")
    one.screen.until("Another program is writing")
    began = time.monotonic()
    one.screen.type("keys")
    one.screen.until("│ keys")
    assert time.monotonic() - began < 0.5
    other.execute("ROLLBACK")
    other.close()
    pair.until_answered("M099 sent meanwhile")
    pair.said[one.name].append("M099 sent meanwhile")
    two.screen.until("M099(.|\n)*◆")
    one.screen.type(ctrl("q"))
    assert one.screen.wait_end() == 0
    assert pair.faults() == [] and log_faults(pair.program.home) == []
    assert one.screen.faults == two.screen.faults == []
