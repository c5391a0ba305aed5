"""A home laid out as each of the programs lays it out that keep models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ds4chat.model_places import Found, find_models, named
from tests.models.gguf_files import write_gguf

linux_only = pytest.mark.skipif(sys.platform == "darwin", reason="folders of Linux")


def find(home: Path, *folders: Path, **env: str) -> list[Found]:
    found = find_models(home / "data/models", None, env=env, home=home, folders=folders)
    # A machine with Ollama's service has models of its own.
    return [item for item in found if not item.path.is_relative_to("/usr/share")]


def listed(found: list[Found]) -> list[tuple[str, str]]:
    return [(item.place, item.title) for item in found]


def ollama(home: Path, name: str, digest: str, *, root: str = ".ollama/models") -> Path:
    """A model of Ollama's: `name` is the path of its manifest."""
    folder = home / root
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 1},
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:ff", "size": 1},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:ee"}, "layers": layers}))
    return write_gguf(folder / "blobs" / f"sha256-{digest}")


def test_ollamas_tags_are_the_names(home: Path) -> None:
    blob = ollama(home, "registry.ollama.ai/library/gemma3/4b", "aa")
    ollama(home, "registry.ollama.ai/library/qwen3/latest", "bb")
    ollama(home, "registry.ollama.ai/me/own/latest", "cc")
    ollama(home, "hf.co/bartowski/Llama-GGUF/Q4_K_M", "dd")
    ollama(home, "registry.ollama.ai/library/gone/1b", "99").unlink()
    (home / ".ollama/models/blobs/sha256-12-partial").write_bytes(b"GGUF")
    found = find(home)
    assert listed(found) == [
        ("Ollama", "gemma3:4b"),
        ("Ollama", "hf.co/bartowski/Llama-GGUF:Q4_K_M"),
        ("Ollama", "me/own:latest"),
        ("Ollama", "qwen3:latest"),
    ]
    assert found[0].path == blob
    assert [item.title for item in named(found, "Qwen3")] == ["qwen3:latest"]
    assert named(found, "gemma3") == []


def test_a_tag_that_shares_its_blob_with_another_is_listed_once(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/a/1", "aa")
    ollama(home, "registry.ollama.ai/library/a/2", "aa")
    assert listed(find(home)) == [("Ollama", "a:1")]


def test_lm_studio_and_the_folder_its_settings_name(home: Path) -> None:
    write_gguf(home / ".lmstudio/models/maker/repo-GGUF/studio-Q4_K_M.gguf")
    write_gguf(home / ".lmstudio/models/maker/repo-GGUF/mmproj-studio-f16.gguf", kind="clip")
    (home / ".lmstudio/models/maker/repo-GGUF/downloading_x.gguf.part").write_bytes(b"GGUF")
    write_gguf(home / "big disk/maker/other/elsewhere.gguf")
    settings = {"downloadsFolder": str(home / "big disk"), "developer": {}}
    (home / ".lmstudio/settings.json").write_text(json.dumps(settings))
    assert listed(find(home)) == [("LM Studio", "studio-Q4_K_M"), ("LM Studio", "elsewhere")]


@pytest.mark.parametrize(
    "text", ["", "{[", "[]", '{"downloadsFolder": 3}', '{"downloadsFolder": "rel"}', "[" * 9999], ids=range(6)
)
def test_settings_that_are_none_change_nothing(home: Path, text: str) -> None:
    write_gguf(home / ".lmstudio/models/m/r/studio.gguf")
    (home / ".lmstudio/settings.json").write_text(text)
    assert listed(find(home)) == [("LM Studio", "studio")]


def hugging_face(home: Path, repository: str, name: str, blob: str, revision: str = "abc") -> Path:
    folder = home / ".cache/huggingface/hub" / f"models--{repository.replace('/', '--')}"
    write_gguf(folder / "blobs" / blob)
    link = folder / "snapshots" / revision / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(Path("../" * (1 + len(Path(name).parts))) / "blobs" / blob)
    return link


def test_hugging_faces_snapshots_and_not_its_blobs(home: Path) -> None:
    link = hugging_face(home, "org/repo", "m-Q8_0.gguf", "11")
    hugging_face(home, "org/repo", "m-Q8_0.gguf", "11", "newer")
    hugging_face(home, "org/repo", "sub/n.gguf", "22")
    (home / ".cache/huggingface/hub/models--org--repo/blobs/33.incomplete").write_bytes(b"GGUF")
    found = find(home)
    assert listed(found) == [("Hugging Face", "m-Q8_0"), ("Hugging Face", "n")]
    assert found[0].path.name == link.name and found[0].path.is_file()


def test_llama_cpps_cache_and_the_variable_for_it(home: Path) -> None:
    folder = home / "llama"
    write_gguf(folder / "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf")
    (folder / "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf.json").write_text("{}")
    (folder / "x.gguf.downloadInProgress").write_bytes(b"GGUF")
    assert listed(find(home, LLAMA_CACHE=str(folder))) == [
        ("llama.cpp", "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M")
    ]


def jan(data: Path, id_: str, model_path: str) -> None:
    manifest = data / "llamacpp/models" / id_ / "model.yml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(
        f"model_path: {model_path}\nname: {id_}\nsize_bytes: 64\nmmproj_path: x/mmproj.gguf\n"
    )


@linux_only
def test_jans_models_by_their_folders_and_those_it_imported(home: Path) -> None:
    data = home / ".local/share/Jan/data"
    write_gguf(data / "llamacpp/models/unsloth/Qwen3-4B/model.gguf")
    jan(data, "unsloth/Qwen3-4B", "llamacpp/models/unsloth/Qwen3-4B/model.gguf")
    write_gguf(home / "mine/own.gguf")
    jan(data, "imported", f'"{home}/mine/own.gguf"')
    jan(data, "gone", "llamacpp/models/gone/model.gguf")
    write_gguf(home / "jan/models/old/old.gguf")
    assert listed(find(home)) == [("Jan", "imported"), ("Jan", "unsloth/Qwen3-4B"), ("Jan", "old")]


@linux_only
def test_jans_data_folder_is_where_its_settings_say(home: Path) -> None:
    write_gguf(home / "moved/llamacpp/models/a/model.gguf")
    jan(home / "moved", "a", "llamacpp/models/a/model.gguf")
    settings = home / ".local/share/Jan/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"data_folder": str(home / "moved")}))
    assert listed(find(home)) == [("Jan", "a")]
    assert listed(find(home, JAN_DATA_FOLDER=str(home / "nowhere"))) == []


@linux_only
def test_gpt4alls_folder_and_the_one_its_settings_name(home: Path) -> None:
    write_gguf(home / ".local/share/nomic.ai/GPT4All/Phi-3.gguf")
    (home / ".local/share/nomic.ai/GPT4All/incomplete-Big.gguf").write_bytes(b"GGUF")
    write_gguf(home / "elsewhere/Moved.gguf")
    settings = home / ".config/nomic.ai/GPT4All.ini"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[General]\nmodelPath={home}/elsewhere/\nthreadCount=4\n")
    assert listed(find(home)) == [("GPT4All", "Phi-3"), ("GPT4All", "Moved")]


def test_folders_of_ones_own_come_before_other_programs(home: Path) -> None:
    write_gguf(home / "pool/deep/er/one.gguf")
    write_gguf(home / ".lmstudio/models/a/b/two.gguf")
    assert listed(find(home, home / "pool", home / "gone")) == [
        ("configured folder", "one"),
        ("LM Studio", "two"),
    ]


class TestSplitFiles:
    def test_the_parts_are_one_model(self, home: Path) -> None:
        for number in (1, 2, 3):
            write_gguf(home / f"p/Big-0000{number}-of-00003.gguf", part=(number - 1, 3))
        write_gguf(home / "p/Big.gguf")
        found = find(home, home / "p")
        assert listed(found) == [("configured folder", "Big")] * 2
        whole = next(item for item in found if item.parts)
        assert [path.name for path in whole.files] == [f"Big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
        assert whole.path == whole.files[0] and whole.missing == ""

    @pytest.mark.parametrize("gone", [1, 2, 3])
    def test_the_first_part_that_is_missing_is_told(self, home: Path, gone: int) -> None:
        for number in {1, 2, 3} - {gone}:
            write_gguf(home / f"p/Big-0000{number}-of-00003.gguf", part=(number - 1, 3))
        (item,) = find(home, home / "p")
        assert item.missing == f"Big-0000{gone}-of-00003.gguf"
        assert item.path.name == "Big-00001-of-00003.gguf" and len(item.files) == 2

    def test_parts_in_other_folders_are_other_models(self, home: Path) -> None:
        write_gguf(home / "p/a/Big-00001-of-00002.gguf", part=(0, 2))
        write_gguf(home / "p/b/Big-00002-of-00002.gguf", part=(1, 2))
        assert [item.missing for item in find(home, home / "p")] == [
            "Big-00002-of-00002.gguf",
            "Big-00001-of-00002.gguf",
        ]
