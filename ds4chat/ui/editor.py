"""The user's own editor: which it is, and a text on its way there and back. Knows no widget."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ds4chat.errors import UsageError
from ds4chat.files import users_umask

USUAL = ("editor", "nano", "vim", "vi")
"""Tried in this order when neither VISUAL nor EDITOR is set."""


@dataclass(frozen=True)
class Edited:
    """What came back: the text, and a sentence when something went wrong (the text is then as it was)."""

    text: str
    problem: str = ""


def find_editor(environment: Mapping[str, str]) -> list[str]:
    """The command, with its arguments. Raises UsageError when there is none."""
    for name in ("VISUAL", "EDITOR"):
        value = environment.get(name, "").strip()
        if not value:
            continue
        try:
            command = shlex.split(value)
        except ValueError:
            raise UsageError(f'{name} is "{value}", which is no command: mend its quotes.') from None
        if command and shutil.which(os.path.expanduser(command[0]), path=environment.get("PATH")):  # noqa: PTH111
            return [os.path.expanduser(command[0]), *command[1:]]  # noqa: PTH111
        raise UsageError(f'{name} is "{value}", which is not there: set it to an editor you have.')
    for usual in USUAL:
        if found := shutil.which(usual, path=environment.get("PATH")):
            return [found]
    raise UsageError("No editor was found: set VISUAL or EDITOR to one.")


def put_away(text: str) -> Path:
    """The text in a file that the user alone can read, its last line ended as editors expect."""
    if text and not text.endswith("\n"):
        text += "\n"
    number, name = tempfile.mkstemp(prefix="ds4chat-", suffix=".md")
    with os.fdopen(number, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
    return Path(name)


async def edit(command: list[str], text: str) -> Edited:
    """Run the editor on the text until it ends; the terminal must be free. Never loses a text: what an editor wrote
    before it failed stays in its file, which the sentence names. Raises UsageError when it cannot be started.
    """
    path = put_away(text)
    with keys_are_the_editors():
        try:
            process = await asyncio.create_subprocess_exec(*command, str(path), umask=users_umask())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise UsageError(f"The editor {command[0]} cannot be started ({error.strerror}).") from error
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            raise
    return take_back(path, text, code)


def take_back(path: Path, text: str, code: int) -> Edited:
    """What an editor that ended with `code` made of a text."""
    try:
        written = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        return Edited(text, f"The edited text cannot be read ({error.strerror}): it is as it was.")
    # Editors end a file with a newline, which nobody typed.
    if not text.endswith("\n"):
        written = written.removesuffix("\n")
    if code == 0 or written == text:
        path.unlink(missing_ok=True)
        return Edited(written, f"The editor ended with {code}: the text is as it was." if code else "")
    return Edited(text, f"The editor ended with {code}: the text is as it was. What it wrote is in {path}.")


@contextlib.contextmanager
def keys_are_the_editors() -> Iterator[None]:
    """Ctrl+C and Ctrl+\\ go to all processes of the terminal; here they are meant for the editor."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        for number in kept:
            signal.signal(number, lambda *_: None)
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
