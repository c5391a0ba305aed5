"""A ChatGPT export of hundreds of megabytes imported by the program: how much memory and time that takes.

The export is made of random words, with the branches, calls of tools and measures that real ones have, and written
chat by chat into a temporary folder. The program reads it in a process of its own, twice.

    .venv/bin/python benchmarks/import_big.py                  # 600 MB, 2,000 chats
    .venv/bin/python benchmarks/import_big.py --mb 60 --json

Exit code 0 when the peak memory is at most 150 MB above that of an import of one small chat, every chat is there, and
the second import adds none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_EXTRA_MB = 150
START = 1_700_000_000.0
WORDS = 20_000
"""Different words: what a person and a model use in some years."""


def vocabulary(rng: random.Random) -> list[str]:
    """Words of two to four syllables."""
    syllables = [c + v for c in "bcdfghklmnprstvw" for v in "aeiou"]
    return ["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(WORDS)]


def node(
    id_: str, parent: str | None, role: str, parts: list[Any], when: float, **more: Any
) -> dict[str, Any]:
    """A message with what surrounds it in an export."""
    content = {"content_type": "text", "parts": parts} | more.pop("content", {})
    metadata = {
        "model_slug": "gpt-4o", "finish_details": {"type": "stop", "stop_tokens": [200002]}, "is_complete": True,
        "citations": [], "content_references": [], "request_id": f"{id_}-IAD", "message_type": None,
        "timestamp_": "absolute", "parent_id": parent, "turn_exchange_id": id_, "safe_urls": [],
    }  # fmt: skip
    message = {
        "id": id_, "author": {"role": role, "name": None, "metadata": {}}, "create_time": when, "update_time": None,
        "content": content, "status": "finished_successfully", "end_turn": True, "weight": 1.0,
        "metadata": metadata if role == "assistant" else {}, "recipient": "all", "channel": None,
    }  # fmt: skip
    return {"id": id_, "message": message | more, "parent": parent, "children": []}


def chat(number: int, size: int, rng: random.Random, words: list[str]) -> dict[str, Any]:
    """A chat of about so many bytes as JSON: questions, replies, some replies twice, some calls of a tool."""
    nodes: list[dict[str, Any]] = [{"id": "root", "message": None, "parent": None, "children": []}]
    above, written, turn = "root", 0, 0
    while written < size or turn == 0:
        when = START + number * 3600 + turn * 60
        said = node(f"q{turn}", above, "user", [" ".join(rng.choices(words, k=rng.randrange(5, 60)))], when)
        above = f"q{turn}"
        added = [said]
        if turn % 5 == 3:
            added.append(node(f"c{turn}", above, "assistant", ["lookup()"], when + 1, recipient="python"))
            output = {"content_type": "execution_output", "text": " ".join(rng.choices(words, k=300))}
            added.append(node(f"t{turn}", f"c{turn}", "tool", [], when + 2, content=output))
            above = f"t{turn}"
        for branch in range(2 if turn % 4 == 1 else 1):
            text = " ".join(rng.choices(words, k=rng.randrange(100, 900)))
            added.append(node(f"a{turn}.{branch}", above, "assistant", [text], when + 3 + branch))
        above = added[-1]["id"]
        nodes += added
        written += sum(len(json.dumps(item)) for item in added)
        turn += 1
    mapping = {item["id"]: item for item in nodes}
    for item in nodes[1:]:
        mapping[item["parent"]]["children"].append(item["id"])
    name, began = f"conversation-{number}", START + number * 3600
    return {
        "title": f"Chat {number}", "create_time": began, "update_time": began + turn * 60, "mapping": mapping,
        "moderation_results": [], "current_node": above, "conversation_id": name, "id": name,
        "default_model_slug": "gpt-4o", "is_archived": False,
    }  # fmt: skip


def chats(count: int, size: int) -> Iterator[dict[str, Any]]:
    """Most chats are short and some are very long."""
    rng = random.Random(7)
    words = vocabulary(rng)
    for number in range(count):
        yield chat(number, int(size / count * rng.choice((0.1, 0.3, 0.5, 0.8, 1.0, 1.3, 3.0))), rng, words)


def write_export(path: Path, count: int, size: int) -> None:
    """The file, a chat at a time."""
    with path.open("w", encoding="utf-8") as file:
        for i, item in enumerate(chats(count, size)):
            file.write(",\n" if i else "[")
            json.dump(item, file)
        file.write("]")


def run_import(home: Path, file: Path) -> tuple[dict[str, Any], float, float]:
    """The program's report of an import, its peak memory in MB, and the seconds it took."""
    folders = {f"DS4CHAT_{name}_DIR": str(home / name.lower()) for name in ("DATA", "KV", "LOG")}
    environment = os.environ | folders | {"DS4CHAT_CONFIG": str(home / "config.toml")}
    out = home / "report.json"
    home.mkdir(exist_ok=True)
    with out.open("w") as stdout:
        began = time.monotonic()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "ds4chat", "import", "--json", str(file)],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1)],
        )
        _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the import of {file} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    report = json.loads(out.read_text())[0]
    return report, usage.ru_maxrss * unit / 1e6, seconds


def stored(home: Path) -> int:
    """How many sessions there are."""
    with sqlite3.connect(home / "data" / "sessions.db") as db:
        return int(db.execute("SELECT COUNT(*) FROM sessions").fetchone()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Import a large ChatGPT export and measure it.")
    parser.add_argument("--mb", type=int, default=600, help="size of the export (600)")
    parser.add_argument("--chats", type=int, default=2000, help="chats in it (2000)")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ds4chat-import-") as name:
        folder = Path(name)
        big, small = folder / "conversations.json", folder / "small.json"
        write_export(small, 1, 1)
        write_export(big, arguments.chats, arguments.mb * 10**6)
        size = big.stat().st_size
        _, least, _ = run_import(folder / "empty", small)
        home = folder / "home"
        first, peak, seconds = run_import(home, big)
        here = stored(home)
        again, peak_again, seconds_again = run_import(home, big)
        result = {
            "export_bytes": size,
            "chats": arguments.chats,
            "imported": first["imported"],
            "messages": first["messages"],
            "stored": here,
            "seconds": round(seconds, 1),
            "chats_per_second": round(arguments.chats / seconds, 1),
            "peak_mb": round(peak, 1),
            "least_mb": round(least, 1),
            "extra_mb": round(peak - least, 1),
            "database_bytes": (home / "data" / "sessions.db").stat().st_size,
            "again_imported": again["imported"],
            "again_known": again["already_here"],
            "again_seconds": round(seconds_again, 1),
            "again_peak_mb": round(peak_again, 1),
            "stored_again": stored(home),
        }
    holds = (
        result["extra_mb"] <= MAX_EXTRA_MB
        and result["stored"] == result["stored_again"] == result["imported"] == arguments.chats
        and result["again_imported"] == 0
    )
    if arguments.json:
        print(json.dumps(result | {"holds": holds}))
    else:
        for key, value in result.items():
            print(f"{key.replace('_', ' '):18} {value:>16,}")
        print("all claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
