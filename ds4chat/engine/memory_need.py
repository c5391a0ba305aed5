"""Whether a model and its context fit in memory, from the file's own numbers and before anything is loaded.

Weights are mapped from the file, so they may be larger than the memory: slow, and said. The KV cache and what is
computed with are not: a context that surely does not fit is refused, with what would. Must not know: llama.cpp.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ds4chat.engine.machine import memory_bytes
from ds4chat.gguf_file import Contents, layer_numbers

KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
}
"""Of one number in a KV row; 18/32 for those that are not listed."""

DEFAULT_CTX_CAP = 16_384
"""Context length by default at most, tokens: a window far beyond what small machines prefill in reasonable time."""

BATCH_TOKENS = 512
LEAST_CTX = 512
"""What is worth offering."""

MB, GB = 10**6, 10**9


@dataclass(frozen=True)
class Need:
    """Bytes of memory a model takes.

    Attributes:
        per_token: of KV rows, in all layers.    fixed: whatever the context: recurrent states, what is computed with.
        per_cell: of what is computed with, for each token the context holds.
    """

    weights: int
    per_token: int
    fixed: int
    per_cell: int = 2 * BATCH_TOKENS

    def context(self, n_ctx: int) -> int:
        """What a context takes beside the weights."""
        return self.fixed + n_ctx * (self.per_token + self.per_cell)

    def largest(self, free: int) -> int:
        """The largest context that fits, tokens."""
        return max(0, (free - self.fixed) // (self.per_token + self.per_cell) // 256 * 256)


def need(contents: Contents, kv_type: str) -> Need:
    """What a model needs, with the cache of a KV type."""
    values, kind = contents.values, contents.kind

    def number(name: str, default: int = 0) -> int:
        value = values.get(f"{kind}.{name}")
        return value if isinstance(value, int) and value > 0 else default

    layers = min(number("block_count"), 4096)
    width = number("embedding_length")
    heads = layer_numbers(values, "attention.head_count", layers, 0)
    head = width // max([*heads, 1])
    key, value = number("attention.key_length", head), number("attention.value_length", head)
    # Files that say nothing have as many KV heads as heads; recurrent ones have no heads at all.
    rows = sum(
        kv if kv >= 0 else own
        for kv, own in zip(layer_numbers(values, "attention.head_count_kv", layers, -1), heads, strict=True)
    )
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    recurrent = layers * 2 * 4 * inner * (state + number("ssm.conv_kernel"))
    feed = max(layer_numbers(values, "feed_forward_length", layers, 0), default=0)
    computing = 4 * BATCH_TOKENS * (2 * feed + 4 * width + 4 * inner) + 8 * contents.vocabulary
    per_token = int(rows * (key + value) * KV_BYTES.get(kv_type, 18 / 32))
    return Need(contents.weights, per_token, recurrent + computing, 2 * BATCH_TOKENS if rows else 0)


def default_n_ctx(trained: int, per_token: int) -> int:
    """The model's own context length, capped at `DEFAULT_CTX_CAP` and by a quarter of the memory; tokens."""
    limit = min(trained or DEFAULT_CTX_CAP, DEFAULT_CTX_CAP)
    if per_token:
        limit = min(limit, memory_bytes() // 4 // per_token)
    return max(256, limit // 256 * 256)


def trained_ctx(contents: Contents) -> int:
    """The context length a model was trained for, 0 when its file does not say."""
    value = contents.values.get(f"{contents.kind}.context_length")
    return value if isinstance(value, int) and 0 < value < 2**31 else 0


def refusal(contents: Contents, n_ctx: int, kv_type: str, free: int, *, flash_attention: bool = True) -> str:
    """Why a context cannot be had and what can be, to stand behind "The model NAME"; "" when it fits."""
    mine = need(contents, kv_type)
    takes = mine.context(n_ctx)
    if takes <= free:
        return ""
    ways = []
    if (fits := mine.largest(free)) >= LEAST_CTX:
        ways.append(f"--ctx {fits} fits")
    if (
        flash_attention
        and kv_type in ("f32", "f16", "bf16")
        and need(contents, "q8_0").context(n_ctx) <= free
    ):
        ways.append(f"--kv-type q8_0 makes {n_ctx:,} tokens fit")
    if not ways:
        ways.append("close other programs, or choose a smaller model")
    return (
        f"needs {_size(takes)} of memory for a context of {n_ctx:,} tokens, and {_size(free)} are free: "
        f"{', and '.join(ways)}."
    )


def warning(contents: Contents, n_ctx: int, kv_type: str, free: int) -> str:
    """What is to be expected of weights that do not fit beside the context; "" when they do."""
    takes = contents.weights + need(contents, kv_type).context(n_ctx)
    if takes <= free:
        return ""
    return (
        f"takes {_size(takes)} ({_size(contents.weights)} of weights), which is {_size(takes - free)} more than the "
        "memory that is free: its weights are read from the disk again and again, which is slow; a smaller model, or "
        "one of fewer bits, is not."
    )


def _size(nbytes: int) -> str:
    return f"{nbytes / GB:,.1f} GB" if nbytes >= GB else f"{max(1, round(nbytes / MB)):,} MB"


# ---- what is free -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """`free`: bytes that programs can have now; `swap`: beyond these, on the disk."""

    free: int
    swap: int = 0


def free_memory(root: Path = Path("/")) -> Memory | None:
    """What this process can have, limits of its cgroups included; None where the system does not tell.

    `root` is where `/proc` and `/sys` are looked for.
    """
    if sys.platform == "darwin":
        return _of_vm_stat()
    lines = _numbers(root / "proc/meminfo", 1024)
    if "MemAvailable" not in lines:
        return None
    free, swap = lines["MemAvailable"], lines.get("SwapFree", 0)
    for memory in _cgroups(root):
        free, swap = min(free, memory.free), min(swap, memory.swap)
    return Memory(free, swap)


def _numbers(path: Path, unit: int) -> dict[str, int]:
    """Of a file with a name and a number a line."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    return {name: int(number) * unit for name, number in re.findall(r"^(\w+):?\s+(\d+)", text, re.MULTILINE)}


def _number(path: Path) -> int | None:
    """Of a file with one number; None for none ("max")."""
    try:
        return int(path.read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError):
        return None


def _cgroups(root: Path) -> list[Memory]:
    """What is left of each limit that this process is under."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        inside = name.strip("/")
        if number == "0" and not controllers:
            found += _left(root / "sys/fs/cgroup", inside, _version_2)
        elif "memory" in controllers.split(","):
            found += _left(root / "sys/fs/cgroup/memory", inside, _version_1)
    return found


def _left(mount: Path, inside: str, of: Callable[[Path], Memory | None]) -> list[Memory]:
    """Of a group and all groups it lies in. In a container the path may be that of outside: only the mount counts."""
    folder = mount / inside
    folders = [folder, *folder.parents[: len(folder.parts) - len(mount.parts)]] if inside else [mount]
    return [memory for place in folders if (memory := of(place)) is not None]


def _version_2(folder: Path) -> Memory | None:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:
        return None
    cached = _numbers(folder / "memory.stat", 1).get("inactive_file", 0)
    swap = _number(folder / "memory.swap.max")
    left = 2**62 if swap is None else max(0, swap - (_number(folder / "memory.swap.current") or 0))
    return Memory(max(0, limit - used + cached), left)


def _version_1(folder: Path) -> Memory | None:
    limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    cached = _numbers(folder / "memory.stat", 1).get("total_inactive_file", 0)
    free = max(0, limit - used + cached)
    both, used = (
        _number(folder / "memory.memsw.limit_in_bytes"),
        _number(folder / "memory.memsw.usage_in_bytes"),
    )
    swap = 2**62 if both is None or used is None else max(0, both - used + cached - free)
    return Memory(free, swap)


def _of_vm_stat() -> Memory | None:
    try:
        text = subprocess.run(
            ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_vm_stat(text)


def parse_vm_stat(text: str) -> Memory | None:
    """Of what macOS's `vm_stat` prints. It swaps to files as it needs, so this is only what can be had at once."""
    size = re.search(r"page size of (\d+) bytes", text)
    pages: Mapping[str, str] = dict(re.findall(r"^Pages (\w+):\s+(\d+)", text, re.MULTILINE))
    if size is None or "free" not in pages:
        return None
    names = ("free", "inactive", "speculative", "purgeable")
    return Memory(int(size[1]) * sum(int(pages.get(name, 0)) for name in names), 2**62)
