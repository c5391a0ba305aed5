"""The sessions that come with ds4chat."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.sessions.database import Database
from ds4chat.sessions.interchange import import_file, to_toml
from tests.cli.conftest import Line

FILES = sorted(paths.shipped("sample_sessions").glob("*.toml"))


def test_there_are_several_and_one_is_long() -> None:
    assert len(FILES) >= 4
    words = {path.stem: sum(len(m.text.split()) for m in import_file(path).path()) for path in FILES}
    assert words["lighthouse"] > 4500  # well over 6,000 tokens, and still within 85% of a context of 8,192


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_can_be_gone_on_in(path: Path) -> None:
    session = import_file(path)
    messages = session.path()
    assert [m.role for m in messages] == ["user", "assistant"] * (len(messages) // 2)
    assert session.title and session.system and session.created
    assert all(a.created < b.created for a, b in itertools.pairwise(messages))
    assert len({m.text for m in messages}) == len(messages)
    assert path.read_text(encoding="utf-8") == to_toml(session)


def test_all_come_in_with_one_command(line: Line) -> None:
    result = line("import", *map(str, FILES))
    assert (result.code, result.err) == (0, "")
    with Database(line.database) as database:
        assert database.count() == len(FILES)
