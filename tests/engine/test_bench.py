"""The bench on tiny models, in its own process: what it reports adds up, and nothing of it stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ds4chat.bench import run as bench_run
from ds4chat.bench.report import Progress, Refused, Report, Request, decode_answer, encode
from ds4chat.bench.run import run_bench
from ds4chat.engine.protocol import ChatMessage, KvOptions, Load
from ds4chat.engine.spawn import child_environment, is_plain, remember_plain
from ds4chat.errors import EngineError

TALK = [
    ChatMessage("system", "You like ships."),
    ChatMessage("user", "Tell me about the sea and about the ships on it. " * 2),
    ChatMessage("assistant", "The sea is wide, and ships are many on it. " * 2),
    ChatMessage("user", "And the harbour?"),
    ChatMessage("assistant", "It is calm."),
]
SHORT = KvOptions(
    min_tokens=64, continued_interval_tokens=64, boundary_align_tokens=64, boundary_trim_tokens=0
)


@pytest.fixture(scope="module")
def memo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Found out once which code this processor runs."""
    return tmp_path_factory.mktemp("memo") / "engine.json"


def request(model: Path, lengths: list[int], **more: object) -> Request:
    load = Load(str(model), n_ctx=1024, threads=1, kv=SHORT)
    return Request(load, lengths, TALK, rounds=2, pairs=2, generated=16, **more)  # type: ignore[arg-type]


def bench(wanted: Request, folder: Path, memo: Path) -> tuple[Report, list[Progress]]:
    seen: list[Progress] = []
    report = run_bench(wanted, seen.append, beside=folder / "kv", memo=memo, log_path=folder / "engine.log")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == []
    return report, seen


def test_all_parts_on_every_kind_of_memory(tiny_model: Path, tmp_path: Path, memo: Path) -> None:
    report, seen = bench(request(tiny_model, [70, 200]), tmp_path, memo)
    assert [length.tokens for length in report.lengths] == [70, 200]
    for length in report.lengths:
        assert min(length.prefill_ms, length.restore_ms, length.xxh3_ms, length.read_ms) > 0
        assert min(length.whole_save_ms, length.whole_load_ms, length.whole_bytes) > 0
        assert length.prefill_over_restore == pytest.approx(length.prefill_ms / length.restore_ms)
        assert length.spans >= 1 and length.file_bytes > 0
    assert report.growth is not None and report.generation is not None
    assert (report.growth.tokens, report.generation.pairs, report.generation.tokens) == (200, 2, 16)
    assert report.growth.turns >= 2 and report.growth.stores >= report.growth.turns
    assert report.growth.written_over_kv == report.growth.written_bytes / report.growth.kv_bytes
    assert report.generation.storing_over_plain > 0
    if report.memory == "dense":
        assert report.lengths[1].spans >= 4
        assert 1 < report.growth.written_over_kv < 1.2 < report.growth.whole_over_kv
        assert report.lengths[1].whole_bytes == report.growth.kv_bytes
    assert {progress.what for progress in seen} >= {"computing 200 tokens", "restoring 70 tokens"}
    assert all(0 <= progress.done <= progress.total for progress in seen)


def test_one_part_alone(tiny: dict[str, Path], tmp_path: Path, memo: Path) -> None:
    report, _ = bench(request(tiny["dense"], [100], parts=["generation"]), tmp_path, memo)
    assert report.lengths == [] and report.growth is None and report.generation is not None


def test_what_does_not_fit_is_a_sentence(tiny: dict[str, Path], tmp_path: Path, memo: Path) -> None:
    with pytest.raises(EngineError, match=r"5,000 tokens.*1,024.*--ctx"):
        bench(request(tiny["dense"], [5000]), tmp_path, memo)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and nothing else")
    with pytest.raises(EngineError, match=r"broken\.gguf.*--model"):
        bench(request(broken, [100]), tmp_path, memo)
    assert not list(tmp_path.glob("ds4chat-bench-*"))


def fake_child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(bench_run, "COMMAND", (sys.executable, "-c", code))


def test_an_illegal_instruction_is_tried_again_without_special_code_and_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (
        "import json, os, signal, sys\n"
        "plain = not json.loads(sys.stdin.readline())['load'].get('extra_buffers', True)\n"
        "plain or os.kill(os.getpid(), signal.SIGILL)\n"
        'print(\'{"type": "refused", "message": "plain"}\')'
    )
    fake_child(monkeypatch, code)
    memo = tmp_path / "engine.json"
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^plain$"):
            bench(request(tmp_path, [100]), tmp_path, memo)
    assert is_plain(memo) and not is_plain(tmp_path / "other.json") and not is_plain(None)


def test_a_child_that_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_child(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(EngineError, match=r"ended by SIGKILL.*--ctx"):
        bench(request(tmp_path, [100]), tmp_path, tmp_path / "engine.json")


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="--kv-disk-dir"):
        run_bench(request(tmp_path, [100]), lambda _: None, beside=tmp_path / "file" / "kv")


def test_the_child_goes_and_takes_its_files_along_when_nobody_waits(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "kv"
    folder.mkdir()
    wanted = request(tiny["dense"], [200], parts=["growth"])
    kv = msgspec.structs.replace(wanted.load.kv, directory=str(folder), budget_mb=0)
    load = msgspec.structs.replace(wanted.load, extra_buffers=False, kv=kv)
    wanted = msgspec.structs.replace(wanted, load=load)
    child = subprocess.Popen(
        bench_run.COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(encode(wanted))
    child.stdin.flush()
    decode_answer(child.stdout.readline())
    child.stdin.close()
    child.stdout.read()
    child.wait(30)
    assert not folder.exists() or child.returncode == 0
    child.stdout.close()


def test_a_signal_to_the_parent_leaves_no_files(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom ds4chat.bench import run\n"
        "from ds4chat.bench.report import Request\nfrom ds4chat.engine.protocol import Load\n"
        "run.COMMAND = (sys.executable, '-c', 'import time; time.sleep(60)')\n"
        f"run.run_bench(Request(Load('m'), [100], []), print, beside=Path({str(tmp_path / 'kv')!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 30
    while not list(tmp_path.glob("ds4chat-bench-*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(30) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_answers_make_the_round_trip() -> None:
    for answer in (Progress("restoring", 1, 2), Refused("No.")):
        assert decode_answer(encode(answer)) == answer


def test_the_environment_of_a_child_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    threshold, huge = "glibc.cpu.x86_non_temporal_threshold=0x10000", "glibc.malloc.hugetlb=1"
    assert child_environment()["GLIBC_TUNABLES"] == f"{threshold}:{huge}"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert child_environment()["GLIBC_TUNABLES"] == f"glibc.malloc.check=0:{threshold}:{huge}"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.x86_non_temporal_threshold=0x20000")
    assert child_environment()["GLIBC_TUNABLES"] == f"glibc.cpu.x86_non_temporal_threshold=0x20000:{huge}"


def test_a_memo_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    remember_plain(tmp_path / "no" / "such" / "folder.json")
    remember_plain(None)
