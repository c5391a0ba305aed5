"""`models pull` against a stand-in for the Hugging Face hub on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import re
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat import cli_models
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.models import hub as hub_module
from ds4chat.models import pull as pulling
from ds4chat.models.hub import Hub, RemoteFile, Repository
from ds4chat.models.pull import candidates, choose, parse_source
from tests.cli.conftest import Line, Result
from tests.models.gguf_files import write_gguf
from tests.models.hub_server import HubServer


@pytest.fixture
def model(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "source.gguf", tensors=4000).read_bytes()


@pytest.fixture
def hub(line: Line, model: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setattr(pulling, "SPARE_BYTES", 0)
    monkeypatch.setattr(hub_module, "TIMEOUT", 5.0)
    monkeypatch.setattr(pulling, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(pulling, "CHUNK", 1 << 14)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub_module, "_has_library", lambda: False)
    with HubServer(files={"small-Q4_K_M.gguf": model, "small-Q8_0.gguf": model + b"8"}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def pull(line: Line, source: str = "hf:org/Small-GGUF") -> Result:
    return line("models", "pull", source)


def folder(line: Line) -> Path:
    return line.folder / "data/models"


def left(line: Line) -> list[str]:
    return sorted(path.name for path in folder(line).iterdir() if path.name != "tiny.gguf")


class TestPulling:
    def test_a_model_comes_whole_and_the_others_are_told(
        self, line: Line, hub: HubServer, model: bytes
    ) -> None:
        result = pull(line)
        target = folder(line) / "small-Q4_K_M.gguf"
        assert (result.code, result.out) == (0, f"{target}\n")
        assert target.read_bytes() == model and left(line) == ["small-Q4_K_M.gguf"]
        assert "Q4_K_M (1 MB) is taken; there are also Q8_0 (1 MB) (hf:org/Small-GGUF:QUANT)." in result.err
        assert "small-Q4_K_M.gguf: 1 MB of 1 MB" in result.err

    def test_a_file_or_a_quantization_can_be_named(self, line: Line, hub: HubServer, model: bytes) -> None:
        assert pull(line, "hf:org/Small-GGUF:q8_0").code == 0
        assert pull(line, "hf:org/Small-GGUF:small-Q4_K_M.gguf").code == 0
        assert left(line) == ["small-Q4_K_M.gguf", "small-Q8_0.gguf"]

    def test_what_is_there_and_whole_is_not_fetched_again(self, line: Line, hub: HubServer) -> None:
        assert pull(line).code == pull(line).code == 0
        assert len(hub.asked("/storage/")) == 1

    def test_another_file_of_the_name_stays(self, line: Line, hub: HubServer) -> None:
        (folder(line) / "small-Q4_K_M.gguf").write_bytes(b"mine")
        result = pull(line)
        assert result.code == 2 and "is there already and is another file" in result.err
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == b"mine"

    def test_a_split_model_comes_with_all_its_parts(self, line: Line, hub: HubServer, tmp_path: Path) -> None:
        names = [f"Q4_K_M/big-Q4_K_M-0000{n}-of-00002.gguf" for n in (1, 2)]
        hub.files = {
            name: write_gguf(tmp_path / "part.gguf", part=(n, 2)).read_bytes() for n, name in enumerate(names)
        }
        result = pull(line)
        assert result.code == 0 and result.out.endswith("models/big-Q4_K_M-00001-of-00002.gguf\n")
        assert left(line) == [name.rpartition("/")[2] for name in names]
        assert "It is whole, but" not in result.err

    def test_what_cannot_be_chatted_with_is_told(self, line: Line, hub: HubServer, tmp_path: Path) -> None:
        hub.files = {"e-f16.gguf": write_gguf(tmp_path / "e.gguf", kind="bert").read_bytes()}
        assert "It is whole, but is an embedding model (bert)" in pull(line).err


class TestBrokenOff:
    def test_it_goes_on_by_itself_where_the_connection_ended(
        self, line: Line, hub: HubServer, model: bytes
    ) -> None:
        hub.cut = [50_000, 70_000]
        assert pull(line).code == 0
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == model
        assert [request[2] for request in hub.asked("/storage/")] == ["", "bytes=50000-", "bytes=120000-"]

    def test_the_same_command_goes_on_where_it_stopped(
        self, line: Line, hub: HubServer, model: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pulling, "TRIES", 1)
        hub.cut = [60_000]
        result = pull(line)
        assert result.code == 1
        assert "cannot be reached (the connection ended early)" in result.err
        assert "The same command goes on where it stopped." in result.err
        (part,) = left(line)
        assert part == f"small-Q4_K_M.gguf.{hashlib.sha256(model).hexdigest()[:12]}.part"
        assert (folder(line) / part).read_bytes() == model[:60_000]
        assert pull(line).code == 0
        assert hub.asked("/storage/")[-1][2] == "bytes=60000-"
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == model and left(line) == [
            "small-Q4_K_M.gguf"
        ]

    def test_ctrl_c_keeps_what_came(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(bar: object, what: str, done: int, total: int) -> None:
            if done > 100_000:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(cli_models.ProgressLine, "__call__", stop)
            result = pull(line)
        assert result.code == 130 and "Stopped; the same command goes on where it stopped." in result.err
        came = (folder(line) / left(line)[0]).stat().st_size
        assert came > 100_000
        assert pull(line).code == 0 and hub.asked("/storage/")[-1][2] == f"bytes={came}-"

    def test_a_server_without_ranges_sends_it_all_again(
        self, line: Line, hub: HubServer, model: bytes
    ) -> None:
        hub.cut, hub.ignore_ranges = [50_000], True
        assert pull(line).code == 0
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == model

    def test_what_is_not_the_hubs_is_deleted(self, line: Line, hub: HubServer) -> None:
        hub.wrong = True
        result = pull(line)
        assert result.code == 1 and "its SHA-256 differs" in result.err and "pull it again" in result.err
        assert left(line) == []

    def test_the_beginning_of_another_version_is_not_gone_on_with(
        self, line: Line, hub: HubServer, model: bytes
    ) -> None:
        old = folder(line) / "small-Q4_K_M.gguf.0123456789ab.part"
        old.write_bytes(b"old")
        assert pull(line).code == 0
        assert hub.asked("/storage/")[0][2] == "" and left(line) == ["small-Q4_K_M.gguf"]

    def test_without_sums_it_begins_anew(self, line: Line, hub: HubServer, model: bytes) -> None:
        hub.no_sums = True
        (folder(line) / "small-Q4_K_M.gguf.unknown.part").write_bytes(b"who knows")
        assert pull(line).code == 0
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == model

    def test_without_sums_an_early_end_is_no_end(
        self, line: Line, hub: HubServer, model: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.no_sums, hub.cut = True, [50_000]
        assert pull(line).code == 0
        assert (folder(line) / "small-Q4_K_M.gguf").read_bytes() == model

    def test_one_at_a_time(self, line: Line, hub: HubServer, model: bytes) -> None:
        part = folder(line) / f"small-Q4_K_M.gguf.{hashlib.sha256(model).hexdigest()[:12]}.part"
        with part.open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            result = pull(line)
        assert result.code == 1 and "Another ds4chat is pulling small-Q4_K_M.gguf" in result.err

    def test_a_hub_that_is_busy_is_asked_again(self, line: Line, hub: HubServer) -> None:
        repository = Hub().repository(hub.name)
        hub.busy = 2
        candidate, _ = choose(repository)
        pulling.pull(Hub(), repository, candidate, folder(line), lambda *_: None)
        assert left(line) == ["small-Q4_K_M.gguf"]

    def test_a_full_disk_is_told_before_anything_comes(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pulling, "SPARE_BYTES", 10**18)
        result = pull(line)
        assert result.code == 1 and "needs 1 MB, and 0 MB are free" in result.err
        assert left(line) == [] and hub.asked("/storage/") == []


class TestWhoMayHaveIt:
    def test_a_token_goes_to_the_hub_and_not_to_its_storage(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.token = "hf_secret"
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        assert pull(line).code == 0
        assert {request[3] for request in hub.asked(hub.name)} == {"Bearer hf_secret"}
        assert {request[3] for request in hub.asked("/storage/")} == {""}

    def test_a_private_one_names_the_ways_to_log_in(self, line: Line, hub: HubServer) -> None:
        hub.token = "hf_secret"
        result = pull(line)
        assert result.code == 1
        assert "There is no model repository org/Small-GGUF on 127.0.0.1:" in result.err
        assert "install huggingface_hub with `pip install 'ds4chat[pull]'`" in result.err

    def test_a_gated_one_names_its_page(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.gated = True
        result = pull(line)
        assert result.code == 1 and f"accept them at {hub.endpoint}/org/Small-GGUF" in result.err
        monkeypatch.setattr(hub_module, "_has_library", lambda: True)
        monkeypatch.setattr(hub_module, "_kept_token", lambda: "")
        assert "or log in with `hf auth login`." in pull(line).err

    def test_the_login_that_huggingface_hub_keeps_is_used(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        library = types.ModuleType("huggingface_hub")
        library.get_token = lambda: "hf_kept"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "huggingface_hub", library)
        monkeypatch.setattr(hub_module, "_has_library", lambda: True)
        hub.token = "hf_kept"
        assert pull(line).code == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ("org/Small-GGUF", "give hf:ORG/REPO or hf:ORG/REPO:FILE"),
            ("hf:Small", '"Small" is no repository'),
            ("hf:../../etc", "is no repository"),
            ("hf:org/Small-GGUF:Q2_K", 'has no "Q2_K": there are Q4_K_M (1 MB), Q8_0 (1 MB).'),
        ],
    )
    def test_a_source_that_is_none(self, line: Line, hub: HubServer, source: str, words: str) -> None:
        result = pull(line, source)
        assert result.code == 2 and words in result.err

    def test_no_such_repository(self, line: Line, hub: HubServer) -> None:
        result = pull(line, "hf:org/Other")
        assert result.code == 1 and "There is no model repository org/Other on 127.0.0.1" in result.err

    def test_a_repository_without_gguf(self, line: Line, hub: HubServer) -> None:
        hub.files = {"model.safetensors": b"x", "mmproj-f16.gguf": b"GGUF"}
        result = pull(line)
        assert result.code == 2 and "has no GGUF files" in result.err

    def test_nobody_answers(self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
            result = pull(line)
        assert result.code == 1
        assert re.search(r"127\.0\.0\.1:\d+ cannot be reached \(\[Errno 111\]|refused", result.err)

    @pytest.mark.parametrize(("name", "value"), [("HF_ENDPOINT", "file:///etc"), ("HF_HUB_OFFLINE", "1")])
    def test_variables(
        self, line: Line, hub: HubServer, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        result = pull(line)
        assert result.code == 2 and name in result.err

    @pytest.mark.parametrize("name", ["..gguf", ".hidden.gguf", "a\x1b[2J.gguf", "x" * 300 + ".gguf"])
    def test_a_name_that_no_file_should_have(self, line: Line, hub: HubServer, name: str) -> None:
        hub.files = {name: b"GGUF"}
        result = pull(line)
        assert result.code == 2 and "\x1b" not in result.err and left(line) == []

    def test_the_other_commands_open_no_connection(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a connection")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        write_gguf(folder(line) / "own.gguf")
        for command in (["models"], ["models", "info", "own"], ["models", "use", "own"]):
            assert line(*command).code == 0


def repository(*names: str) -> Repository:
    return Repository("o/r", "c", tuple(RemoteFile(name, 10**9) for name in names))


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"], "m-Q4_K_M"),
        (["m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-Q2_K.gguf"], "m-Q5_K_M"),
        (["m-BF16.gguf", "m-Q2_K.gguf"], "m-Q2_K"),
        (["a/m-q4_k_m-00001-of-00002.gguf", "a/m-q4_k_m-00002-of-00002.gguf", "m-Q4_0.gguf"], "a/m-q4_k_m"),
        (["model.gguf", "imatrix.gguf", "mmproj-Q4_K_M.gguf"], "model"),
    ],
)
def test_which_one_is_taken(names: list[str], chosen: str) -> None:
    taken, others = choose(repository(*names))
    assert taken.name.removesuffix(".gguf") == chosen
    assert len(others) == len(candidates(repository(*names))) - 1


def test_sources() -> None:
    assert parse_source("hf:a/b") == ("a/b", "")
    assert parse_source("HF:a/b:dir/f.gguf") == ("a/b", "dir/f.gguf")
    with pytest.raises(UsageError):
        parse_source("https://x")


def test_a_list_that_is_none(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HubServer, "_listing", lambda self: {"siblings": 3})
    with pytest.raises(Ds4chatError, match="gave no list of files"):
        Hub().repository(hub.name)


def test_the_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    times = iter([0.0, 10.0, 10.05, 100.0])
    bar = cli_models.ProgressLine(lambda: next(times))
    for done in (0, 10**9, 10**9 + 5, 4 * 10**9):
        bar("m.gguf", done, 4 * 10**9)
    bar.end()
    lines = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert lines[1] == "m.gguf: 1.0 GB of 4.0 GB, 25 %, 100.0 MB/s, 30 s left"
    assert lines[2:] == ["m.gguf: 4.0 GB of 4.0 GB, 100 %, 40.0 MB/s\n"]
