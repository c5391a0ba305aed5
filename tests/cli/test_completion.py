"""What the shell is told when Tab is pressed, asked for as the scripts ask."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ds4chat.sessions.database import Database
from tests.cli.conftest import Line
from tests.models.gguf_files import write_gguf

VARIABLE = "_DS4CHAT_COMPLETE"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that no models but those of the test are found."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "LLAMA_CACHE",
        "OLLAMA_MODELS",
    ):
        monkeypatch.delenv(name, raising=False)
    return home


def complete(line: Line, *words: str, shell: str = "zsh") -> list[tuple[str, str]]:
    """Values with their help, for the last word of a command line."""
    with line.monkeypatch.context() as patch:
        patch.setenv(VARIABLE, f"{shell}_complete")
        patch.setenv("COMP_WORDS", " ".join(["ds4chat", *words]))
        patch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        result = line()
    assert (result.code, result.err) == (0, "")
    lines = result.out.rstrip("\n").split("\n") if result.out.strip() else []
    if shell == "zsh":
        return [(value, help) for _, value, help in zip(*[iter(lines)] * 3, strict=True)]
    if shell == "fish":
        split = [text.removeprefix("plain,").partition("\t") for text in lines]
        return [(value, help) for value, _, help in split]
    return [(text.partition(",")[2], "") for text in lines]


class TestSessions:
    @pytest.fixture
    def ids(self, line: Line) -> list[str]:
        return [
            line.session("Baking bread", "Why?", id_="3f2a0001"),
            line.session("The Corran light, again", "Where?", id_="3f2b0002"),
            line.session("", "What?", id_="a0000003"),
        ]

    @pytest.mark.parametrize(
        "words",
        [
            ["-r"],
            ["--resume"],
            ["show"],
            ["rename"],
            ["rm"],
            ["export"],
            ["cache", "pin"],
            ["cache", "unpin"],
        ],
        ids=" ".join,
    )
    def test_ids_come_with_their_titles_newest_first(
        self, line: Line, ids: list[str], words: list[str]
    ) -> None:
        assert complete(line, *words, "3f2") == [
            ("3f2b0002", "The Corran light, again"),
            ("3f2a0001", "Baking bread"),
        ]
        assert complete(line, *words, "a") == [("a0000003", "(no title)")]

    def test_a_part_of_the_title_finds_the_id(self, line: Line, ids: list[str]) -> None:
        assert complete(line, "show", "corran") == [("3f2b0002", "The Corran light, again")]
        assert complete(line, "-r", "BREAD", shell="bash") == [("3f2a0001", "")]
        # fish drops what does not begin as what was typed, and cuts at commas.
        assert complete(line, "-r", "baking", shell="fish") == [("Baking bread", "3f2a0001")]
        assert complete(line, "-r", "corran", shell="fish") == []

    def test_rm_does_not_offer_what_is_named_already(self, line: Line, ids: list[str]) -> None:
        assert complete(line, "rm", "3f2a0001", "3") == [("3f2b0002", "The Corran light, again")]

    def test_those_of_another_data_folder(self, line: Line, ids: list[str], tmp_path: Path) -> None:
        shutil.copytree(line.folder / "data", tmp_path / "other")
        with sqlite3.connect(tmp_path / "other/sessions.db") as db:
            db.execute("UPDATE sessions SET title = 'Copied' WHERE id = '3f2a0001'")
        other = str(tmp_path / "other")
        assert ("3f2a0001", "Copied") in complete(line, "--data-dir", other, "show", "3f2a")
        assert ("3f2a0001", "Copied") in complete(line, "show", "--data-dir", other, "3f2a")

    def test_one_in_the_trash_is_not_offered(self, line: Line, ids: list[str]) -> None:
        with sqlite3.connect(line.database) as db:
            db.execute("UPDATE sessions SET trashed = 1 WHERE id = '3f2a0001'")
        assert complete(line, "show", "3f2a") == []

    def test_the_database_is_read_while_it_is_open_and_left_alone_otherwise(
        self, line: Line, ids: list[str]
    ) -> None:
        folder = line.database.parent
        before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert len(complete(line, "show", "")) == 3
        assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        with Database(line.database) as database:
            database.rename("3f2a0001", "Not yet in the file itself")
            assert ("3f2a0001", "Not yet in the file itself") in complete(line, "show", "3f2a")

    def test_titles_cannot_act_on_a_terminal(self, line: Line) -> None:
        line.session("a\x1b]0;x\x07\nb", "x", id_="bbbb0001")
        ((_, title),) = complete(line, "show", "b")
        assert title.isprintable()

    def test_no_database_or_a_damaged_one_offers_nothing_and_stays(self, line: Line) -> None:
        assert complete(line, "show", "3") == [] and not line.database.exists()
        line.database.write_bytes(b"nonsense" * 99)
        assert complete(line, "show", "3") == []
        assert line.database.read_bytes() == b"nonsense" * 99
        (line.folder / "config.toml").write_text("[broken")
        assert complete(line, "-m", "ti") == [("tiny", "models folder")]


class TestOthers:
    def test_models_with_their_places(self, line: Line) -> None:
        write_gguf(line.folder / "pool/Tinier-Q8_0.gguf")
        (line.folder / "config.toml").write_text('[model]\nfolders = ["pool"]\n')
        expected = [("tiny", "models folder"), ("Tinier-Q8_0", "configured folder")]
        for words in (["-m"], ["--model"], ["bench", "-m"], ["models", "use"], ["models", "info"]):
            assert complete(line, *words, "ti") == expected
        assert complete(line, "-m", "./x", shell="bash") == [("./x", "")]

    def test_colons_in_names_of_models(self, line: Line, home: Path) -> None:
        manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/gemma3/4b"
        manifest.parent.mkdir(parents=True)
        manifest.write_text('{"layers": [{"mediaType": "x.image.model", "digest": "sha256:aa"}]}')
        write_gguf(home / ".ollama/models/blobs/sha256-aa")
        assert complete(line, "-m", "gem") == [(r"gemma3\:4b", "Ollama")]
        assert complete(line, "-m", "gemma3:", shell="bash") == [("gemma3:4b", "")]

    @pytest.mark.parametrize("option", ["-f", "--file", "--grammar", "--json-schema"])
    def test_files_are_left_to_the_shell(self, line: Line, option: str) -> None:
        assert complete(line, option, "no", shell="bash") == [("no", "")]
        line.monkeypatch.setenv("COMP_WORDS", f"ds4chat {option} no")
        line.monkeypatch.setenv("COMP_CWORD", "2")
        line.monkeypatch.setenv(VARIABLE, "bash_complete")
        assert line().out == "file,no\n"

    def test_themes(self, line: Line) -> None:
        (line.folder / "themes").mkdir()
        (line.folder / "themes/x.toml").write_text('name = "hazel"\nprimary = "#fff"\n')
        assert complete(line, "themes", "new", "mine", "--from", "ha") == [
            ("harbor", "ds4chat"),
            ("hazel", "your own"),
        ]

    def test_settings(self, line: Line) -> None:
        assert complete(line, "config", "show", "sampling.top_p") == [
            ("sampling.top_p", "a number from 0 to 1")
        ]
        assert not any("[" in key for key, _ in complete(line, "config", "show", "model"))

    def test_commands_and_options(self, line: Line) -> None:
        assert {"models", "config", "completion"} <= {value for value, _ in complete(line, "")}
        assert complete(line, "--ctx")[0][0] == "--ctx"
        assert [value for value, _ in complete(line, "completion", "")] == ["bash", "zsh", "fish"]


class TestScripts:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_they_ask_with_the_variable(self, line: Line, shell: str) -> None:
        result = line("completion", shell)
        assert (result.code, result.err) == (0, "")
        assert f"{VARIABLE}={shell}_complete" in result.out and "ds4chat" in result.out

    def test_how_to_keep_it_is_told_on_a_terminal(self, line: Line) -> None:
        assert "~/.bashrc" in line("completion", "bash", terminal=True).err

    def test_another_shell(self, line: Line) -> None:
        result = line("completion", "tcsh")
        assert result.code == 2 and "bash" in result.err

    @pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
    def test_bash_completes_with_it(self, line: Line, tmp_path: Path) -> None:
        """The function of the script, called as bash calls it, with a stand-in for the program."""
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/ds4chat"
        program.write_text('#!/bin/sh\nprintf "plain,%s\\n" "gemma3:4b" "$COMP_CWORD:$COMP_WORDS"\n')
        program.chmod(0o755)
        script = (
            line("completion", "bash").out
            + "COMP_WORDS=(ds4chat -m gemma3:); COMP_CWORD=2; _ds4chat_completion ds4chat\n"
            + 'printf "%s|" "${COMPREPLY[@]}"; echo "$COMP_WORDBREAKS" | grep -c :\n'
        )
        run = subprocess.run(
            ["bash", "--norc", "-c", script],
            capture_output=True,
            text=True,
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        )
        assert run.stdout.splitlines()[0].startswith("gemma3:4b|")
        assert run.stdout.rstrip().endswith("0")


def test_it_is_quick_because_nothing_heavy_is_imported(line: Line) -> None:
    line.session("Bread", "x", id_="3f2a0001")
    code = (
        "import os, sys\n"
        "from ds4chat import cli\n"
        "for words in ('show 3', '-m t', 'themes new x --from h', 'config show s'):\n"
        "    os.environ['COMP_WORDS'] = 'ds4chat ' + words\n"
        "    os.environ['COMP_CWORD'] = str(len(words.split()))\n"
        "    assert cli.run([]) == 0\n"
        "heavy = {'textual', 'llama_cpp', 'rich', 'numpy', 'jinja2', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    line.monkeypatch.setenv(VARIABLE, "bash_complete")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "plain,3f2a0001",
        "plain,tiny",
        "plain,harbor",
        *(f"plain,sampling.{key}" for key in ("temperature", "top_p", "top_k", "min_p")),
        *(f"plain,sampling.{key}" for key in ("repeat_penalty", "seed", "max_tokens")),
    ]
