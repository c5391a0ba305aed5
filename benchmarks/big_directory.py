"""How a directory of many checkpoints opens, and how long a lookup in it takes: `python benchmarks/big_directory.py`.

Makes 100,000 span files (real headers, texts and tokens; payloads of a few bytes) of some thousand chats in a temporary
directory, then measures, alternating: a bare read of all headers (list the folder; open, read 144 bytes, close), and
`Store.open`. Then lookups of a prompt of 6,000 tokens.

Exit code 1 when the claims do not hold: opening takes at most 3 times the bare read, a lookup less than 10 ms.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import xxhash

from ds4chat.checkpoints.format import HEADER_BYTES, hash_tokens, write_span
from ds4chat.checkpoints.prefix import ROOT, sha1
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, SpanDraft
from ds4chat.checkpoints.store import Store

IDENTITY = Identity("llama-benchmark", b"variant1", b"fingerprint-0001", 4, 1)
SPAN_TOKENS, PROMPT_TOKENS, SPANS_A_CHAT = 512, 6_000, 16
MAX_OPEN_RATIO, MAX_LOOKUP_MS = 3.0, 10.0

SHORT_TOKENS = 32
"""Of a span in all chats but every hundredth: what opening costs does not depend on it, and writing does."""

TOKENS = list(range(SPAN_TOKENS))
TEXT = random.Random(1).randbytes(1_000_000).hex().encode()


def make(root: Path, files: int) -> bytes:
    """Write the chats; the key bytes of one of them up to `PROMPT_TOKENS` and somewhat further."""
    folder = root / IDENTITY.folder
    folder.mkdir(parents=True)
    draw = random.Random(2)
    written, key = 0, b""
    while written < files:
        parent, tokens, text_so_far = ROOT, xxhash.xxh3_64(), b""
        is_long = written % (100 * SPANS_A_CHAT) == 0
        ids = TOKENS if is_long else TOKENS[:SHORT_TOKENS]
        for number in range(min(SPANS_A_CHAT, files - written)):
            at, length = draw.randrange(len(TEXT) // 2), draw.randrange(3 * len(ids), 6 * len(ids))
            text = TEXT[at : at + length]
            text_so_far += text
            start_hash = tokens.intdigest()
            hash_tokens(ids, tokens)
            draft = SpanDraft(
                parent=parent,
                sha1=sha1(text_so_far),
                start=number * len(ids),
                end=(number + 1) * len(ids),
                context_size=16_384,
                reason=Reason.CONTINUED if number else Reason.COLD,
                text=text,
                tokens=ids,
                start_hash=start_hash,
                end_hash=tokens.intdigest(),
                key_len=len(text_so_far),
                payload=b"small",
                cost_us=7_000,
            )
            with (folder / f"{draft.sha1.hex()}.kv").open("xb") as file:
                write_span(file, draft.header(IDENTITY, 1_700_000_000), text, ids, draft.payload)
            parent = draft.sha1
            written += 1
        key = text_so_far if is_long and len(text_so_far) > len(key) else key
    # A folder that changed a moment ago is listed again at every lookup.
    os.utime(folder, (1_700_000_000, 1_700_000_000))
    return key


def bare_read(root: Path) -> int:
    """List, open, read, close; how many headers that were."""
    count = 0
    for family in os.scandir(root):
        for variant in os.scandir(family.path) if family.name == "llama-benchmark" else ():
            for entry in os.scandir(variant.path):
                if entry.name.endswith(".kv"):
                    fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                    count += len(os.pread(fd, HEADER_BYTES, 0)) == HEADER_BYTES
                    os.close(fd)
    return count


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Time, and what came of it."""
    gc.collect()
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ds4chat-big-") as name:
        root = Path(name)
        making, key = seconds(lambda: make(root, options.files))
        assert isinstance(key, bytes)
        bare: list[float] = []
        opening: list[float] = []
        store: Store | None = None
        for _ in range(options.rounds):
            took, count = seconds(lambda: bare_read(root))
            assert count == options.files, count
            bare.append(took)
            store = None
            took, opened = seconds(lambda: Store.open(root, IDENTITY))
            assert isinstance(opened, Store)
            opening.append(took)
            store = opened
            os.utime(root / IDENTITY.folder, (1_700_000_000, 1_700_000_000))
        assert store is not None
        store.find(key, PROMPT_TOKENS - 1, 16_384)
        lookups: list[float] = []
        for _ in range(20):
            took, chain = seconds(lambda: store.find(key, PROMPT_TOKENS - 1, 16_384))
            lookups.append(took)
        assert isinstance(chain, list)
        tokens = chain[-1].end if chain else 0
        store.close()
    ratio = statistics.median(o / b for o, b in zip(opening, bare, strict=True))
    result = {
        "files": options.files,
        "made_in_s": round(making, 1),
        "bare_read_ms": round(1000 * statistics.median(bare)),
        "open_ms": round(1000 * statistics.median(opening)),
        "open_over_bare_read": round(ratio, 2),
        "lookup_prompt_tokens": PROMPT_TOKENS,
        "lookup_found_tokens": tokens,
        "lookup_ms": round(1000 * statistics.median(lookups), 2),
        "lookup_worst_ms": round(1000 * max(lookups), 2),
    }
    holds = ratio <= MAX_OPEN_RATIO and 1000 * max(lookups) < MAX_LOOKUP_MS and tokens > 5_000
    if options.json:
        print(json.dumps(result | {"holds": holds}, indent=2))
    else:
        width = max(map(len, result))
        for label, value in result.items():
            print(f"{label.replace('_', ' '):{width}}  {value:>12,}")
        print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
