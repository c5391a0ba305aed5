"""What the engine asks a processor and a model once and remembers, carried from one home to the next.

On the starter model that takes two seconds, as long as most tests: the first home of a run pays, as a user's does.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

NAMES = ("engine.json", "weights.json", "models.json")

_keep = tempfile.TemporaryDirectory(prefix="memos-")

ROOM = Path(_keep.name) / "models.json"
"""The memo for engines inside of the test process, where nothing is patched that the engine asks about."""

_folders: list[Path] = [ROOM.parent]


def learn(folder: Path) -> None:
    """Put what the homes before found out into this home's data folder, which is there, unless it knows already."""
    for name in NAMES:
        known: dict[str, object] = {}
        for other in _folders:
            with contextlib.suppress(OSError, ValueError):
                _add(known, json.loads((other / name).read_text()))
        if known and not (folder / name).exists():
            (folder / name).write_text(json.dumps(known))
    if folder not in _folders:
        _folders.append(folder)


def _add(known: dict[str, object], found: dict[str, object]) -> None:
    for key, value in found.items():
        both = isinstance(value, dict) and isinstance(before := known.get(key), dict)
        known[key] = before | value if both else value
