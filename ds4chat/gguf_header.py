"""What a GGUF file says of itself in its first bytes: name, quantization, context length. No engine, no tensors.

Reads at most `MAX_BYTES` and stops at the vocabulary, which comes last and is large. A file that lies about lengths
costs no more than an honest one. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ds4chat.gguf_file import ARRAY, SCALARS, STRING

MAX_BYTES = 4_000_000
MAX_KEYS = 2000

_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""`general.file_type`, as llama.h's `llama_ftype` counts."""

_IN_NAME = re.compile(
    r"(?<![A-Za-z0-9])((?:I?Q\d|TQ\d)(?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4)(?![A-Za-z0-9])", re.IGNORECASE
)


@dataclass(frozen=True)
class Header:
    """What was found; "" and 0 for what was not. `kind` is the architecture, "clip" for a projector of pictures."""

    name: str = ""
    kind: str = ""
    quantization: str = ""
    context: int = 0


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, MAX_BYTES

    def take(self, count: int) -> bytes:
        if count > self._left:
            raise ValueError("longer than a header")
        self._left -= count
        data = self._file.read(count)
        if len(data) < count:
            raise ValueError("the file ends in its header")
        return data

    def number(self, form: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        return self.take(int(self.number("Q"))).decode("utf-8", "replace")

    def value(self, kind: int) -> str | int | float | bool | None:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, count = int(self.number("I")), int(self.number("Q"))
            if of in SCALARS:
                self.take(count * struct.calcsize(SCALARS[of]))
            elif of == STRING:
                for _ in range(min(count, MAX_BYTES)):
                    self.take(int(self.number("Q")))
            else:
                raise ValueError("an array of arrays")
            return None
        if kind not in SCALARS:
            raise ValueError("an unknown type")
        return self.number(SCALARS[kind])


def read_header(path: Path) -> Header:
    """Raises ValueError when it is no GGUF file, OSError when it cannot be read."""
    found: dict[str, str | int | float | bool | None] = {}
    with path.open("rb") as file:
        reader = _Reader(file)
        if reader.take(4) != b"GGUF":
            raise ValueError("not a GGUF file")
        if not 2 <= int(reader.number("I")) <= 3:
            return Header(quantization=quantization_in(path.name))
        reader.number("Q")
        keys = int(reader.number("Q"))
        try:
            for _ in range(min(keys, MAX_KEYS)):
                name = reader.text()
                if name.startswith("tokenizer."):
                    break
                found[name] = reader.value(int(reader.number("I")))
        except ValueError:
            pass  # what was read so far is true all the same
    kind = _text(found.get("general.architecture"))
    context = found.get(f"{kind}.context_length")
    file_type = found.get("general.file_type")
    quantization = _FILE_TYPES.get(file_type, "") if isinstance(file_type, int) else ""
    return Header(
        name=_text(found.get("general.name")),
        kind=kind,
        quantization=quantization or quantization_in(path.name),
        context=context if isinstance(context, int) and 0 < context < 2**31 else 0,
    )


def _text(value: object) -> str:
    return value.strip()[:200] if isinstance(value, str) else ""


def quantization_in(name: str) -> str:
    """What a file's name says of its quantization, "" when nothing."""
    found = _IN_NAME.findall(name)
    return found[-1].upper() if found else ""
