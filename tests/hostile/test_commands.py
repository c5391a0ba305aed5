"""Escape sequences and their like in all that the commands print: visible on a terminal, as they are in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.checkpoints.directory import Directory
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session, clean_text
from tests.cli.conftest import FakeManager, Line, answer
from tests.cli.conftest import line as line
from tests.support.hostile import ACTS, EVERYTHING, acting


@pytest.fixture
def session(line: Line, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session all of whose texts are hostile."""
    monkeypatch.setenv("NO_COLOR", "1")
    with Database(line.database) as database:
        made = Session("", title="findme " + EVERYTHING, system=EVERYTHING, model=f"model {EVERYTHING}")
        made.append(Message(1, None, "user", f"findme {EVERYTHING}"))
        made.append(Message(2, 1, "assistant", EVERYTHING, model=EVERYTHING))
        made.tags, made.summary = [EVERYTHING[:30]], EVERYTHING
        database.create_session(made)
        return made.id


@pytest.mark.parametrize(
    "command",
    [
        ["ls"],
        ["ls", "--json"],
        ["show", "ID"],
        ["show", "ID", "--json"],
        ["show", "ID", "--markdown"],
        ["show", "ID", "--toml"],
        ["export", "ID"],
        ["export", "ID", "--format", "json"],
        ["search", "findme"],
        ["search", "findme", "--json"],
        ["rename", "ID", f"new {EVERYTHING}"],
        ["cache", "ls"],
        ["cache", "unpin", "ID"],
        ["rm", "-y", "ID"],
    ],
    ids=" ".join,
)
def test_nothing_acts_on_a_terminal(line: Line, session: str, command: list[str]) -> None:
    done = line(*(session if word == "ID" else word for word in command), terminal=True)
    assert done.code == 0, done.err
    assert (done.out + done.err).strip()
    assert acting(done.out) == []
    assert acting(done.err) == []


@pytest.mark.parametrize("text", ACTS.values(), ids=ACTS)
def test_in_a_pipe_a_message_is_what_was_said(line: Line, text: str) -> None:
    id_ = line.session("title", "question", text)
    assert line("show", id_).out.rstrip("\n").endswith(clean_text(text).strip())
    assert json.loads(line("show", id_, "--json").out)["messages"][1]["text"] == clean_text(text)


def test_a_direction_override_is_named_on_a_terminal(line: Line) -> None:
    id_ = line.session("title", "question", "photo\u202egpj.exe")
    assert "photo<U+202E>gpj.exe" in line("show", id_, terminal=True).out
    assert "photo\u202egpj.exe" in line("show", id_).out


@pytest.mark.parametrize("text", ACTS.values(), ids=ACTS)
def test_a_reply_that_is_printed(line: Line, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    # Character by character, as an engine may stream it.
    monkeypatch.setattr(FakeManager, "script", answer(*text))
    assert acting(line("-p", "x", terminal=True).out) == []
    monkeypatch.setattr(FakeManager, "script", answer(*text))
    assert line("-p", "x").out == text + "\n"
    monkeypatch.setattr(FakeManager, "script", answer(*text))
    as_json = line("-p", "x", "--output-format", "json", terminal=True).out
    assert acting(as_json) == []
    assert json.loads(as_json)["text"] == text


@pytest.mark.parametrize(
    "command",
    [
        ["show", "NAME"],
        ["rm", "-y", "NAME"],
        ["import", "NAME"],
        ["-m", "NAME", "-p", "x"],
        ["themes", "check", "NAME"],
        ["themes", "new", "NAME"],
        ["--NAME"],
        ["NAME"],
        ["export", "NAME", "-o", "x"],
        ["--kv-options", "NAME", "-p", "x"],
        ["--kv-type", "NAME", "-p", "x"],
        ["--data-dir", "NAME/NAME", "-r", "NAME", "-p", "x"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "name", ["a\x1b]2;pwned\x07b", "a\u202eb", "a\nb\x9b31m", "a\x00b", "a" * 5000, "a\udc80b"]
)
def test_names_in_errors_do_nothing(
    line: Line, command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\x00" in name and command[0] == "themes":
        pytest.skip("no argument of a process holds a NUL, and this command's names come from nowhere else")
    monkeypatch.chdir(tmp_path)
    done = line(*(word.replace("NAME", name) for word in command), terminal="input")
    assert done.code == 2 or (done.code == 1 and command[0] in ("-m", "--data-dir", "show", "export", "rm"))
    assert done.err.count("\n") == 1
    assert "unexpected" not in done.err
    assert acting(done.err) == []


def test_an_error_is_one_line_whatever_is_in_it() -> None:
    for kind in (Ds4chatError, UsageError):
        said = str(kind(f"The file {EVERYTHING}\n\nis not there\x00: give another."))
        assert acting(said) == []
        assert "\n" not in said and said.endswith("give another.")


def test_checkpoints_of_a_model_with_a_hostile_name(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    kv = line.folder / "kv"
    folder = kv / "family\x1b[31m" / "0123456789abcdef"
    Directory(kv).ensure(folder)
    (folder / "variant.json").write_text(json.dumps({"model": EVERYTHING, "kv_type": "\x1b[2J"}))
    (folder / f"{'ab' * 20}.kv").write_bytes(b"no checkpoint")
    for command in (("stats",), ("ls",), ("verify",), ("stats", "--json"), ("verify", "--json")):
        done = line("cache", *command, terminal=True)
        assert acting(done.out + done.err) == [], command
        assert "unexpected" not in done.err


def test_a_theme_with_a_hostile_name(line: Line) -> None:
    folder = line.folder / "themes"
    folder.mkdir()
    (folder / "one.toml").write_text('name = "a\\u001b]2;pwned\\u0007\\u202e"\nprimary = "#123456"\n')
    (folder / "two\x1b[31m.toml").write_text('primary = "\\u001b[31m"\nname = "x"\n')
    done = line("themes", terminal=True)
    assert done.code == 0 and "cannot be used" in done.out
    assert acting(done.out + done.err) == []
    assert acting(line("themes", "check", str(folder / "one.toml"), terminal=True).out) == []
