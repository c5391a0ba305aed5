"""What of this machine the engine must know. Must not know: llama.cpp."""

from __future__ import annotations

import os
from pathlib import Path


def physical_cores() -> int:
    """Physical cores, or the logical ones where the system does not tell."""
    cores = set()
    for core in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/core_id"):
        try:
            package = (core.parent / "physical_package_id").read_text()
            cores.add((package, core.read_text()))
        except OSError:
            continue
    return len(cores) or os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
