"""The terminal below Textual: one that can vanish, one in which Alt and a digit are a key, and pastes that stay whole.

Reaches into private corners of Textual, each for a behaviour it does not offer; without them the app runs
on, with that behaviour missing.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import string
import sys
import termios
from collections.abc import Callable, Iterable
from types import SimpleNamespace

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste
from textual.message import Message

from ds4chat.ui.text import visible


class ChatParser(XTermParser):
    """Takes a bracketed paste as it is, up to the sequence that ends it.

    Textual's parser reads on inside of a paste for escape sequences: what follows an ESC leaves the paste and is
    typed before the rest of it, and NUL is dropped. Here line ends become newlines, and every other control
    character but tab becomes a picture of itself ("␛"), so that nothing is lost and nothing acts.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._paste: list[str] | None = None
        self._end = ""
        """The last few characters, in which a mark may have begun."""

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
            return
        while data:
            mark = BRACKETED_PASTE_START if self._paste is None else BRACKETED_PASTE_END
            seen = self._end + data
            at = seen.find(mark)
            if at < 0:
                self._end = seen[-(len(mark) - 1) :]
                part, data = data, ""
            else:
                cut = at + len(mark) - len(self._end)
                part, data, self._end = data[:cut], data[cut:], ""
            if self._paste is None:
                yield from super().feed(part)
                if at >= 0:
                    # For the parser below, the paste is empty.
                    yield from (m for m in super().feed(BRACKETED_PASTE_END) if not isinstance(m, Paste))
                    self._paste = []
            else:
                self._paste.append(part)
                if at >= 0:
                    text = "".join(self._paste).removesuffix(BRACKETED_PASTE_END)
                    self._paste = None
                    yield Paste(visible(text.replace("\r\n", "\n").replace("\r", "\n")))


class ChatDriver(LinuxDriver):
    """Drops output once the terminal is gone.

    Textual's writer thread dies with the terminal, and its queue is short: a few writes later the event loop
    would wait for ever, and with it the saving of the chat.
    """

    @property
    def _is_writing(self) -> bool:
        return self._writer_thread is not None and self._writer_thread.is_alive()

    def write(self, data: str) -> None:
        if self._is_writing:
            super().write(data)

    def close(self) -> None:
        if self._is_writing:
            super().close()

    def run_input_thread(self) -> None:
        linux_driver.XTermParser = ChatParser  # type: ignore[attr-defined]
        super().run_input_thread()


def read_any_bytes() -> None:
    """Let a byte that is no UTF-8 be U+FFFD: Textual's reader thread would end on it, and the screen with it. Let it
    end where the terminal has nothing more to give: it would ask again and again.
    """

    def tolerant(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
        class Decoder(codecs.getincrementaldecoder(encoding)):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__("replace")

            def decode(self, data: bytes, final: bool = False) -> str:
                if not data and not final:
                    raise EOFError("the terminal is closed")
                return str(super().decode(data, final))

        return Decoder

    linux_driver.getincrementaldecoder = tolerant  # type: ignore[attr-defined, assignment]


def let_go_of_dead_terminal() -> None:
    """Point the standard streams to nowhere if the terminal behind them has gone; a living one is left
    alone.
    """
    try:
        termios.tcgetattr(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    except (termios.error, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            with contextlib.suppress(OSError):
                os.dup2(nowhere, stream)
        os.close(nowhere)


def tell_alt_digits() -> None:
    """Let Alt and a digit be "alt+2", Alt and a letter "alt+x", and Alt and Return "alt+enter".

    Most terminals send Escape and the character. Textual reads a digit as what Option and that key type on a Mac
    ("™"), Return as Enter, and a letter only after a tenth of a second, or as "^" and itself when another key comes
    sooner. Alt+F and Alt+B are Ctrl+Right and Ctrl+Left, as shells have them.
    """
    with contextlib.suppress(ImportError):
        from textual import _ansi_sequences

        sequences: dict[str, object] = getattr(_ansi_sequences, "ANSI_SEQUENCES_KEYS", {})
        for character in string.digits + string.ascii_lowercase.replace("f", "").replace("b", ""):
            sequences[f"\x1b{character}"] = (SimpleNamespace(value=f"alt+{character}"),)
        # Escape and Return would be Enter, which sends the message that was to have another line.
        sequences["\x1b\r"] = (SimpleNamespace(value="alt+enter"),)
