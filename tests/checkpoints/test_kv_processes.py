"""Several processes on one directory: leases, and files that bring an engine down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv_helpers import Clock, Talk, load_chain, open_store, span_files
from kv_process import CHAIN, SPAN, SPANS

from ds4chat.checkpoints import leases
from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.leases import Lease, leased
from ds4chat.checkpoints.pins import pin, pinned, unpin
from ds4chat.checkpoints.span import Outcome
from ds4chat.checkpoints.store import remove_spans
from ds4chat.errors import CheckpointError

HERE = Path(__file__).parent


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "kv_process.py"), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lease_files(root: Path) -> list[str]:
    return sorted(path.suffix for path in (root / "leases").iterdir())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that stands on the chain of `CHAIN` up to 60."""
    CHAIN.put(open_store(tmp_path), 10, 30, 60)
    process = start("hold", tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


# ---- leases


def test_two_processes_at_the_edge_of_the_budget_keep_the_chains_they_stand_on(tmp_path: Path) -> None:
    span = len(CHAIN.draft(0, SPAN).text) + 4 * SPAN + 100 * SPAN + 144
    budget = int(2.3 * SPANS * span)
    processes = [start("grow", tmp_path, salt, budget, 5) for salt in (500, 600)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert all(int(out) > 2 * SPANS for out, _ in outputs), "both had to make room"
    assert sum(path.stat().st_size for path in span_files(tmp_path)) <= budget * 1.01


def test_eviction_spares_what_another_process_stands_on_and_takes_it_when_that_is_gone(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    clock = Clock(time.time() + 1e6)
    store = open_store(tmp_path, clock)
    store._budget = 1 + sum(path.stat().st_size for path in span_files(tmp_path))
    other = Talk(range(500, 560))
    assert store.put(other.draft(0, 10)).outcome is Outcome.NO_ROOM
    assert CHAIN.find(store) == [10, 30, 60]
    assert remove_spans(tmp_path, [CHAIN.name(60)]) == []
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)
    assert store.put(other.draft(0, 10)).outcome is Outcome.STORED
    assert CHAIN.find(store) == [10, 30]


def test_a_lease_holds_under_its_own_variant_alone(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    (copy,) = [folder for folder in tmp_path.glob("llama-test/*") if folder.is_dir()]
    shutil.copytree(copy, copy.parent / ("ab" * 8))
    removed = remove_spans(tmp_path, [CHAIN.name(60)])
    assert {path.parent.name for path in removed} == {"ab" * 8}
    assert len(removed) == 3


def test_leases_of_processes_that_are_gone_are_swept(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert lease_files(tmp_path) == [".json", ".lock"]
    holder.kill()
    holder.wait(10)
    assert leased(tmp_path) == set()
    store = open_store(tmp_path)
    assert lease_files(tmp_path) == [".json", ".lock"], "the new one alone"
    store.close()
    store.close()
    assert lease_files(tmp_path) == []


def test_a_lease_follows_the_live_chain(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = CHAIN.put(store, 10, 30)
    store.set_live_chain([span.sha1 for span in spans])
    assert leased(tmp_path) == {span.path for span in spans}
    store.set_live_chain([spans[0].sha1, CHAIN.name(60)])
    assert leased(tmp_path) == {spans[0].path, spans[0].path.with_name(CHAIN.name(60).hex() + ".kv")}
    store.set_live_chain(())
    assert leased(tmp_path) == set()


def test_a_lease_comes_back_with_a_directory_that_was_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kv")
    CHAIN.put(store, 10)
    shutil.rmtree(tmp_path / "kv")
    store.set_live_chain([CHAIN.name(10)])
    assert not (tmp_path / "kv").exists()
    CHAIN.put(store, 10)
    assert {path.stem for path in leased(tmp_path / "kv")} == {CHAIN.name(10).hex()}


def test_a_place_for_leases_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("not a folder")
    store = open_store(tmp_path)
    store.set_live_chain([CHAIN.name(10)])
    CHAIN.put(store, 10)
    assert store.writable
    assert leased(tmp_path) == set()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"pid":1,"spans":["../../x","/etc/passwd",7]}', b"\xff" * 9]
)
def test_a_damaged_lease_spares_nothing_and_harms_nothing(tmp_path: Path, content: bytes) -> None:
    lease = Lease(tmp_path)
    lease.ensure()
    (json,) = (tmp_path / "leases").glob("*.json")
    json.write_bytes(content)
    assert leased(tmp_path) == set()
    lease.close()


def test_what_is_newly_stood_on_waits_for_an_eviction_that_runs(tmp_path: Path) -> None:
    """Between the look at all leases and the deletion nobody may step on what goes."""
    store = open_store(tmp_path)
    (span,) = CHAIN.put(store, 10)
    with open_store(tmp_path)._directory.lock():
        began = time.monotonic()
        store.set_live_chain([span.sha1])
        assert 0.2 < time.monotonic() - began < 5, "it waited, and went on"
        began = time.monotonic()
        store.set_live_chain([span.sha1, CHAIN.name(30)])
        assert time.monotonic() - began < 0.2, "what is not on disk yet is in no danger"


# ---- pins


def test_pins_survive_a_restart_and_a_copy(tmp_path: Path) -> None:
    CHAIN.put(open_store(tmp_path / "here"), 10, 30)
    pin(tmp_path / "here", [CHAIN.name(30)])
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    store = open_store(tmp_path / "there", Clock(time.time() + 1e6))
    store._budget = 1 + sum(path.stat().st_size for path in span_files(tmp_path / "there"))
    assert store.put(Talk(range(500, 560)).draft(0, 10)).outcome is Outcome.NO_ROOM
    assert pinned(tmp_path / "there") == {CHAIN.name(30)}
    assert unpin(tmp_path / "there", [CHAIN.name(30), CHAIN.name(60)]) == 1
    assert store.put(Talk(range(500, 560)).draft(0, 10)).outcome is Outcome.STORED
    assert CHAIN.find(store) == [10]


def test_what_continues_a_pinned_span_is_pinned(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock := Clock())
    CHAIN.put(store, 10, 30)
    pin(tmp_path, [CHAIN.name(30)])
    clock.now += 1e6
    assert store.put(CHAIN.draft(30, 60)).outcome is Outcome.STORED
    store._budget = 1 + sum(path.stat().st_size for path in span_files(tmp_path))
    clock.now += 1e6
    assert store.put(Talk(range(500, 560)).draft(0, 10)).outcome is Outcome.NO_ROOM
    assert CHAIN.find(store) == [10, 30, 60]


def test_deleting_a_session_takes_its_pins(tmp_path: Path) -> None:
    CHAIN.put(open_store(tmp_path), 10, 30)
    pin(tmp_path, [CHAIN.name(10), CHAIN.name(30)])
    assert len(remove_spans(tmp_path, [CHAIN.name(30)])) == 1
    assert pinned(tmp_path) == {CHAIN.name(10)}
    (tmp_path / "pins" / "no name").touch()
    assert pinned(tmp_path) == {CHAIN.name(10)}
    assert pinned(tmp_path / "none") == frozenset()


# ---- files that bring an engine down


def crash(root: Path, how: str = "SIGABRT") -> int:
    """The process id of an engine that ended so while it took in the second span."""
    process = start("crash", root, how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -getattr(signal, how), err
    return process.pid


@pytest.mark.parametrize("how", ["SIGABRT", "SIGSEGV"])
def test_a_file_that_brought_the_engine_down_twice_is_set_aside(tmp_path: Path, how: str) -> None:
    store = open_store(tmp_path)
    spans = CHAIN.put(store, 10, 30, 60)
    pid = crash(tmp_path, how)
    assert CHAIN.find(open_store(tmp_path, crashed_pid=pid)) == [10, 30, 60], "once may be an accident"
    pid = crash(tmp_path, how)
    store = open_store(tmp_path, crashed_pid=pid)
    assert CHAIN.find(store) == [10]
    bad = spans[1].path.with_name(spans[1].path.name + ".bad")
    assert bad.exists()
    assert store.total_bytes == sum(span.size for span in spans)
    assert list(tmp_path.rglob("*.strike")) == []
    assert store.put(CHAIN.draft(10, 30)).outcome is Outcome.STORED
    assert load_chain(store, CHAIN)[0] == CHAIN.tokens[:60]
    store._budget = store.total_bytes - 1
    assert store.put(CHAIN.draft(60, 61)).outcome is Outcome.STORED
    assert not bad.exists(), "it goes first"
    assert CHAIN.find(store) == [10, 30, 60, 61]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGILL"])
def test_an_end_that_no_file_can_bring_about_blames_nobody(tmp_path: Path, how: str) -> None:
    """The parent names the process only after an abort or a segmentation fault."""
    CHAIN.put(open_store(tmp_path), 10, 30, 60)
    for _ in range(2):
        crash(tmp_path, how)
        assert CHAIN.find(open_store(tmp_path)) == [10, 30, 60]
    assert list(tmp_path.rglob("*.strike")) == []


def test_another_process_that_crashed_is_not_taken_for_the_one(tmp_path: Path) -> None:
    CHAIN.put(open_store(tmp_path), 10, 30, 60)
    for _ in range(2):
        pid = crash(tmp_path)
        open_store(tmp_path, crashed_pid=pid + 1)
    assert CHAIN.find(open_store(tmp_path)) == [10, 30, 60]


def test_a_file_written_again_starts_with_a_clean_record(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    spans = CHAIN.put(store, 10, 30, 60)
    open_store(tmp_path, crashed_pid=crash(tmp_path))
    (mark,) = tmp_path.rglob("*.strike")
    seal = mark.read_text()
    store.forget(spans[1])
    clock.now += 100
    assert store.put(CHAIN.draft(10, 30)).outcome is Outcome.STORED
    open_store(tmp_path, crashed_pid=crash(tmp_path))
    assert mark.read_text() != seal
    assert CHAIN.find(open_store(tmp_path)) == [10, 30, 60]


def test_a_mark_goes_with_its_file(tmp_path: Path) -> None:
    spans = CHAIN.put(open_store(tmp_path), 10, 30)
    open_store(tmp_path, crashed_pid=crash(tmp_path))
    spans[1].path.unlink()
    open_store(tmp_path)
    assert list(tmp_path.rglob("*.strike")) == []


def test_a_whole_hand_over_leaves_no_note(tmp_path: Path) -> None:
    (span,) = CHAIN.put(store := open_store(tmp_path), 10)
    (lock,) = (tmp_path / "leases").glob("*.lock")
    with pytest.raises(CheckpointError), store.handing() as handed:
        handed(span)
        assert lock.read_bytes().rstrip(b"\0").decode() == str(span.path.relative_to(tmp_path))
        raise CheckpointError("refused")
    assert lock.read_bytes().rstrip(b"\0") == b""
    with store.handing() as handed:
        handed(span)
    assert leases.sweep(tmp_path, os.getpid()) == []
    assert read_header(span.path)[0].hits == 0
