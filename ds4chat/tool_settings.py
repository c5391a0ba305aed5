"""The sections [tools] and [[mcp]] of config.toml."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ds4chat import paths
from ds4chat.errors import UsageError
from ds4chat.tools.options import BUILTIN, Server, ToolOptions

MAX_SERVERS = 32


class ToolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What models may call, each time the user says so."""

    enabled: Annotated[bool, Meta(description="true or false")] = False
    builtin: Annotated[
        tuple[Literal["read_file", "time", "calculator"], ...],
        Meta(description="a list of " + ", ".join(BUILTIN)),
    ] = ()
    folders: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...], Meta(description="a list of paths of folders")
    ] = ()
    seconds: Annotated[float, Meta(ge=1, le=3600, description="a number of seconds from 1 to 3600")] = 60.0


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")]
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    env: dict[Annotated[str, Meta(min_length=1)], str] = {}


@functools.cache
def allowed_servers() -> dict[str, str]:
    """What may stand at each path of [[mcp]], as in "$.mcp[...].name"."""
    return {
        "$.mcp": f"at most {MAX_SERVERS} tables [[mcp]]",
        "$.mcp[...]": "name, command, env",
        "$.mcp[...].name": "1 to 32 letters, digits, - and _",
        "$.mcp[...].command": "a list of the program and its arguments",
        "$.mcp[...].command[...]": "a string",
        "$.mcp[...].env": "a table of strings",
        "$.mcp[...].env[...]": "a string",
    }


class _Servers(msgspec.Struct):
    mcp: Annotated[tuple[McpSettings, ...], Meta(max_length=MAX_SERVERS)] = ()


def servers_of(tree: Mapping[str, Any], path: Path) -> tuple[McpSettings, ...]:
    """The servers of the values of config.toml. Raises UsageError naming the file, the key and what is allowed."""
    fault = server_fault(tree)
    if fault:
        raise UsageError(f"The configuration {path} has a fault: {fault}.")
    return msgspec.convert({"mcp": tree.get("mcp", [])}, _Servers).mcp


def server_fault(tree: Mapping[str, Any]) -> str:
    """What is wrong with the servers, "" for nothing."""
    from ds4chat.validation import explain

    try:
        servers = msgspec.convert({"mcp": tree.get("mcp", [])}, _Servers).mcp
    except msgspec.ValidationError as error:
        return explain(error, allowed_servers())
    except RecursionError:
        return "mcp is nested too deeply"
    names = [server.name for server in servers]
    twice = next((name for name in names if names.count(name) > 1), None)
    return (
        "" if twice is None else f"two servers under [[mcp]] are called {twice}, and each needs its own name"
    )


def tool_options(
    settings: ToolSettings, servers: Iterable[McpSettings], where: paths.Paths, *, on: bool = False
) -> ToolOptions:
    """What there is to call. `on`: switched on for new chats, whatever config.toml says."""
    return ToolOptions(
        enabled=settings.enabled or on,
        builtin=tuple(settings.builtin),
        folders=tuple(paths.absolute(folder, where.config_dir) for folder in settings.folders),
        seconds=settings.seconds,
        servers=tuple(Server(server.name, server.command, server.env) for server in servers),
        log_dir=where.engine_log.parent,
    )
