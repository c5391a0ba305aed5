"""Small GGUF files that are whole: a header, a vocabulary, and tensors of zeros."""

from __future__ import annotations

import struct
from pathlib import Path

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(name: str, value: str | int | list[str]) -> bytes:
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, int):
        return text(name) + struct.pack("<II", 4, value)
    return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def write_gguf(
    path: Path,
    *,
    kind: str = "llama",
    name: str = "Small One",
    template: str = TEMPLATE,
    part: tuple[int, int] | None = None,
    file_type: int = 15,
    tensors: int = 2,
    more: dict[str, str | int | list[str]] | None = None,
) -> Path:
    """A model of `tensors` tensors of 64 numbers (f32). `part`: its number, from 0, and how many there are."""
    values: dict[str, str | int | list[str]] = {}
    if part is None or part[0] == 0:
        values = {
            "general.architecture": kind,
            "general.name": name,
            "general.file_type": file_type,
            "general.license": "mit",
            f"{kind}.context_length": 2048,
            f"{kind}.block_count": 2,
            f"{kind}.embedding_length": 64,
            f"{kind}.feed_forward_length": 128,
            f"{kind}.attention.head_count": 4,
            f"{kind}.attention.head_count_kv": 2,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a", "b", "c"],
        }
        if template:
            values["tokenizer.chat_template"] = template
    if part is not None:
        values |= {"split.no": part[0], "split.count": part[1]}
    values |= more or {}
    data = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(values))
    data += b"".join(entry(key, value) for key, value in values.items())
    for number in range(tensors):
        data += text(f"t{number}") + struct.pack("<IQIQ", 1, 64, 0, number * 256)
    data += bytes(-len(data) % 32) + bytes(256 * tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
