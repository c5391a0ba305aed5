"""A real MCP server, made with the official SDK, over standard input and output."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def count_books(author: str, room: int = 1) -> str:
    """Counts the books of an author in a room."""
    return f"{len(author)} books of {author} in room {room} ({os.environ.get('SHELF', 'no shelf')})"


if __name__ == "__main__":
    server.run("stdio")
