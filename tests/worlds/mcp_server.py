"""A server of tools over its pipes, for tests."""

from __future__ import annotations

import os
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("tools for tests")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Adds two whole numbers."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Fails."""
    raise ValueError(f"because {why}")


@server.tool()
def sleep(seconds: float) -> str:
    """Sleeps."""
    time.sleep(seconds)
    return "awake"


@server.tool()
def write(count: int) -> str:
    """Writes many letters."""
    return "a" * count


@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(3)


if __name__ == "__main__":
    server.run()
