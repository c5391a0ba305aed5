"""What each variant's folder says of the model its spans were computed with: `variant.json`.

Promises that a file that cannot be read is as good as none. It must not know the engine: what makes two models
the same but for their quantization is hashed by the caller (`Identity.loose`).
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ds4chat.checkpoints.span import Identity
from ds4chat.files import read_limited

log = logging.getLogger(__name__)

FILE = "variant.json"

MAX_FILE_BYTES = 64_000
"""Of it: a dozen short lines."""


class Variant(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON file. Times are seconds since 1970, hashes hex.

    Attributes:
        model: as the GGUF file is called.
        fingerprint: of the exact weights.
        loose: of all that changes KV bytes but the weights, and of the model's names; "" for never alike.
        kv_type, build: of the KV cache, and of llama-cpp-python.
        about: whatever else the variant hash is made of, for people.
    """

    model: str = ""
    fingerprint: str = ""
    quant_bits: int = 0
    payload_abi: int = 0
    loose: str = ""
    kv_type: str = ""
    build: str = ""
    created: int = 0
    about: dict[str, str] = {}


def read_variant(folder: Path) -> Variant | None:
    """None when the folder says nothing of itself."""
    try:
        data = read_limited(folder / FILE, MAX_FILE_BYTES)
        return msgspec.json.decode(data, type=Variant) if len(data) <= MAX_FILE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None


def write_variant(folder: Path, identity: Identity, now: int) -> None:
    """Let a folder say what it is, unless it does. Raises `OSError`."""
    if read_variant(folder) is not None:
        return
    about: Mapping[str, str] = identity.about
    variant = Variant(
        model=about.get("model", ""),
        fingerprint=identity.fingerprint.hex(),
        quant_bits=identity.quant_bits,
        payload_abi=identity.payload_abi,
        loose=identity.loose.hex(),
        kv_type=about.get("kv_type", ""),
        build=about.get("build", ""),
        created=now,
        about={key: value for key, value in about.items() if key not in ("model", "kv_type", "build")},
    )
    temp = folder / f".{FILE}.{secrets.token_hex(4)}"
    try:
        fd = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(variant)) + b"\n")
        temp.replace(folder / FILE)
    except OSError:
        with suppress(OSError):
            temp.unlink()
        raise


def siblings(root: Path, identity: Identity) -> list[Identity]:
    """Variants of the family whose weights alone differ, and by their quantization as far as metadata tells."""
    if not identity.loose:
        return []
    found: list[Identity] = []
    own = root / identity.folder
    try:
        folders = sorted(path for path in own.parent.iterdir() if path.is_dir() and path != own)
    except OSError:
        return []
    for folder in folders:
        variant = read_variant(folder)
        if variant is None or variant.loose != identity.loose.hex():
            continue
        with suppress(ValueError):
            other = Identity(
                family=identity.family,
                variant=bytes.fromhex(folder.name),
                fingerprint=bytes.fromhex(variant.fingerprint),
                quant_bits=variant.quant_bits,
                payload_abi=variant.payload_abi,
                loose=identity.loose,
            )
            if other.payload_abi == identity.payload_abi and other.fingerprint != identity.fingerprint:
                found.append(other)
    return found
