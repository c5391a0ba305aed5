"""An app with themes from files: the palette of the one in use, and files that are watched while it runs.

An edited file repaints at once; a new one can be chosen; a bad one is told once and its last good version stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.driver import Driver
from textual.filter import Monochrome, NoColor

from ds4chat.ui.palette import Palette, make_palette
from ds4chat.ui.themes import COLORLESS_THEME, DEFAULT_THEME, ThemeFailure, ThemeShelf

if TYPE_CHECKING:
    from ds4chat.ui.theme_file import ChatTheme

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often a folder that is not there is looked for."""

LOOK_MS = 2000
"""How often files are looked at without being told of a change."""


class ThemedApp(App[str]):
    """Reads its themes in two steps: the one in use before the first paint, all others after it."""

    def __init__(
        self, *, theme: str | None, directories: Iterable[Path], driver_class: type[Driver] | None = None
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.shelf = ThemeShelf(directories)
        self._builtin_themes = dict(self.available_themes)
        self._wanted_theme = theme or DEFAULT_THEME
        if self.no_color:
            # Textual would make greys of the colours, or black on black of the terminal's own. The theme of those says
            # by bold, dim and reverse what others say by a background.
            self._filters = [f for f in self._filters if not isinstance(f, Monochrome | NoColor)] + [
                NoColor()
            ]
            self.set_reactive(App.ansi_color, True)
            self._wanted_theme = COLORLESS_THEME
        self.shelf.load_first(self._wanted_theme)
        if self._wanted_theme not in {**self._builtin_themes, **self.shelf.themes}:
            self.shelf.load_first(DEFAULT_THEME)
        self._register_themes()
        for name in (self._wanted_theme, DEFAULT_THEME):
            if name in self.available_themes:
                self.theme = name
                break

    def load_all_themes(self) -> None:
        """Read the other themes, say what is wrong with files, and watch the user's folders from now on."""
        failures = list(self.shelf.failures)
        changed, more = self.shelf.reload()
        self._register_themes()
        self._tell_failures([*failures, *more])
        if self._wanted_theme in self.available_themes:
            # It may have been edited since it was read for the first paint.
            again = self.theme == self._wanted_theme and self.theme in changed
            self.theme = self._wanted_theme
            if again:
                self._watch_theme(self.theme)
        else:
            text = f'There is no theme "{self._wanted_theme}" (config.toml, chat.theme): Alt+L lists those there are.'
            self.notify(text, severity="warning", markup=False)
        self.themes_changed()
        for directory in self.shelf.directories[1:]:
            self.run_worker(self._watch_folder(directory), name="watch themes", exit_on_error=False)

    def _tell_failures(self, failures: Iterable[ThemeFailure]) -> None:
        for failure in dict.fromkeys(failures):
            self.notify(str(failure), severity="warning", markup=False, timeout=10)

    def _register_themes(self) -> None:
        for name in self.available_themes.keys() - self._builtin_themes.keys() - self.shelf.themes.keys():
            # One that is gone stays as long as it is in use.
            if name != self.theme:
                self.unregister_theme(name)
        for theme in (*self._builtin_themes.values(), *(mine.theme for mine in self.shelf.themes.values())):
            self.register_theme(theme)

    async def _watch_folder(self, directory: Path) -> None:
        """Read a folder's themes again whenever a file in it changes."""
        awatch: Any = (await asyncio.to_thread(__import__, "watchfiles")).awatch
        polls = False
        while True:
            while not self.shelf.has(directory):  # noqa: ASYNC110 - nobody tells of a folder that is made
                await asyncio.sleep(LOOK_SECONDS)
            # Now and then without a change: some file systems tell of none, and the first may come too early.
            changes = awatch(
                directory,
                step=30,
                debounce=300,
                recursive=False,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                force_polling=polls,
            )
            try:
                async for _ in changes:
                    self._reload_themes()
                    if not self.shelf.has(directory):
                        break
            except FileNotFoundError:
                continue
            except (OSError, RuntimeError) as error:
                if polls:
                    raise
                # A system has few watchers for all its programs.
                log.warning("%s is looked at again and again: %s", directory, error)
                polls = True

    def _reload_themes(self) -> None:
        changed, failures = self.shelf.reload()
        self._tell_failures(failures)
        if not changed:
            return
        self._register_themes()
        if self.theme in changed and self.theme in self.available_themes:
            self._watch_theme(self.theme)
        self.themes_changed()

    def themes_changed(self) -> None:
        """Themes came, went or look otherwise now: whoever lists them does it again."""
        for screen in self.screen_stack:
            if (show := getattr(screen, "show_themes", None)) is not None:
                show()

    def theme_of(self, name: str) -> ChatTheme | None:
        """What ds4chat knows of a theme; None for Textual's own."""
        return self.shelf.themes.get(name)

    def palette(self) -> Palette:
        """The colours of the theme in use, for what paints its own lines."""
        theme, mine = self.current_theme, self.theme_of(self.theme)
        return make_palette(
            self.get_css_variables(),
            dark=theme.dark,
            ansi=theme.ansi,
            syntax=mine.syntax if mine else "",
            tokens=mine.tokens if mine else None,
            markdown=mine.markdown if mine else None,
            **({"least": mine.contrast} if mine else {}),
        )
