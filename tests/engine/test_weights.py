"""Exact weights are told apart by their whole file, and that is remembered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ds4chat.engine import weights
from ds4chat.engine.weights import weights_hash


@pytest.fixture(autouse=True)
def forgotten() -> None:
    weights._found.clear()


def model(tmp_path: Path, size: int = 20_000_000) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(os.urandom(1000) * (size // 1000))
    return path


@pytest.mark.parametrize("at", [0, 1, 8_388_607, 8_388_608, 13_333_333, 19_999_999])
def test_one_bit_anywhere_is_another_model(tmp_path: Path, at: int) -> None:
    path = model(tmp_path)
    before = weights_hash(path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    other = tmp_path / "other.gguf"
    other.write_bytes(data)
    assert weights_hash(other) != before
    path.write_bytes(data)
    assert weights_hash(path) != before


def test_it_is_remembered_beyond_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memo = model(tmp_path), tmp_path / "weights.json"
    before = weights_hash(path, memo)
    weights._found.clear()
    monkeypatch.setattr(weights.xxhash, "xxh3_128", lambda: pytest.fail("the file was read again"))
    assert weights_hash(path, memo) == before


def test_a_file_that_was_replaced_is_hashed_again(tmp_path: Path) -> None:
    path, memo = model(tmp_path), tmp_path / "weights.json"
    before, status = weights_hash(path, memo), path.stat()
    other = tmp_path / "new"
    other.write_bytes(os.urandom(20_000_000))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    weights._found.clear()
    assert weights_hash(path, memo) != before, "same path, size and time of change, another inode"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"x": 1}', b'{"%s": {"known": 1}}', b'{"%s": {"hash": "zz"}}']
)
def test_a_memo_that_says_nothing_usable_is_written_anew(tmp_path: Path, content: bytes) -> None:
    path, memo = model(tmp_path, 1_000_000), tmp_path / "weights.json"
    memo.write_bytes(content.replace(b"%s", str(path).encode()))
    before = weights_hash(path, memo)
    assert json.loads(memo.read_text())[str(path)]["hash"] == before.hex()


def test_a_memo_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    path = model(tmp_path, 1_000_000)
    assert weights_hash(path, tmp_path / "nowhere" / "weights.json") == weights_hash(path)


def test_a_link_and_its_file_are_one(tmp_path: Path) -> None:
    path, memo = model(tmp_path, 1_000_000), tmp_path / "weights.json"
    (tmp_path / "link.gguf").symlink_to(path)
    assert weights_hash(tmp_path / "link.gguf", memo) == weights_hash(path, memo)
    assert list(json.loads(memo.read_text())) == [str(path)]
