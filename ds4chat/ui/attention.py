"""Telling a user who looks elsewhere that a reply is done: the terminal's title, and its bell.

Promises: the title a terminal had before is given back; nothing is written where there is no terminal.
"""

from __future__ import annotations

from typing import Any

from textual.app import App

from ds4chat.ui.text import clip, one_line
from ds4chat.ui.widgets.session_list import RUNNING, UNREAD

PROGRAM = "ds4chat"
TITLE_CELLS = 60

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"


def title_words(title: str, *, unread: int, writing: bool) -> str:
    """The terminal's title: what waits to be read first, for tabs are narrow."""
    mark = f"{UNREAD} {unread}" if unread else RUNNING if writing else ""
    return " · ".join(part for part in (mark, clip(one_line(title), TITLE_CELLS), PROGRAM) if part)


class TerminalTitle:
    """The title of the terminal the app runs in."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.text = ""

    def set(self, text: str) -> None:
        """Show a title; the first time, the terminal is asked to remember its own."""
        if text != self.text:
            self._write(f"{'' if self.text else SAVE_TITLE}\x1b]2;{text}\x1b\\")
            self.text = text

    def give_back(self) -> None:
        """Show the title there was before."""
        if self.text:
            self.text = ""
            self._write(RESTORE_TITLE)

    def _write(self, sequence: str) -> None:
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(sequence)
            driver.flush()
