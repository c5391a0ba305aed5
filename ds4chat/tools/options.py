"""Which tools there are, as config.toml and flags say. Imports next to nothing: it is read when the program starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

BUILTIN = ("read_file", "time", "calculator")
"""Names of the tools that are built in."""


class Server(msgspec.Struct, frozen=True):
    """An MCP server that is spoken to over its standard input and output.

    Attributes:
        command: the program and its arguments.
        env: set over the few variables a server gets (HOME, PATH and the like).
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = {}


class ToolOptions(msgspec.Struct, frozen=True):
    """What there is to call.

    Attributes:
        enabled: in chats that do not say otherwise for themselves.
        builtin: names out of `BUILTIN`.
        folders: what `read_file` may read in.
        seconds: a call may take.
        log_dir: where what servers write on standard error goes; None: nowhere.
    """

    enabled: bool = False
    builtin: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    seconds: float = 60.0
    servers: tuple[Server, ...] = ()
    log_dir: Path | None = None
