"""The desk over real files: models in the places where people keep them, personas, checkpoints, config.toml."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat import paths
from ds4chat.checkpoints.pins import pinned
from ds4chat.cli_setup import Setup
from ds4chat.config import load_config, parse_setting
from ds4chat.config_file import save_setting
from ds4chat.desk import FileDesk
from ds4chat.errors import UsageError
from ds4chat.gguf_header import Header, quantization_in, read_header
from ds4chat.model_places import find_models, usual_places
from ds4chat.personas import Persona
from tests.cli.conftest import Line
from tests.cli.test_cache import Disk, disk  # noqa: F401 - a fixture

NO_FLAGS: dict[str, Any] = dict.fromkeys(
    [
        "data_dir",
        "kv_dir",
        "kv_options",
        "no_kv",
        "no_save",
        "model",
        "system",
        "ctx",
        "threads",
        "gpu_layers",
        "kv_type",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repeat_penalty",
        "seed",
        "max_tokens",
        "space_mb",
        "min_tokens",
        "cold_max_tokens",
        "continued_interval_tokens",
        "boundary_trim_tokens",
        "boundary_align_tokens",
        "accept_different_quant",
    ]
)


def desk_of(**flags: Any) -> FileDesk:
    given = NO_FLAGS | flags
    return FileDesk(Setup.from_flags(given), given)


def gguf(path: Path, *, version: int = 3, **keys: int | str) -> Path:
    """A GGUF file without tensors; keys as in `general__name="x"`."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    body = b""
    for name, value in keys.items():
        kind = struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
        body += text(name.replace("__", ".")) + kind
    body += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2**60)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, len(keys) + 1) + body)
    return path


class TestHeaders:
    def test_what_a_file_says_of_itself(self, tmp_path: Path) -> None:
        path = gguf(
            tmp_path / "a.gguf",
            general__architecture="llama",
            general__name="Some Model",
            general__file_type=15,
            llama__context_length=8192,
        )
        assert read_header(path) == Header("Some Model", "llama", "Q4_K_M", 8192)

    def test_the_starter_model(self) -> None:
        starter = paths.starter_model()
        if starter is None:
            pytest.skip("the starter model is not installed")
        header = read_header(starter)
        assert (header.kind, header.quantization, header.context) == ("llama", "Q4_1", 8192)

    @pytest.mark.parametrize("data", [b"", b"GGU", b"PK\3\4" * 9, b"GGUF", b"GGUF\3\0\0\0"])
    def test_what_is_none_is_refused(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(ValueError):
            read_header(tmp_path / "x")

    @given(st.data())
    def test_a_damaged_header_neither_hangs_nor_fails_otherwise(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        path = gguf(tmp_path_factory.mktemp("g") / "a.gguf", general__name="x" * 20, general__file_type=2)
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(raw[: data.draw(st.integers(4, len(raw)))])
        with contextlib.suppress(ValueError):
            read_header(path)

    @pytest.mark.parametrize(
        ("name", "quantization"),
        [
            ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
            ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
            ("model-iq3_xxs.gguf", "IQ3_XXS"),
            ("model-f16.gguf", "F16"),
            ("BF16-notes.gguf", "BF16"),
            ("faq4u.gguf", ""),
        ],
    )
    def test_the_quantization_in_a_name(self, name: str, quantization: str) -> None:
        assert quantization_in(name) == quantization


class TestPlaces:
    def test_all_usual_places_are_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        home, data = tmp_path / "home", tmp_path / "data" / "models"
        gguf(data / "own.gguf")
        gguf(data / "sub" / "deep.gguf")
        gguf(tmp_path / "models" / "here.GGUF")
        gguf(home / ".lmstudio/models/maker/repo/studio.gguf")
        gguf(home / ".lmstudio/models/maker/repo/mmproj-studio.gguf")
        gguf(home / ".cache/llama.cpp/big-00001-of-00002.gguf")
        gguf(home / ".cache/llama.cpp/big-00002-of-00002.gguf")
        blob = gguf(home / ".cache/huggingface/hub/models--a--b/blobs/123")
        link = home / ".cache/huggingface/hub/models--a--b/snapshots/1/hub.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(blob)
        ollama = home / ".ollama/models"
        gguf(ollama / "blobs" / "sha256-12ab")
        for name, digest in (
            ("registry.ollama.ai/library/gemma3/4b", "sha256:12ab"),
            ("registry.ollama.ai/me/broken/latest", "sha256:gone"),
            ("registry.ollama.ai/me/evil/latest", "../../../x"),
        ):
            manifest = ollama / "manifests" / name
            manifest.parent.mkdir(parents=True)
            layer = f'{{"mediaType": "application/vnd.ollama.image.model", "digest": "{digest}"}}'
            manifest.write_text(f'{{"layers": [{{"mediaType": "x", "digest": "y"}}, {layer}]}}')
        (ollama / "manifests/registry.ollama.ai/me/evil/bad").write_text("{[")
        found = find_models(data, gguf(tmp_path / "starter.gguf"), env={}, home=home)
        listed = {(item.place, item.name or item.path.name) for item in found}
        assert listed == {
            ("models folder", "own.gguf"),
            ("models folder", "deep.gguf"),
            ("./models", "here.GGUF"),
            ("LM Studio", "studio.gguf"),
            ("Ollama", "gemma3:4b"),
            ("Hugging Face", "hub.gguf"),
            ("llama.cpp", "big"),
            ("starter model", "starter.gguf"),
        }

    def test_variables_that_name_other_places(self, tmp_path: Path) -> None:
        env = {"OLLAMA_MODELS": "/o", "HF_HOME": "/hf", "LLAMA_CACHE": "/l", "XDG_CACHE_HOME": "/c"}
        places = usual_places(tmp_path, env, tmp_path)
        assert [str(p) for n, p in places if n in ("Ollama", "Hugging Face", "llama.cpp")] == [
            "/o",
            "/hf/hub",
            "/l",
        ]

    def test_a_file_is_listed_once_and_a_loop_of_folders_ends(self, tmp_path: Path) -> None:
        own = gguf(tmp_path / "own.gguf")
        (tmp_path / "again.gguf").symlink_to(own)
        (tmp_path / "loop").symlink_to(tmp_path)
        assert len(find_models(tmp_path, own, env={}, home=tmp_path / "h")) == 1


class TestModels:
    def test_the_configured_model_is_current(self, line: Line) -> None:
        models = {m.name: m for m in desk_of().models()}
        assert models["tiny"].current and models["tiny"].place == "models folder"
        assert models["tiny"].fault == "is not a GGUF file" or models["tiny"].size_bytes > 0

    def test_a_model_that_is_gone_and_one_that_is_none(self, line: Line) -> None:
        desk = desk_of()
        assert desk.look_at_model(str(line.folder / "gone-Q8_0.gguf")).fault == "is not there"
        assert desk.look_at_model(str(line.folder / "gone-Q8_0.gguf")).quantization == "Q8_0"
        assert desk.look_at_model(str(line.folder)).fault == "is not a regular file"
        (line.folder / "n.gguf").write_text("no")
        assert desk.look_at_model(str(line.folder / "n.gguf")).fault == "is not a GGUF file"


class TestPersonasOfTheDesk:
    def test_saved_listed_deleted_and_a_fault_told_once(self, line: Line) -> None:
        desk = desk_of()
        desk.save_persona(Persona("Cook", "You cook.", {"top_k": 3}))
        folder = paths.resolve().config_dir / "personas"
        assert [path.name for path in folder.iterdir()] == ["cook.toml"]
        (folder / "bad.toml").write_text("name = 3")
        assert [p.name for p in desk.personas()] == ["Cook", "Editor", "Programmer", "Teacher"]
        (fault,) = desk.complaints()
        assert "bad.toml" in fault and "name must be" in fault
        desk.personas()
        assert desk.complaints() == []
        desk.delete_persona("Cook")
        assert len(desk.personas()) == 3

    def test_a_folder_that_cannot_be_written(self, line: Line) -> None:
        (paths.resolve().config_dir / "personas").write_text("in the way")
        with pytest.raises(Exception, match=r"The persona Cook cannot be saved \(.+\)"):
            desk_of().save_persona(Persona("Cook", "You cook."))


class TestCheckpoints:
    def test_the_report(self, disk: Disk) -> None:  # noqa: F811
        names = disk.put("a long chat", 100, 150)
        first = disk.session("Ships", names)
        disk.put("nobody's", 40)
        report = desk_of().checkpoints()
        assert report.directory == str(disk.root) and report.budget_bytes > 0
        assert report.total_bytes >= sum(row.bytes for row in report.rows) > 0
        ships, rest = report.rows
        assert (ships.session_id, ships.title, ships.tokens, ships.pinned) == (first, "Ships", 150, False)
        assert (ships.reusable, ships.reusable_tokens) == ("", 150)
        assert (rest.session_id, rest.reusable) == ("", "no session stands on them")

    def test_an_empty_directory(self, line: Line) -> None:
        report = desk_of().checkpoints()
        assert list(report.rows) == [] and report.total_bytes == 0
        assert desk_of().verify_checkpoints(lambda *_: True) == (
            "There is nothing to read: no checkpoints are on disk."
        )
        assert desk_of().clear_checkpoints(None) == 0

    def test_pinning(self, disk: Disk) -> None:  # noqa: F811
        names = disk.put("a long chat", 100, 150)
        first, empty = disk.session("Ships", names), disk.session("Empty", [])
        desk = desk_of()
        desk.pin_checkpoints(first, True)
        assert pinned(disk.root) == {names[-1]} and desk.checkpoints().rows[0].pinned
        desk.pin_checkpoints(first, False)
        assert pinned(disk.root) == set()
        with pytest.raises(UsageError, match="open it once"):
            desk.pin_checkpoints(empty, True)

    def test_verifying_tells_progress_faults_and_can_be_ended(self, disk: Disk) -> None:  # noqa: F811
        names = disk.put("a long chat", 100, 150)
        disk.session("Ships", names)
        seen: list[tuple[int, int]] = []

        def progress(done: int, total: int) -> bool:
            seen.append((done, total))
            return True

        assert "2 files" in desk_of().verify_checkpoints(progress) and seen[-1][0] == seen[-1][1]
        assert desk_of().verify_checkpoints(lambda *_: False) == "The reading was ended. Nothing was changed."
        path = disk.file(names[1])
        raw = bytearray(path.read_bytes())
        raw[-1000] ^= 1
        path.write_bytes(raw)
        assert "1 cannot be used" in desk_of().verify_checkpoints(progress)

    def test_clearing_one_session_spares_what_others_stand_on(self, disk: Disk) -> None:  # noqa: F811
        shared, own = disk.put("a long chat", 100, 150)
        other = disk.put("another", 60)
        first = disk.session("Ships", [shared, own])
        disk.session("Its fork", [shared])
        disk.session("Other", other)
        desk = desk_of()
        desk.pin_checkpoints(first, True)
        size = disk.file(own).stat().st_size
        assert desk.clear_checkpoints(first) >= size
        assert disk.files() == 2 and disk.file(shared).exists() and disk.file(other[0]).exists()

    def test_clearing_what_no_session_stands_on(self, disk: Disk) -> None:  # noqa: F811
        names = disk.put("a long chat", 100, 150)
        disk.session("Ships", names[1:])
        disk.put("nobody's", 40)
        assert desk_of().clear_checkpoints("") > 0
        assert disk.files() == 2, "what a session's span stands on is its own too"

    def test_clearing_all(self, disk: Disk) -> None:  # noqa: F811
        disk.session("Ships", disk.put("a long chat", 100, 150))
        assert desk_of().clear_checkpoints(None) > 0
        assert disk.files() == 0

    def test_the_budget_is_saved_and_kept_to(self, disk: Disk) -> None:  # noqa: F811
        disk.session("Ships", disk.put("a long chat", 900, 1500))
        desk = desk_of()
        assert desk.set_budget("1") > 0
        assert load_config(paths.resolve().config_file).kv.space_mb == 1
        assert desk.checkpoints().total_bytes <= 10**6 and desk.checkpoints().budget_bytes == 10**6
        assert desk.set_budget("0") == 0 and desk.checkpoints().budget_bytes == 0
        desk.set_budget("")
        assert load_config(paths.resolve().config_file).kv.space_mb is None
        with pytest.raises(UsageError, match="space_mb must be"):
            desk.set_budget("lots")


class TestConfiguration:
    def test_each_key_with_its_source(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        file = paths.resolve().config_file
        file.write_text("[sampling]\ntop_k = 20\ntemperature = 1.5\n[kv]\nenabled = true\n", encoding="utf-8")
        desk = desk_of(seed=7, temperature=0.5, no_kv=True, kv_options='{"min_tokens": 99}', system="Hi")
        rows = {(row.section, row.key): (row.value, row.source) for row in desk.config_rows()}
        assert rows["sampling", "top_k"] == ("20", "config.toml")
        assert rows["sampling", "seed"] == ("7", "--seed")
        assert rows["sampling", "temperature"] == ("0.5", "--temperature")
        assert rows["sampling", "min_p"] == ("", "default")
        assert rows["kv", "enabled"] == ("false", "--no-kv")
        assert rows["kv", "min_tokens"] == ("99", "--kv-options")
        assert rows["chat", "system"] == ("Hi", "--system")
        assert rows["kv", "dir"][0] == str(line.folder / "kv")
        assert all(row.allowed for row in desk.config_rows())

    def test_a_persona_that_is_not_there_is_not_saved(self, line: Line) -> None:
        with pytest.raises(UsageError, match='no persona "Cook": there are Editor'):
            desk_of().save_setting("chat", "persona", "Cook")
        desk_of().save_setting("chat", "persona", "teacher")
        assert load_config(paths.resolve().config_file).chat.persona == "Teacher"


class TestTheFile:
    def test_one_line_changes_and_the_rest_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "config.toml"
        path.write_text(
            '# mine\n[model]\nctx = 4096  # enough\n\n[sampling]\n# hot\ntemperature = 1.5\n\n[keys]\n"a.b" = "x"\n'
        )
        save_setting(path, "model", "ctx", "8192")
        save_setting(path, "sampling", "top_k", "7")
        save_setting(path, "sampling", "temperature", None)
        save_setting(path, "chat", "system", 'Say "hi".\n[model]\nctx = 1')
        text = path.read_text()
        assert text.startswith(
            "# mine\n[model]\nctx = 8192  # enough\n\n[sampling]\n# hot\ntop_k = 7\n\n"
            '[keys]\n"a.b" = "x"\n\n[chat]\nsystem = '
        )
        assert tomllib.loads(text)["chat"]["system"] == 'Say "hi".\n[model]\nctx = 1'
        save_setting(path, "model", "ctx", "64")
        assert tomllib.loads(path.read_text())["model"] == {"ctx": 64}

    @pytest.mark.parametrize(
        "source",
        [
            "model = {ctx = 1024, foo = 1}\n",
            "model.ctx = 1024\nmodel.foo = 1\n",
            '["model"]\nctx = 1024\nfoo = 1\n',
            '[model]\n"ctx" = 1024\nfoo = 1\n',
            '[model]\nfoo = 1\ntext = """\nctx = 3\n"""\nctx = 1024\n',
            "[model]\r\nctx = 1024\r\nfoo = 1\r\n",
            "[model]\nctx = 1024 # the # of tokens\nfoo = 1",
        ],
    )
    def test_however_it_is_written_the_values_are_right(self, tmp_path: Path, source: str) -> None:
        path = tmp_path / "config.toml"
        path.write_text(source, newline="")
        before = tomllib.loads(source)
        save_setting(path, "model", "ctx", "2048")
        assert tomllib.loads(path.read_text()) == {"model": before["model"] | {"ctx": 2048}}
        save_setting(path, "model", "ctx", None)
        after = tomllib.loads(path.read_text())
        assert after["model"].get("foo") == 1 and "ctx" not in after["model"]

    def test_a_new_file_is_private_and_an_old_one_keeps_its_mode_and_its_link(self, tmp_path: Path) -> None:
        path = tmp_path / "conf" / "config.toml"
        save_setting(path, "chat", "bell", "no")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "[chat]\nbell = false\n"
        real = tmp_path / "dotfiles.toml"
        real.write_text("")
        real.chmod(0o644)
        link = tmp_path / "link.toml"
        link.symlink_to(real)
        save_setting(link, "chat", "bell", "yes")
        assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o644
        assert load_config(real).chat.bell is True
        assert sorted(p.name for p in tmp_path.iterdir()) == ["conf", "dotfiles.toml", "link.toml"]

    def test_nothing_to_take_out(self, tmp_path: Path) -> None:
        save_setting(tmp_path / "none.toml", "chat", "bell", None)
        assert not (tmp_path / "none.toml").exists()

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ("[model", "is not TOML"),
            ("model = 3", "model must be a table"),
            ("x" * 1_000_001, "larger than 1 MB"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_left_alone(self, tmp_path: Path, source: str, words: str) -> None:
        path = tmp_path / "config.toml"
        path.write_text(source)
        with pytest.raises(UsageError, match=words):
            save_setting(path, "model", "ctx", "2048")
        assert path.read_text() == source

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        if os.geteuid() == 0:
            (tmp_path / "conf").write_text("")
        else:
            (tmp_path / "conf").mkdir(mode=0o500)
        with pytest.raises(UsageError, match=r"config\.toml cannot be (read|written)"):
            save_setting(tmp_path / "conf" / "config.toml", "chat", "bell", "no")


class TestTyped:
    @pytest.mark.parametrize(
        ("section", "key", "text", "value"),
        [
            ("sampling", "temperature", " 1 ", 1.0),
            ("sampling", "top_k", "40", 40),
            ("kv", "enabled", "No", False),
            ("kv", "enabled", "true", True),
            ("model", "kv_type", "q8_0", "q8_0"),
            ("chat", "theme", "42", "42"),
            ("chat", "system", " two\nlines ", " two\nlines "),
            ("model", "path", "true", "true"),
            ("model", "gpu_layers", "-1", -1),
        ],
    )
    def test_values(self, section: str, key: str, text: str, value: object) -> None:
        assert parse_setting(section, key, text) == value

    @pytest.mark.parametrize(
        ("section", "key", "text", "words"),
        [
            ("sampling", "temperature", "inf", "temperature must be a number from 0 to 5, not inf."),
            ("sampling", "temperature", "1e999", "not 1e999."),
            ("sampling", "top_k", "1.0e99999", "top_k must be a whole number"),
            ("model", "kv_type", "q9", "kv_type must be one of f32, f16"),
            ("kv", "enabled", "1", "enabled must be true or false, not 1."),
            (
                "kv",
                "min_tokens",
                "",
                "min_tokens must be a whole number of tokens from 1 to 2147483647, not nothing.",
            ),
            ("sampling", "topk", "1", "There is no setting sampling.topk: allowed are temperature, top_p"),
            (
                "simpling",
                "top_k",
                "1",
                r"There is no setting simpling.top_k: allowed are the sections \[model\]",
            ),
        ],
    )
    def test_faults(self, section: str, key: str, text: str, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            parse_setting(section, key, text)
