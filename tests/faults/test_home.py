"""Folders that cannot be written, and no home at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat import paths
from ds4chat.config_file import save_setting
from ds4chat.errors import UsageError
from tests.faults.places import read_only, why_not_written
from tests.support.program import Program

NOBODY_KNOWN = """
import pwd
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
"""


def test_without_a_place_for_sessions_nothing_is_asked(tmp_path: Path, tiny: dict[str, Path]) -> None:
    program = Program(tmp_path)
    with read_only(tmp_path / "data") as data:
        why = why_not_written(data)
        done = program.run("-p", "Hello?", "-m", str(tiny["dense"]))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"ds4chat: The session database {data / 'sessions.db'} cannot be opened ({why}): make it writable, or "
            "choose another folder with --data-dir.\n"
        )
        kept_nowhere = program.run("-p", "Hello?", "-m", str(tiny["dense"]), "--no-save", "--max-tokens", "2")
        assert (kept_nowhere.returncode, kept_nowhere.stderr) == (0, "")


def test_without_a_place_for_checkpoints_the_chat_goes_on_and_says_so_once(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    program = Program(tmp_path)
    (tmp_path / "kv").mkdir()
    with read_only(tmp_path / "kv") as kv:
        why = why_not_written(kv)
        done = program.run("-p", "Hello? " * 200, "-m", str(tiny["dense"]), "--max-tokens", "2")
    assert done.returncode == 0
    assert done.stderr == (
        f"ds4chat: Checkpoints are not stored any more ({why}: {kv}); the chat goes on. Free some disk space or give "
        "another directory with --kv-disk-dir.\n"
    )


def test_without_a_place_for_settings_and_logs_only_what_needs_them_says_so(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for name in ("config", "log"):
        (tmp_path / name).mkdir()
    config = tmp_path / "config" / "config.toml"
    with read_only(tmp_path / "log"), read_only(tmp_path / "config") as folder:
        why = why_not_written(folder)
        env = program.env | {"DS4CHAT_CONFIG": str(config)}
        listed = subprocess.run(program.command("ls"), env=env, capture_output=True, text=True, check=False)
        assert (listed.returncode, listed.stderr) == (
            0,
            "There are no sessions yet: start one with `ds4chat`.\n",
        )
        with pytest.raises(UsageError) as caught:
            save_setting(config, "chat", "bell", "true")
        assert (
            str(caught.value)
            == f"The configuration {config} cannot be written ({why}): see to it and try again."
        )
        made = subprocess.run(
            program.command("themes", "new", "mine"), env=env, capture_output=True, text=True, check=False
        )
        assert made.returncode != 0 and made.stderr.count("\n") == 1 and why in made.stderr


def without_home(tmp_path: Path, *args: str, home: str | None) -> subprocess.CompletedProcess[str]:
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "sitecustomize.py").write_text(NOBODY_KNOWN)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DS4CHAT_", "XDG_")) and k != "HOME"}
    env = kept | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])])}
    if home is not None:
        env["HOME"] = home
    command = [sys.executable, "-m", "ds4chat", *args]
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("home", [None, "", "not/from/the/root"])
def test_without_a_home_that_is_said_and_nothing_is_made_where_one_stands(
    tmp_path: Path, home: str | None
) -> None:
    done = without_home(tmp_path, "ls", home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ds4chat: There is no home folder to keep files in: set HOME to one, or DS4CHAT_CONFIG (and the other "
        "variables of its kind) to a place of your choice.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_home_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    done = without_home(tmp_path, "ls", home=str(tmp_path / "new" / "home"))
    assert done.returncode == 0
    assert list((tmp_path / "new" / "home").rglob("sessions.db"))


def test_a_home_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    with read_only(tmp_path / "closed") as closed:
        why = why_not_written(closed)
        done = without_home(tmp_path, "ls", home=str(closed / "home"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"ds4chat: The session database {closed / 'home'}")
    assert done.stderr.endswith(
        f"cannot be opened ({why}): make it writable, or choose another folder with --data-dir.\n"
    )


def test_a_folder_that_is_gone_is_only_missed_by_paths_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert paths.resolve(data_dir=tmp_path / "data").data_dir == tmp_path / "data"
    with pytest.raises(UsageError) as caught:
        paths.resolve(data_dir="data")
    assert str(caught.value) == (
        "data is relative to a folder that is gone: give it from the root on, or go to another folder."
    )
