"""Tools of an MCP server: what they take, what they answer, and servers that fail, hang or leave."""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polopt.config import ConfigError
from polopt.worlds import build_tasks
from polopt.worlds.mcp_tools import LONGEST, MCPServer, ToolServerError, mcp_tools
from polopt.worlds.tools import described_tools

pytest.importorskip("mcp")
COMMAND = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


def running() -> Iterator[bytes]:
    """The commands of all processes, where the system tells."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()


@pytest.fixture(scope="module")
def server() -> Iterator[MCPServer]:
    started = MCPServer(COMMAND, seconds=60.0)
    yield started
    started.close()


def test_tools_answer_and_say_what_they_take(server: MCPServer) -> None:
    tools = server.tools()
    assert set(tools) == {"add", "fail", "sleep", "write", "leave"}
    assert tools["add"](a=2, b=3) == "5"
    assert tools["add"](a=2) == "3"
    assert "add(" in described_tools(tools)
    assert "Adds two whole numbers." in described_tools(tools)


def test_what_goes_wrong_is_told(server: MCPServer) -> None:
    tools = server.tools()
    with pytest.raises(ValueError, match="fail"):
        tools["fail"](why="I can")
    with pytest.raises(ValueError, match="a"):
        tools["add"](a="two")
    server.seconds, begun = 1.0, time.perf_counter()
    with pytest.raises(ValueError, match="no answer within 1 s"):
        tools["sleep"](seconds=30.0)
    assert time.perf_counter() - begun < 20
    server.seconds = 60.0
    long = tools["write"](count=LONGEST + 7)
    assert long.endswith("[7 characters cut off]")


def test_before_an_answer() -> None:
    spec = {
        "kind": "with-tools",
        "tools": ["calculator", {"mcp": COMMAND, "seconds": 60.0}],
        "of": {"kind": "guess-number", "high": 5},
    }
    split = build_tasks(spec, seed=0)
    assert "calculator" in split.train[0].prompt
    assert "add(" in split.train[0].prompt
    episode = split.train.episode(split.train[0])
    episode.reset()
    step = episode.step('<tool_call>{"name": "add", "arguments": {"a": 4, "b": 5}}</tool_call>')
    assert step.observation == "9"
    refused = episode.step('<tool_call>{"name": "add", "arguments": {"c": 4}}</tool_call>')
    assert refused.observation.startswith("error: add:")


def test_two_tools_of_one_name_are_refused() -> None:
    spec = {"kind": "with-tools", "tools": [{"mcp": COMMAND, "seconds": 60.0}] * 2, "of": {"kind": "guess-number"}}
    with pytest.raises(ConfigError, match="two tools are called add"):
        build_tasks(spec, seed=0)


def test_another_process_starts_its_own() -> None:
    tool = mcp_tools(COMMAND, 60.0)["add"]
    assert pickle.loads(pickle.dumps(tool))(a=1, b=1) == "2"


def test_a_server_that_leaves_or_does_not_start_is_an_error() -> None:
    server = MCPServer(COMMAND, seconds=60.0)
    server.seconds = 3.0
    for name, arguments in (("leave", {}), ("add", {"a": 1})):
        with pytest.raises(ToolServerError, match="has ended"):
            server.tools()[name](**arguments)
    server.close()
    with pytest.raises(ToolServerError, match="cannot be started"):
        MCPServer(["/no/such/program"], seconds=5.0)
    with pytest.raises(ToolServerError, match=r"cannot be started|did not start"):
        MCPServer([sys.executable, "-c", "print('hello')"], seconds=5.0)
    with pytest.raises(ToolServerError, match="did not start within 1 s"):
        MCPServer(["sleep", "987"], seconds=1.0)
    assert not any(b"sleep\x00987" in command for command in running())
    with pytest.raises(ConfigError, match="mcp"):
        build_tasks({"kind": "with-tools", "tools": [{"mcp": []}], "of": {"kind": "guess-number"}}, seed=0)
