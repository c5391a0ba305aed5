"""`ds4chat doctor`: what is kept where, whether it is whole, whether others can read it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat import news, paths
from ds4chat.doctor import examine
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session
from tests.checkpoints.kv_helpers import Talk, open_store
from tests.support.program import Program


@pytest.fixture
def home() -> Iterator[Path]:
    """Not below pytest's own folder, which is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        fill(Path(folder))
        yield Path(folder)


def fill(tmp_path: Path) -> None:
    for name in ("data", "log"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "data" / "draft.txt").write_text("typed")
    (tmp_path / "log" / "ds4chat.log").write_text("a line\n")
    for path in (tmp_path / "data" / "draft.txt", tmp_path / "log" / "ds4chat.log"):
        path.chmod(0o600)
    with Database(tmp_path / "data" / "sessions.db") as database:
        for i in range(3):
            session = Session("", title=f"chat {i}", archived=i == 1)
            database.create_session(session)
            database.add_message(session.id, Message(0, None, "user", "a question"))
    Talk(range(100, 170)).put(open_store(tmp_path / "kv"), 10, 30)


def test_it_says_what_is_kept_where(home: Path) -> None:
    done = Program(home, bare=True).run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    size = sum(path.stat().st_size for path in (home / "data").glob("sessions.db*"))
    at = lines.index(f"Sessions {home / 'data' / 'sessions.db'}")
    assert lines[at + 1] == (
        f"3 chats (1 archived), 3 messages, what you sent before among them, {size / 1e6:.2f} MB, -rw-------"
    )
    assert lines[lines.index(f"Checkpoints {home / 'kv'}") + 1].startswith("2 spans of 1 model, ")
    assert f"Draft {home / 'data' / 'draft.txt'}" in lines
    assert lines[lines.index(f"Settings {home / 'config.toml'}") + 1] == "nothing yet"
    assert lines[lines.index(f"Logs {home / 'log'}") + 1].endswith("drwx------")
    assert lines[-1] == "All is whole, and nobody but you can read it."
    assert not (home / "data" / "models").exists(), "looking makes nothing"


def test_what_others_can_read_is_named_with_the_way_to_close_it(home: Path) -> None:
    (home / "data").chmod(0o755)
    (home / "data" / "draft.txt").chmod(0o644)
    draft = home / "data" / "draft.txt"
    if not all(folder.stat().st_mode & 0o001 for folder in draft.parents):
        pytest.skip("no other user gets to the folder for temporary files")
    done = Program(home, bare=True).run("doctor", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["findings"] == [
        f"Other users can read {draft}: close it to them with `chmod -R go= {draft}`."
    ]
    assert {
        "what": "Draft",
        "path": str(draft),
        "exists": True,
        "bytes": 5,
        "mode": "-rw-r--r--",
    }.items() <= next(place for place in report["places"] if place["what"] == "Draft").items()
    (home / "data").chmod(0o700)
    assert Program(home, bare=True).run("doctor").returncode == 0, "nobody gets to it"


def test_damage_is_named_and_left_for_the_next_start(home: Path) -> None:
    where = paths.resolve(
        data_dir=home / "data", kv_dir=home / "kv", config=home / "c.toml", log_dir=home / "log"
    )
    path = home / "data" / "sessions.db"
    data = bytearray(path.read_bytes())
    at = data.rindex(b"a question") // 4096 * 4096
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    (finding,) = examine(where).findings
    assert finding.startswith(f"The session database {path} is damaged (")
    assert finding.endswith(
        "): the next start of ds4chat puts what can be read into a new one and keeps this one as "
        "sessions.damaged-....db."
    )
    assert path.read_bytes() == data
    news.take()
    for _ in range(2):
        # Who reads there first meets it; who starts next mends it.
        try:
            with Database(path) as database:
                [database.load_session(info.id) for info in database.list_sessions()]
        except Exception:
            continue
    assert len(news.take()) == 1
    report = examine(where)
    assert report.findings == []
    assert [Path(p.path).name[:16] for p in report.places if p.what == "Damaged sessions"] == [
        "sessions.damaged"
    ]


def test_an_empty_home_is_no_fault(tmp_path: Path) -> None:
    where = paths.resolve(
        data_dir=tmp_path / "d",
        kv_dir=tmp_path / "k",
        config=tmp_path / "c" / "config.toml",
        log_dir=tmp_path / "l",
    )
    report = examine(where)
    assert report.findings == [] and not any(place.exists for place in report.places)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - that it is empty is all
