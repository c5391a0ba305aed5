"""What scripts rely on: constrained answers, events as they happen, exit codes, and sessions that go on."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.models.gguf_files import write_gguf
from tests.support.program import Program

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer", "minimum": 1500, "maximum": 1999}},
    "required": ["name", "born"],
}


@pytest.fixture
def program(tmp_path: Path, starter: Path) -> Program:
    return Program(tmp_path)


def test_one_answer_is_json_and_the_next_in_the_session_is_free(program: Program, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Ada Lovelace, born 1815, wrote to Charles Babbage.\n")
    (tmp_path / "person.json").write_text(json.dumps(SCHEMA))
    given = ("-f", str(tmp_path / "letter.txt"), "--json-schema", str(tmp_path / "person.json"))
    first = program.ask("Who wrote? As JSON.", *given)
    person = json.loads(first["text"])
    jsonschema.validate(person, SCHEMA)
    assert "Ada" in person["name"] and first["stop_reason"] == "stop"
    yes = program.ask("Is that a person?", "-r", first["session"], "--grammar", 'root ::= "yes" | "no"')
    assert yes["text"] in ("yes", "no") and yes["cached_tokens"] >= first["prompt_tokens"]
    free = program.ask("Tell me more.", "-c", "--max-tokens", "8")
    assert free["session"] == first["session"] and free["text"] not in ("yes", "no")
    shown = json.loads(program.run("show", first["session"], "--json").stdout)
    assert "root ::=" not in json.dumps(shown)
    assert shown["messages"][0]["text"].startswith(f"{tmp_path}/letter.txt:\n```txt\nAda")


def test_an_answer_that_is_cut_off_is_told_by_the_exit_code(program: Program) -> None:
    schema = json.dumps(SCHEMA)
    done = program.run("-p", "Ada Lovelace, born 1815.", "--json-schema", schema, "--max-tokens", "3")
    assert done.returncode == 3
    assert done.stderr.startswith("ds4chat: The answer was cut off") and "--max-tokens" in done.stderr
    refused = program.run("-p", "x", "--grammar", "root ::= [")
    assert (refused.returncode, refused.stdout) == (2, "") and "closing ]" in refused.stderr


def test_ctrl_c_is_exit_code_130_and_what_came_is_kept(program: Program) -> None:
    asked = program.command("-p", "Write a long story about a whale.", "--output-format", "stream-json")
    running = subprocess.Popen(
        asked,
        env=program.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None and running.stderr is not None
    events = []
    for line in running.stdout:
        events.append(json.loads(line))
        if [event["type"] for event in events].count("text") == 5:
            running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130 and running.stderr.read() == ""
    assert events[0]["type"] == "session" and events[-1]["type"] == "done"
    assert events[-1]["stop_reason"] == "cancelled"
    text = "".join(event["text"] for event in events if event["type"] == "text")
    (kept,) = json.loads(program.run("show", events[0]["session"], "--json").stdout)["messages"][1:]
    assert kept["text"] == text == events[-1]["text"] != ""
    running.stdout.close()
    running.stderr.close()


def test_a_reader_that_leaves_ends_it_without_a_word(program: Program) -> None:
    command = " ".join(f"'{word}'" for word in program.command("-p", "Tell a long story."))
    script = f"{{ {command} --output-format stream-json; echo $? >&2; }} | head -1"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=program.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "1\n"
    event = json.loads(done.stdout)
    assert event["type"] == "session"
    (listed,) = json.loads(program.run("ls", "--json").stdout)
    assert listed["id"] == event["session"] and listed["title"] == "Tell a long story."


def test_the_session_is_told_before_the_model_is_there(program: Program, tmp_path: Path) -> None:
    """One that cannot be loaded shows the order; the question is saved all the same."""
    write_gguf(tmp_path / "none.gguf")
    given = ("-p", "Hello?", "-m", str(tmp_path / "none.gguf"), "--output-format", "stream-json")
    done = program.run(*given)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["type"] == "session" and last["type"] == "error"
    assert done.stderr == f"ds4chat: {last['message']}\n"
    shown = json.loads(program.run("show", first["session"], "--json").stdout)
    assert shown["messages"][0]["text"] == "Hello?"
