"""The models on this machine, and the one in use among them. Must not know: the screen, the engine's process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat import paths
from ds4chat.config import Config, choose_model, model_folders
from ds4chat.engine.memory_need import Need, default_n_ctx, need, trained_ctx
from ds4chat.errors import ModelError, UsageError
from ds4chat.gguf_file import Contents, Fault, FaultError, read_contents, read_part
from ds4chat.gguf_header import Header, quantization_in, read_header
from ds4chat.model_places import Found, find_models, named
from ds4chat.validation import short

TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""Names of `ggml_type`."""


@dataclass(frozen=True)
class Entry:
    """A model, as far as its file tells.

    Attributes:
        contents: all of its header, empty where it could not be read.
        fault: why it cannot be chatted with, None when it can.
        n_ctx: context that it would be used with, tokens.    need: memory it takes; None where nothing is known.
    """

    found: Found
    header: Header = field(default_factory=Header)
    contents: Contents = field(default_factory=Contents)
    fault: Fault | None = None
    current: bool = False
    n_ctx: int = 0
    need: Need | None = None

    @property
    def size_bytes(self) -> int:
        """Of all its files that are there."""
        return sum(path.stat().st_size for path in self.found.files if path.is_file())

    @property
    def memory_bytes(self) -> int:
        """Weights and context together, 0 where nothing is known."""
        return self.need.weights + self.need.context(self.n_ctx) if self.need is not None else 0

    @property
    def template(self) -> str:
        """Its chat template, "" for none."""
        return str(self.contents.values.get("tokenizer.chat_template") or "")

    @property
    def is_projector(self) -> bool:
        """Whether it is no model but reads pictures for one."""
        return self.header.kind == "clip" or self.contents.values.get("general.type") == "mmproj"


def known_models(
    config: Config, where: paths.Paths, flag: str | None = None
) -> tuple[list[Found], Path | None]:
    """Models in all places, and the file of the one that a new chat would use. One that lies elsewhere comes first.

    Args:
        flag: the value of `--model`.
    """
    starter = paths.starter_model()
    current: Path | None = None
    with contextlib.suppress(ModelError):
        current = choose_model(flag, "", config, where, starter=starter)
    found = find_models(where.models_dir, starter, folders=model_folders(config, where))
    if current is not None and all(not same_file(item.path, current) for item in found):
        found.insert(0, Found(current, "configured"))
    return found, current


def same_file(path: Path, other: Path | None) -> bool:
    """Whether both name one file, through links too."""
    return other is not None and os.path.realpath(path) == os.path.realpath(other)


def look(found: Found, config: Config, current: Path | None = None) -> Entry:
    """Read a model's header, all of it. Costs some tenths of a second for a large vocabulary."""
    contents, fault = Contents(), None
    try:
        contents = read_contents(found.path)
    except FaultError as error:
        fault = error.fault
        with contextlib.suppress(FaultError):
            contents = read_part(found.path)
    if found.missing:
        fault = Fault(f"lacks its part {found.missing}", "download or copy that too")
    header = Header(quantization=quantization_in(found.path.name))
    with contextlib.suppress(OSError, ValueError):
        header = read_header(found.path)
    kv_type = config.model.kv_type
    known = bool(contents.weights) and not found.missing
    takes = need(contents, kv_type) if known else None
    n_ctx = config.model.ctx or (default_n_ctx(trained_ctx(contents), takes.per_token) if takes else 0)
    return Entry(found, header, contents, fault, same_file(found.path, current), n_ctx, takes)


def find_one(name: str, found: Sequence[Found]) -> Found:
    """The model by its path, or by the name that lists have for it, or the beginning of that. Raises UsageError."""
    path = paths.absolute(name)
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            known = next((item for item in found if same_file(item.path, path)), None)
            return known or Found(path, "")
    fitting = named(found, name)[:1]
    fitting = fitting or [item for item in found if item.title.casefold().startswith(name.casefold())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(item.title for item in fitting[:5])
        more = f" and {len(fitting) - 5} others" if len(fitting) > 5 else ""
        raise UsageError(
            f'"{short(name)}" is the beginning of several models: {listed}{more}; give all of one.'
        )
    raise UsageError(
        f'There is no model "{short(name)}": `ds4chat models` lists those there are; a path will do too.'
    )


def tensor_types(contents: Contents) -> dict[str, int]:
    """How many tensors there are of each type, the most frequent first."""
    counts = sorted(contents.tensors.items(), key=lambda item: (-item[1], item[0]))
    return {TENSOR_TYPES.get(kind, f"type {kind}"): count for kind, count in counts}


def amount(number: int) -> str:
    """ "134.5M", "7.6B"; "" for none."""
    for unit, word in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.1f}{word}"
    return str(number) if number else ""


def size_words(nbytes: int) -> str:
    """ "97 MB", "4.7 GB" (of 10^6 and 10^9 bytes)."""
    return f"{nbytes / 1e9:,.1f} GB" if nbytes >= 10**9 else f"{nbytes / 1e6:,.0f} MB"
