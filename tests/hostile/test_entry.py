"""What comes in stays byte for byte, but for NUL, lone surrogates and line ends, which are cleaned on entry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session
from ds4chat.ui import attachments
from tests.cli.conftest import Line
from tests.cli.conftest import line as line
from tests.support.hostile import ACTS, EVERYTHING

KEPT = [text for text in ACTS.values() if "\r" not in text]


def test_stored_text_comes_back_as_it_was(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = Session("")
        for i, text in enumerate(KEPT):
            session.append(Message(i + 1, i or None, "assistant" if i % 2 else "user", text))
        database.create_session(session)
        assert [m.text for m in database.load_session(session.id).path()] == KEPT


def test_nul_and_lone_surrogates_and_line_ends_are_cleaned(tmp_path: Path) -> None:
    with Database(tmp_path / "sessions.db") as database:
        session = Session("", title="t\x00\ud800", system="s\ud83d", model="m\x00\udfff")
        session.append(Message(1, None, "user", "a\x00b\ud800c\r\nd\re", model="\ud800"))
        database.create_session(session)
        loaded = database.load_session(session.id)
    assert loaded.path()[0].text == "ab\ufffdc\nd\ne"
    assert (loaded.system, loaded.model, loaded.path()[0].model) == ("s\ufffd", "m\ufffd", "\ufffd")


@pytest.mark.parametrize("form", ["toml", "json", "bundle"])
def test_an_export_brings_back_what_was_said(line: Line, form: str) -> None:
    id_ = line.session("title", *KEPT, EVERYTHING.replace("\r", ""))
    target = line.folder / f"out.{form}"
    assert line("export", id_, "-o", str(target), "--format", form).code == 0
    texts = [m["text"] for m in json.loads(line("show", id_, "--json").out)["messages"]]
    assert line("rm", "-y", id_).code == 0
    done = line("import", str(target))
    assert done.code == 0, done.err
    again = done.out.split()[0]
    assert [m["text"] for m in json.loads(line("show", again, "--json").out)["messages"]] == texts
    assert texts[:-1] == KEPT


@pytest.mark.parametrize("name", ["a\x1b[31mb.txt", "\u202etxt.exe", "a\nb", "x\x9b2J.md"])
def test_a_file_of_a_hostile_name_in_a_message(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(EVERYTHING)
    text = f'see @"{name}" please' if "\n" not in name else f"see @{name} please"
    expanded = attachments.expand(text, tmp_path)
    if "\n" in name:
        assert expanded == text
    else:
        assert EVERYTHING.replace("\r", "\n") in expanded.replace("\r", "\n")


def test_the_end_of_the_calendar_survives_a_round_trip(line: Line) -> None:
    path = line.folder / "late.toml"
    path.write_text(
        'created = 9999-12-31T23:59:59.999999Z\n[[messages]]\nrole = "user"\ntext = "late"\n'
        "created = 9999-12-31T23:59:59.999999Z\n"
    )
    id_ = line("import", str(path)).out.split()[0]
    for command in (
        ("ls",),
        ("show", id_),
        ("show", id_, "--toml"),
        ("show", id_, "--json"),
        ("export", id_),
    ):
        done = line(*command)
        assert done.code == 0, done.err
    assert "9999-12-31 23:59:59" in line("show", id_, "--toml").out


def test_a_summary_whose_window_was_deleted_comes_back(line: Line) -> None:
    with Database(line.database) as database:
        session = Session("", title="flat", summary="It is flat.")
        for i, (role, hidden) in enumerate(
            (("user", False), ("assistant", False), ("user", True), ("assistant", True))
        ):
            session.append(
                Message(i + 1, i or None, "user" if role == "user" else "assistant", f"t{i}", hidden=hidden)
            )
        session.window_start_id = 3
        database.create_session(session)
    path = line.folder / "flat.toml"
    assert line("export", session.id, "-o", str(path)).code == 0
    done = line("import", str(path))
    assert done.code == 0, done.err


def test_a_blank_question_is_refused_in_json_too(line: Line) -> None:
    path = line.folder / "blank.json"
    messages = [{"id": 1, "role": "user", "text": "\x00 \n"}]
    data = {"format": "ds4chat-session", "version": 1, "id": "0a1b2c3d", "messages": messages}
    path.write_text(json.dumps(data))
    done = line("import", str(path))
    assert done.code == 2 and "is blank" in done.err
    assert line("ls", "--json").out.strip() == "[]"
