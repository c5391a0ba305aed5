"""One MCP server over its standard input and output, by the official SDK; imported only when a server is configured.

Promises: the task that opened a server's streams also closes them, as the SDK wants it; what a server writes on
standard error goes to a file of its own; nothing of what is called with what reaches the log of the program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.types import CONNECTION_CLOSED, PaginatedRequestParams

from ds4chat.tools.options import Server
from ds4chat.tools.tool import (
    Arguments,
    Result,
    Tool,
    ToolError,
    clean,
    clean_description,
    clean_name,
    clean_schema,
)

log = logging.getLogger(__name__)

MAX_PAGES = 20
"""Of a server's list of tools."""

CLOSE_SECONDS = 8.0
"""A server is waited for when the program ends; the SDK kills it before."""

for _noisy in ("mcp", "client", "server"):
    # They log messages that could not be read, with all that is in them.
    logging.getLogger(_noisy).propagate = False
    logging.getLogger(_noisy).addHandler(logging.NullHandler())


class McpServer:
    """A server from its start to its end."""

    def __init__(self, server: Server, log_dir: Path | None) -> None:
        self.name = server.name
        self.is_gone = False
        self._server = server
        self._log_path = log_dir / f"mcp-{clean_name(server.name)}.log" if log_dir is not None else None
        self._session: ClientSession | None = None
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None

    @property
    def log(self) -> str:
        """Where its own words are, as the end of a sentence."""
        return f" (its log is {self._log_path})" if self._log_path is not None else ""

    async def start(self) -> list[Tool]:
        """Start it; its tools, by name. Raises ToolError."""
        self._owner = asyncio.create_task(self._own())
        return await asyncio.shield(self._ready)

    def end(self) -> None:
        """Have it ended, in the background."""
        self._stop.set()
        if self._owner is not None and not self._ready.done():
            self._owner.cancel()

    async def aclose(self) -> None:
        """Have it ended, and wait for that."""
        self.end()
        if self._owner is not None:
            await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)

    async def _own(self) -> None:
        """Open, hold and close the streams."""
        try:
            async with AsyncExitStack() as stack:
                errors = stack.enter_context(self._errors())
                program, *arguments = self._server.command
                if shutil.which(program) is None:
                    raise ToolError(
                        f"The MCP server {self.name} cannot start: there is no program {program}."
                    )
                parameters = StdioServerParameters(
                    command=program,
                    args=arguments,
                    env=dict(self._server.env) or None,
                    encoding_error_handler="replace",
                )
                streams = await stack.enter_async_context(stdio_client(parameters, errlog=errors))
                session = await stack.enter_async_context(ClientSession(*streams))
                await session.initialize()
                tools = await self._list(session)
                self._session = session
                self._tell(tools)
                await self._stop.wait()
        except asyncio.CancelledError:
            self._tell(ToolError(f"The MCP server {self.name} was ended before it had started."))
        except ToolError as error:
            self._tell(error)
        except Exception as error:
            # Whatever it does (it ends, talks another protocol, is no program) costs its tools alone.
            log.error("the MCP server %s: %s", self.name, type(error).__name__)
            self._tell(ToolError(f"The MCP server {self.name} did not start{self.log}: see to its command."))
        finally:
            self._session, self.is_gone = None, True

    def _tell(self, what: list[Tool] | ToolError) -> None:
        if self._ready.done():
            return
        if isinstance(what, ToolError):
            self._ready.set_exception(what)
            # It may be that nobody waits any more.
            self._ready.exception()
        else:
            self._ready.set_result(what)

    def _errors(self) -> TextIO:
        if self._log_path is not None:
            with suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                return open(os.open(self._log_path, flags, 0o600), "w", encoding="utf-8")  # noqa: PTH123
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123

    async def _list(self, session: ClientSession) -> list[Tool]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
            found += page.model_dump(by_alias=True).get("tools", [])
            cursor = page.next_cursor
            if not cursor:
                break
        tools = []
        for described in sorted(found, key=lambda item: str(item.get("name"))):
            schema = clean_schema(described.get("inputSchema"))
            if schema is None:
                log.warning(
                    "a tool of %s is left out: its arguments are described at too great length", self.name
                )
                continue
            tools.append(
                self._tool(str(described["name"]), clean_description(described.get("description")), schema)
            )
        return tools

    def _tool(self, own_name: str, description: str, schema: dict[str, Any]) -> Tool:
        async def run(arguments: Arguments) -> Result:
            return await self._call(own_name, dict(arguments))

        return Tool(clean_name(f"{self.name}_{own_name}"), description, schema, self.name, run)

    async def _call(self, name: str, arguments: dict[str, Any]) -> Result:
        session = self._session
        if session is None:
            raise ToolError(f"The MCP server {self.name} has ended.")
        try:
            answer = await session.call_tool(name, arguments)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                self.is_gone = True
                raise ToolError(f"The MCP server {self.name} has ended.") from None
            raise ToolError(f"The tool failed: {error.message}") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
            self.is_gone = True
            raise ToolError(f"The MCP server {self.name} has ended.") from None
        dumped = answer.model_dump(by_alias=True)
        return Result(_words(dumped), bool(dumped.get("isError")))


def _words(answer: dict[str, Any]) -> str:
    """The texts of a result, with a word for what is no text."""
    parts = []
    for block in answer.get("content") or []:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "resource", "resource": {"text": str(text)}}:
                parts.append(text)
            case {"type": str(kind)}:
                parts.append(f"({clean(kind)}: left out, only text can be read)")
    structured = answer.get("structuredContent")
    if not parts and structured is not None:
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return "\n".join(parts)
