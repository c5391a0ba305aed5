"""One long walk through the chat screen by keys alone, in tmux: on the starter model, then on a tiny one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Program
from tests.support.terminal import ENTER, ESCAPE, Terminal, alt, ctrl
from tests.support.tmux import Tmux, has_tmux

TAB, BACKSPACE, LEFT, RIGHT, HOME = "\t", "\x7f", "\x1b[D", "\x1b[C", "\x1b[H"
F5, F7, F8, F9 = "\x1b[15~", "\x1b[18~", "\x1b[19~", "\x1b[20~"

READY = r"Enter sends"
DONE = r"\d+ tokens · \d+ tok/s"
LONG = "Write a long story about a whale and a lighthouse keeper, in many sentences."

Window = Tmux | Terminal


@pytest.fixture
def program(tmp_path: Path, wordy: Path) -> Program:
    (tmp_path / "config.toml").write_text(
        "[model]\nthreads = 1\n[sampling]\ntemperature = 0.0\nmax_tokens = 60\n"
    )
    program = Program(tmp_path)
    models = tmp_path / "data" / "models"
    models.mkdir(parents=True)
    (models / "other.gguf").symlink_to(wordy)
    return program


def window(program: Program, *args: str) -> Window:
    """In tmux where there is one, else in a pseudo-terminal."""
    return Tmux(program, *args) if has_tmux() else Terminal(program, *args)


@pytest.fixture
def walk(program: Program) -> Iterator[Window]:
    with window(program) as opened:
        yield opened


def sessions(program: Program, *args: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(program.run("ls", "--json", *args).stdout)
    return listed


def saved(program: Program, session: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(program.run("show", session, "--json").stdout)
    return shown


def command(walk: Window, text: str) -> None:
    """A slash command, run whatever the list above the prompt box offers."""
    walk.type(text)
    walk.until(text)
    walk.type(ENTER)


def choose_first(walk: Window) -> None:
    """Go up to the first message, which the mark beside it shows."""
    walk.type(TAB)
    walk.until("┃")
    walk.type(HOME)
    walk.until(r"┃▌ You")


def test_a_walk_through_everything(program: Program, walk: Window) -> None:
    walk.until(READY)
    # A new session, a question, stopped in the middle, continued.
    walk.send_message(LONG)
    walk.until(r"tokens/s|tok/s|writing")
    walk.until(r"whale(.|\n)*whale")
    walk.type(ESCAPE)
    walk.until("stopped")
    walk.type(ctrl("g"))
    walk.until("stopped by you|stopped ·", gone=True)
    walk.until(r"length limit(.|\n)*" + DONE)

    # Edit the first message, which makes a branch, and walk the two.
    choose_first(walk)
    walk.type("e")
    walk.until("[Ee]diting")
    walk.type(BACKSPACE * len(LONG))
    walk.send_message("Name a colour.")
    walk.until(r"< 2/2 >(.|\n)*" + DONE)
    choose_first(walk)
    walk.type(LEFT)
    walk.until(r"Write a long story(.|\n)*")
    walk.until(r"< 1/2 >")
    walk.type(RIGHT)
    walk.until(r"< 2/2 >")
    walk.type(ESCAPE)

    # Fork, rename the copy, search in all chats and jump.
    walk.type(F5)
    walk.until("this is a copy")
    walk.type(F9)
    walk.until("Title|title|Rename")
    walk.type("Harbour lights")
    walk.until("Harbour lights")
    walk.type(ENTER)
    walk.until("Harbour lights")
    walk.type(ctrl("f"))
    walk.until("Search|search")
    walk.type("lighthouse")
    walk.until(r"lighthouse(.|\n)*lighthouse")
    walk.type(ENTER)
    walk.until(r"Write a long story about a whale")

    # Archive, delete, undo.
    walk.type(F7)
    walk.until("archive")
    walk.type(F7)
    walk.until("archive")
    walk.type(F8)
    walk.until("brings it back|deleted|Deleted")
    walk.type(alt("z"))
    walk.until("Write a long story|Name a colour")

    # Another theme, another model.
    command(walk, "/theme paper")
    walk.until("paper", gone=True)
    command(walk, "/model other")
    walk.until("this chat goes on with")

    # The older part summarised; then out, and back in.
    walk.send_message("And a number?")
    walk.until(r"And a number(.|\n)*◆ other(.|\n)*" + DONE)
    command(walk, "/compact")
    walk.until("Summary of what lies above|ummar")
    walk.until(r"Enter sends")
    walk.type(ctrl("q"))
    assert walk.wait_end() == 0
