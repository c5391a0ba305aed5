"""Whether storing slows a reply down: `python benchmarks/generation.py [--tokens N] [--json]`.

Runs of 64 tokens behind a chat of N tokens, in pairs with and without storing, the order changing from pair to pair.
Each run with storing stores one span of 64 tokens: eight times as many files as a chat makes by default.

Exit code 1 when the claim does not hold: at least 0.97 of the speed without, median of the pairs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from part import measure, parser

MIN_RATIO = 0.97


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    args = parser("Generation with and without storing, in pairs.", 512).parse_args(arguments)
    result = measure("generation", args)
    holds = result["storing_over_plain"] >= MIN_RATIO
    if args.json:
        print(json.dumps(result | {"holds": holds}, indent=2))
    else:
        print(f"pairs of {result['tokens']} tokens     {result['pairs']}")
        print(f"without storing        {result['plain_per_second']:.1f} tokens/s")
        print(f"with storing           {result['storing_per_second']:.1f} tokens/s")
        print(f"median of the ratios   {result['storing_over_plain']:.3f}")
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: at least {MIN_RATIO}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
