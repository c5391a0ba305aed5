"""The program killed in every way, each start over what the kill before left; `benchmarks/kills.py` does it by the
hundred.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.support.kill_checks import Watched
from tests.support.kill_homes import Template, write_home, write_old_database, write_wordy_model
from tests.support.kills import Home
from tests.support.program import Program

KILLS = (
    ("all", "generating"),
    ("close", "loading"),
    ("hup", "migrating"),
)


def test_kills_lose_nothing(tmp_path: Path, starter: Path) -> None:
    model = write_wordy_model(tmp_path / "tiny.gguf", starter)
    template = Template(tmp_path / "home", model, slow=False)
    write_home(template.folder, model)
    write_old_database(template.old_database, model, sessions=3)
    home = Home(template.folder, template, random.Random(1))
    for way, moment in KILLS:
        outcome = home.kill(way, moment)
        assert not outcome.faults, f"{way}/{moment}: {outcome.faults}\n{outcome.screen}"


@pytest.mark.parametrize("number, later", [(signal.SIGTERM, 0.0), (signal.SIGHUP, 0.1)])
def test_a_signal_while_the_screen_comes_up(tmp_path: Path, number: signal.Signals, later: float) -> None:
    terminal = Watched(Program(tmp_path))
    assert terminal.watch(30, lambda: b"\x1b[?1049h" in terminal.raw)
    terminal.watch(later)
    terminal.process.kill(number)
    assert terminal.wait_end() == 0, terminal.text
    assert terminal.dirt() == []
