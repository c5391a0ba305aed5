"""The fidelity matrix: `python benchmarks/fidelity.py [--model PATH]`.

For each kind of memory and KV type, and each way a state comes back from disk, whether all logits are those of the
uninterrupted run with the same batches, bit for bit. Exit code 1 when a required cell does not hold.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.fidelity import FURTHER, REQUIRED, STEP, WAYS, Case, Rig, beyond_the_window
from tests.support.tiny_models import KINDS, starter_model, write_tiny_models


def row(case: Case, model: Path, folder: Path, threads: int) -> list[str]:
    """A cell for each way: how many comparisons held, of how many."""
    rig, cells = Rig(case, model, threads), []
    try:
        for number, tell in enumerate(WAYS.values()):
            held = list(tell(rig, folder / str(number)))
            cells.append(f"{sum(held)}/{len(held)}{'' if held and all(held) else ' NO'}")
    finally:
        rig.close()
    return cells


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 when a required cell does not hold."""
    parser = argparse.ArgumentParser(description="Whether restored states go on bit for bit.")
    parser.add_argument(
        "--model", type=Path, metavar="PATH", help="a dense GGUF file too, which takes minutes"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="1; more take long on a busy machine"
    )
    given = parser.parse_args(arguments)
    # llama.cpp is loaded in this process; what it has to say of tiny models is of no use here.
    logging.disable(logging.WARNING)
    starter = starter_model()
    if starter is None:
        print("fidelity.py: the starter model is not installed: run `make test`.", file=sys.stderr)
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ds4chat-fidelity-") as temporary:
        folder = Path(temporary)
        models = write_tiny_models(folder / "models", starter)
        cases = [*REQUIRED, *FURTHER]
        if given.model is not None:
            name = given.model.stem
            models[name] = given.model
            cases += [Case(name), Case(name, "q8_0")]
        width = max(len(str(case)) for case in cases)
        print("  ".join([" " * width, *(way.rjust(14) for way in WAYS)]))
        for number, case in enumerate(cases):
            cells = row(case, models[case.kind], folder / str(number), given.threads)
            print("  ".join([str(case).ljust(width), *(cell.rjust(14) for cell in cells)]), flush=True)
            failed += sum("NO" in cell for cell in cells)
        # With one thread the difference does not show.
        rig = Rig(Case("swa"), models["swa"], threads=2)
        for step in (STEP, 2 * STEP):
            exact = beyond_the_window(rig, folder / f"window-{step}", step)
            print(f"sliding window of {STEP}, spans of {step}: {'exact' if exact else 'not exact'}")
            failed += exact != (step == STEP)
        rig.close()
    kinds = ", ".join(KINDS)
    print(f"{failed} cells do not hold." if failed else f"All cells hold, bit for bit: {kinds}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
