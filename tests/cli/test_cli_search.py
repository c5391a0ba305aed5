"""The command `search`."""

from __future__ import annotations

import json

import pytest

from ds4chat.sessions.database import Database
from tests.cli.conftest import Line


def test_hits_stand_below_the_title_of_their_session_newest_first(line: Line) -> None:
    line.session("Bread", "Why is my loaf flat?", "A flat loaf\nhas old yeast.", id_="00000001")
    line.session("Rome", "where?", "there", id_="00000002")
    line.session("[bold]More", "The loaf again", id_="00000003")
    result = line("search", "loaf")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "00000003  [bold]More\n  you: The loaf again\n\n"
        "00000001  Bread\n  reply: A flat loaf\n  you: Why is my loaf flat?\n"
    )
    assert line("search", "flat", "why").out == "00000001  Bread\n  you: Why is my loaf flat?\n"
    assert line("search", '"flat loaf"').out == "00000001  Bread\n  reply: A flat loaf\n"
    assert line("search", "--limit", "1", "loaf").out.startswith("00000003")
    assert "00000001" not in line("search", "--limit", "1", "loaf").out


def test_json_is_a_list_of_the_documented_keys(line: Line) -> None:
    line.session("Bread", "my flat loaf", id_="00000001")
    with Database(line.database) as database:
        database.set_flags("00000001", archived=True)
    (hit,) = json.loads(line("search", "LOAF", "--json").out)
    assert isinstance(hit.pop("created"), float) and isinstance(hit.pop("message_id"), int)
    assert hit == {
        "session_id": "00000001",
        "title": "Bread",
        "role": "user",
        "line": "my flat loaf",
        "marks": [[8, 12]],
        "archived": True,
    }
    assert line("search", "loaf").out.startswith("00000001  Bread (archived)\n")


def test_what_was_found_is_marked_on_a_terminal_unless_told_not_to(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.session("Bread", "my \x1b[31mflat loaf", id_="00000001")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = line("search", "loaf", terminal=True).out
    assert "\x1b[31m" not in shown and "my  [31mflat \x1b[1m\x1b[4mloaf\x1b[0m" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in line("search", "loaf", terminal=True).out


def test_no_hit_and_no_query_are_told(line: Line) -> None:
    line.session("Bread", "loaf")
    result = line("search", "nowhere")
    assert (result.code, result.out, result.err) == (0, "", "No message has all of these words.\n")
    assert line("search", "nowhere", "--json").out == "[]\n"
    result = line("search", "  ")
    assert (result.code, result.err) == (2, "ds4chat: The query is blank: give a word to look for.\n")
    assert line("search").code == 2 and line("search", "--limit", "0", "x").code == 2
    assert line("search", 'a" AND (b*').code == 0 and line("search", "--", "->").code == 0
