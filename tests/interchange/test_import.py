"""`ds4chat import` of files from elsewhere: the report, doubles, changes, damage."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ds4chat import cli_export, cli_import
from ds4chat.sessions.database import Database
from ds4chat.sessions.importing import reading, taking
from ds4chat.sessions.locks import lock_session
from ds4chat.sessions.salvage import salvage
from ds4chat.sessions.session import Message, Session
from tests.cli.conftest import Line
from tests.interchange.conftest import SAMPLES
from tests.interchange.reading_room import told, tree


def sessions(line: Line) -> list[Session]:
    """All that are stored, as they were made."""
    with Database(line.database) as database:
        infos = sorted(database.list_sessions(archived=None), key=lambda info: (info.created, info.title))
        return [database.load_session(info.id) for info in infos]


def written(line: Line, name: str, value: Any) -> str:
    """The path of a file with a value in JSON."""
    path = line.folder / name
    path.write_text(json.dumps(value))
    return str(path)


def export(*messages: str, id_: str = "c1", title: str = "Birds") -> dict[str, Any]:
    """A conversation of ChatGPT, the messages in turn the user's and the model's."""
    nodes: dict[str, Any] = {"r": {"message": None, "parent": None}}
    parent = "r"
    for i, text in enumerate(messages):
        author = {"role": "assistant" if i % 2 else "user"}
        content = {"content_type": "text", "parts": [text]}
        nodes[f"n{i}"] = {
            "message": {"author": author, "content": content, "create_time": 1e9 + i},
            "parent": parent,
        }
        parent = f"n{i}"
    return {"conversation_id": id_, "title": title, "mapping": nodes, "current_node": parent}


def test_the_report_of_a_file_of_many_chats(line: Line) -> None:
    file = str(SAMPLES / "chatgpt.json")
    result = line("import", file)
    assert result.code == 2
    assert result.out == (
        f"{file} (ChatGPT export): 2 chats imported (9 messages), 1 skipped (nothing was said in it), 1 could not be "
        "read; left out: tool messages (2), images (1).\n"
    )
    assert result.err == (
        f'ds4chat: {file}, chat 4 "Broken one": mapping[...].message must be of another kind, not of type str.\n'
    )
    again = line("import", file, "-v")
    salt, birds = ids(line)
    assert again.out.splitlines() == [
        f"{file} (ChatGPT export): 2 already here, 1 skipped (nothing was said in it), 1 could not be read.",
        f"  {birds}  Sea birds: already here",
        f"  {salt}  Salt: already here",
        "  --------  Nothing said: skipped: nothing was said in it",
        "  --------  Broken one: failed: mapping[...].message must be of another kind, not of type str",
    ]
    assert len(sessions(line)) == 2


def ids(line: Line) -> tuple[str, str]:
    """Of the two chats of the sample, Salt first."""
    by_title = {session.title: session.id for session in sessions(line)}
    return by_title["Salt"], by_title["Sea birds"]


def test_the_report_as_json(line: Line) -> None:
    result = line("import", "--json", str(SAMPLES / "claude.json"), str(line.folder / "missing.md"))
    claude, missing = json.loads(result.out)
    assert (claude["kind"], claude["imported"], claude["skipped"], claude["messages"]) == (
        "Claude export",
        2,
        1,
        7,
    )
    assert claude["left_out"] == {"tool calls and results": 1, "files": 1, 'messages of role "narrator"': 1}
    assert [chat["outcome"] for chat in claude["chats"]] == ["imported", "imported", "skipped"]
    assert claude["chats"][0]["session"] in {session.id for session in sessions(line)}
    assert "cannot be read" in missing["fault"] and missing["chats"] == []
    assert result.code == 2 and result.err.count("\n") == 1


def test_a_file_of_one_chat_prints_its_id_and_title(line: Line) -> None:
    file = str(SAMPLES / "open-webui.json")
    result = line("import", file)
    (session,) = sessions(line)
    assert (result.code, result.out) == (0, f"{session.id}  Tides\n")
    assert result.err.endswith("1 chat imported (4 messages); left out: files (1).\n")
    again = line("import", file)
    assert (again.code, again.out) == (0, result.out)
    assert (
        again.err == f'ds4chat: {file} is here as session {session.id} "Tides" and was not imported again.\n'
    )


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()))
def test_a_second_import_adds_nothing(line: Line, name: str) -> None:
    line("import", str(SAMPLES / name))
    before = sessions(line)
    assert before
    line("import", str(SAMPLES / name))
    assert sessions(line) == before


def test_a_session_in_toml_comes_in_once(line: Line) -> None:
    file = line.folder / "s.toml"
    file.write_text('[[messages]]\nrole = "user"\ntext = "hi"\n')
    first, second = line("import", str(file)), line("import", str(file))
    assert first.out == second.out and "was not imported again" in second.err
    assert len(sessions(line)) == 1


def test_what_was_deleted_comes_in_again(line: Line) -> None:
    file = written(line, "c.json", [export("a?", "a.")])
    line("import", file)
    assert line("rm", "-y", "Birds").code == 0
    assert line("import", file).code == 0
    assert len(sessions(line)) == 1


def test_a_chat_that_has_grown_gets_its_new_messages(line: Line) -> None:
    line("import", written(line, "old.json", [export("a?", "a.")]))
    result = line("import", written(line, "new.json", [export("a?", "a.", "b?", "b.")]))
    (session,) = sessions(line)
    assert [text for _, text in told(session)] == ["a?", "a.", "b?", "b."]
    assert result.out == f"{session.id}  Birds\n" and "1 chat updated (2 messages)" in result.err
    assert "was not imported again" in line("import", str(line.folder / "new.json")).err
    # An older export has nothing that is not here.
    line("import", str(line.folder / "old.json"))
    assert sessions(line)[0].messages == session.messages


def test_what_was_said_twice_at_one_place_stays_two_branches_as_the_chat_grows(line: Line) -> None:
    def file(name: str, *more: tuple[str, str | None, str, str]) -> str:
        said = [("q", None, "user", "a?"), ("r1", "q", "assistant", "Yes."), ("r2", "q", "assistant", "Yes.")]
        said += [("u1", "r1", "user", "one?"), ("u2", "r2", "user", "two?"), *more]
        messages = [
            {"uuid": key, "parent_message_uuid": above, "sender": who, "text": text}
            for key, above, who, text in said
        ]
        path = line.folder / name
        path.write_text(json.dumps([{"uuid": "c", "name": "Twins", "chat_messages": messages}]))
        return str(path)

    line("import", file("old.json"))
    (before,) = sessions(line)
    assert len(before.messages) == 5
    new = file(
        "new.json",
        ("a2", "u2", "assistant", "Two."),
        ("r3", "q", "assistant", "Yes."),
        ("u3", "r3", "user", "3?"),
    )
    assert "1 chat updated (3 messages)" in line("import", new).err
    (grown,) = sessions(line)
    assert tree(grown)["Two."] == "two?"
    line("import", file("old.json"))
    assert "updated" not in line("import", new).err
    assert sessions(line)[0].messages == grown.messages


def test_a_branch_made_elsewhere_and_one_made_here_both_stay(line: Line) -> None:
    line("import", written(line, "old.json", [export("a?", "a.")]))
    (session,) = sessions(line)
    with Database(line.database) as database:
        database.rename(session.id, "My birds")
        database.add_message(session.id, Message(0, session.head_id, "user", "here?"))
    line("import", written(line, "new.json", [export("a?", "a.", "there?")]))
    (grown,) = sessions(line)
    assert tree(grown) == {"a?": None, "a.": "a?", "here?": "a.", "there?": "a."}
    assert grown.title == "My birds"
    # Who has gone on here stays there.
    assert told(grown)[-1] == ("user", "here?")


def test_a_chat_that_is_open_is_left_for_another_time(line: Line) -> None:
    line("import", written(line, "old.json", [export("a?", "a.")]))
    (session,) = sessions(line)
    file = written(line, "new.json", [export("a?", "a.", "b?")])
    with lock_session(line.folder / "data", session.id):
        result = line("import", file)
    assert (result.code, sessions(line)[0].messages) == (0, session.messages)
    assert "1 skipped (it has changed, and is open in another ds4chat)" in result.out
    assert "1 chat updated" in line("import", file).err


def test_ids_of_others_are_not_taken_for_each_other(line: Line) -> None:
    line("import", written(line, "a.json", [export("a?", id_="1"), export("a?", id_="2")]))
    line("import", written(line, "b.json", [{"messages": [{"role": "user", "content": "a?"}]}]))
    assert len(sessions(line)) == 3


@pytest.mark.parametrize(
    "names", [["conversations.json"], ["x/conversations-000.json", "x/conversations-001.json"]]
)
def test_the_zip_of_an_export(line: Line, names: list[str]) -> None:
    path = line.folder / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chat.html", "<html>")
        for i, name in enumerate(names):
            archive.writestr(name, json.dumps([export("a?", "a.", id_=f"c{i}", title=f"Chat {i}")]))
    assert line("import", str(path)).code == 0
    assert [session.title for session in sessions(line)] == [f"Chat {i}" for i in range(len(names))]


def test_a_zip_that_claims_too_much_is_refused(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_VALUE", 1000)
    path = line.folder / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "[" + " " * 3_000_000 + "]")
    result = line("import", str(path))
    assert result.code == 2 and "claims to be far larger than it is packed" in result.err


def test_a_file_that_was_cut_off_gives_what_is_whole(line: Line) -> None:
    path = line.folder / "cut.json"
    path.write_text(json.dumps([export("a?", id_="1"), export("b?", id_="2")])[:-20])
    result = line("import", str(path))
    assert result.code == 2 and [session.title for session in sessions(line)] == ["Birds"]
    assert result.err == f"ds4chat: {path}, chat 2: it ends in the middle: the file was cut off.\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("e.json", b"[]", "holds no chats."),
        ("e.md", b"# Only a title\n", "it has no line that says who speaks"),
        ("e.json", b'[{"a": 1}]', "chat 1: it is no chat in a form that is known."),
        ("e.json", b"[{]]", "chat 1: it is not valid JSON"),
        ("e.db", b"SQLite format 3\0" + b"\0" * 2000, "damaged SQLite database"),
        ("e.md", b"## User\n\xff", "it is not UTF-8 text (byte 8 does not fit)"),
    ],
)
def test_a_fault_is_one_sentence(line: Line, name: str, content: bytes, sentence: str) -> None:
    path = line.folder / name
    path.write_bytes(content)
    result = line("import", str(path))
    assert result.code == 2 and sentence in result.err
    assert result.err.count("\n") == 1 and str(path) in result.err
    assert not sessions(line)


def test_only_the_first_faults_of_many_are_told(line: Line) -> None:
    result = line("import", written(line, "many.json", [{"mapping": 1}] * 9 + [export("a?")]))
    assert "1 chat imported (1 message), 9 could not be read." in result.out
    assert result.err.count("\n") == 4 and "6 more could not be read" in result.err


def test_values_that_are_no_chats_come_to_an_end(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_FAULTS", 5)
    result = line("import", written(line, "many.json", [{"a": 1}] * 99))
    assert "6 could not be read" in result.out


def test_a_stop_leaves_whole_chats_and_says_so(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(line, "three.json", [export("a?", id_=str(i)) for i in range(3)])
    taken: list[int] = []

    def stop_at_the_third(*arguments: Any) -> Any:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(1)
        return taking.take(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(cli_import, "take", stop_at_the_third)
        result = line("import", file)
    assert result.code == 130 and "2 chats imported (2 messages); stopped before its end" in result.out
    assert len(sessions(line)) == 2
    assert "1 chat imported (1 message), 2 already here" in line("import", file).out


def test_progress_is_shown_when_it_takes_long(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_export, "PROGRESS_AFTER", -1.0)
    assert "Importing chatgpt.json" in line("import", str(SAMPLES / "chatgpt.json")).err


def test_a_title_does_nothing_to_a_terminal(line: Line) -> None:
    file = written(
        line, "x.json", [export("a?", title="\x1b]0;x\x07\u202eevil"), {"mapping": 1, "title": "\x1b[2J"}]
    )
    result = line("import", "-v", file, terminal=True)
    assert "\x1b" not in result.out + result.err and "\u202e" not in result.out + result.err


def test_origins_outlive_a_salvage(line: Line) -> None:
    file = written(line, "c.json", [export("a?", "a.")])
    line("import", file)
    path = shutil.copy(line.database, line.folder / "copy.db")
    salvage(Path(path), Path(path).stat().st_ino, "a test")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT source, key FROM origins").fetchall() == [("chatgpt", "c1")]
