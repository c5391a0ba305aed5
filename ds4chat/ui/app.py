"""The chat application: themes, the engine's start, leaving in good order.

`run` is the only way in. The screen is painted before the model, the Markdown renderer or a session is
loaded; leaving waits for the manager to close, with the screen alive meanwhile, and never ends in a
traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from textual import events
from textual.app import SystemCommand
from textual.binding import Binding
from textual.driver import Driver
from textual.screen import Screen

from ds4chat import signals
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.safe_text import visible
from ds4chat.ui.painted import let_go_of_widgets
from ds4chat.ui.screens.chat import ChatScreen
from ds4chat.ui.screens.early_keys import EarlyKeys
from ds4chat.ui.terminal import ChatDriver, let_go_of_dead_terminal, read_any_bytes, tell_alt_digits
from ds4chat.ui.themes import theme_directories
from ds4chat.ui.theming import ThemedApp
from ds4chat.ui.turnstile import Turnstile
from ds4chat.ui.widgets.prompt_box import PromptBox

if TYPE_CHECKING:
    from ds4chat.key_settings import KeySettings
    from ds4chat.sessions.manager import SessionManager
    from ds4chat.ui.desk import Desk

log = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
"""Longest wait for the manager to close: it promises about 10."""

INTERRUPT_SECONDS = 2.0
"""A second Ctrl+C within this time quits."""

THEMES_SECONDS = 0.1
"""How long the themes that are not in use wait for the screen to be ready."""

SETTLED_SECONDS = 2.0
"""By then all is made that stays as long as the screen."""


class ChatApp(ThemedApp):
    """Returns the id of the session that can be resumed, None when it was never saved."""

    TITLE = "ds4chat"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS = [
        Binding(
            "ctrl+q",
            "quit",
            "Quit",
            id="app.quit",
            priority=True,
            tooltip="Save and leave. Twice: leave without waiting.",
        ),
        Binding(
            "ctrl+c",
            "interrupt",
            "Copy, or quit",
            id="app.interrupt",
            show=False,
            tooltip="Copy what is selected. Twice with nothing selected: quit.",
        ),
        Binding(
            "ctrl+z",
            "suspend_process",
            "Suspend",
            id="app.suspend",
            show=False,
            priority=True,
            tooltip="Go back to the shell; fg comes back. A reply waits meanwhile, and nothing is lost.",
        ),
        Binding(
            "ctrl+p",
            "command_palette",
            "Commands",
            id="app.palette",
            show=False,
            tooltip="All commands, by a few letters of their name.",
        ),
    ]

    def __init__(
        self,
        manager: SessionManager,
        *,
        session_id: str | None = None,
        pick: bool = False,
        theme: str | None = None,
        theme_directories: Iterable[Path] = (),
        keys: KeySettings | None = None,
        driver_class: type[Driver] | None = None,
        desk: Desk | None = None,
        bell: bool = False,
    ) -> None:
        super().__init__(theme=theme, directories=theme_directories, driver_class=driver_class)
        let_go_of_widgets()
        self.animation_level = "none"
        self.manager = manager
        self.desk = desk
        """Answers for config.toml, personas, models and checkpoints on disk."""
        self.chat = ChatScreen(manager, session_id=session_id, pick=pick)
        self.chat.bell_when_done = bell
        self.closing: asyncio.Task[None] | None = None
        """Closes the manager, once the user wants to leave."""
        self.failure: Exception | None = None
        """What ended the app, when it was not the user."""
        self._interrupted = float("-inf")
        self._begun = False
        self._told_to_quit = False
        """By a signal."""
        self._leaves = False
        """The user wanted to leave before the screen was there."""
        self._may_lose = False
        """The user knows that something is not saved, or cannot be asked."""
        self._turnstile = Turnstile(self, self._let_in, self._is_writing)
        self.keymap: dict[str, str] = {}
        """Keys by the id of an action, where they are not as declared."""
        self.modal_keys = False
        """Letters typed over the transcript are keys, not text."""
        self._key_warnings: list[str] = []
        if keys is not None and (keys.preset or keys.keys):
            from ds4chat.ui.keymap import MODAL_PRESETS, resolve

            self.keymap, self._key_warnings = resolve(keys)
            self.modal_keys = keys.preset in MODAL_PRESETS

    def get_default_screen(self) -> Screen[Any]:
        return self.chat

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._turnstile.enter(event)
        else:
            await super().on_event(event)

    async def _let_in(self, event: events.Key) -> None:
        # A dialog that opens or closes keeps keys; a widget of it that goes would take them along.
        if isinstance(self.screen, EarlyKeys) and self.screen.is_waiting:
            self.screen.take_key(event)
        else:
            await super().on_event(event)

    def _is_writing(self) -> bool:
        # By its kind: keys come before the screen knows its parts.
        return self.screen is self.chat and isinstance(self.focused, PromptBox)

    def action_suspend_process(self) -> None:
        """Stop the whole group of processes, as the terminal would: under `make` the shell waits for that."""
        if self._driver is not None and self._driver.can_suspend:
            self._suspend_signal()
            os.killpg(0, signal.SIGTSTP)

    def on_mount(self) -> None:
        if self.keymap:
            self.set_keymap(self.keymap)
        self.theme_changed_signal.subscribe(self, lambda _: self.chat.set_palette(self.palette()))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """After the first paint."""
        self._begun = True
        if self._leaves:
            self.call_later(self._quit_unless_closing)
            return
        self.chat.begin(self.palette())
        self.set_timer(THEMES_SECONDS, self.load_all_themes)
        self.set_timer(SETTLED_SECONDS, _collect_again)
        for warning in self._key_warnings:
            self.notify(warning, severity="warning", markup=False, timeout=10)
        self.run_worker(self._start_engine(), name="start engine", exit_on_error=False)

    async def _start_engine(self) -> None:
        try:
            await self.manager.start_engine()
        except Ds4chatError as error:
            self.notify(str(error), severity="error", markup=False, timeout=15)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        if screen is self.chat:
            yield from self.chat.commands()
        for command in super().get_system_commands(screen):
            if command.title in ("Quit", "Screenshot"):
                yield command

    def notify(self, message: str, **options: Any) -> None:
        """What is told may name files, models and themes: nothing in it acts on the terminal."""
        super().notify(visible(message), **options)

    def copy_to_clipboard(self, text: str) -> None:
        """By OSC 52 and by the desktop's own clipboard; a toast says which of them worked."""
        self._clipboard = text
        self.run_worker(self._copy(text), name="copy", exit_on_error=False)

    async def _copy(self, text: str) -> None:
        from ds4chat.ui import clipboard

        write = self._driver.write if self._driver is not None else None
        self.notify(await clipboard.copy(text, write, os.environ), markup=False)

    # -- leaving

    def catch_signals(self) -> None:
        """From before the terminal is changed: the default of both would leave it so."""
        signals.catch(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), self._quit_for_signal))

    def _quit_for_signal(self) -> None:
        """Leave, once: signals come in pairs, and the second must not cut short what the first saves."""
        let_go_of_dead_terminal()
        self._may_lose = True
        if not self._told_to_quit:
            self._told_to_quit = True
            self.call_later(self._quit_unless_closing)

    async def _quit_unless_closing(self) -> None:
        if self.closing is None:
            await self.action_quit()

    def action_interrupt(self) -> None:
        """Ctrl+C: twice in a row quits."""
        now = asyncio.get_running_loop().time()
        if self.closing is not None or now - self._interrupted < INTERRUPT_SECONDS:
            self.call_later(self.action_quit)
            return
        self._interrupted = now
        self.chat.say("Ctrl+C again quits. Esc stops a reply", seconds=INTERRUPT_SECONDS)

    async def action_quit(self) -> None:
        """Close the manager while the screen says so, then leave; asked again meanwhile, leave at once. What is not
        saved is not left without a word."""
        if self.closing is not None:
            self.closing.cancel()
            self.exit(self.chat.resumable)
            return
        if not self._begun:
            # The parts of the screen are not there yet.
            self._leaves = True
            return
        self.chat.keep_draft()
        if self.chat.unsaved and not self._may_lose:
            self._may_lose = True
            self.notify(
                f"{self.chat.unsaved} Ctrl+Q again leaves without saving.", severity="error", markup=False
            )
            return
        # A task of its own: Textual cancels its workers when the app ends for another reason.
        self.closing = asyncio.create_task(close_manager(self.manager))
        self.closing.add_done_callback(lambda _: self.exit(self.chat.resumable))
        self.chat.show_closing()

    def on_key(self, event: events.Key) -> None:
        """A key typed behind the one that opened a dialog, and not for it: the dialog was not there yet."""
        if isinstance(self.screen, EarlyKeys) and self.screen.is_waiting:
            event.prevent_default()
            self.screen.take_key(event)

    def panic(self, *renderables: RenderableType) -> None:
        """Textual's input thread lost the terminal: there is nobody to show a traceback to."""
        if self.is_headless:
            super().panic(*renderables)
        else:
            log.error("The terminal could not be read")
            self._quit_for_signal()

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print a traceback with all local variables: the log has it, the user gets a sentence.
        if self.is_headless:
            super()._handle_exception(error)
            return
        log.error("The chat screen failed", exc_info=error)
        self.failure = self.failure or error
        self.exit(self.chat.resumable, return_code=1)


async def close_manager(manager: SessionManager) -> None:
    """Close within `CLOSE_SECONDS`, whatever happens; what goes wrong is logged."""
    try:
        await asyncio.wait_for(manager.aclose(), CLOSE_SECONDS)
    except TimeoutError:
        log.error("Closing took longer than %s s and was given up", CLOSE_SECONDS)
    except Exception:
        log.exception("Closing failed")


def _collect_again() -> None:
    """Collect garbage, if that was put off for the start, but never look at what the start made again."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def run(
    manager: SessionManager,
    *,
    session_id: str | None,
    pick: bool,
    theme: str | None,
    config_dir: Path,
    keys: KeySettings | None = None,
    desk: Desk | None = None,
    bell: bool = False,
) -> str | None:
    """Show the chat screen until the user leaves. The manager is closed when this returns.

    Args:
        session_id: the session to open, None for a new one.
        pick: let the user choose a session first.
        theme: name of a theme, None for the default.
        config_dir: whose `themes` folder holds the user's own.
        keys: what config.toml says of keys.
        desk: answers for config.toml, personas, models and checkpoints.
        bell: ring the terminal's bell when a reply that nobody watches is done.

    Returns:
        The id of the session that was open, None when it was never saved.

    Raises:
        UsageError: standard error, which the screen is drawn through, is not a terminal.
        Ds4chatError: the screen itself failed.
    """
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        raise UsageError(
            "The chat screen is drawn through standard error, which is not a terminal: do not redirect it, or use -p."
        )
    tell_alt_digits()
    read_any_bytes()
    app = ChatApp(
        manager,
        session_id=session_id,
        pick=pick,
        theme=theme,
        theme_directories=theme_directories(config_dir),
        keys=keys,
        desk=desk,
        bell=bell,
        driver_class=ChatDriver,
    )

    async def main() -> None:
        app.catch_signals()
        try:
            await app.run_async()
        finally:
            _collect_again()
            with contextlib.suppress(asyncio.CancelledError):
                await (app.closing or close_manager(manager))

    asyncio.run(main())
    result = app.chat.resumable
    if app.failure is not None:
        resume = f" The chat is kept: ds4chat --resume {result}." if result else ""
        raise Ds4chatError(f"The chat screen failed ({app.failure}); the log has the details.{resume}")
    return result
