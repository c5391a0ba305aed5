"""The tools that are built in: a file read within folders the user named, the time, arithmetic."""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ds4chat.tools.calculator import KNOWN, calculate
from ds4chat.tools.options import ToolOptions
from ds4chat.tools.tool import MAX_RESULT, Arguments, Result, Tool, ToolError

WHERE = "built in"


def builtin_tools(options: ToolOptions) -> list[Tool]:
    """Those that are switched on, in the order they were named."""
    makers = {"read_file": lambda: _read_file(options.folders), "time": _time, "calculator": _calculator}
    return [makers[name]() for name in dict.fromkeys(options.builtin) if name in makers]


def _schema(required: Sequence[str] = (), **properties: str) -> dict[str, Any]:
    described = {name: {"type": "string", "description": words} for name, words in properties.items()}
    return {"type": "object", "properties": described, "required": list(required)}


def _text(arguments: Arguments, name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ToolError(f'The argument "{name}" must be a text.')
    return value


def _time() -> Tool:
    async def run(arguments: Arguments) -> Result:
        zone = _text(arguments, "zone", "").strip()
        if not zone:
            now = datetime.now().astimezone()
        else:
            from zoneinfo import ZoneInfo

            try:
                now = datetime.now(ZoneInfo(zone))
            except (KeyError, ValueError, OSError):
                raise ToolError('There is no such time zone: give a name such as "Europe/Rome".') from None
        return Result(f"{now:%A, %Y-%m-%d %H:%M:%S} {now:%Z} (UTC{now:%z})")

    about = "Tells the date, the time and the day of the week, now."
    return Tool("time", about, _schema(zone='Time zone, such as "Europe/Rome"; here by default.'), WHERE, run)


def _calculator() -> Tool:
    async def run(arguments: Arguments) -> Result:
        value = arguments.get("expression")
        if isinstance(value, int | float) and not isinstance(value, bool):
            arguments = {"expression": repr(value)}
        return Result(calculate(_text(arguments, "expression")))

    about = f"Works out an arithmetic expression with + - * / // % ** and brackets; known are {KNOWN}."
    return Tool("calculator", about, _schema(["expression"], expression="Such as 2 * (3 + 4)."), WHERE, run)


def _read_file(folders: Sequence[Path]) -> Tool:
    async def run(arguments: Arguments) -> Result:
        return Result(await asyncio.to_thread(read_within, _text(arguments, "path"), folders))

    about = "Reads a text file of the user's. A relative path begins in the folder that was allowed."
    return Tool("read_file", about, _schema(["path"], path="Path of the file."), WHERE, run)


def read_within(name: str, folders: Sequence[Path], most: int = MAX_RESULT) -> str:
    """The text of a file in one of the folders, of at most so many bytes. Links are followed before it is looked where
    the file lies. Raises ToolError."""
    if ".." in Path(name).parts:
        raise ToolError('The path must not hold "..".')
    if "\x00" in name or len(name) > 4096:
        raise ToolError("This is no path.")
    path = _find(name, folders)
    try:
        # Not waited for when it is a pipe, and not followed when it became a link meanwhile.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError("This is a folder or a device, not a file.")
            data = file.read(most + 1)
    except OSError as error:
        raise ToolError(f"The file cannot be read ({error.strerror}).") from None
    cut = len(data) > most
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:most], final=not cut)
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        raise ToolError("This is no text file.")
    return f"{text}\n(cut here: {most:,} of {status.st_size:,} bytes)" if cut else text


def _find(name: str, folders: Sequence[Path]) -> Path:
    """The file itself, all links followed. What is outside is told from what is not there by no word."""
    allowed = []
    for folder in folders:
        try:
            allowed.append(folder.resolve(strict=True))
        except (OSError, RuntimeError):
            continue
    for folder in allowed:
        try:
            path = (folder / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            continue
        if any(path.is_relative_to(inside) for inside in allowed):
            return path
    raise ToolError("There is no such file in the folders that may be read.")
