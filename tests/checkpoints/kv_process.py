"""Processes of their own over one checkpoint directory: `python kv_process.py COMMAND ROOT ...`.

grow    one chat after the other grows span by span at the edge of the budget; ends with 1 when a span of the chain
        it stands on is gone, or the directory is too large
hold    stands on a chain until its standard input ends
crash   aborts (or ends as told) while it hands the second span of a chain to the engine
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from kv_helpers import Talk, load_chain, open_store

from ds4chat.checkpoints.span import PutResult
from ds4chat.checkpoints.writer import Writer

CHAIN = Talk(range(100, 190))
SPAN, SPANS = 20, 12
"""Tokens of a span, and spans of a chat, in `grow`."""


def grow(root: Path, salt: int, budget: int, chats: int) -> None:
    store = open_store(root, clock=time.time, budget_bytes=budget)  # type: ignore[arg-type]
    results: list[PutResult] = []
    with Writer(store) as writer:
        for chat in range(chats):
            talk = Talk([901, salt, chat, *range(100, 100 + SPAN * SPANS)])
            chain: list[bytes] = []
            for end in range(SPAN, SPAN * SPANS + 1, SPAN):
                chain.append(talk.name(end))
                store.set_live_chain(chain)
                writer.submit(talk.draft(end - SPAN, end), None, results.append)
                assert writer.flush(30)
                assert results[-1].is_on_disk, results[-1]
                assert talk.find(store) == list(range(SPAN, end + 1, SPAN)), f"lost a part of chat {chat}"
                assert size(root, budget * 1.01) <= budget * 1.01, size(root)
            assert load_chain(store, talk)[0] == talk.tokens[: SPAN * SPANS]
    store.close()
    print(sum(result.evicted for result in results))


def size(root: Path, hoped: float = 0) -> int:
    """Bytes of span files and those being written, the least of some scans, until one is as small as hoped: a rename in
    the middle of a scan may show a file twice, and one that was deleted meanwhile still counts."""
    least = sys.maxsize
    for _ in range(40):
        found = 0
        for path in list(root.glob("*/*/*.kv*")):
            with contextlib.suppress(OSError):
                found += path.stat().st_size
        least = min(least, found)
        if least <= hoped:
            break
    return least


def hold(root: Path) -> None:
    store = open_store(root, clock=time.time)  # type: ignore[arg-type]
    store.set_live_chain([span.sha1 for span in store.find(CHAIN.key, 10**6, 10**6)])
    print("held", flush=True)
    sys.stdin.read()


def crash(root: Path, how: str) -> None:
    store = open_store(root, clock=time.time)  # type: ignore[arg-type]
    chain = store.find(CHAIN.key, 10**6, 10**6)
    with store.handing() as handed:
        for number, span in enumerate(chain):
            handed(span)
            if number == 1:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), getattr(signal, how))
                time.sleep(10)
    print(len(chain), flush=True)


if __name__ == "__main__":
    command, root, *rest = sys.argv[1:]
    if command == "grow":
        grow(Path(root), *map(int, rest))
    elif command == "hold":
        hold(Path(root))
    else:
        crash(Path(root), *rest)
