"""What a parent must know to start an engine child on this machine. Must not know: the child's protocol, llama.cpp."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ds4chat.engine.memo import read_memo, write_memo

log = logging.getLogger(__name__)

_TUNABLES = {"glibc.cpu.x86_non_temporal_threshold": "0x10000", "glibc.malloc.hugetlb": "1"}


def child_environment() -> dict[str, str]:
    """The environment of an engine child.

    A restore is one large copy into the KV cache. glibc copies around the processor's caches only from three quarters
    of the shared cache on, more than any layer of a span; where that begins at 64 KiB, a restore's copying takes a
    quarter to a third less time. The KV cache in huge pages, where the system gives them to who asks, takes off
    another twentieth, and loading touches it in fewer faults. Other C libraries pass the variable over.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    own = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in tunables]
    return os.environ | {"GLIBC_TUNABLES": ":".join([tunables, *own] if tunables else own)}


def is_plain(memo: Path | None) -> bool:
    """Whether the memo, a small JSON file, says that this build's special code does not run on this processor."""
    return read_memo(memo).get("no_extra_buffers") == _build()


def remember_plain(memo: Path | None) -> None:
    """Note that a load with this build's special code ended by an illegal instruction."""
    write_memo(memo, read_memo(memo) | {"no_extra_buffers": _build()})


def updated_from(memo: Path) -> tuple[str, str] | None:
    """The engine's version at the last call and now, when they differ; None too when there was none before."""
    known, now = read_memo(memo), _build()
    before = known.get("build")
    if before == now:
        return None
    write_memo(memo, known | {"build": now})
    return (before, now) if isinstance(before, str) else None


def _build() -> str:
    # Slow to import, and needed only after the screen is painted.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:
        return "unknown"
