"""The themes there are: those shipped with ds4chat, and the user's own beside config.toml.

A file that cannot be used is skipped, and the last good version of it stays in use; a user's theme replaces a
shipped one of the same name. What a file may hold: `theme_file`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ds4chat.safe_text import one_line
from ds4chat.ui.theme_file import ChatTheme, ThemeFileError, load_theme

DEFAULT_THEME = "harbor"

COLORLESS_THEME = "terminal"
"""What is used where NO_COLOR is set."""


@dataclass(frozen=True)
class ThemeFailure:
    """A file that was skipped; `reason` names line and key."""

    path: Path
    reason: str
    line: int = 0

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return one_line(f"Theme {self.path}{where} was skipped: {self.reason}.")


class ThemeShelf:
    """The themes of some folders, later ones winning. A missing folder is empty; files are read when asked, and
    again only when they have changed.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self.directories = list(directories)
        self.themes: dict[str, ChatTheme] = {}
        """By name."""
        self.failures: list[ThemeFailure] = []
        """Files that cannot be used as they are now."""
        self._read: dict[Path, tuple[tuple[int, int, int], ChatTheme | ThemeFailure]] = {}
        self._good: dict[Path, ChatTheme] = {}

    @staticmethod
    def has(directory: Path) -> bool:
        """Whether a folder is there now."""
        return directory.is_dir()

    def load_first(self, name: str) -> None:
        """Read no more than it takes to know one theme: the first folder is trusted to name files by their theme."""
        self._take_folders(self.directories[1:])
        if name not in self.themes and self.directories:
            path = self.directories[0] / f"{name}.toml"
            if "/" not in name and path.exists():
                self._take(path)

    def reload(self) -> tuple[list[str], list[ThemeFailure]]:
        """Read what has changed.

        Returns:
            Names of themes that are new, changed or gone, and failures that were not there before.
        """
        themes, failures = self.themes, self.failures
        self.themes, self.failures = {}, []
        seen = self._take_folders(self.directories)
        for path in [path for path in self._read if path not in seen]:
            del self._read[path]
            self._good.pop(path, None)
        changed = {name for name in self.themes | themes if self.themes.get(name) is not themes.get(name)}
        return sorted(changed), [failure for failure in self.failures if failure not in failures]

    def _take_folders(self, directories: Iterable[Path]) -> set[Path]:
        seen: set[Path] = set()
        for directory in directories:
            try:
                paths = sorted(directory.glob("*.toml"))
            except OSError as error:
                self.failures.append(ThemeFailure(directory, error.strerror or str(error)))
                continue
            for path in paths:
                seen.add(path)
                self._take(path)
        return seen

    def _take(self, path: Path) -> None:
        stamp = (0, 0, 0)
        found: ChatTheme | ThemeFailure
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._read.get(path)
            found = known[1] if known is not None and known[0] == stamp else load_theme(path)
        except ThemeFileError as error:
            found = ThemeFailure(path, error.reason, error.line)
        except OSError as error:
            found = ThemeFailure(path, error.strerror or str(error))
        self._read[path] = stamp, found
        if isinstance(found, ThemeFailure):
            self.failures.append(found)
        else:
            self._good[path] = found
        # A file that was broken while it was edited keeps its last good version.
        if (theme := self._good.get(path)) is not None:
            self.themes[theme.theme.name] = theme


def load_themes(directories: Iterable[Path]) -> tuple[dict[str, ChatTheme], list[ThemeFailure]]:
    """All themes by name, later directories winning, and the files that were skipped."""
    shelf = ThemeShelf(directories)
    shelf.reload()
    return shelf.themes, shelf.failures


def theme_directories(config_dir: Path) -> list[Path]:
    """Where themes lie: shipped ones first, then the user's own."""
    from ds4chat.paths import shipped

    return [shipped("themes"), config_dir / "themes"]
