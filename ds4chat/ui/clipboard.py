"""Copying: to the terminal by OSC 52, and to the desktop's own clipboard. Must not know widgets.

A terminal does not say whether it took what was sent, so both ways are always tried, and what is told is what is
known: that the system's clipboard has the text, or that it was sent.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping

SYSTEM_SECONDS = 3.0
"""Longest wait for the system's clipboard: on a desktop that is gone its program may hang."""

_SCREEN_PIECE = 76
"""Characters in a string that GNU screen passes on: it drops longer ones than 768."""


def osc52(text: str, environ: Mapping[str, str]) -> str:
    """What makes the terminal take the text over, wrapped so that tmux or screen passes it on."""
    payload = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    plain = f"\x1b]52;c;{payload}\x07"
    if environ.get("TMUX"):
        # The plain one for tmux itself (set-clipboard), the wrapped one for the terminal around it.
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY") or environ.get("TERM", "").startswith("screen"):
        pieces = [plain[i : i + _SCREEN_PIECE] for i in range(0, len(plain), _SCREEN_PIECE)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return plain


def is_remote(environ: Mapping[str, str]) -> bool:
    """Whether the clipboard of this machine is not that of the person at the keyboard."""
    return bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY")) and not environ.get("DISPLAY")


def system_copy(text: str) -> bool:
    """Put the text on the desktop's clipboard; whether there is one. Blocks: called in a thread."""
    try:
        import pyperclip

        pyperclip.copy(text)
    except Exception:
        return False
    return True


async def copy(text: str, write: Callable[[str], None] | None, environ: Mapping[str, str]) -> str:
    """Copy by all ways; a sentence that says which worked or was tried.

    Args:
        write: sends a sequence to the terminal, None when there is none.
    """
    if write is not None:
        write(osc52(text, environ))
    amount = f"{len(text):,} character" + ("s" if len(text) != 1 else "")
    worked = False
    if not is_remote(environ):
        try:
            worked = await asyncio.wait_for(asyncio.to_thread(system_copy, text), SYSTEM_SECONDS)
        except TimeoutError:
            worked = False
    if worked:
        return f"copied {amount} with the system clipboard"
    if write is None:
        return f"{amount} could not be copied: there is no clipboard here"
    through = " through tmux" if environ.get("TMUX") else ""
    return f"sent {amount} to the terminal{through} (OSC 52)"
