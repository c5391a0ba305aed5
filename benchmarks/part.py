"""One part of `ds4chat bench --json`, for the scripts beside this one."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TIMEOUT_SECONDS = 3600


def parser(description: str, tokens: int) -> argparse.ArgumentParser:
    """The options the scripts share; `tokens` is the default length."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--tokens", type=int, default=tokens, metavar="N", help=f"{tokens:,} by default")
    made.add_argument("--model", metavar="PATH", help="a GGUF file instead of the starter model")
    made.add_argument("--kv-type", metavar="TYPE", help="of the KV cache")
    made.add_argument("--ctx", metavar="N", help="context length, tokens")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def measure(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """The part of the report that is called `part`. Ends the script when the program fails."""
    command: Sequence[str] = [sys.executable, "-m", "ds4chat", "bench", "--json", "--only", part]
    options = (("--model", args.model), ("--kv-type", args.kv_type), ("--ctx", args.ctx))
    given = [word for name, value in options if value is not None for word in (name, value)]
    done = subprocess.run(
        [*command, "--tokens", str(args.tokens), *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(done.returncode)
    result: dict[str, Any] = json.loads(done.stdout)[part]
    return result
