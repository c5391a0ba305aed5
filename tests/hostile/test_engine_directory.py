"""The real engine over a checkpoint directory with things in it that are no checkpoints."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mutations import Bench


@pytest.fixture(scope="module")
def bench(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tiny["dense"], tmp_path_factory.mktemp("dense"))
    yield bench
    bench.close()


def _socket(path: Path) -> None:
    here = Path.cwd()
    # The name of a socket may have 108 bytes only.
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
    "no rights": lambda path: path.touch(0),
    "a terabyte of nothing": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2**40),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_the_answer_is_the_same(bench: Bench, make: Callable[[Path], None]) -> None:
    bench.mutate("bit flips", 0)
    for name, content in bench.files.items():
        (bench.folder / name).write_bytes(content)
    for span in sorted(bench.chain)[:1]:
        (bench.folder / span).unlink()
        make(bench.folder / span)
    make(bench.folder / "variant.json")
    (bench.root / "leases").mkdir()
    make(bench.root / "leases" / "1-a.lock")
    first, again = bench.ask(), bench.ask()
    assert first.done and first.tokens == bench.expected.tokens
    assert again.done and again.tokens == bench.expected.tokens
    assert first.restored < bench.expected.restored


def test_a_linked_checkpoint_is_passed_over_and_a_second_name_is_used(bench: Bench, tmp_path: Path) -> None:
    bench.mutate("bit flips", 0)
    for name, content in bench.files.items():
        (tmp_path / name).write_bytes(content)
        (bench.folder / name).unlink(missing_ok=True)
        (bench.folder / name).hardlink_to(tmp_path / name)
    assert bench.ask().restored == bench.expected.restored
    for name in bench.files:
        (bench.folder / name).unlink()
        (bench.folder / name).symlink_to(tmp_path / name)
    answer = bench.ask()
    assert answer.tokens == bench.expected.tokens and answer.restored == 0
