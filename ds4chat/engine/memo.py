"""Small JSON files in which the engine remembers what it found out; lost, one costs time and nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from ds4chat.files import write_private

log = logging.getLogger(__name__)


def read_memo(path: Path | None) -> dict[str, object]:
    """What stands in it; nothing when it is not there or says nothing usable."""
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_memo(path: Path | None, values: Mapping[str, object]) -> None:
    """Replace it; that it cannot be written is a line in the log."""
    if path is not None:
        try:
            write_private(path, json.dumps(values))
        except OSError as error:
            log.warning("%s could not be written: %s", path, error)
