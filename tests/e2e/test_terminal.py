"""The chat screen in a real pseudo-terminal, on the real engine: two sessions on the starter model, all else on a tiny
model whose replies go on for as long as a test lets them.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.program import Program
from tests.support.screens import Saved
from tests.support.terminal import ENTER, ESCAPE, Terminal, alt, ctrl

LONG = "Write a long story about a whale and a lighthouse keeper, in many sentences."
READY = r"Enter sends"
STREAMS = r"◆ (?:SmolLM2|wordy).*\n[^\w\n]+(?!reading|restor|writing)\w+ \w+ \w+"
ENDLESS = ("--max-tokens", "3000")
"""For replies that are cut off: they must not end before."""


@pytest.fixture
def starter_program(tmp_path: Path, starter: Path) -> Program:
    (tmp_path / "config.toml").write_text("[model]\nthreads = 1\n[sampling]\ntemperature = 0.0\n")
    return Program(tmp_path)


@pytest.fixture
def program(tmp_path: Path, wordy: Path) -> Program:
    (tmp_path / "config.toml").write_text(
        f'[model]\npath = "{wordy}"\nthreads = 1\n[sampling]\ntemperature = 0.0\nmax_tokens = 12\n'
    )
    return Program(tmp_path)


def saved(program: Program, session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(program.run("show", session, "--json").stdout)["messages"]
    return messages


def sessions(program: Program) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(program.run("ls", "--json").stdout)
    return listed


def test_two_sessions_switch_while_one_streams_quit_and_resume(starter_program: Program) -> None:
    program = starter_program
    with Terminal(program) as terminal:
        terminal.until(READY)
        terminal.send_message(LONG)
        terminal.until(STREAMS)
        terminal.type(ctrl("n"))
        terminal.until("New chat")
        terminal.send_message("Name a colour.")
        terminal.until("queued|waiting|behind")
        terminal.type(alt("2"))
        terminal.until(r"You\n.*Write a long story")
        terminal.type(ESCAPE)
        terminal.until("stopped")
        terminal.type(alt("1"))
        terminal.until(r"You\n.*Name a colour")
        terminal.until(r"\d+ tokens · \d+ tok/s")
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
        terminal.assert_clean()
        resume = terminal.last_line
    ids = {s["title"]: s["id"] for s in sessions(program)}
    assert resume == f"ds4chat --resume {ids['Name a colour.']}"
    first = saved(program, ids["Name a colour."])
    assert [m["role"] for m in first] == ["user", "assistant"]
    with Terminal(program, *resume.split()[1:]) as terminal:
        terminal.until(r"You\n.*Name a colour", timeout=10)
        terminal.until(r"restored \d+ tokens in \d+")
        terminal.send_message("And another one?")
        terminal.until(r"And another one(.|\n)*\d+ tokens · \d+ tok/s · \d+ cached")
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
    reply = saved(program, ids["Name a colour."])[-1]
    assert reply["stats"]["prefilled_tokens"] < 24
    assert reply["stats"]["cached_tokens"] > reply["stats"]["prefilled_tokens"]


def test_the_prompt_takes_text_while_the_model_loads(program: Program) -> None:
    with Terminal(program) as terminal:
        terminal.until(r"loading|Write already")
        terminal.send_message("Name a colour.")
        terminal.until(r"\d+ tokens · \d+ tok/s")
        assert "Name a colour." in terminal.text


def test_the_engine_killed_in_the_middle_of_a_reply(program: Program) -> None:
    with Terminal(program, "--max-tokens", "600") as terminal:
        terminal.until(READY)
        terminal.send_message(LONG)
        terminal.until(STREAMS)
        os.kill(terminal.engine, signal.SIGKILL)
        terminal.until("ended by SIGKILL")
        terminal.until("cut off")
        terminal.send_message("Name a colour.")
        terminal.until(r"Name a colour(.|\n)*◆ wordy")
        terminal.until(r"\d+ tokens · \d+ tok/s|stopped", timeout=90)


def test_everything_killed_in_the_middle_of_a_reply(program: Program) -> None:
    with Terminal(program, *ENDLESS) as terminal:
        terminal.until(READY)
        terminal.send_message(LONG)
        first = re.search(r"◆ wordy.*\n[^\w\n]*(\w+ \w+ \w+)", terminal.until(STREAMS))
        assert first is not None
        # Words are written down while the reply goes on (how soon, `benchmarks/kills.py` asks).
        database = Saved(program)
        while not database.all("SELECT 1 FROM messages WHERE instr(text, ?)", first[1]):
            terminal.until(STREAMS)
            terminal.read(0.05)
        engine = terminal.engine
        terminal.process.kill(signal.SIGKILL)
        os.kill(engine, signal.SIGKILL)
        terminal.wait_end()
    (session,) = sessions(program)
    kept = saved(program, session["id"])[-1]
    assert kept["role"] == "assistant" and first[1].strip() in kept["text"]
    with Terminal(program, "--resume", session["id"]) as terminal:
        last = r"\W+".join(kept["text"].split()[-3:])
        terminal.until(rf"{last}(.|\n)*cut off", timeout=30)
        terminal.until(READY)
        terminal.send_message("Name a colour.")
        terminal.until(r"Name a colour(.|\n)*\d+ tokens · \d+ tok/s")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_clean_terminal_and_the_reply(program: Program, number: signal.Signals) -> None:
    with Terminal(program, *ENDLESS) as terminal:
        terminal.until(READY)
        terminal.send_message(LONG)
        terminal.until(STREAMS)
        terminal.process.kill(number)
        terminal.wait_end()
        terminal.assert_clean()
    (session,) = sessions(program)
    assert saved(program, session["id"])[-1]["text"]
    assert program.kv_files, "the tail was stored"


def test_ctrl_c_twice_quits_cleanly(program: Program) -> None:
    with Terminal(program) as terminal:
        terminal.until(READY)
        terminal.type(ctrl("c"))
        terminal.until("(?i)again")
        terminal.type(ctrl("c"))
        assert terminal.wait_end() == 0
        terminal.assert_clean()
    assert sessions(program) == []


def test_a_tiny_terminal(program: Program) -> None:
    with Terminal(program, columns=40, rows=10) as terminal:
        terminal.until("Enter sends")
        terminal.send_message("Name a colour.")
        terminal.until(r"\d+ tokens")
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
        terminal.assert_clean()


def test_a_redirected_standard_error_is_refused_with_a_sentence(program: Program) -> None:
    command = " ".join(f"'{word}'" for word in program.command())
    process = pexpect.spawn(
        "/bin/sh", ["-c", f"{command} 2>/dev/null; echo code $?"], env=program.env, timeout=20
    )
    process.expect("code 2")
    process.close()


def test_what_is_typed_right_behind_a_switch_goes_to_the_chat_switched_to(program: Program) -> None:
    with Terminal(program) as terminal:
        terminal.until(READY)
        terminal.send_message("Name a colour.")
        terminal.until(r"\d+ tokens · \d+ tok/s")
        terminal.type(ctrl("n") + "Name a fruit." + ENTER)
        terminal.until(r"You\n.*Name a fruit(.|\n)*\d+ tokens · \d+ tok/s")
        terminal.type("Another fruit." + ENTER + alt("2") + "Another colour." + ENTER)
        terminal.until(r"Another colour(.|\n)*\d+ tokens · \d+ tok/s")
        terminal.type("\xff")
        terminal.type(ctrl("q"))
        terminal.wait_end()
    asked = {
        s["title"]: [m["text"] for m in saved(program, s["id"]) if m["role"] == "user"]
        for s in sessions(program)
    }
    assert asked == {
        "Name a colour.": ["Name a colour.", "Another colour."],
        "Name a fruit.": ["Name a fruit.", "Another fruit."],
    }
