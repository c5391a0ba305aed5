"""Personas as files: what they may hold, which are skipped, and how they are written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import UsageError
from ds4chat.personas import (
    SHIPPED,
    Persona,
    check_name,
    delete,
    find,
    load_personas,
    parse,
    save,
    with_persona,
)


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_folder_there_are_the_shipped_ones(tmp_path: Path) -> None:
    personas, faults = load_personas(tmp_path / "none")
    assert [persona.name for persona in personas] == ["Editor", "Programmer", "Teacher"]
    assert faults == [] and all(persona.system and persona.params for persona in SHIPPED)


def test_a_file_comes_before_a_shipped_one_of_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, "t.toml", 'name = "teacher"\nsystem = "Mine."\n[params]\ntop_k = 5\n')
    persona = find(tmp_path, "TEACHER")
    assert persona == Persona("teacher", "Mine.", {"top_k": 5}, path)
    assert len(load_personas(tmp_path)[0]) == len(SHIPPED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "is not TOML"),
        ('system = "x"', 'the key "name" is missing'),
        ('name = "a"\nsystm = "x"', 'unknown key "systm": allowed are name, system, params'),
        ('name = "a"\nsystem = 3', "system must be a string, not of type int"),
        ('name = " "', "name must be a name of 1 to 60 characters"),
        ('name = "a\\nb"', "on one line"),
        ('name = "a"\n[params]\ntemperature = 9', "temperature must be a number from 0 to 5, not 9"),
        ('name = "a"\n[params]\ntop_k = "many"', "top_k must be a whole number from 0 to 1000000, not many"),
        ('name = "a"\n[params]\nthreads = 2', 'no parameter "threads": allowed are ctx, temperature'),
        ('name = "a"\n[params]\nmin_p = nan', "min_p must be a number from 0 to 1, not nan"),
        ('name = "a"\n[params]\nseed = []', "seed must be a whole number"),
    ],
)
def test_a_bad_file_is_skipped_and_named_with_key_and_what_may_stand_there(
    tmp_path: Path, text: str, words: str
) -> None:
    path = write(tmp_path, "bad.toml", text)
    write(tmp_path, "good.toml", 'name = "Good"')
    personas, (fault,) = load_personas(tmp_path)
    assert str(path) in fault and words in fault
    assert "Good" in [persona.name for persona in personas]


def test_what_is_no_text_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "b.toml").mkdir()
    (tmp_path / "c.toml").write_bytes(b"#" * 300_000)
    assert [fault.split()[-1] for fault in load_personas(tmp_path)[1]] == ["UTF-8.", "away.", "smaller."]


def test_two_files_of_one_name(tmp_path: Path) -> None:
    first = write(tmp_path, "a.toml", 'name = "Same"\nsystem = "1"')
    write(tmp_path, "b.toml", 'name = "same"\nsystem = "2"')
    personas, (fault,) = load_personas(tmp_path)
    assert str(first) in fault and find(tmp_path, "Same").system == "1"
    assert len(personas) == len(SHIPPED) + 1


def test_saving_and_deleting(tmp_path: Path) -> None:
    folder = tmp_path / "conf" / "personas"
    saved = save(folder, Persona("Ärztin / 2", 'Say "Ah".\nThen:\n\\ [b]\n', {"temperature": 1}))
    assert saved.path is not None and saved.path.name == "ärztin-2.toml"
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert find(folder, "ärztin / 2") == saved
    assert '".\nThen:\n' in saved.path.read_text(encoding="utf-8"), "it can be edited by hand"
    again = save(folder, Persona("Renamed", "x", {}, saved.path))
    assert [path.name for path in folder.iterdir()] == ["ärztin-2.toml"] and again.path == saved.path
    twin = save(folder, Persona("renamed", "y"))
    assert twin.path == saved.path
    other = save(folder, Persona("Ärztin-2", "z"))
    assert other.path is not None and other.path.name == "ärztin-2-2.toml"
    delete(folder, "Ärztin-2")
    assert [path.name for path in folder.iterdir()] == ["ärztin-2.toml"]


def test_a_shipped_one_stays_and_comes_back(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="comes with ds4chat"):
        delete(tmp_path, "Teacher")
    save(tmp_path, Persona("Teacher", "Mine."))
    delete(tmp_path, "Teacher")
    assert find(tmp_path, "Teacher") in SHIPPED
    with pytest.raises(UsageError, match='no persona "Nobody": there are Editor, Programmer, Teacher'):
        delete(tmp_path, "Nobody")


@given(st.text(min_size=1, max_size=60), st.text(max_size=300))
def test_whatever_is_saved_can_be_read_again(
    tmp_path_factory: pytest.TempPathFactory, name: str, system: str
) -> None:
    folder = tmp_path_factory.mktemp("personas")
    try:
        name = check_name(name)
        system.encode()
    except (UsageError, UnicodeEncodeError):
        return
    saved = save(folder, Persona(name, system))
    assert saved.path is not None and saved.path.parent == folder
    assert parse(saved.path.read_bytes().decode(), saved.path) == saved


def test_a_persona_takes_the_place_of_another() -> None:
    one = Persona("One", "1", {"temperature": 0.1, "top_k": 5})
    two = Persona("Two", "2", {"temperature": 0.9})
    by_hand = {"seed": 4, "top_k": 7}
    with_one = with_persona(dict(by_hand), None, one)
    assert with_one == {"seed": 4, "top_k": 5, "temperature": 0.1, "persona": "One"}
    assert with_persona(with_one, one, two) == {"seed": 4, "temperature": 0.9, "persona": "Two"}
    assert with_persona(with_one | {"temperature": 3.0}, one, None) == {"seed": 4, "temperature": 3.0}
