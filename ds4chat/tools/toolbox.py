"""All tools of this run: those built in and those of the servers, started when they are needed and ended at the end.

Promises: a call always comes to a result, of bounded time and size; a server that fails costs its own tools alone; the
declarations have the same bytes as long as the tools are the same.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ds4chat.tools.builtin import builtin_tools
from ds4chat.tools.options import ToolOptions
from ds4chat.tools.tool import Arguments, Result, Tool, ToolError, bounded, clean

if TYPE_CHECKING:
    from ds4chat.tools.mcp_server import McpServer

log = logging.getLogger(__name__)

START_SECONDS = 20.0
"""A server may take to start and to list its tools."""

MAX_TOOLS = 128
"""Of all servers together: each is a part of every prompt."""


class Toolbox:
    """The tools; all methods are called on one event loop."""

    def __init__(self, options: ToolOptions, say: Callable[[str], None]) -> None:
        """`say` gets one sentence for the user about a server that failed."""
        self._options, self._say = options, say
        self._servers: list[McpServer] = []
        self._ending: list[McpServer] = []
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools(options)}
        self.declarations = self._declared()

    def _declared(self) -> str:
        if not self.tools:
            return ""
        return json.dumps([tool.declaration() for tool in self.tools.values()], ensure_ascii=False)

    async def start(self) -> None:
        """Start the servers, all at once, and take up their tools in the order of the configuration."""
        if not self._options.servers:
            return
        try:
            # The SDK takes a second or more to import: the screen goes on meanwhile.
            module = await asyncio.to_thread(importlib.import_module, "ds4chat.tools.mcp_server")
        except ImportError:
            self._say(
                "The tools of MCP servers need the package mcp: install it with `pip install 'ds4chat[tools]'`."
            )
            return
        servers = [module.McpServer(server, self._options.log_dir) for server in self._options.servers]
        self._servers = servers
        started = await asyncio.gather(*(self._start(server) for server in servers))
        for tools in started:
            for tool in tools:
                self._add(tool)
        self.declarations = self._declared()

    async def _start(self, server: McpServer) -> list[Tool]:
        try:
            async with asyncio.timeout(START_SECONDS):
                return await server.start()
        except TimeoutError:
            self._say(
                f"The MCP server {server.name} did not start within {START_SECONDS:g} seconds{server.log}."
            )
        except ToolError as error:
            self._say(str(error))
        server.end()
        return []

    def _add(self, tool: Tool) -> None:
        if len(self.tools) >= MAX_TOOLS:
            log.warning("more than %d tools: some of %s are left out", MAX_TOOLS, tool.where)
            return
        name, number = tool.name, 2
        while name in self.tools:
            end = f"_{number}"
            name, number = tool.name[: 64 - len(end)] + end, number + 1
        self.tools[name] = Tool(name, tool.description, tool.schema, tool.where, tool.run)

    async def call(self, name: str, arguments: Arguments, most: int) -> Result:
        """Run a tool; what it came to takes at most so many bytes."""
        tool = self.tools.get(name)
        if tool is None:
            return Result(f"There is no tool {name}.", failed=True)
        try:
            async with asyncio.timeout(self._options.seconds):
                result = await tool.run(arguments)
            self._look_after(tool.where)
        except TimeoutError:
            self._drop(tool.where, f"did not answer within {self._options.seconds:g} seconds")
            return Result(f"The tool did not answer within {self._options.seconds:g} seconds.", failed=True)
        except ToolError as error:
            self._look_after(tool.where)
            return Result(bounded(clean(str(error)), most), failed=True)
        except Exception as error:
            # A tool may fail in any way. What it was given is nothing for a log.
            log.error("a tool of %s failed: %s", tool.where, type(error).__name__)
            return Result(f"The tool failed ({type(error).__name__}).", failed=True)
        return Result(bounded(clean(result.text), most), result.failed)

    def _look_after(self, where: str) -> None:
        """Let the tools of a server go that is gone."""
        server = self._server(where)
        if server is not None and server.is_gone:
            self._drop(where, "has ended")

    def _drop(self, where: str, what: str) -> None:
        server = self._server(where)
        if server is None:
            return
        self._servers.remove(server)
        self.tools = {name: tool for name, tool in self.tools.items() if tool.where != where}
        self.declarations = self._declared()
        self._say(f"The MCP server {where} {what}: its tools are gone until ds4chat starts anew{server.log}.")
        server.end()
        self._ending.append(server)

    def _server(self, where: str) -> McpServer | None:
        return next((server for server in self._servers if server.name == where), None)

    async def aclose(self) -> None:
        """End the servers."""
        await asyncio.gather(*(server.aclose() for server in [*self._servers, *self._ending]))
        self._servers = []
