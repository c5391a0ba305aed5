"""Whether a GGUF file can be chatted with, by its own numbers: all of its header, and none of its weights.

Promises: a file that lies about counts and lengths costs no more time and memory than an honest one of its size; what
is said names what is wrong and the way out. No engine. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 18
MAX_TEXT = 1_000_000
"""Bytes of a value that is kept; a longer one is passed over."""

MAX_COUNT = 50_000_000
"""Of entries, tensors and strings of a list: more than any model has."""

STRING, ARRAY = 8, 9
"""Kinds of values; `SCALARS` has the others as `struct` writes them."""

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

_TYPE_SIZES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Numbers in a block and its bytes, by `ggml_type`."""

_FOREIGN = (
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x80\x02", "a PyTorch file"),
    (b"\x80\x04", "a PyTorch file"),
    (b"version https://git-lfs", "a Git LFS pointer, and the model was never downloaded"),
    (b"<!DOCTYPE", "a web page"),
    (b"<!doctype", "a web page"),
    (b"<html", "a web page"),
    (b"tjgg", "a GGML file of before 2023"),
    (b"fmgg", "a GGML file of before 2023"),
    (b"lmgg", "a GGML file of before 2023"),
)

ENCODERS = frozenset(
    {
        "bert", "nomic-bert", "nomic-bert-moe", "modern-bert", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
        "gemma-embedding", "llama-embed", "t5encoder", "wavtokenizer-dec",
    }
)  # fmt: skip
"""Architectures that read text and write none."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)

Value = str | int | float | bool | list[int] | None


@dataclass(frozen=True)
class Fault:
    """Why a file cannot be chatted with: what it is, behind its name, and the way out."""

    what: str
    way_out: str = "choose another"


class FaultError(Exception):
    """Carries a `Fault`."""

    def __init__(self, what: str, way_out: str = "choose another") -> None:
        super().__init__(what)
        self.fault = Fault(what, way_out)


@dataclass
class Contents:
    """What a whole and sound file says of itself.

    Attributes:
        values: its metadata; of lists, only those of whole numbers that are short enough to be one a layer.
        weights: bytes of all tensors, those of the other parts of a split model included.
        vocabulary: tokens in it.
        parameters: numbers in all tensors.    tensors: how many there are of each `ggml_type`.
    """

    values: dict[str, Value] = field(default_factory=dict)
    weights: int = 0
    vocabulary: int = 0
    parameters: int = 0
    tensors: dict[int, int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The architecture."""
        return str(self.values.get("general.architecture") or "")


AGAIN = "download or copy it again"


def foreign(head: bytes) -> str:
    """What a file is that does not begin as a GGUF file does, "" when nobody knows."""
    if head.startswith(b"PK") and b"data.pkl" in head:
        return "a PyTorch file"
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file"
    return next((name for magic, name in _FOREIGN if head.startswith(magic)), "")


def head_fault(head: bytes) -> Fault | None:
    """What the first bytes of a file tell; some hundred of them are enough."""
    if not head:
        return Fault("is empty", AGAIN)
    if head[:4] != b"GGUF":
        kind = foreign(head)
        what = f"is not a GGUF file but {kind}" if kind else "is not a GGUF file"
        return Fault(what, AGAIN if "page" in kind or "LFS" in kind else "give one in the GGUF format")
    if len(head) < 8:
        return None
    version = int.from_bytes(head[4:8], "little")
    if version & 0xFFFF == 0 and version:
        return Fault(
            "is written for big-endian processors",
            "get the little-endian file, which nearly all GGUF files are",
        )
    if version < 2:
        return Fault(f"is a GGUF file of version {version}, which is no longer read", "get one of version 3")
    if version > 3:
        return Fault(
            f"is a GGUF file of version {version}, and versions 2 and 3 are known", "get one of version 3"
        )
    return None


def read_contents(path: Path) -> Contents:
    """Look at a model, all parts of a split one included. Raises FaultError."""
    contents = read_part(path)
    _check_kind(contents)
    many = contents.values.get("split.count")
    if isinstance(many, int) and many > 1:
        for part in _other_parts(path, contents, many):
            try:
                other = read_part(part)
            except FaultError as error:
                what, way_out = error.fault.what, error.fault.way_out
                raise FaultError(f"is not whole, for its part {part.name} {what}", way_out) from error
            contents.weights += other.weights
            contents.parameters += other.parameters
            for kind, count in other.tensors.items():
                contents.tensors[kind] = contents.tensors.get(kind, 0) + count
    return contents


def read_part(path: Path) -> Contents:
    """Look at one file, whatever it holds. Raises FaultError when it is not whole."""
    try:
        if path.is_dir():
            raise FaultError("is a folder", "give the path of a GGUF file in it")
        if not path.exists():
            raise FaultError("is not there", "put it back")
        if not path.is_file():
            raise FaultError("is not a regular file")
        with path.open("rb") as file:
            fault = head_fault(file.read(512))
            if fault is not None:
                raise FaultError(fault.what, fault.way_out)
            file.seek(0)
            return _Reader(file, os.fstat(file.fileno()).st_size).contents()
    except PermissionError as error:
        raise FaultError("cannot be read (Permission denied)", "change its permissions") from error
    except (OSError, ValueError) as error:
        raise FaultError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _check_kind(contents: Contents) -> None:
    kind, sort = contents.kind, contents.values.get("general.type")
    if kind == "clip" or sort == "mmproj":
        raise FaultError(
            "is a projector of pictures, not a model", "give the model's own file, which lies beside it"
        )
    if sort == "adapter":
        raise FaultError("is a LoRA adapter, not a model", "give a model that has it built in")
    if sort == "imatrix":
        raise FaultError("is an importance matrix, not a model")
    number = contents.values.get("split.no")
    if isinstance(number, int) and number > 0:
        raise FaultError(
            f"is part {number + 1} of {contents.values.get('split.count')} of a model", "give its first part"
        )
    if kind in ENCODERS:
        raise FaultError(f"is an embedding model ({kind}), which reads text and writes none")
    if not contents.weights:
        raise FaultError("has no weights, only a vocabulary" if contents.vocabulary else "has no weights")
    if not kind:
        raise FaultError("does not say what kind of model it is", AGAIN)


def _other_parts(path: Path, contents: Contents, many: int) -> list[Path]:
    found = _PART.search(path.name)
    if found is None or many > 99_999:
        raise FaultError(
            f"is the first of {many} parts of a model, and its name does not tell the others'",
            f"name it NAME-00001-of-{many:05}.gguf, as it was",
        )
    parts = [
        path.with_name(f"{path.name[: found.start()]}-{n:05}-of-{many:05}.gguf") for n in range(2, many + 1)
    ]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise FaultError(f"lacks part {missing[0]} of its {many} parts", "download or copy that too")
    return parts


class _Reader:
    """A window that moves over the file once."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._data, self._at, self._start = b"", 0, 0

    @property
    def position(self) -> int:
        return self._start + self._at

    def _need(self, count: int) -> None:
        """Have the next `count` bytes in the window."""
        if self._at + count <= len(self._data):
            return
        if self.position + count > self._size:
            raise FaultError(f"is cut off in its header, at {_size(self._size)}", AGAIN)
        self._start, self._data, self._at = self.position, self._data[self._at :], 0
        while len(self._data) < count:
            more = self._file.read(max(CHUNK, count - len(self._data)))
            if not more:
                raise FaultError("is cut off in its header", AGAIN)
            self._data += more

    def take(self, count: int) -> bytes:
        self._need(count)
        self._at += count
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        if self._at + count <= len(self._data):
            self._at += count
        elif self.position + count > self._size:
            raise FaultError(f"is cut off in its header, at {_size(self._size)}", AGAIN)
        else:
            self._start, self._data, self._at = self.position + count, b"", 0
            self._file.seek(self._start)

    def number(self, form: str) -> int:
        return int(struct.unpack(f"<{form}", self.take(struct.calcsize(form)))[0])

    def count(self, what: str, least: int) -> int:
        """A count of things that take `least` bytes each."""
        count = self.number("Q")
        if count > MAX_COUNT:
            raise _absurd(f"counts {count:,} {what}")
        if count * least > self._size - self.position:
            raise FaultError(f"is cut off in its header, at {_size(self._size)}", AGAIN)
        return count

    def text(self) -> str:
        length = self.number("Q")
        if length > MAX_TEXT:
            self.skip(length)
            return ""
        return self.take(length).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Pass over the many small strings of a vocabulary."""
        length_of = struct.Struct("<Q").unpack_from
        while count:
            self._need(8)
            data, at, end = self._data, self._at, len(self._data) - 8
            while count and at <= end:
                after = at + 8 + length_of(data, at)[0]
                if after > len(data):
                    break
                at, count = after, count - 1
            moved, self._at = at > self._at, at
            if count and not moved:
                self.skip(self.number("Q"))
                count -= 1

    def value(self, kind: int) -> Value:
        if kind == STRING:
            return self.text()
        if kind in SCALARS:
            value: int | float | bool = struct.unpack(
                f"<{SCALARS[kind]}", self.take(struct.calcsize(SCALARS[kind]))
            )[0]
            return value
        if kind != ARRAY:
            raise _absurd(f"has a value of unknown kind {kind}")
        of = self.number("I")
        if of == STRING:
            count = self.count("strings", 8)
            self.skip_texts(count)
            return count
        if of not in SCALARS:
            raise _absurd(f"has a list of unknown kind {of}")
        form = SCALARS[of]
        count = self.count("numbers", struct.calcsize(form))
        if count <= 4096 and form not in "fd":
            return [
                int(n) for n in struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize(form)))
            ]
        self.skip(count * struct.calcsize(form))
        return None

    def contents(self) -> Contents:
        self.skip(8)
        tensors, keys = self.count("tensors", 24), self.count("entries", 13)
        found = Contents()
        for _ in range(keys):
            name = self.text()
            found.values[name] = self.value(self.number("I"))
        tokens = found.values.get("tokenizer.ggml.tokens")
        found.vocabulary = tokens if isinstance(tokens, int) else 0
        end = self._tensors_end(tensors, found)
        align = found.values.get("general.alignment")
        align = align if isinstance(align, int) and 0 < align < 1 << 20 else 32
        begin = -(-self.position // align) * align
        if begin + end > self._size:
            raise FaultError(f"is cut off: it has {_size(self._size)} of {_size(begin + end)}", AGAIN)
        found.weights = end
        return found

    def _tensors_end(self, tensors: int, found: Contents) -> int:
        """Where the last tensor ends, from where the first one begins. Counts them in `found`."""
        end = 0
        for _ in range(tensors):
            self.skip(self.number("Q"))
            n_dims = self.number("I")
            if n_dims > 8:
                raise _absurd(f"has a tensor of {n_dims:,} dimensions")
            numbers = 1
            for _ in range(n_dims):
                numbers *= self.number("Q")
            kind, offset = self.number("I"), self.number("Q")
            found.parameters += numbers
            found.tensors[kind] = found.tensors.get(kind, 0) + 1
            block, size = _TYPE_SIZES.get(kind, (1, 0))
            end = max(end, offset + numbers // block * size)
        return end


def _absurd(what: str) -> FaultError:
    return FaultError(f"is damaged: its header {what}", AGAIN)


def _size(nbytes: int) -> str:
    """ "512 bytes", "98.1 MB", "4.9 GB"."""
    if nbytes < 10**5:
        return f"{nbytes:,} bytes"
    return f"{nbytes / 1e6:,.1f} MB" if nbytes < 10**9 else f"{nbytes / 1e9:,.1f} GB"


def layer_numbers(values: Mapping[str, Value], name: str, layers: int, default: int) -> list[int]:
    """A number of the architecture for each layer; files give one for all, or a list."""
    value = values.get(f"{values.get('general.architecture')}.{name}")
    if isinstance(value, list) and len(value) == layers:
        return value
    return [value if isinstance(value, int) and value >= 0 else default] * layers
