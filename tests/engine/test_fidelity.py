"""A state that came back from disk goes on bit for bit as the one that never left, on every kind of model.

`benchmarks/fidelity.py` prints the same as a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4chat.engine.machine import physical_cores
from tests.support.fidelity import FURTHER, REQUIRED, STEP, WAYS, Case, Rig, beyond_the_window


@pytest.fixture(scope="module", params=REQUIRED, ids=str)
def rig(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> Iterator[Rig]:
    rig = Rig(request.param, tiny[request.param.kind])
    yield rig
    rig.close()


@pytest.mark.parametrize("way", WAYS)
def test_logits_are_those_of_the_uninterrupted_run(rig: Rig, way: str, tmp_path: Path) -> None:
    held = list(WAYS[way](rig, tmp_path))
    assert held and all(held)


@pytest.mark.parametrize("case", FURTHER, ids=str)
def test_smaller_caches_and_no_flash_attention_too(case: Case, tiny: dict[str, Path], tmp_path: Path) -> None:
    rig = Rig(case, tiny[case.kind])
    held = [*WAYS["rewind"](rig, tmp_path / "rewind"), *WAYS["tail"](rig, tmp_path / "tail")]
    rig.close()
    assert held and all(held)


@pytest.mark.skipif(physical_cores() < 2, reason="with one thread the difference does not show")
def test_a_span_longer_than_the_window_is_not_exact_which_is_why_none_is_stored(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    rig = Rig(Case("swa"), tiny["swa"], threads=2)
    assert beyond_the_window(rig, tmp_path / "fits", STEP)
    assert not beyond_the_window(rig, tmp_path / "longer", 2 * STEP)
    rig.close()
