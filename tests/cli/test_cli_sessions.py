"""The commands on saved sessions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from ds4chat.sessions.database import Database
from ds4chat.sessions.locks import lock_session
from tests.cli.conftest import Line

GOOD = 'title = "Imported"\n[[messages]]\nrole = "user"\ntext = "hi"\n[[messages]]\nrole = "assistant"\ntext = "yo"\n'


def test_ls_prints_a_table(line: Line) -> None:
    line.session("[bold]Rome[/bold] " + "x" * 150, "a", "b", id_="00000001")
    out = line("ls").out
    assert "ID" in out and "00000001" in out and "[bold]Rome[/bold] " + "x" * 150 in out
    assert len(out.splitlines()) == 2


def test_ls_fits_a_terminal(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    line.session("x" * 150, "a", id_="00000001")
    out = line("ls", terminal=True).out
    assert len(out.splitlines()) == 2 and "00000001" in out and "xxxxxx…" in out
    assert all(len(re.sub(r"\x1b\[\d*m", "", row)) <= 60 for row in out.splitlines())


def test_ls_json_is_a_list_of_the_documented_keys(line: Line) -> None:
    line.session("Rome", "a", "b", "c", id_="00000001")
    (row,) = json.loads(line("ls", "--json").out)
    assert list(row) == [
        "id",
        "title",
        "model",
        "messages",
        "tokens",
        "created",
        "updated",
        "pinned",
        "archived",
        "tags",
        "stored_tokens",
        "stored_bytes",
    ]
    assert (row["id"], row["title"], row["messages"]) == ("00000001", "Rome", 3)
    assert isinstance(row["updated"], float)


def test_ls_marks_what_is_pinned_and_lists_what_is_archived_apart(line: Line) -> None:
    for title in ("one", "two", "three"):
        line.session(title, "a")
    with Database(line.database) as database:
        ids = {info.title: info.id for info in database.list_sessions()}
        database.set_flags(ids["one"], pinned=True)
        database.set_flags(ids["three"], archived=True)
    rows = line("ls").out.splitlines()[1:]
    assert [row.split()[1:3] for row in rows] == [["*", "one"], ["two", "1"]]
    assert [row["title"] for row in json.loads(line("ls", "--json").out)] == ["one", "two"]
    (row,) = line("ls", "--archived").out.splitlines()[1:]
    assert row.split()[:2] == [ids["three"], "three"]
    assert [row["title"] for row in json.loads(line("ls", "--archived", "--json").out)] == ["three"]


def test_ls_of_an_empty_archive(line: Line) -> None:
    line.session("one", "a")
    result = line("ls", "--archived")
    assert (result.code, result.out, result.err) == (0, "", "No session is archived.\n")


def test_ls_without_sessions(line: Line) -> None:
    result = line("ls")
    assert (result.code, result.out, result.err) == (
        0,
        "",
        "There are no sessions yet: start one with `ds4chat`.\n",
    )
    assert line("ls", "--json").out == "[]\n"


def test_the_data_folder_may_stand_before_or_behind_the_command(line: Line, tmp_path: Path) -> None:
    line.session("Rome", "a")
    other = str(tmp_path / "other")
    assert json.loads(line("--data-dir", other, "ls", "--json").out) == []
    assert json.loads(line("ls", "--json", "--data-dir", other).out) == []
    assert len(json.loads(line("ls", "--json").out)) == 1


def test_show(line: Line) -> None:
    line.session("Rome", "where?", "there", id_="00000001")
    assert line("show", "Rome").out == "00000001  Rome\n\nyou:\nwhere?\n\nassistant:\nthere\n"
    assert line("show", "0", "--markdown").out == "# Rome\n\n## User\n\nwhere?\n\n## Assistant\n\nthere\n"
    shown = json.loads(line("show", "rome", "--json").out)
    assert [m["text"] for m in shown["messages"]] == ["where?", "there"]


def test_show_writes_toml_that_import_reads(line: Line, tmp_path: Path) -> None:
    line.session("Rome", "where?", "there", id_="00000001")
    path = tmp_path / "rome.toml"
    path.write_text(line("show", "Rome", "--toml").out)
    result = line("import", str(path))
    assert result.code == 0
    id_, title = result.out.strip().split("  ")
    assert title == "Rome" and id_ != "00000001"
    assert line("show", id_).out.splitlines()[1:] == line("show", "00000001").out.splitlines()[1:]


def test_show_of_an_empty_session(line: Line) -> None:
    line.session("Empty", id_="00000001")
    assert line("show", "Empty").out == "00000001  Empty\n"
    assert line("show", "Empty", "--toml").code == 2


def test_show_on_a_terminal_lets_nothing_act(line: Line) -> None:
    line.session("x", "\x1b[2Jgone", id_="00000001")
    assert "␛[2Jgone" in line("show", "x", terminal=True).out
    assert "\x1b[2Jgone" in line("show", "x").out


def test_rename(line: Line) -> None:
    line.session("Rome", "a", id_="00000001")
    assert line("rename", "Rome", "Naples").out == "00000001  Naples\n"
    assert line("rename", "Naples", " \n").code == 2
    assert line("show", "Naples").code == 0


# ---- rm ----


def test_rm_deletes_what_is_named(line: Line) -> None:
    line.session("Rome", "a", id_="00000001")
    line.session("Bread", "a", id_="00000002")
    line.session("Kept", "a", id_="00000003")
    result = line("rm", "-y", "Rome", "00000002", "rome")
    assert (result.code, result.out) == (0, "Deleted 00000001  Rome\nDeleted 00000002  Bread\n")
    assert [row["title"] for row in json.loads(line("ls", "--json").out)] == ["Kept"]
    assert list((line.folder / "data" / "locks").iterdir()) == []


def test_rm_with_an_unknown_name_deletes_nothing(line: Line) -> None:
    line.session("Rome", "a")
    assert line("rm", "-y", "Rome", "Paris").code == 2
    assert len(json.loads(line("ls", "--json").out)) == 1


@pytest.mark.parametrize(("sure", "left"), [(True, 0), (False, 1)])
def test_rm_asks_first(line: Line, monkeypatch: pytest.MonkeyPatch, sure: bool, left: int) -> None:
    line.session("Rome", "a", id_="00000001")
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return sure

    monkeypatch.setattr(click, "confirm", confirm)
    result = line("rm", "Rome", terminal=True)
    assert asked == ['Delete session 00000001 "Rome" for good?']
    assert result.code == (0 if sure else 1)
    assert len(json.loads(line("ls", "--json").out)) == left


def test_rm_does_not_ask_where_nobody_can_answer(line: Line) -> None:
    line.session("Rome", "a")
    result = line("rm", "Rome")
    assert (result.code, result.err) == (
        2,
        "ds4chat: Deleting asks first, and there is no terminal to ask on: add -y.\n",
    )


def test_rm_refuses_a_session_that_is_open_and_deletes_none(line: Line) -> None:
    line.session("Rome", "a", id_="00000001")
    line.session("Bread", "a", id_="00000002")
    with lock_session(line.folder / "data", "00000002"):
        result = line("rm", "-y", "Rome", "Bread")
    assert result.code == 1
    assert result.err.startswith('ds4chat: Session 00000002 "Bread" is open in another ds4chat (process ')
    assert result.err.endswith("): close it there, then delete it.\n")
    assert len(json.loads(line("ls", "--json").out)) == 2


def test_rm_deletes_the_checkpoints_nobody_else_stands_on(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, list[bytes], list[bytes]]] = []

    def remove_spans(root: object, names: object, keep: object) -> list[Path]:
        calls.append((root, sorted(names), sorted(keep)))  # type: ignore[call-overload]
        return []

    monkeypatch.setattr("ds4chat.checkpoints.store.remove_spans", remove_spans)
    first, second = line.session("Rome", "a"), line.session("Oslo", "a")
    line.session("Lima", "a")
    with Database(line.database) as database:
        for session_id, sha1 in ((first, "aa"), (first, "bb"), (second, "bb"), (second, "cc")):
            database.record_span(session_id, sha1, 0, 1, "cold", 1)
    assert line("rm", "-y", "Rome").code == 0
    assert line("rm", "-y", "Lima").code == 0
    assert line("rm", "-y", "--kv-dir", "/elsewhere", "Oslo").code == 0
    assert calls == [
        (line.folder / "kv", [b"\xaa"], [b"\xbb", b"\xcc"]),
        (Path("/elsewhere"), [b"\xbb", b"\xcc"], []),
    ]


def test_checkpoints_that_cannot_be_deleted_are_told_and_the_session_is_gone(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_spans(*_: object) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ds4chat.checkpoints.store.remove_spans", remove_spans)
    session_id = line.session("Rome", "a")
    with Database(line.database) as database:
        database.record_span(session_id, "aa", 0, 1, "cold", 1)
    result = line("rm", "-y", "Rome")
    assert result.code == 0
    assert (
        result.err
        == f"ds4chat: Its checkpoints in {line.folder}/kv could not be deleted (Permission denied).\n"
    )
    assert json.loads(line("ls", "--json").out) == []


# ---- import ----


def test_import_prints_id_and_title(line: Line, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    result = line("import", str(tmp_path / "a.toml"))
    assert result.code == 0
    id_, title = result.out.rstrip("\n").split("  ")
    assert title == "Imported"
    assert "you:\nhi\n\nassistant:\nyo\n" in line("show", id_).out


def test_bad_files_are_told_and_the_good_ones_come_in(line: Line, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "bad.toml").write_text("nonsense")
    files = [str(tmp_path / name) for name in ("bad.toml", "good.toml", "missing.toml")]
    result = line("import", *files)
    assert result.code == 2
    assert result.out.count("Imported") == 1
    assert [row.split(" (")[0] for row in result.err.splitlines()] == [
        f"ds4chat: {files[0]} is not a TOML file",
        f"ds4chat: {files[2]} cannot be read",
    ]
    assert len(json.loads(line("ls", "--json").out)) == 1
