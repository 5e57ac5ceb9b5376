"""The tools of servers of the Model Context Protocol, which this process starts and speaks with over their pipes."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import inspect
import os
import threading
from collections.abc import Sequence
from typing import Any

import pydantic

from polopt.config import Config
from polopt.errors import UserError

# Characters of a result; what is longer is cut off, with a word.
LONGEST = 4000
# The protocol's code of a connection that is closed.
CLOSED = -32000
TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}


class MCPSpec(Config):
    """The tools of an MCP server. mcp: the command that starts it. seconds: time limit of its start, and of a call."""

    mcp: list[str] = pydantic.Field(min_length=1)
    seconds: float = pydantic.Field(default=10.0, gt=0)


class ToolServerError(UserError, RuntimeError):
    """A server of tools cannot be started, or has ended. The message names its command and the fix."""


class MCPServer:
    """A server of tools, started by a command, which speaks over standard input and output.

    command: the program and its arguments. seconds: time limit of its start, and of a call.

    Raises:
        ToolServerError: the package `mcp` is not installed; the server does not start, or not in time.
    """

    def __init__(self, command: Sequence[str], seconds: float = 10.0) -> None:
        if not command or not seconds > 0:
            raise ToolServerError(f"mcp: needs a command and seconds > 0, found {list(command)} and {seconds}")
        self.command, self.seconds = list(command), seconds
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Any] | None = None
        self._ready: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        try:
            self._session, self.described = self._ready.result(timeout=seconds)
        except concurrent.futures.TimeoutError:
            self.close()
            raise ToolServerError(f"mcp: {self._shown} did not start within {seconds:g} s; raise seconds") from None
        except ImportError:
            raise ToolServerError("mcp: tools of MCP servers need it; run pip install 'polopt[mcp]'") from None
        except Exception as error:
            raise ToolServerError(f"mcp: {self._shown} cannot be started: {_cause(error)}") from None

    @property
    def _shown(self) -> str:
        return " ".join(self.command)

    async def _serve(self) -> None:
        """Keeps the session open until `close`, which cancels it."""
        self._task = asyncio.current_task()
        try:
            from mcp import ClientSession, StdioServerParameters, stdio_client

            parameters = StdioServerParameters(command=self.command[0], args=self.command[1:])
            async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
                await session.initialize()
                self._ready.set_result((session, (await session.list_tools()).tools))
                await asyncio.Event().wait()
        except BaseException as error:  # told to whoever waits for the start; after it, by `close` alone
            if not self._ready.done():
                self._ready.set_exception(error)

    def tools(self) -> dict[str, MCPTool]:
        """Returns the server's tools, by name."""
        return {tool.name: MCPTool(self, tool) for tool in self.described}

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Returns a tool's answer as text.

        Raises:
            ValueError: the tool's own error, or no answer in time, for the policy to read.
            ToolServerError: the server has ended.
        """
        if not self._thread.is_alive():
            raise self._ended()
        pending = asyncio.run_coroutine_threadsafe(self._session.call_tool(name, arguments), self._loop)
        try:
            result = pending.result(timeout=self.seconds)
        except concurrent.futures.TimeoutError:
            pending.cancel()
            raise ValueError(f"no answer within {self.seconds:g} s") from None
        except Exception as error:
            if getattr(error, "code", getattr(getattr(error, "error", None), "code", CLOSED)) == CLOSED:
                raise self._ended() from None
            raise ValueError(_cause(error)) from None
        text = "\n".join(getattr(part, "text", None) or f"[{part.type}]" for part in result.content)
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]} [{len(text) - LONGEST} characters cut off]"
        if getattr(result, "is_error", getattr(result, "isError", False)):
            raise ValueError(text)
        return text

    def _ended(self) -> ToolServerError:
        return ToolServerError(f"mcp: {self._shown} has ended; see what it wrote, and start the run again")

    def close(self) -> None:
        """Ends the server."""
        task = self._task
        if self._thread.is_alive() and task is not None:
            self._loop.call_soon_threadsafe(task.cancel)
            self._thread.join(timeout=5)


def _cause(error: BaseException) -> str:
    """Returns the message of the first error in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class MCPTool:
    """A tool of a server, which is called with values by name. Its signature is that of the server's schema."""

    def __init__(self, server: MCPServer, described: Any) -> None:
        self.server, self.name = server, described.name
        self.__name__ = described.name
        self.__doc__ = described.description or described.name
        schema = getattr(described, "input_schema", None) or getattr(described, "inputSchema", None) or {}
        required = set(schema.get("required", ()))
        kind = inspect.Parameter
        self.__signature__ = inspect.Signature(
            [
                kind(
                    name,
                    kind.KEYWORD_ONLY,
                    default=kind.empty if name in required else told.get("default"),
                    annotation=TYPES.get(str(told.get("type")), kind.empty),
                )
                for name, told in schema.get("properties", {}).items()
                if name.isidentifier()
            ]
        )

    def __call__(self, **arguments: Any) -> str:
        return self.server.call(self.name, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process starts a server of its own."""
        return _tool_of, (tuple(self.server.command), self.server.seconds, self.name)


@functools.cache
def _server_of(command: tuple[str, ...], seconds: float, process: int) -> MCPServer:
    server = MCPServer(command, seconds)
    atexit.register(server.close)
    return server


def mcp_tools(command: Sequence[str], seconds: float = 10.0) -> dict[str, MCPTool]:
    """Returns the tools of the server that a command starts, by name; one server in each process for equal commands.

    Raises:
        ToolServerError: as `MCPServer`.
    """
    return _server_of(tuple(command), seconds, os.getpid()).tools()


def _tool_of(command: tuple[str, ...], seconds: float, name: str) -> MCPTool:
    return mcp_tools(command, seconds)[name]
