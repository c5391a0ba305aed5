"""A verification while another process stores and evicts: what comes and goes meanwhile is no fault."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4chat.checkpoints import inventory
from ds4chat.checkpoints.inventory import Stock, take_stock, verify
from tests.checkpoints.kv_helpers import Talk, open_store, span_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A chain of three spans."""
    with_chain = tmp_path / "kv"
    Talk(range(1, 97)).put(open_store(with_chain), 32, 64, 96)
    return with_chain


def after_stock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Another process does something between the listing and the reading."""

    def take(root: Path) -> list[Stock]:
        stocks = take_stock(root)
        act()
        return stocks

    monkeypatch.setattr(inventory, "take_stock", take)


def test_what_was_deleted_meanwhile_is_no_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_stock(monkeypatch, lambda: [path.unlink() for path in span_files(root)])
    assert verify(root).faults == []


def test_what_was_replaced_meanwhile_is_no_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace() -> None:
        for path in span_files(root):
            shutil.copy(path, path.with_suffix(".tmp"))
            path.with_suffix(".tmp").write_bytes(path.read_bytes()[:-8])
            path.with_suffix(".tmp").replace(path)

    after_stock(monkeypatch, replace)
    assert verify(root).faults == []


def test_a_span_whose_parent_came_behind_the_listing_is_no_fault(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next(iter(sorted(take_stock(root)[0].spans.values(), key=lambda span: span.end))).path
    kept = first.read_bytes()
    first.unlink()
    after_stock(monkeypatch, lambda: first.write_bytes(kept))
    assert verify(root).faults == []


def test_a_gap_that_stays_is_one(root: Path) -> None:
    first = next(iter(sorted(take_stock(root)[0].spans.values(), key=lambda span: span.end))).path
    first.unlink()
    assert len(verify(root).faults) == 2
