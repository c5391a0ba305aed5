"""A seeded handful of what `benchmarks/mutations.py` does two thousand times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mutations import MUTATIONS, Bench


@pytest.fixture(scope="module", params=["dense", "hybrid"])
def bench(
    request: pytest.FixtureRequest, tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    bench = Bench(tiny[request.param], tmp_path_factory.mktemp(request.param))
    yield bench
    bench.close()


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_mutation_costs_time_and_never_an_answer(bench: Bench, kind: str) -> None:
    for seed in range(2):
        bench.mutate(kind, seed)
        answer = bench.ask()
        assert answer.done and answer.tokens == bench.expected.tokens, (kind, seed)
        assert answer.restored <= bench.expected.restored
        again = bench.ask()
        assert again.done and again.tokens == bench.expected.tokens, (kind, seed, "asked again")
