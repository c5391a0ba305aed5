"""What forks cost: `python benchmarks/forks.py [--tokens N] [--turn N] [--model PATH] [--json]`.

One session of N tokens, and three forks of it with one more turn each, whose question differs. A fork shares its past,
so the directory grows by the turns alone.

Exit code 1 when the claim does not hold: at most 1.15 times the disk of the one session.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ds4chat.engine.protocol import ChatMessage, KvOptions
from ds4chat.sessions import interchange
from tests.support.engine_room import EngineRoom, user
from tests.support.tiny_models import starter_model

SAMPLE = Path(__file__).resolve().parents[1] / "sample_sessions" / "lighthouse.toml"
FORKS = 3
MAX_RATIO = 1.15
WORDS = "and tell me which of the people we spoke of would have minded it most, and why they never said so"


@dataclass(frozen=True)
class Result:
    """Lengths in tokens, sizes in bytes; a turn is a fork's question and its answer."""

    tokens: int
    turn_tokens: list[int]
    bytes_before: int
    bytes_after: int

    @property
    def ratio(self) -> float:
        return self.bytes_after / self.bytes_before


def long_chat(tokens: int, room: EngineRoom) -> list[ChatMessage]:
    """The sample session, its turns repeated and the last one cut, at about so many tokens."""
    session = interchange.import_file(SAMPLE)
    turns = [ChatMessage(message.role, message.text) for message in session.path()]
    chat = [ChatMessage("system", session.system)] if session.system else []
    turns *= 1 + tokens // 1000
    for ask, answer in zip(turns[::2], turns[1::2], strict=False):
        longer = [*chat, ask, answer]
        total = room.prepare(longer, session="measuring").total_tokens
        if total > tokens:
            # Characters and tokens go together closely enough to hit the length within a few of them.
            share = (tokens - room.prepare([*chat, ask]).total_tokens) / max(total, 1)
            length = int(share * sum(len(message.text) for message in longer))
            return [*chat, ask, ChatMessage("assistant", answer.text[:length])] if length > 0 else chat
        chat = longer
    return chat


def measure(
    model: Path,
    folder: Path,
    tokens: int,
    turn: int,
    kv: KvOptions,
    *,
    n_ctx: int,
    threads: int | None = None,
) -> Result:
    """Store one session, then its forks, each in the engine as the program runs it."""

    def size() -> int:
        return sum(path.stat().st_size for path in folder.rglob("*.kv"))

    with EngineRoom(model, None, kv, n_ctx=n_ctx, threads=threads) as room:
        chat = long_chat(tokens, room)
    with EngineRoom(model, folder, kv, n_ctx=n_ctx, threads=threads) as room:
        length = room.prepare(chat, session="one", prefill=True).total_tokens
    before = size()
    turns = []
    for number in range(FORKS):
        with EngineRoom(model, folder, kv, n_ctx=n_ctx, threads=threads) as room:
            # Half of the turn is asked, half is answered.
            words = f"Question {number}: {WORDS}".split()
            question = [*chat, user(" ".join(words * (1 + turn // 20)))]
            while room.prepare(question).total_tokens - length > turn / 2 + 8:
                question = [*chat, user(question[-1].text.rpartition(" ")[0])]
            asked = room.prepare(question).total_tokens - length
            reply = room.chat(
                question, max_tokens=turn - asked, session=f"fork {number}", cold=False, force=True
            )
            turns.append(asked + len(reply.tokens))
    return Result(length, turns, before, size())


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Disk use of three forks of one session.")
    parser.add_argument(
        "--tokens", type=int, default=6000, metavar="N", help="of the session, 6,000 by default"
    )
    parser.add_argument("--turn", type=int, default=100, metavar="N", help="tokens of each fork's turn, 100")
    parser.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file instead of the starter model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    model = args.model or starter_model()
    if model is None:
        print("forks.py: the starter model is not installed: run `make test`.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ds4chat-forks-") as name:
        n_ctx = (args.tokens + args.turn) * 6 // 5
        result = measure(model, Path(name), args.tokens, args.turn, KvOptions(budget_mb=0), n_ctx=n_ctx)
    holds = result.ratio <= MAX_RATIO
    if args.json:
        print(json.dumps(asdict(result) | {"ratio": result.ratio, "holds": holds}, indent=2))
    else:
        print(f"one session     {result.tokens:,} tokens, {result.bytes_before:,} bytes")
        print(f"{FORKS} forks more    {result.turn_tokens} tokens, {result.bytes_after:,} bytes in all")
        print(f"ratio           {result.ratio:.3f}")
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: at most {MAX_RATIO}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
