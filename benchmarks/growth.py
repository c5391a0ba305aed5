"""What a growing chat writes: `python benchmarks/growth.py [--tokens N] [--json]`.

A chat is grown turn by turn to N tokens, and everything is stored that a chat stores: at frontiers, and the tail after
each turn. Beside the bytes written stand the KV bytes of the chat in the end, and what whole states at the same points
would have taken.

Exit code 1 when a claim does not hold: at most 1.1 times the KV bytes, where whole states take over 5 times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from part import measure, parser

MAX_OVER_KV = 1.1
MIN_WHOLE_OVER_KV = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    args = parser("Bytes written for a chat that grows turn by turn.", 6000).parse_args(arguments)
    growth = measure("growth", args)
    holds = growth["written_over_kv"] <= MAX_OVER_KV and growth["whole_over_kv"] > MIN_WHOLE_OVER_KV
    if args.json:
        print(json.dumps(growth | {"holds": holds}, indent=2))
    else:
        print(f"tokens, turns, stores   {growth['tokens']:,}, {growth['turns']}, {growth['stores']}")
        print(f"KV in the end           {growth['kv_bytes']:,} bytes")
        print(
            f"written                 {growth['written_bytes']:,} bytes, {growth['written_over_kv']:.3f} times"
        )
        print(f"whole states would be   {growth['whole_bytes']:,} bytes, {growth['whole_over_kv']:.1f} times")
        claim = f"at most {MAX_OVER_KV} times the KV, whole states over {MIN_WHOLE_OVER_KV:g} times"
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
