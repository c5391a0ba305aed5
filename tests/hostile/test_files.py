"""Files an enemy made, where the program looks for its own: none is waited for, believed or written through."""

from __future__ import annotations

import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from benchmarks.fuzz_parts.checkpoints import CUTS, IDENTITY, KEY, example_files
from ds4chat import config, personas
from ds4chat.checkpoints import pins, quarantine
from ds4chat.checkpoints.format import HEADER_BYTES, open_span
from ds4chat.checkpoints.prefix import sha1
from ds4chat.checkpoints.store import Store
from ds4chat.config_file import save_setting
from ds4chat.errors import CheckpointError, InterchangeError, UsageError
from ds4chat.files import read_limited
from ds4chat.key_settings import load_key_settings
from ds4chat.sessions import interchange
from ds4chat.sessions.bundle import Bundle
from ds4chat.toml_text import MAX_KEY_PARTS, parse_toml
from ds4chat.ui.keymap import resolve
from ds4chat.ui.theme_file import ThemeFileError, parse_theme
from ds4chat.ui.themes import ThemeShelf
from tests.cli.conftest import Line
from tests.cli.conftest import line as line
from tests.support.mutations import refit

ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("/nowhere/at/all"),
    "a file of a terabyte": lambda path: _sparse(path),
}


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


odd = pytest.mark.parametrize("make", ODD.values(), ids=ODD)


class TestSettings:
    @odd
    def test_config(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        path = tmp_path / "config.toml"
        make(path)
        if (not path.exists() and not path.is_symlink()) or (
            path.is_symlink() and "nowhere" in str(path.readlink())
        ):
            assert config.load_config(path) == config.Config()
            return
        for read in (config.load_config, load_key_settings):
            with pytest.raises(UsageError, match=r"config\.toml"):
                read(path)

    @odd
    def test_a_persona(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        make(tmp_path / "mine.toml")
        (tmp_path / "good.toml").write_text('name = "Good"\n')
        found, faults = personas.load_personas(tmp_path)
        assert "Good" in [persona.name for persona in found]
        assert len(faults) == 1 and "mine.toml" in faults[0]

    @odd
    def test_a_theme(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        make(tmp_path / "mine.toml")
        (tmp_path / "good.toml").write_text('name = "good"\nprimary = "#123456"\n')
        shelf = ThemeShelf([tmp_path])
        shelf.reload()
        assert list(shelf.themes) == ["good"]
        assert len(shelf.failures) == 1 and "mine.toml" in str(shelf.failures[0])

    @odd
    def test_a_session_to_import(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        make(tmp_path / "mine.toml")
        with pytest.raises(InterchangeError, match=r"mine\.toml"):
            interchange.import_file(tmp_path / "mine.toml")

    def test_an_empty_device_is_an_empty_config(self) -> None:
        assert config.load_config(Path(os.devnull)) == config.Config()

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="no regular file"):
            read_limited(tmp_path / "pipe", 10)


class TestToml:
    @pytest.mark.parametrize(
        "text",
        [
            ".".join("a" * 400_000) + " = 1",
            "[" + ".".join("a" * 400_000) + "]",
            "x = {" + " . ".join("a" * 100_000) + " = 1}",
            ".".join(['"a"'] * 100_000) + " = 1",
            ".".join(["'a'"] * 100_000) + " = 1",
            ".".join([r'"a\""'] * 100_000) + " = 1",
            "x = " + "[" * 100_000,
            "x = " + "{a=" * 100_000,
            "x = " + "9" * 5000,
        ],
        ids=["dots", "table", "spaces", "quotes", "single quotes", "escapes", "lists", "tables", "digits"],
    )
    def test_what_costs_too_much_is_refused_at_once(self, text: str, tmp_path: Path) -> None:
        began = time.process_time()
        with pytest.raises(ValueError):
            parse_toml(text)
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(UsageError, match="is not TOML"):
            config.load_config(tmp_path / "config.toml")
        with pytest.raises(InterchangeError, match="is not a TOML file"):
            interchange.from_toml(text, "it")
        with pytest.raises(UsageError, match="is not TOML"):
            personas.parse(text)
        assert time.process_time() - began < 2

    def test_dots_in_text_are_no_key(self) -> None:
        text = ".".join(str(n) for n in range(10 * MAX_KEY_PARTS))
        assert parse_toml(f'a.b.c = "{text}"\nd = """\n{text}\n"""')["a"]["b"]["c"] == text

    def test_a_number_too_long_to_be_shown(self, tmp_path: Path) -> None:
        huge = "0x" + "f" * 5000
        with pytest.raises(UsageError, match="too long"):
            personas.parse(f'name = "A"\n[params]\ntemperature = {huge}\n')
        path = tmp_path / "config.toml"
        path.write_text(f"mine = {huge}\n[keys]\npreset = 'vim'\n")
        save_setting(path, "chat", "theme", "dusk")
        assert huge in path.read_text() and "dusk" in path.read_text()
        path.write_text(f"mine = {huge}\nchat = {{bell = true}}\n")
        with pytest.raises(UsageError, match="by hand"):
            save_setting(path, "chat", "theme", "dusk")
        assert path.read_text().startswith(f"mine = {huge}")


class TestWords:
    @pytest.mark.parametrize("value", ["BOLD", "red", "bold none", "not", "", "bold on #fff", "loud"])
    def test_a_style_that_would_end_the_screen(self, value: str) -> None:
        text = f'name = "x"\nprimary = "#fff"\n[variables]\nblock-cursor-text-style = "{value}"\n'
        with pytest.raises(ThemeFileError, match="block-cursor-text-style must be a style"):
            parse_theme(text)

    def test_styles_that_there_are(self) -> None:
        for name, value in (
            ("link-style-hover", "bold not underline"),
            ("link-style", "none"),
            ("a-style", "b reverse"),
        ):
            assert parse_theme(f'name = "x"\nprimary = "#fff"\n[variables]\n{name} = "{value}"\n').theme

    @pytest.mark.parametrize("key", ["\\u0000", "\\u001b", "ctrl+\\u0007"])
    def test_a_control_character_is_no_key(self, tmp_path: Path, key: str) -> None:
        path = tmp_path / "config.toml"
        path.write_text(f'[keys]\n"chat.search" = "{key}"\n')
        with pytest.raises(UsageError, match=r"keys\.chat\.search has no key"):
            resolve(load_key_settings(path))


class TestBundles:
    NAMES = (
        "../../evil",
        "/tmp/evil",
        "kv/../../evil.kv",
        "kv\\..\\evil",
        f"kv/f/{'0' * 16}/../{'a' * 40}.kv",
        "\x1b[31m",
    )

    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_that_leads_out(self, line: Line, name: str) -> None:
        path = line.folder / "evil.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("session.json", b"{}")
            archive.writestr(name, b"evil")
        before = sorted(p for p in line.folder.rglob("*"))
        done = line("import", str(path))
        assert done.code == 2 and done.err.count("\n") == 1 and "\x1b" not in done.err
        assert [p for p in sorted(line.folder.rglob("*")) if p not in before and "data" not in p.parts] == []

    def test_a_bomb(self, tmp_path: Path) -> None:
        path = tmp_path / "bomb.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("session.json", b" " * 50_000_000)
        with pytest.raises(InterchangeError, match="compressed"):
            Bundle(path)

    def test_a_link(self, tmp_path: Path) -> None:
        path = tmp_path / "link.zip"
        info = zipfile.ZipInfo("session.json")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(info, b"/etc/passwd")
        with pytest.raises(InterchangeError, match="no plain file"):
            Bundle(path)


class TestCheckpoints:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Of the chain of three spans, and one beside it."""
        _, _, files = example_files(tmp_path / "made")
        folder = tmp_path / "kv" / IDENTITY.folder
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    @staticmethod
    def restored(folder: Path) -> int:
        """Tokens that come back along the chain."""
        store = Store.open(folder.parents[1], IDENTITY, budget_mb=0, accept_different_quant=True)
        try:
            found = store.find(KEY, 1000, 2048)
            parent = None
            for span in found:
                store.load(span, parent, KEY).close()
                parent = span
            return found[-1].end if found else 0
        finally:
            store.close()

    @odd
    @pytest.mark.parametrize(
        "where",
        [
            "kv/{folder}/{span}",
            "kv/{folder}/{span}.strike",
            "kv/{folder}/{span}.tmp.1",
            "kv/{folder}/variant.json",
            "kv/{family}/0123456789abcdef/variant.json",
            "kv/leases/1-a.lock",
            "kv/leases/1-a.json",
            "kv/pins/{name}",
            "kv/pins",
        ],
    )
    def test_something_odd_under_a_name_of_the_store(
        self, folder: Path, tmp_path: Path, make: Callable[[Path], None], where: str
    ) -> None:
        name = sha1(KEY[: 2 * CUTS[-1]]).hex()
        path = tmp_path / where.format(
            folder=IDENTITY.folder, family="tiny-model", span=f"{name}.kv", name=name
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        make(path)
        began = time.monotonic()
        assert self.restored(folder) == CUTS[-2] if where.endswith("{span}") else CUTS[-1]
        assert time.monotonic() - began < 5

    def test_nothing_is_written_through_a_link(self, folder: Path, tmp_path: Path) -> None:
        outside = tmp_path / "mine"
        outside.write_text("mine")
        span = sorted(folder.glob("*.kv"))[0]
        span.with_name(span.name + ".strike").symlink_to(outside)
        quarantine.strike(span)
        (folder.parents[1] / "pins").mkdir()
        (folder.parents[1] / "pins" / span.stem).symlink_to(tmp_path / "made-by-pin")
        pins.pin(folder.parents[1], [bytes.fromhex(span.stem)])
        assert outside.read_text() == "mine"
        assert not (tmp_path / "made-by-pin").exists()
        assert pins.pinned(folder.parents[1]) == {bytes.fromhex(span.stem)}

    def test_a_hundred_thousand_trailers(self, folder: Path) -> None:
        record = struct.pack("<4sIQ", b"KTM1", 1, 0)
        record += struct.pack("<Q", xxhash.xxh3_64_intdigest(record))
        span = sorted(folder.glob("*.kv"))[0]
        span.write_bytes(span.read_bytes() + record * 100_000)
        began = time.process_time()
        assert self.restored(folder) == CUTS[-1]
        with open_span(span) as loaded:
            assert len(loaded.trailers) >= 100_000
        assert time.process_time() - began < 5

    def test_a_text_longer_than_any(self, folder: Path) -> None:
        span = sorted(folder.glob("*.kv"))[0]
        data = bytearray(span.read_bytes())
        for length in (2**28 + 1, 2**32 - 1, 2**31):
            struct.pack_into("<I", data, 68, length)
            struct.pack_into("<Q", data, 104, 2**40)
            span.write_bytes(refit(bytes(data)))
            with pytest.raises(CheckpointError):
                open_span(span)
        with span.open("r+b") as file:
            file.truncate(2**33)
        with pytest.raises(CheckpointError):
            open_span(span)
        assert span.stat().st_size > HEADER_BYTES

    def test_a_time_beyond_the_calendar_is_listed(self, line: Line) -> None:
        _, _, files = example_files(line.folder / "made")
        folder = line.folder / "kv" / IDENTITY.folder
        folder.mkdir(parents=True)
        for name, content in files.items():
            data = bytearray(content)
            struct.pack_into("<Q", data, 32, 2**64 - 1)
            (folder / name).write_bytes(bytes(data))
        for command in ("ls", "stats", "verify"):
            done = line("cache", command)
            assert done.code == 0, done.err
        assert line("cache", "prune", "--to", "0").code == 0
