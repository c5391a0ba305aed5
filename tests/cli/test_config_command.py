"""`ds4chat config`, and settings from the environment."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ds4chat import paths
from ds4chat.cli_config import ABOUT, EXAMPLES
from ds4chat.cli_setup import Setup
from ds4chat.config import Config, allowed_values, load_config, model_folders, parse_setting
from ds4chat.config_environment import BY_PATHS, variable, variables
from ds4chat.config_file import save_setting
from ds4chat.errors import UsageError
from ds4chat.key_settings import load_key_settings
from tests.cli.conftest import FakeManager, Line
from tests.cli.test_desk import NO_FLAGS


def write(line: Line, text: str) -> Path:
    path = line.folder / "config.toml"
    path.write_text(text)
    return path


def rows(line: Line, *arguments: str) -> dict[str, dict[str, Any]]:
    result = line(*arguments, "config", "show", "--json")
    assert result.code == 0, result.err
    return {row["key"]: row for row in json.loads(result.out)}


SAMPLES = {
    "model.path": "x.gguf",
    "model.ctx": "4096",
    "model.threads": "2",
    "model.gpu_layers": "-1",
    "model.kv_type": "q8_0",
    "model.flash_attention": "no",
    "model.folders": "/a:/b",
    "sampling.temperature": "0.5",
    "sampling.top_p": "0.5",
    "sampling.top_k": "7",
    "sampling.min_p": "0.1",
    "sampling.repeat_penalty": "1.5",
    "sampling.seed": "3",
    "sampling.max_tokens": "9",
    "chat.system": "42",
    "chat.persona": "Teacher",
    "chat.bell": "1",
    "chat.theme": "paper",
    "kv.enabled": "0",
    "kv.dir": "/kv",
    "kv.space_mb": "8",
    "kv.min_tokens": "1",
    "kv.cold_max_tokens": "2",
    "kv.continued_interval_tokens": "3",
    "kv.boundary_trim_tokens": "4",
    "kv.boundary_align_tokens": "5",
    "kv.hit_half_life_seconds": "6",
    "kv.accept_different_quant": "true",
    "keys.preset": "vim",
    "tools.enabled": "yes",
    "tools.builtin": "time:calculator",
    "tools.folders": "/a:/b",
    "tools.seconds": "5",
}


def every_key() -> list[tuple[str, str]]:
    return list(variables().values())


class TestEnvironment:
    def test_the_samples_are_all_keys(self) -> None:
        assert [f"{section}.{key}" for section, key in every_key()] == list(SAMPLES)

    @pytest.mark.parametrize("name", SAMPLES)
    def test_each_key_has_a_variable_that_wins_over_the_file(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        section, key = name.split(".")
        default = getattr(getattr(Config(), section), key)
        monkeypatch.setenv(variable(section, key), SAMPLES[name])
        row = rows(line)[name]
        assert row["source"] == row["variable"] == f"DS4CHAT_{section}_{key}".upper()
        flag = {"1": "true", "0": "false", "no": "false", "yes": "true"} if isinstance(default, bool) else {}
        assert row["value"] == flag.get(SAMPLES[name], SAMPLES[name])
        if (section, key) not in BY_PATHS:
            value = getattr(getattr(load_config(line.folder / "none.toml"), section), key)
            assert value != default

    def test_an_empty_one_counts_as_unset(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        write(line, '[model]\npath = "tiny"\n[sampling]\ntemperature = 0.25\n')
        monkeypatch.setenv("DS4CHAT_SAMPLING_TEMPERATURE", "")
        row = rows(line)["sampling.temperature"]
        assert (row["value"], row["source"]) == ("0.25", "config.toml")

    def test_flag_over_variable_over_file_over_default(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at = "sampling.top_k"
        seen = [(rows(line)[at]["value"], rows(line)[at]["source"])]
        write(line, '[model]\npath = "tiny"\n[sampling]\ntop_k = 1\n')
        seen.append((rows(line)[at]["value"], rows(line)[at]["source"]))
        monkeypatch.setenv("DS4CHAT_SAMPLING_TOP_K", "2")
        seen.append((rows(line)[at]["value"], rows(line)[at]["source"]))
        row = rows(line, "--top-k", "3")[at]
        assert [*seen, (row["value"], row["source"])] == [
            ("", "default"),
            ("1", "config.toml"),
            ("2", "DS4CHAT_SAMPLING_TOP_K"),
            ("3", "--top-k"),
        ]

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("DS4CHAT_SAMPLING_TEMPERATURE", "hot", "must be a number from 0 to 5, not hot."),
            ("DS4CHAT_SAMPLING_TEMPERATURE", "nan", "must be a number from 0 to 5, not nan."),
            ("DS4CHAT_MODEL_KV_TYPE", "q9", "must be one of f32, f16"),
            ("DS4CHAT_KV_ENABLED", "2", "must be true or false, not 2."),
            ("DS4CHAT_MODEL_CTX", "5", "must be a whole number of tokens from 64 up, not 5."),
        ],
    )
    def test_a_value_that_cannot_be_names_the_variable(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
    ) -> None:
        monkeypatch.setenv(name, value)
        for command in (["-p", "hi"], ["config", "show"], ["config", "check"]):
            result = line(*command)
            assert result.code == 2 and f"{name} {words}" in result.err
        assert FakeManager.made == []

    def test_a_chat_is_run_with_them(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DS4CHAT_SAMPLING_TEMPERATURE", "0.125")
        monkeypatch.setenv("DS4CHAT_MODEL_CTX", "1024")
        monkeypatch.setenv("DS4CHAT_CHAT_SYSTEM", "Be kind.")
        assert line("-p", "hi").code == 0
        (manager,) = FakeManager.made
        assert (manager.sampling.temperature, manager.options.n_ctx, manager.system) == (
            0.125,
            1024,
            "Be kind.",
        )

    def test_the_model_wins_over_the_sessions_own(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("own", "other"):
            (line.folder / f"{name}.gguf").write_bytes(b"GGUF")
        id_ = line.session("T", "q", "a", model_path=str(line.folder / "own.gguf"))
        assert line("-r", id_, "-p", "hi").code == 0
        monkeypatch.chdir(line.folder)
        monkeypatch.setenv("DS4CHAT_MODEL_PATH", "other.gguf")
        assert line("-r", id_, "-p", "hi").code == 0
        assert line("-r", id_, "-m", "tiny", "-p", "hi").code == 0
        seen = [(m.options.model_path.name, m.options.pinned) for m in FakeManager.made]
        assert seen == [("own.gguf", False), ("other.gguf", True), ("tiny.gguf", True)]
        monkeypatch.setenv("DS4CHAT_MODEL_PATH", "gone.gguf")
        result = line("-p", "hi")
        assert result.code == 1 and "gone.gguf given by DS4CHAT_MODEL_PATH is not there" in result.err

    def test_a_system_prompt_wins_over_the_files_persona(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(line, '[model]\npath = "tiny"\n[chat]\npersona = "Teacher"\n')
        monkeypatch.setenv("DS4CHAT_SAMPLING_TEMPERATURE", "0.125")
        monkeypatch.setenv("DS4CHAT_SAMPLING_TOP_P", "0.5")
        line("-p", "hi")
        monkeypatch.setenv("DS4CHAT_CHAT_SYSTEM", "Be kind.")
        line("-p", "hi")
        monkeypatch.setenv("DS4CHAT_CHAT_PERSONA", "Editor")
        line("-p", "hi")
        teacher, kind, editor = FakeManager.made
        assert "teacher" in teacher.system and "temperature" not in teacher.params
        assert kind.system == "Be kind." and "editor" in editor.system

    def test_folders_are_taken_from_the_current_folder(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DS4CHAT_MODEL_FOLDERS", f"pool{os.pathsep} /b {os.pathsep}")
        assert load_config(tmp_path / "none").model.folders == (str(tmp_path / "pool"), "/b")

    def test_the_preset_of_keys(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(line, '[keys]\npreset = "default"\n"chat.new" = "f10"\n')
        monkeypatch.setenv("DS4CHAT_KEYS_PRESET", "vim")
        settings = load_key_settings(path)
        assert (settings.preset, settings.keys) == ("vim", {"chat.new": "f10"})


class TestShow:
    def test_rows_and_where_they_are_from(self, line: Line) -> None:
        write(line, '[model]\npath = "tiny"\n[chat]\nsystem = """a\nb"""\n[keys]\n"chat.new" = "f10"\n')
        result = line("--temperature", "0.5", "config", "show")
        lines = {words[0]: words[1:] for words in map(str.split, result.out.splitlines())}
        assert lines["model.path"] == ["tiny", "config.toml"]
        assert lines["sampling.temperature"] == ["0.5", "--temperature"]
        assert lines["chat.system"] == ["a", "b", "config.toml"]
        assert lines["keys.chat.new"] == ["f10", "config.toml"]
        assert lines["sampling.seed"] == ["-", "default"]
        assert lines["kv.dir"] == [str(line.folder / "kv"), "DS4CHAT_KV_DIR"]

    def test_one_key_and_one_section(self, line: Line) -> None:
        assert line("config", "show", "sampling.top_k").out.split() == ["sampling.top_k", "-", "default"]
        assert len(line("config", "show", "[sampling]").out.splitlines()) == 7
        result = line("config", "show", "sampling.heat")
        assert result.code == 2 and 'There is no setting "sampling.heat"' in result.err

    def test_the_path(self, line: Line) -> None:
        assert line("config", "path").out == f"{line.folder / 'config.toml'}\n"


class TestInit:
    def test_a_new_file_explains_every_key_and_changes_nothing(self, line: Line) -> None:
        path = line.folder / "config.toml"
        path.unlink()
        assert line("config", "init").out == f"{path}\n"
        text = path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert load_config(path) == Config()
        for section, key in every_key():
            about = f"# {ABOUT[f'{section}.{key}']} ({allowed_values()[f'$.{section}.{key}']})\n# {key} = "
            assert about in text
        assert line("config", "check").code == 0

    def test_switched_on_every_line_can_stand(self, line: Line) -> None:
        path = line.folder / "config.toml"
        path.unlink()
        line("config", "init")
        names = "|".join(key for _, key in every_key())
        on = re.sub(rf"^# (?=(?:{names}) = )", "", path.read_text(), flags=re.MULTILINE)
        on = re.sub(r"^# (?=    |\])", "", on, flags=re.MULTILINE)
        tree = tomllib.loads(on)
        for section, key in every_key():
            default = msgspec.to_builtins(getattr(getattr(Config(), section), key))
            assert tree[section][key] == EXAMPLES.get(f"{section}.{key}", default)
        path.write_text(on)
        assert load_config(path).sampling.temperature == 0.8

    def test_nothing_is_overwritten(self, line: Line) -> None:
        path = write(line, "# mine\n")
        result = line("config", "init")
        assert result.code == 2 and "is there already" in result.err and path.read_text() == "# mine\n"


class TestEdit:
    @pytest.fixture
    def editor(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A program that writes what lies beside it into the file it is given."""
        monkeypatch.delenv("VISUAL", raising=False)
        path = line.folder / "my editor"
        path.write_text('#!/bin/sh\ncp "$(dirname "$0")/text" "$2"\nexit $1\n')
        path.chmod(0o755)
        monkeypatch.setenv("EDITOR", f"'{path}' 0")
        return path

    def test_what_was_written_is_checked(self, line: Line, editor: Path) -> None:
        (line.folder / "text").write_text("[sampling]\ntop_k = 3\n")
        result = line("config", "edit")
        assert (result.code, result.out) == (0, f"{line.folder / 'config.toml'}: nothing wrong with it\n")
        assert load_config(line.folder / "config.toml").sampling.top_k == 3

    def test_a_fault_is_told_and_what_was_written_stays(self, line: Line, editor: Path) -> None:
        (line.folder / "text").write_text("[sampling]\ntop_k = -3\n")
        result = line("config", "edit")
        assert result.code == 2 and "sampling.top_k must be a whole number from 0 to 1000000." in result.err
        assert (line.folder / "config.toml").read_text() == "[sampling]\ntop_k = -3\n"

    def test_without_a_file_there_is_one_to_fill_in(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (line.folder / "config.toml").unlink()
        monkeypatch.setenv("VISUAL", "true")
        assert line("config", "edit").code == 0
        assert "# temperature = 0.8" in (line.folder / "config.toml").read_text()

    def test_an_editor_that_fails_and_one_that_is_not_there(
        self, line: Line, editor: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (line.folder / "text").write_text("")
        monkeypatch.setenv("EDITOR", f"'{editor}' 3")
        result = line("config", "edit")
        assert result.code == 1 and "The editor ended with 3." in result.err
        monkeypatch.setenv("VISUAL", "/no/such/editor")
        result = line("config", "edit")
        assert result.code == 2 and 'VISUAL is "/no/such/editor", which is not there' in result.err


class TestCheck:
    def test_all_faults_are_told_at_once(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(
            line,
            'shape = 1\n[sampling]\ntop_k = "40"\ntemperature = nan\nheat = 1\n[colours]\na = 1\n'
            '[model]\nkv_type = "q9"\nfolders = [3]\n[kv]\nmin_tokens = 0\n',
        )
        monkeypatch.setenv("DS4CHAT_CHAT_BELL", "loud")
        monkeypatch.setenv("DS4CHAT_SAMPLING_TEMPERTURE", "1")
        result = line("config", "check")
        sections = "the sections [model], [sampling], [chat], [kv], [keys], [tools], [[engine]], [[mcp]]"
        fault = f"ds4chat: The configuration {path} has a fault: "
        assert result.code == 2 and result.out == ""
        assert result.err.splitlines() == [
            f'{fault}unknown key "shape": allowed are {sections}.',
            f"{fault}sampling.top_k must be a whole number from 0 to 1000000, not of type str.",
            f"{fault}sampling.temperature must be a number from 0 to 5.",
            f'{fault}unknown key "heat" in sampling: allowed are {allowed_values()["$.sampling"]}.',
            f'{fault}unknown key "colours": allowed are {sections}.',
            f"{fault}model.kv_type must be {allowed_values()['$.model.kv_type']}, not 'q9'.",
            f"{fault}model.folders[0] must be the path of a folder, not of type int.",
            f"{fault}kv.min_tokens must be a whole number of tokens from 1 to 2147483647.",
            "ds4chat: DS4CHAT_CHAT_BELL must be true or false, not loud.",
            "ds4chat: DS4CHAT_SAMPLING_TEMPERTURE is no setting: near it is DS4CHAT_SAMPLING_TEMPERATURE.",
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[model", "is not TOML ("),
            ("model = 3", "model must be path, ctx,"),
            ('[keys]\n"chat.nwe" = "f10"', 'there is no action "chat.nwe" in [keys]; near it are chat.new'),
            ('[keys]\npreset = "emacs"', 'keys.preset must be one of "default", "vim", not "emacs".'),
            ('[chat]\npersona = "Pirate"', 'chat.persona: There is no persona "Pirate": there are Editor,'),
            ('[chat]\ntheme = "mud"', 'chat.theme: There is no theme "mud": `ds4chat themes` lists them.'),
            (
                '[model]\npath = "gone.gguf"',
                "gone.gguf set in the configuration is not there: correct [model] path",
            ),
        ],
    )
    def test_faults_of_one_thing(self, line: Line, text: str, words: str) -> None:
        write(line, text)
        result = line("config", "check")
        assert result.code == 2 and words in result.err and str(line.folder) in result.err
        assert len(result.err.splitlines()) == 1

    def test_without_a_file_and_with_a_good_one(self, line: Line) -> None:
        path = line.folder / "config.toml"
        assert line("config", "check").out == f"{path}: nothing wrong with it\n"
        path.unlink()
        assert line("config", "check").out == f"{path}: not there, so the defaults hold\n"

    def test_other_variables_are_none_of_its_business(
        self, line: Line, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DS4CHAT_SOMETHING", "1")
        assert line("config", "check").code == 0


def test_folders_can_be_typed_and_keep_the_file(line: Line) -> None:
    path = write(line, "# mine\n[model]\n")
    save_setting(path, "model", "folders", "/a:~/b")
    assert path.read_text().startswith("# mine\n") and load_config(path).model.folders == ("/a", "~/b")
    setup = Setup.from_flags(NO_FLAGS)
    assert model_folders(setup.config, setup.paths) == [Path("/a"), Path.home() / "b"]
    assert parse_setting("model", "folders", " ") == []
    with pytest.raises(UsageError):
        parse_setting("model", "folder", "x")
    assert paths.resolve().config_file == path
