"""`export`, and `import` of what it wrote, on a store of made-up checkpoints."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from ds4chat import cli, cli_bundle, cli_export
from ds4chat.checkpoints.span import SpanInfo
from ds4chat.sessions.database import Database
from ds4chat.sessions.locks import lock_session
from ds4chat.sessions.session import IMPORTED, Message, Session
from tests.checkpoints.kv_helpers import IDENTITY, Talk, load_chain, open_store, span_files
from tests.cli.conftest import Line, Result
from tests.support.program import flip_payload_byte

TALK = Talk([*range(60), 901, *range(60, 99)])
FOLDER = f"kv/{IDENTITY.folder.as_posix()}"


def chat(line: Line, title: str = "Rome", id_: str = "00000001", model: str = "tiny") -> str:
    """A session with a tree: a question, two answers, the first with the head."""
    with Database(line.database) as database:
        session = Session(id_, title, "Be brief.", model, created=1000.5)
        session.append(Message(1, None, "user", "where?"))
        session.append(Message(2, 1, "assistant", "here", "stopped", [5, 6], "f" * 32, model))
        session.append(Message(3, 1, "assistant", "there", tokens=[7], fingerprint="f" * 32, model=model))
        database.create_session(session)
        return session.id


def stand(line: Line, session_id: str, talk: Talk, *ends: int) -> list[SpanInfo]:
    """Store a chain and let the session stand on its leaf (that it stands on the others follows)."""
    spans = talk.put(open_store(line.folder / "kv"), *ends)
    with Database(line.database) as database:
        leaf = spans[-1]
        database.record_span(session_id, leaf.sha1.hex(), leaf.start, leaf.end, "idle", leaf.size)
    return spans


def bundle(line: Line, *ends: int, talk: Talk = TALK) -> Path:
    """A session of its own with a chain, as a bundle."""
    stand(line, chat(line), talk, *ends)
    path = line.folder / "rome.zip"
    result = line("export", "Rome", "--with-checkpoints", str(path))
    assert (result.code, result.out) == (0, "")
    return path


class Other:
    """Another home, where things are imported."""

    def __init__(self, line: Line) -> None:
        self.line, self.data, self.kv = line, line.folder / "other" / "data", line.folder / "other" / "kv"
        (self.data / "models").mkdir(parents=True)
        (self.data / "models" / "tiny.gguf").write_bytes(b"GGUF")

    def __call__(self, command: str, *arguments: str) -> Result:
        folders = ["--data-dir", str(self.data)]
        folders += ["--kv-dir", str(self.kv)] if command in ("import", "export") else []
        return self.line(command, *arguments, *folders)

    @property
    def sessions(self) -> list[str]:
        return sorted(row["id"] for row in json.loads(self("ls", "--json").out))

    def spans(self, session_id: str) -> list[tuple[int, int, str]]:
        with Database(self.data / "sessions.db") as database:
            return [(s.start, s.end, s.reason) for s in database.spans_of(session_id)]


@pytest.fixture
def other(line: Line) -> Other:
    return Other(line)


def names(path: Path | io.BytesIO) -> list[str]:
    """Entries of a bundle, without what folders say of themselves."""
    with zipfile.ZipFile(path) as file:
        return [name for name in file.namelist() if not name.endswith("variant.json")]


def span_name(talk: Talk, end: int) -> str:
    return f"{FOLDER}/{talk.name(end).hex()}.kv"


def rewritten(path: Path, entries: dict[str, bytes | None]) -> None:
    """The bundle with entries replaced, added or (None) left out."""
    with zipfile.ZipFile(path) as file:
        old: dict[str, bytes | None] = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in {**old, **entries}.items():
            if data is not None:
                file.writestr(name, data)


def entry(path: Path, name: str) -> bytearray:
    with zipfile.ZipFile(path) as file:
        return bytearray(file.read(name))


# ---- export ----


def test_toml_is_the_default_and_what_show_prints(line: Line) -> None:
    chat(line)
    result = line("export", "Rome")
    assert (result.code, result.err) == (0, "")
    assert result.out == line("show", "Rome", "--toml").out
    markdown = line("show", "Rome", "--markdown").out
    assert line("export", "rome", "--format", "markdown").out == markdown
    assert line("export", "rome", "-o", str(line.folder / "rome.md")).out == ""
    assert (line.folder / "rome.md").read_text() == markdown


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_text_exports_come_in_again(line: Line, other: Other, ending: str) -> None:
    chat(line)
    path = line.folder / f"rome.{ending}"
    assert line("export", "Rome", "-o", str(path)).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert other("import", str(path)).code == 0
    (session_id,) = other.sessions
    assert other("show", session_id, "--markdown").out == line("show", "Rome", "--markdown").out


def test_json_is_the_session_of_a_bundle(line: Line) -> None:
    path = bundle(line, 40)
    text = line("export", "Rome", "--format", "json").out
    assert entry(path, "session.json").decode() == text
    data = json.loads(text)
    assert [m["text"] for m in data["messages"]] == ["where?", "here", "there"]
    assert data["messages"][1]["tokens"] == [5, 6] and data["messages"][1]["state"] == "stopped"


def test_on_a_terminal_nothing_acts_and_a_bundle_is_refused(line: Line) -> None:
    line.session("x", "\x1b[2Jgone")
    result = line("export", "x", "--with-checkpoints", terminal=True)
    assert result.code == 2 and "nothing for a terminal" in result.err
    assert "␛[2Jgone" in line("export", "x", "--format", "markdown", terminal=True).out
    assert "\x1b[2Jgone" in line("export", "x", "--format", "markdown").out


def test_a_bundle_holds_the_session_and_all_it_stands_on(line: Line) -> None:
    other_talk = Talk(range(200, 260))
    stand(line, chat(line, "Oslo", "00000002"), other_talk, 30)
    (line.folder / FOLDER / "variant.json").write_bytes(b'{"model":"tiny"}')
    path = bundle(line, 20, 60, 100)
    assert names(path) == ["session.json", *(span_name(TALK, end) for end in (20, 60, 100))]
    assert entry(path, f"{FOLDER}/variant.json") == (line.folder / FOLDER / "variant.json").read_bytes()
    assert entry(path, span_name(TALK, 60)) == (line.folder / span_name(TALK, 60)).read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_spellings_of_with_checkpoints(line: Line) -> None:
    path = bundle(line, 40)
    data = path.read_bytes()
    for arguments in (
        ["Rome", "--with-checkpoints", "-o", str(path)],
        ["--with-checkpoints", "Rome", "-o", str(path)],
        ["--with-checkpoints", str(path), "Rome"],
        ["-o", str(path), "--format", "bundle", "Rome", "--with-checkpoints"],
    ):
        path.unlink()
        assert line("export", *arguments).code == 0
        assert path.read_bytes() == data
    alone = line("export", "Rome", "-o", str(path))
    assert names(path) == ["session.json"]
    assert alone.err == f"ds4chat: Session 00000001 is in {path}: 3 messages.\n"


def test_a_bundle_goes_to_standard_output(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundle(line, 40)
    for arguments in (["--with-checkpoints"], ["--with-checkpoints", "-"], ["--with-checkpoints", "-o", "-"]):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
        assert cli.run(["export", "Rome", *arguments]) == 0
        assert names(out) == names(path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "needs the ID"),
        (["--with-checkpoints"], "needs the ID"),
        (["Paris"], "No session goes by"),
        (["Rome", "--with-checkpoints", "a", "-o", "b"], "both name a file"),
        (["Rome", "--with-checkpoints", "--format", "toml"], "makes a bundle"),
        (["Rome", "--format", "pdf"], "--format"),
        (["Empty"], "no messages"),
        (["Rome", "-o", "."], "is a folder"),
    ],
)
def test_wrong_use(line: Line, arguments: list[str], told: str) -> None:
    chat(line)
    line.session("Empty")
    result = line("export", *arguments)
    assert (result.code, result.out) == (2, "")
    assert told in result.err and result.err.count("\n") == 1


def test_a_file_that_cannot_be_written_leaves_nothing(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundle(line, 40)
    old = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli_bundle, "write_span", full)
    result = line("export", "Rome", "--with-checkpoints", str(path))
    assert result.code == 1 and "cannot be written (No space left on device)" in result.err
    assert path.read_bytes() == old
    assert [p.name for p in line.folder.glob(".*")] == []
    assert line("export", "Rome", "-o", str(line.folder / "missing" / "x.toml")).code == 1


def test_a_link_stays_and_a_device_is_written_to(line: Line) -> None:
    chat(line)
    (line.folder / "link").symlink_to(line.folder / "file")
    assert line("export", "Rome", "-o", str(line.folder / "link")).code == 0
    assert (line.folder / "link").is_symlink() and (line.folder / "file").read_text().startswith("title")
    assert line("export", "Rome", "-o", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


def test_an_open_session_can_be_exported(line: Line) -> None:
    path = bundle(line, 40)
    with lock_session(line.folder / "data", "00000001"):
        assert line("export", "Rome", "--with-checkpoints", str(path)).code == 0


def test_damaged_and_missing_spans_stay_out_with_what_stands_on_them(line: Line) -> None:
    path = bundle(line, 20, 60, 100)
    flip_payload_byte(line.folder / span_name(TALK, 60))
    result = line("export", "Rome", "--with-checkpoints", str(path))
    assert result.code == 0 and "1 checkpoint (" in result.err
    assert result.err.endswith("2 checkpoints of it could not be read whole and stayed out.\n")
    assert names(path)[1:] == [span_name(TALK, 20)]
    (line.folder / span_name(TALK, 20)).unlink()
    assert line("export", "Rome", "--with-checkpoints", str(path)).code == 0
    assert names(path) == ["session.json"]


def test_a_span_under_a_wrong_name_stays_out(line: Line) -> None:
    path = bundle(line, 20)
    name = line.folder / span_name(TALK, 20)
    other_talk = Talk(range(300, 320))
    (span,) = other_talk.put(open_store(line.folder / "kv"), 20)
    name.write_bytes(span.path.read_bytes())
    assert line("export", "Rome", "--with-checkpoints", str(path)).code == 0
    assert names(path) == ["session.json"]


def test_without_a_checkpoint_folder_the_bundle_holds_the_session(line: Line) -> None:
    chat(line)
    path = line.folder / "x.zip"
    result = line("export", "Rome", "--with-checkpoints", str(path))
    assert result.err == f"ds4chat: Session 00000001 is in {path}: 3 messages, 0 checkpoints (0.0 MB).\n"
    assert names(path) == ["session.json"] and not (line.folder / "kv").exists()


def test_progress_is_shown_when_it_takes_long(
    line: Line, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bundle(line, 20, 40)
    monkeypatch.setattr(cli_export, "PROGRESS_AFTER", -1.0)
    assert "Packing checkpoints" in line("export", "Rome", "--with-checkpoints", str(path)).err
    assert "Importing checkpoints" in other("import", str(path)).err


# ---- import ----


def test_a_bundle_comes_in_with_id_tree_and_checkpoints(line: Line, other: Other) -> None:
    path = bundle(line, 20, 60, 100)
    result = other("import", str(path))
    assert (result.code, result.out, result.err) == (0, "00000001  Rome\n", "")
    with Database(other.data / "sessions.db") as there, Database(line.database) as here:
        came, session = there.load_session("00000001"), here.load_session("00000001")
    for message in session.messages.values():
        message.fingerprint = IMPORTED + message.fingerprint if message.tokens else message.fingerprint
    assert list(came.messages.values()) == list(session.messages.values())
    assert (came.head_id, came.created, came.system) == (session.head_id, 1000.5, "Be brief.")
    assert load_chain(open_store(other.kv), TALK) == (TALK.tokens, TALK.payload(0, 100))
    assert other.spans("00000001") == [(a, b, "continued") for a, b in ((0, 20), (20, 60), (60, 100))]
    files = span_files(other.kv)
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}
    assert {stat.S_IMODE(p.stat().st_mode) for p in files[0].parents[:3]} == {0o700}
    assert len(files) == 3 and list(other.kv.rglob("*tmp*")) == []
    assert other("rm", "-y", "Rome").code == 0


def test_token_ids_come_in_with_checkpoints_alone_and_as_the_words_of_a_file(
    line: Line, other: Other
) -> None:
    """Ids can be those of control tokens: in a file that anybody may have written, they would act in the prompt."""
    path = bundle(line, 40)
    data = line.folder / "rome.json"
    data.write_text(line("export", "Rome", "--format", "json").out)

    def ids(session_id: str) -> list[tuple[list[int], str]]:
        with Database(other.data / "sessions.db") as there:
            return [(m.tokens, m.fingerprint) for m in there.load_session(session_id).messages.values()]

    known = [([], ""), ([5, 6], "f" * 32), ([7], "f" * 32)]
    kept = [(tokens, IMPORTED + author if tokens else author) for tokens, author in known]
    dropped = [([], author) for _, author in known]
    for arguments, expected in (
        ((str(data),), dropped),
        (("--no-kv", str(path)), dropped),
        ((str(path),), kept),
    ):
        assert other("import", *arguments).code == 0
        assert ids("00000001") == expected
        # What comes from elsewhere stays so, however often it moves.
        again = line.folder / "again.zip"
        assert other("export", "00000001", "--with-checkpoints", str(again)).code == 0
        assert other("rm", "-y", "00000001").code == 0
        assert other("import", str(again)).code == 0
        assert ids("00000001") == expected
        assert other("rm", "-y", "00000001").code == 0


def test_what_is_here_is_known_with_and_without_token_ids(line: Line, other: Other) -> None:
    path = bundle(line, 40)
    data = line.folder / "rome.json"
    data.write_text(line("export", "Rome", "--format", "json").out)
    for file in (data, path, data):
        assert other("import", str(file)).code == 0
        assert other.sessions == ["00000001"]
    assert other.spans("00000001")


def test_importing_twice_makes_no_doubles(line: Line, other: Other) -> None:
    path = bundle(line, 40)
    for attempt in range(2):
        result = other("import", str(path), str(path))
        assert (result.code, result.out) == (0, "00000001  Rome\n" * 2)
        assert result.err.count('is here as session 00000001 "Rome"') == attempt + 1
    assert other("rename", "Rome", "Roma").code == 0
    other("import", str(path))
    assert other.sessions == ["00000001"]


def test_a_taken_id_makes_a_new_one_once(line: Line, other: Other) -> None:
    path = bundle(line, 40)
    other("import", str(path))
    with Database(other.data / "sessions.db") as database:
        session = database.load_session("00000001")
        database.add_message("00000001", Message(0, session.head_id, "user", "more"))
    (line_out,) = {other("import", str(path)).out for _ in range(3)}
    new = line_out.split()[0]
    assert other.sessions == sorted(["00000001", new]) and new != "00000001"
    assert other.spans(new) == other.spans("00000001")


def test_checkpoints_that_went_come_in_again(line: Line, other: Other) -> None:
    path = bundle(line, 20, 60)
    other("import", str(path))
    first, second = (other.kv / span_name(TALK, end).removeprefix("kv/") for end in (20, 60))
    second.unlink()
    inode = first.stat().st_ino
    assert other("import", str(path)).code == 0
    assert second.exists() and first.stat().st_ino == inode
    flip_payload_byte(first)
    assert other("import", str(path)).code == 0
    assert load_chain(open_store(other.kv), TALK)[0] == TALK.tokens[:60]


def test_without_kv_the_session_comes_alone(line: Line, other: Other) -> None:
    path = bundle(line, 40)
    assert other("import", "--no-kv", str(path)).code == 0
    assert other.sessions == ["00000001"] and not other.kv.exists()


def test_checkpoints_beyond_the_budget_stay_out(line: Line, other: Other) -> None:
    talk = Talk([i % 900 for i in range(12_000)])
    path = bundle(line, 2000, 4000, 12_000, talk=talk)
    result = other("import", "--kv-disk-space-mb", "1", str(path))
    assert (result.code, result.out) == (0, "00000001  Rome\n")
    assert result.err == (
        f"ds4chat: 1 checkpoint of {path} would exceed the space for checkpoints and stayed out: "
        "give more with --kv-disk-space-mb and import it again.\n"
    )
    assert [end for _, end, _ in other.spans("00000001")] == [2000, 4000]
    assert other("import", "--kv-disk-space-mb", "0", str(path)).code == 0
    assert [end for _, end, _ in other.spans("00000001")] == [2000, 4000, 12_000]


def test_an_import_deletes_no_checkpoint_of_another_session(line: Line, other: Other) -> None:
    talk = Talk([i % 900 for i in range(6000)])
    path = bundle(line, 6000, talk=talk)
    there = Talk(range(5000, 10_000), salt=b"x")
    there.put(open_store(other.kv), 5000)
    result = other("import", "--kv-budget", "1", str(path))
    assert "would exceed" in result.err
    assert there.find(open_store(other.kv)) == [5000]


def test_damaged_checkpoints_stay_out_with_what_stands_on_them(line: Line, other: Other) -> None:
    path = bundle(line, 20, 60, 100)
    data = entry(path, span_name(TALK, 60))
    data[len(data) // 2] ^= 1
    rewritten(path, {span_name(TALK, 60): bytes(data)})
    result = other("import", str(path))
    assert (result.code, result.out) == (0, "00000001  Rome\n")
    assert result.err == (
        f"ds4chat: 2 checkpoints of {path} cannot be used (ds4chat.log says why) and stayed out: "
        "what they held is computed again.\n"
    )
    assert [end for _, end, _ in other.spans("00000001")] == [20]
    assert len(span_files(other.kv)) == 1


@pytest.mark.parametrize("fault", ["name", "variant", "no parent", "no span", "cut", "longer"])
def test_checkpoints_that_are_not_what_they_claim_stay_out(line: Line, other: Other, fault: str) -> None:
    path = bundle(line, 20, 60)
    first, second = span_name(TALK, 20), span_name(TALK, 60)
    data = bytes(entry(path, second))
    changes: dict[str, bytes | None]
    match fault:
        case "name":
            changes = {second: None, f"{FOLDER}/{'ab' * 20}.kv": data}
        case "variant":
            changes = {second: None, second.replace(IDENTITY.variant.hex(), "ab" * 8): data}
        case "no parent":
            changes = {first: None}
        case "no span":
            changes = {second: b"x" * 1000}
        case "cut":
            changes = {second: data[:-1]}
        case _:
            changes = {second: b"", first: bytes(entry(path, first)) + b"behind the trailers"}
    rewritten(path, changes)
    result = other("import", str(path))
    assert result.code == 0 and "1 checkpoint of " in result.err
    ends = [end for _, end, _ in other.spans("00000001")]
    assert ends == ([] if fault == "no parent" else [20])
    assert TALK.find(open_store(other.kv)) == ends


def test_checkpoints_come_in_whatever_their_order(line: Line, other: Other) -> None:
    path = bundle(line, 20, 60)
    data = bytes(entry(path, span_name(TALK, 20)))
    rewritten(path, {span_name(TALK, 20): None})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(span_name(TALK, 20), data)
    assert other("import", str(path)).err == ""
    assert TALK.find(open_store(other.kv)) == [20, 60]


def test_what_a_folder_says_of_itself_comes_along_once(line: Line, other: Other) -> None:
    path = bundle(line, 20)
    rewritten(path, {f"{FOLDER}/variant.json": b'{"model": "smol"}'})
    other("import", str(path))
    note = other.kv / IDENTITY.folder / "variant.json"
    assert note.read_bytes() == b'{"model": "smol"}' and stat.S_IMODE(note.stat().st_mode) == 0o600
    rewritten(path, {f"{FOLDER}/variant.json": b'{"model": "other"}'})
    other("import", str(path))
    assert note.read_bytes() == b'{"model": "smol"}'


def test_a_checkpoint_folder_that_cannot_be_written_costs_the_checkpoints_alone(
    line: Line, other: Other
) -> None:
    path = bundle(line, 40)
    other.kv.write_text("a file, where the folder should be")
    result = other("import", str(path))
    assert (result.code, result.out) == (0, "00000001  Rome\n")
    assert f"could not be written to {other.kv}" in result.err and result.err.count("\n") == 1


def test_a_hostile_bundle_leaves_nothing_behind(line: Line, other: Other) -> None:
    path = bundle(line, 20, 60)
    good = path.read_bytes()
    session = json.loads(entry(path, "session.json"))
    session["messages"][2]["parent"] = 3
    for changes in (
        {"session.json": json.dumps(session).encode()},
        {"session.json": b"[]"},
        {"../escaped": b"x"},
        {"kv/a/b/c": b"x"},
    ):
        path.write_bytes(good)
        rewritten(path, dict(changes))
        result = other("import", str(path))
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"ds4chat: {path}") and result.err.count("\n") == 1
        assert other.sessions == [] and not other.kv.exists()
    path.write_bytes(good[:-40])
    assert "damaged bundle" in other("import", str(path)).err
    assert other.sessions == [] and not other.kv.exists()


def test_a_database_that_fails_half_way_takes_nothing_in(
    line: Line, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bundle(line, 40)
    insert = Database._insert
    inserted = 0

    def failing(*arguments: object) -> int:
        nonlocal inserted
        inserted += 1
        if inserted == 3:
            raise sqlite3.OperationalError("disk I/O error")
        return insert(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "_insert", staticmethod(failing))
    assert other("import", str(path)).code == 1
    assert other.sessions == [] and not other.kv.exists()


def test_the_model_is_found_by_its_name(line: Line, other: Other) -> None:
    path = bundle(line, 40)
    with Database(line.database) as database:
        database.set_model("00000001", "tiny", "/secret/place/tiny.gguf")
    line("export", "Rome", "--with-checkpoints", str(path))
    assert b"/secret" not in path.read_bytes()
    assert other("import", str(path)).err == ""
    with Database(other.data / "sessions.db") as database:
        assert database.model_path("00000001") == str(other.data / "models" / "tiny.gguf")


def test_a_model_that_is_not_here_is_told(line: Line, other: Other) -> None:
    stand(line, chat(line, model="gone-7b"), TALK, 40)
    path = line.folder / "x.zip"
    line("export", "Rome", "--with-checkpoints", str(path))
    result = other("import", str(path))
    assert result.code == 0
    assert result.err.startswith(
        "ds4chat: The model of session 00000001, gone-7b, was not found: put it into "
    )
    with Database(other.data / "sessions.db") as database:
        assert database.model_path("00000001") == ""
