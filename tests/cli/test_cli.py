"""Options, modes, sentences and exit codes of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat import __version__, cli
from ds4chat.engine.protocol import KvOptions, Sampling
from tests.cli.conftest import FakeManager, Line

# ---- the chat screen ----


def test_without_a_command_the_chat_screen_opens_and_the_way_back_is_printed(line: Line) -> None:
    result = line(terminal=True)
    assert (result.code, result.out, result.err) == (0, "ds4chat --resume 0000bbbb\n", "")
    (call,) = line.ui_calls
    wanted = {"session_id": None, "pick": False, "theme": None, "config_dir": line.folder, "bell": False}
    assert {name: call[name] for name in wanted} == wanted
    assert type(call["desk"]).__name__ == "FileDesk"


def test_nothing_to_resume_is_printed_when_nothing_was_saved(line: Line) -> None:
    assert line("--no-save", terminal=True).out == ""
    assert FakeManager.made[0].save is False
    assert FakeManager.made[0].options.kv.read_only is True


def test_the_printed_command_works_for_another_data_folder_too(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = line("--data-dir", "other data", "-m", str(tmp_path / "data/models/tiny.gguf"), terminal=True)
    assert result.out == f"ds4chat --resume 0000bbbb --data-dir '{tmp_path}/other data'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-r", "00000001"],
        ["--resume", "00000001"],
        ["--resume=00000001"],
        ["-r00000001"],
        ["-r", "0000000"],
        ["-r", "Rome"],
        ["--no-kv", "-r", "rome", "--no-save"],
    ],
)
def test_resume_with_a_name_opens_that_session(line: Line, arguments: list[str]) -> None:
    line.session("Rome", "a", id_="00000001")
    assert line(*arguments, terminal=True).code == 0
    assert (line.ui_calls[0]["session_id"], line.ui_calls[0]["pick"]) == ("00000001", False)


@pytest.mark.parametrize(
    "arguments", [["-r"], ["--resume"], ["-r", "--no-kv"], ["--no-kv", "-r"], ["--resume="]]
)
def test_resume_without_a_name_opens_the_picker(line: Line, arguments: list[str]) -> None:
    assert line(*arguments, terminal=True).code == 0
    assert (line.ui_calls[0]["session_id"], line.ui_calls[0]["pick"]) == (None, True)


def test_continue_opens_the_latest_session(line: Line) -> None:
    line.session("old", "a")
    newest = line.session("new", "b")
    for flag in ("-c", "--continue"):
        assert line(flag, terminal=True).code == 0
        assert line.ui_calls[-1]["session_id"] == newest


def test_the_theme_comes_from_the_configuration(line: Line) -> None:
    (line.folder / "config.toml").write_text(
        '[model]\npath = "tiny"\n[chat]\ntheme = "night"\nsystem = "Be kind."\n'
    )
    line(terminal=True)
    assert line.ui_calls[0]["theme"] == "night"
    assert FakeManager.made[-1].system == "Be kind."
    line("-s", "Be brief.", terminal=True)
    assert FakeManager.made[-1].system == "Be brief."
    line("-s", "", terminal=True)
    assert FakeManager.made[-1].system == ""


# ---- what the manager is made of ----


def test_every_flag_reaches_the_engine(line: Line) -> None:
    arguments = (
        "-p hi --ctx 4096 --threads 3 --gpu-layers -1 --kv-type q8_0 --temperature 0.5 --top-p 0.6 --top-k 7 "
        "--min-p 0.1 --repeat-penalty 1.5 --seed 42 --max-tokens 99 --kv-disk-space-mb 10 --kv-cache-min-tokens 1 "
        "--kv-cache-cold-max-tokens 2 --kv-cache-continued-interval-tokens 3 --kv-cache-boundary-trim-tokens 4 "
        "--kv-cache-boundary-align-tokens 5 --kv-cache-accept-different-quant --no-kv"
    )
    assert (
        line(*arguments.split(), "--kv-options", '{"hit_half_life_seconds": 9, "min_tokens": 77}').code == 0
    )
    (manager,) = FakeManager.made
    options = manager.options
    assert options.model_path == line.folder / "data" / "models" / "tiny.gguf"
    assert (options.n_ctx, options.threads, options.gpu_layers, options.kv_type) == (4096, 3, None, "q8_0")
    assert options.log_path == line.folder / "log" / "engine.log"
    assert manager.sampling == Sampling(0.5, 7, 0.6, 0.1, 1.5, seed=42)
    assert manager.max_tokens == 99
    assert options.kv == KvOptions(
        enabled=False,
        directory=str(line.folder / "kv"),
        budget_mb=10,
        min_tokens=1,
        cold_max_tokens=2,
        continued_interval_tokens=3,
        boundary_trim_tokens=4,
        boundary_align_tokens=5,
        hit_half_life_seconds=9.0,
        accept_different_quant=True,
    )
    assert manager.data_dir == line.folder / "data"


@pytest.mark.parametrize("flag", ["--kv-disk-dir", "--kv-dir"])
def test_the_checkpoints_folder_flag_then_variable_then_configuration(
    line: Line, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    (line.folder / "config.toml").write_text('[model]\npath = "tiny"\n[kv]\ndir = "configured"\n')
    line("-p", "x", flag, "/flag/kv", "--kv-budget", "5")
    line("-p", "x")
    monkeypatch.delenv("DS4CHAT_KV_DIR")
    line("-p", "x")
    directories = [manager.options.kv.directory for manager in FakeManager.made]
    assert directories == ["/flag/kv", str(line.folder / "kv"), str(line.folder / "configured")]
    assert [manager.options.kv.budget_mb for manager in FakeManager.made] == [5, None, None]


def test_a_sessions_own_model_is_used_and_the_flag_wins(line: Line) -> None:
    own = line.folder / "own.gguf"
    own.write_bytes(b"GGUF")
    line.session("Rome", "a", id_="00000001", model_path=str(own))
    line("-p", "x", "-r", "Rome")
    line("-p", "x", "-r", "Rome", "-m", "tiny")
    assert [manager.options.model_path.name for manager in FakeManager.made] == ["own.gguf", "tiny.gguf"]


def test_a_sessions_model_that_is_gone_is_told_with_the_way_out(line: Line) -> None:
    line.session("Rome", "a", id_="00000001", model_path="/gone/own.gguf")
    result = line("-r", "Rome", terminal=True)
    assert result.code == 1
    assert result.err == (
        "ds4chat: The model /gone/own.gguf of session 00000001 is not there: "
        "put it back, or give another with --model.\n"
    )


# ---- sentences and exit codes ----

USAGE = {
    "--nope": "No such option '--nope'",
    "nope": "No such command 'nope'; see `ds4chat --help`.",
    "--ctx abc -p x": "Invalid value for '--ctx': 'abc' is not a valid integer; see `ds4chat --help`.",
    "--ctx": "Option '--ctx' requires an argument",
    "--ctx 5 -p x": "--ctx must be a whole number of tokens from 64 up, not 5.",
    "--temperature 9 -p x": "--temperature must be a number from 0 to 5, not 9.0.",
    "--temperature nan -p x": "--temperature must be a number from 0 to 5, not nan.",
    "--top-k -1 -p x": "--top-k must be a whole number from 0 to 1000000, not -1.",
    "--kv-type q9 -p x": "--kv-type must be one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, not q9.",
    "--kv-cache-min-tokens 0 -p x": "--kv-cache-min-tokens must be a whole number of tokens from 1 to",
    "--kv-options {} -r x -c": "--resume and --continue exclude each other: give one of them.",
    '--kv-options {"colour":1} -p x': '--kv-options has no "colour": allowed are min_tokens, cold_max_tokens,',
    "--output-format yaml -p x": "Invalid value for '--output-format'",
    "-c": "There is no terminal and standard input is empty",
    "-c -p x": "There is no session to continue yet: start one with `ds4chat`.",
    "-r x -p x": 'No session goes by "x": `ds4chat ls` lists them.',
    "-r -p x": "--resume without an ID opens a picker, which --print has not: give the ID or use --continue.",
    "-c -p x -s y": "--system is for a new session: leave it out, or leave out --resume and --continue.",
    "-p -": "There is no terminal and standard input is empty: give a prompt with -p, or pipe one in.",
    "rm": "Missing argument 'ID...'; see `ds4chat --help`.",
    "rename x": "Missing argument 'TITLE'",
    "show x": 'No session goes by "x": `ds4chat ls` lists them.',
    "rm x -y": 'No session goes by "x": `ds4chat ls` lists them.',
    "rename x y": 'No session goes by "x": `ds4chat ls` lists them.',
}


@pytest.mark.parametrize("arguments", USAGE)
def test_bad_usage_is_one_sentence_and_exit_code_2(line: Line, arguments: str) -> None:
    result = line(*arguments.split(" "))
    assert result.code == 2
    assert result.err.startswith(f"ds4chat: {USAGE[arguments]}")
    assert result.err.count("\n") == 1 and result.err.endswith(".\n")
    assert result.out == ""
    assert FakeManager.made == []


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_a_blank_prompt_is_bad_usage(line: Line, prompt: str) -> None:
    assert line("-p", prompt).code == 2
    assert line("-p", "-", stdin=prompt).code == 2


def test_an_output_format_without_a_prompt_is_bad_usage(line: Line) -> None:
    result = line("--output-format", "json", terminal=True)
    assert (result.code, result.err) == (
        2,
        "ds4chat: --output-format is for --print: give a prompt with -p.\n",
    )


def test_a_screen_is_not_opened_into_a_pipe(line: Line) -> None:
    result = line(terminal="input")
    assert result.code == 2
    assert result.err == (
        "ds4chat: The chat screen needs a terminal: give a prompt with -p to have the answer printed.\n"
    )
    assert line.ui_calls == []


def test_a_faulty_configuration_is_told(line: Line) -> None:
    (line.folder / "config.toml").write_text("[sampling]\nheat = 1\n")
    result = line("-p", "x")
    assert result.code == 2
    assert result.err.startswith(
        f'ds4chat: The configuration {line.folder}/config.toml has a fault: unknown key "heat"'
    )


def test_a_database_that_is_none_is_kept_and_told(line: Line) -> None:
    line.database.write_text("no database " * 100)
    result = line("ls")
    assert result.code == 0
    (kept,) = line.database.parent.glob("sessions.damaged-*.db")
    assert kept.read_text() == "no database " * 100
    assert result.err.splitlines()[-1] == (
        f"ds4chat: The session database {line.database} was damaged and nothing in it could be read: a new one begins, "
        f"and the damaged file is kept as {kept}."
    )


def test_an_unexpected_error_is_one_sentence_too(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("with\nnewlines\x1b[31m")

    monkeypatch.setattr("ds4chat.cli_sessions.list_sessions", explode)
    result = line("ls")
    assert result.code == 1
    assert result.err.startswith("ds4chat: An unexpected error ended this (RuntimeError): ")
    assert result.err.count("\n") == 1


def test_ctrl_c_is_130(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ds4chat.cli_sessions.list_sessions", interrupt)
    assert line("ls").code == 130


def test_help_and_version(line: Line) -> None:
    assert line("--version").out == f"ds4chat {__version__}\n"
    help_ = line("--help")
    assert help_.code == 0
    for word in ("--resume", "--continue", "--print", "--kv-options", "ls", "show", "rename", "rm", "import"):
        assert word in help_.out
    for command in ("ls", "show", "rename", "rm", "import"):
        assert line(command, "--help").code == 0


# ---- in a process of its own ----


def spawn(
    tmp_path: Path, *arguments: str, code: str = "", **options: object
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "DS4CHAT_DATA_DIR": str(tmp_path / "data"),
        "DS4CHAT_LOG_DIR": str(tmp_path / "log"),
        "DS4CHAT_CONFIG": str(tmp_path / "config.toml"),
        "DS4CHAT_KV_DIR": str(tmp_path / "kv"),
    }
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "ds4chat"]
    return subprocess.run(
        [*command, *arguments], env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_the_version_needs_neither_screen_nor_engine_nor_database(tmp_path: Path) -> None:
    code = (
        "import sys; from ds4chat import cli; code = cli.run(['--version']);"
        "heavy = {'textual', 'rich', 'sqlite3', 'msgspec', 'llama_cpp'};"
        "print(sorted({m.split('.')[0] for m in sys.modules} & heavy)); sys.exit(code)"
    )
    result = spawn(tmp_path, code=code)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"ds4chat {__version__}\n[]\n", "")
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "log"])


def test_the_traceback_goes_to_the_log_and_nowhere_else(tmp_path: Path) -> None:
    code = (
        "import sys; from ds4chat import cli, cli_sessions; cli_sessions.list_sessions = None;"
        "sys.exit(cli.run(['ls']))"
    )
    result = spawn(tmp_path, code=code)
    log = tmp_path / "log" / "ds4chat.log"
    assert result.returncode == 1
    assert result.stderr == f"ds4chat: An unexpected error ended this (TypeError): {log} has the details.\n"
    assert "Traceback" in log.read_text() and "TypeError" in log.read_text()


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("in the way")
    result = spawn(tmp_path, "ls")
    assert (result.returncode, result.stdout) == (0, "")


def test_a_reader_that_went_away_is_no_complaint(tmp_path: Path) -> None:
    code = (
        "import os, sys; from ds4chat import cli\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
        "sys.exit(cli.run(['ls', '--json']))"
    )
    result = spawn(tmp_path, code=code)
    assert (result.returncode, result.stderr) == (1, "")


def test_main_is_what_the_package_installs() -> None:
    assert callable(cli.main)
