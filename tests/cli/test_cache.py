"""`ds4chat cache`: what is on disk, is it whole, make it smaller; with no model loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ds4chat import cache_report, cli_cache
from ds4chat.checkpoints.format import token_hash, write_use
from ds4chat.checkpoints.pins import pinned
from ds4chat.checkpoints.prefix import ROOT, sha1
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, Outcome, SpanDraft
from ds4chat.checkpoints.store import Store
from ds4chat.engine.weights import weights_hash
from ds4chat.sessions.database import Database
from tests.cli.conftest import Line, Result

PER_TOKEN = 1000


@dataclass
class Disk:
    """Checkpoints of the configured model, and sessions that stand on them."""

    line: Line
    identity: Identity

    @property
    def root(self) -> Path:
        return self.line.folder / "kv"

    def put(self, text: str, *ends: int, identity: Identity | None = None) -> list[bytes]:
        """A chain of spans over a text of one token a byte; their names."""
        with_identity = identity or self.identity
        store = Store.open(self.root, with_identity, budget_mb=0, clock=lambda: 1_700_000_000.0)
        key, start, names = text.encode().ljust(max(ends), b"."), 0, [ROOT]
        for end in ends:
            result = store.put(
                SpanDraft(
                    parent=names[-1],
                    sha1=sha1(key[:end]),
                    start=start,
                    end=end,
                    context_size=512,
                    reason=Reason.CONTINUED if start else Reason.COLD,
                    text=key[start:end],
                    tokens=list(key[start:end]),
                    start_hash=token_hash(list(key[:start])),
                    end_hash=token_hash(list(key[:end])),
                    key_len=end,
                    payload=bytes(PER_TOKEN * (end - start)),
                )
            )
            assert result.outcome in (Outcome.STORED, Outcome.STANDS)
            names.append(sha1(key[:end]))
            start = end
        store.close()
        return names[1:]

    def session(self, title: str, names: list[bytes], **more: Any) -> str:
        session_id = self.line.session(title, "hello", "hi", **more)
        with Database(self.line.database) as database:
            for number, name in enumerate(names):
                database.record_span(session_id, name.hex(), number, number + 1, "cold", 1)
        return session_id

    def file(self, name: bytes) -> Path:
        (path,) = self.root.glob(f"*/*/{name.hex()}.kv")
        return path

    def files(self) -> int:
        return len(list(self.root.glob("*/*/*.kv")))


@pytest.fixture
def disk(line: Line, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(cache_report, "version", lambda _: "1.2.3")
    fingerprint = weights_hash(line.folder / "data" / "models" / "tiny.gguf")
    about = {"model": "tiny", "kv_type": "f16", "build": "1.2.3"}
    return Disk(line, Identity("llama-x", b"variant1", fingerprint, 4, 1, about=about))


def data(result: Result) -> Any:
    assert result.code == 0, result.err
    return json.loads(result.out)


# ---- a directory that is not there


@pytest.mark.parametrize("command", ["ls", "stats", "verify", "prune", "clear -y", "path"])
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_a_directory_that_does_not_exist(line: Line, command: str, json_flag: tuple[str, ...]) -> None:
    result = line("cache", *command.split(), *json_flag)
    assert result.code == 0, result.err
    assert not (line.folder / "kv").exists()
    if json_flag:
        json.loads(result.out)


# ---- ls


def test_ls_tells_what_each_session_has_and_whether_it_can_be_used(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150)
    first = disk.session("Ships", names)
    disk.session("No checkpoints", [])
    rows = data(disk.line("cache", "ls", "--json"))
    assert rows == [
        {
            "session": first,
            "title": "Ships",
            "tokens": 150,
            "bytes": sum(disk.file(name).stat().st_size for name in names),
            "files": 2,
            "last_used": 1_700_000_000,
            "pinned": False,
            "reusable": True,
            "reusable_tokens": 150,
            "reason": "",
        }
    ]
    table = disk.line("cache", "ls").out
    assert first in table and "Ships" in table and "150 tokens" in table


def test_ls_counts_what_a_session_stands_on_though_it_is_not_in_its_list(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150)
    disk.session("Ships", names[1:])
    (row,) = data(disk.line("cache", "ls", "--json"))
    assert (row["files"], row["tokens"], row["reusable"]) == (2, 150, True)


def other_weights(disk: Disk) -> None:
    (disk.line.folder / "data" / "models" / "tiny.gguf").write_bytes(b"GGUF\x03\x00\x00\x00other")


def no_model(disk: Disk) -> None:
    (disk.line.folder / "data" / "models" / "tiny.gguf").unlink()


def other_kv_type(disk: Disk) -> None:
    config = disk.line.folder / "config.toml"
    config.write_text(config.read_text() + 'kv_type = "q8_0"\n')


def gap(disk: Disk) -> None:
    min(disk.root.glob("*/*/*.kv"), key=lambda path: -path.stat().st_size).unlink()


def gone(disk: Disk) -> None:
    for path in disk.root.glob("*/*/*.kv"):
        path.unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_weights, "other weights (tiny)"),
        (no_model, "its model is not there"),
        (other_kv_type, "KV type f16, and q8_0 is set"),
        (gap, "the beginning of its chain is missing"),
        (gone, "nothing of it is on disk any more"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_ls_says_why_not(disk: Disk, change: Callable[[Disk], None], reason: str) -> None:
    disk.session("Ships", disk.put("a long chat", 100, 150))
    change(disk)
    (row,) = data(disk.line("cache", "ls", "--json"))
    assert not row["reusable"] and row["reusable_tokens"] == 0
    assert reason in row["reason"]
    assert reason in disk.line("cache", "ls").out


def test_ls_says_that_another_build_wrote_them(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.session("Ships", disk.put("a long chat", 100, 150))
    monkeypatch.setattr(cache_report, "version", lambda _: "9.9")
    (row,) = data(disk.line("cache", "ls", "--json"))
    assert row["reason"] == "written by llama-cpp-python 1.2.3, and 9.9 is installed"


def test_ls_looks_at_each_sessions_own_model(disk: Disk) -> None:
    own = disk.line.folder / "own.gguf"
    own.write_bytes(b"GGUF\x03\x00\x00\x00its own")
    identity = replace(disk.identity, variant=b"variant2", fingerprint=weights_hash(own))
    disk.session("Own", disk.put("with its own", 40, identity=identity), model_path=str(own))
    disk.session("Other", disk.put("with its own", 40, identity=identity))
    rows = {row["title"]: row for row in data(disk.line("cache", "ls", "--json"))}
    assert rows["Own"]["reusable"] and not rows["Other"]["reusable"]
    flagged = data(disk.line("-m", str(own), "cache", "ls", "--json"))
    assert [row["reusable"] for row in flagged] == [True, True]


def test_ls_lists_what_no_session_stands_on(disk: Disk) -> None:
    shared = disk.put("shared", 50)
    disk.session("Ships", shared)
    loose = disk.put("shared", 50, 60) + disk.put("loose", 70)
    junk = disk.file(loose[0]).with_name("00" * 20 + ".kv")
    junk.write_bytes(b"junk")
    rows = data(disk.line("cache", "ls", "--json"))
    assert [row["session"] for row in rows][1:] == [None]
    assert (rows[1]["tokens"], rows[1]["files"]) == (80, 3)
    assert "(no session)" in disk.line("cache", "ls").out


# ---- stats


def test_stats_by_model_and_by_reason(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150)
    other = replace(disk.identity, variant=b"variant2", fingerprint=b"f" * 16, about={"model": "big"})
    disk.put("another", 30, identity=other)
    fd = os.open(disk.file(names[0]), os.O_RDWR)
    write_use(fd, 7, 1_700_000_000)
    os.close(fd)
    disk.file(names[0]).with_name("00" * 20 + ".kv.bad").write_bytes(b"junk")
    stats = data(disk.line("--kv-disk-space-mb", "5", "cache", "stats", "--json"))
    assert (stats["files"], stats["tokens"], stats["hits"], stats["budget_bytes"]) == (4, 180, 7, 5_000_000)
    assert stats["bytes"] == sum(p.stat().st_size for p in disk.root.glob("*/*/*.kv*"))
    assert (stats["unusable_files"], stats["unusable_bytes"]) == (1, 4)
    assert [(v["model"], v["kv_type"], v["files"]) for v in stats["variants"]] == [
        ("tiny", "f16", 2),
        ("big", "", 1),
    ]
    assert [(r["reason"], r["files"], r["tokens"]) for r in stats["reasons"]] == [
        ("cold", 2, 130),
        ("continued", 1, 50),
    ]
    table = disk.line("cache", "stats").out
    assert "tiny" in table and "continued" in table and "cannot be used" in table


# ---- verify


def test_verify_reads_every_byte(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150, 200) + disk.put("sound", 60)
    assert data(disk.line("cache", "verify", "--json"))["faults"] == []
    path = disk.file(names[1])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = disk.line("cache", "verify", "--json")
    assert result.code == 1
    faults = {Path(f["path"]).stem: f["reason"] for f in json.loads(result.out)["faults"]}
    assert faults.keys() == {names[1].hex(), names[2].hex()}
    assert "checksum" in faults[names[1].hex()] and "continues is damaged" in faults[names[2].hex()]
    table = disk.line("cache", "verify")
    assert table.code == 1 and names[1].hex() in table.out and "4 files" in table.out
    deleted = disk.line("cache", "verify", "--delete")
    assert deleted.code == 0 and "2 were deleted" in deleted.out
    assert disk.files() == 2
    assert data(disk.line("cache", "verify", "--json"))["files"] == 2


def swap(disk: Disk, names: list[bytes]) -> None:
    one, two = disk.file(names[0]), disk.file(names[-1])
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def foreign(disk: Disk, names: list[bytes]) -> None:
    folder = disk.file(names[0]).parent
    folder.rename(folder.with_name("ab" * 8))


def junk(disk: Disk, names: list[bytes]) -> None:
    disk.file(names[0]).write_bytes(b"junk")


def set_aside(disk: Disk, names: list[bytes]) -> None:
    path = disk.file(names[-1])
    path.rename(path.with_name(path.name + ".bad"))


@pytest.mark.parametrize(
    ("harm", "left"),
    [(swap, 1), (foreign, 0), (junk, 1), (set_aside, 2)],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_verify_finds_files_in_the_wrong_place(
    disk: Disk, harm: Callable[[Disk, list[bytes]], None], left: int
) -> None:
    names = disk.put("a chat", 100, 150)
    lone = disk.put("lone", 90)
    harm(disk, names)
    assert disk.line("cache", "verify").code == 1
    assert disk.line("cache", "verify", "--delete", "--json").code == 0
    assert disk.files() == left
    assert left == 0 or disk.file(lone[0]).exists()
    assert disk.line("cache", "verify").code == 0


# ---- prune and clear


def test_prune_goes_down_to_the_budget_what_cannot_be_used_first(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150)
    broken = disk.put("broken", 100, 900)
    disk.file(broken[0]).unlink()
    result = data(disk.line("--kv-disk-space-mb", "1", "cache", "prune", "--json"))
    assert result["deleted_files"] == 0
    result = data(disk.line("cache", "prune", "--to", "0", "--json"))
    assert (result["deleted_files"], result["bytes"], disk.files()) == (3, 0, 0)
    names = disk.put("a long chat", 600)
    broken = disk.put("broken", 100, 700)
    disk.file(broken[0]).unlink()
    assert "Deleted 1 file (0.6 MB)" in disk.line("cache", "prune", "--to", "1").out
    assert disk.file(names[0]).exists()


def test_prune_spares_pins_and_says_so(disk: Disk) -> None:
    session = disk.session("Ships", disk.put("a long chat", 100, 150))
    disk.put("another", 40)
    assert disk.line("cache", "pin", session).code == 0
    result = disk.line("cache", "prune", "--to", "0")
    assert "pinned" in result.err
    assert disk.files() == 2


def test_prune_without_a_budget_needs_a_size(disk: Disk) -> None:
    result = disk.line("--kv-disk-space-mb", "0", "cache", "prune")
    assert result.code == 2 and "--to" in result.err
    assert disk.line("cache", "prune", "--to", "-3").code == 2


def test_clear_asks_and_deletes_all(disk: Disk) -> None:
    session = disk.session("Ships", disk.put("a long chat", 100, 150))
    disk.line("cache", "pin", session)
    assert disk.line("cache", "clear").code == 2
    refused = disk.line("cache", "clear", stdin="n\n", terminal=True)
    assert refused.code == 1 and disk.files() == 2
    result = data(disk.line("cache", "clear", "-y", "--json"))
    assert (result["deleted_files"], result["bytes"], disk.files()) == (2, 0, 0)
    assert pinned(disk.root) == frozenset()
    assert sorted(path.name for path in disk.root.iterdir() if path.is_dir()) == ["leases", "pins"]


def test_clear_and_prune_spare_what_a_running_process_stands_on(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150, 200)
    disk.put("another", 40)
    store = Store.open(disk.root, disk.identity, budget_mb=0)
    store.set_live_chain([names[0], names[1]])
    disk.line("cache", "prune", "--to", "0")
    assert disk.files() == 2
    disk.put("another", 40)
    result = disk.line("cache", "clear", "-y")
    assert result.code == 0 and "2 of them stay" in result.err
    assert disk.files() == 2
    store.close()
    assert disk.line("cache", "clear", "-y").err == ""
    assert disk.files() == 0


# ---- pin, unpin, path


def test_pin_and_unpin_a_session(disk: Disk) -> None:
    names = disk.put("a long chat", 100, 150)
    session = disk.session("Ships", names)
    told = data(disk.line("cache", "pin", "Ships", "--json"))
    assert told == {"session": session, "title": "Ships", "pinned": True, "checkpoints": 2}
    assert pinned(disk.root) == {names[1]}
    assert data(disk.line("cache", "ls", "--json"))[0]["pinned"]
    assert session in disk.line("cache", "unpin", session[:5]).out
    assert pinned(disk.root) == frozenset()
    assert not data(disk.line("cache", "ls", "--json"))[0]["pinned"]


def test_a_session_with_nothing_on_disk_cannot_be_pinned(disk: Disk) -> None:
    disk.session("Ships", [])
    result = disk.line("cache", "pin", "Ships")
    assert result.code == 2 and "no checkpoints on disk" in result.err
    assert disk.line("cache", "pin", "Boats").code == 2
    assert disk.line("cache", "unpin", "Ships").code == 0


def test_path(disk: Disk, tmp_path: Path) -> None:
    assert disk.line("cache", "path").out == f"{disk.root}\n"
    elsewhere = str(tmp_path / "elsewhere")
    assert data(disk.line("cache", "path", "--json", "--kv-disk-dir", elsewhere)) == {
        "path": elsewhere,
        "exists": False,
    }
    assert data(disk.line("--kv-dir", elsewhere, "cache", "path", "--json"))["path"] == elsewhere


# ---- failures


def test_a_disk_that_refuses_is_one_sentence(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.session("Ships", disk.put("a long chat", 100, 150))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ds4chat.checkpoints.directory.FileLock.acquire", refuse)
    for command in ("prune --to 0", "clear -y"):
        result = disk.line("cache", *command.split())
        assert (result.code, result.out) == (1, "")
        assert "Permission denied" in result.err and str(disk.root) in result.err


def test_no_llama_cpp_and_no_screen_is_loaded(disk: Disk) -> None:
    disk.session("Ships", disk.put("a long chat", 100, 150))
    code = (
        "import sys\nfrom ds4chat.cli import run\n"
        "for line in ('ls', 'stats', 'verify', 'prune', 'path', 'pin Ships', 'clear -y'):\n"
        "    assert run(['cache', *line.split()]) == 0, line\n"
        "unwanted = ('llama_cpp', 'textual', 'ds4chat.ui', 'ds4chat.engine.worker')\n"
        "bad = [m for m in sys.modules if m.startswith(unwanted)]\n"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_mb_has_one_decimal() -> None:
    assert cli_cache._mb(1_234_567_890) == "1,234.6"
