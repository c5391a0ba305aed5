"""MCP servers that do what they should not: each costs its own tools, and says so in a sentence."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ds4chat.tools import toolbox
from ds4chat.tools.options import Server, ToolOptions
from ds4chat.tools.toolbox import Toolbox

PLAIN = Path(__file__).parent.parent / "support" / "mcp_plain_server.py"


def server(how: str = "", name: str = "x") -> Server:
    return Server(name, (sys.executable, str(PLAIN), how))


@asynccontextmanager
async def started(
    *servers: Server, seconds: float = 20.0, logs: Path | None = None
) -> AsyncIterator[Toolbox]:
    said: list[str] = []
    box = Toolbox(ToolOptions(True, ("time",), seconds=seconds, servers=servers, log_dir=logs), said.append)
    box.said = said  # type: ignore[attr-defined]
    try:
        await box.start()
        yield box
    finally:
        async with asyncio.timeout(20):
            await box.aclose()


def said(box: Toolbox) -> list[str]:
    return box.said  # type: ignore[attr-defined,no-any-return]


async def test_a_server_that_dies_loses_its_tools_alone(tmp_path: Path) -> None:
    async with started(server(), server(name="y"), logs=tmp_path) as box:
        before = box.declarations
        assert (await box.call("x_echo", {"text": "Hello."}, 1000)).text == "Hello."
        failed = await box.call("x_fail", {"text": "It broke."}, 1000)
        assert failed.failed and failed.text == "It broke."
        assert "image" in (await box.call("x_picture", {}, 1000)).text
        assert box.declarations == before
        dead = await box.call("x_die", {}, 1000)
        assert dead.failed and dead.text == "The MCP server x has ended."
        assert {name for name in box.tools if name.startswith("x_")} == set()
        (sentence,) = said(box)
        assert sentence.startswith("The MCP server x has ended: its tools are gone until ds4chat starts anew")
        assert sentence.endswith(f"(its log is {tmp_path}/mcp-x.log).")
        assert (await box.call("y_echo", {"text": "Still."}, 1000)).text == "Still."
    assert "asked to die" in (tmp_path / "mcp-x.log").read_text()
    assert (tmp_path / "mcp-x.log").stat().st_mode & 0o777 == 0o600


async def test_a_server_that_hangs_is_given_up() -> None:
    async with started(server(), seconds=0.3) as box:
        result = await box.call("x_hang", {}, 1000)
        assert result.failed and "within 0.3 seconds" in result.text
        assert list(box.tools) == ["time"] and "did not answer" in said(box)[0]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (server("dies"), "The MCP server x did not start: see to its command."),
        (server("mute"), "The MCP server x did not start within 1.5 seconds."),
        (Server("x", ("no-such-program-here",)), "there is no program no-such-program-here."),
    ],
)
async def test_a_server_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, broken: Server, sentence: str
) -> None:
    monkeypatch.setattr(toolbox, "START_SECONDS", 1.5)
    async with started(broken) as box:
        assert list(box.tools) == ["time"]
        assert len(said(box)) == 1 and said(box)[0].endswith(sentence)


async def test_what_a_server_says_of_its_tools_is_cleaned_and_bounded() -> None:
    async with started(server("hostile")) as box:
        names = [name for name in box.tools if name != "time"]
        assert len(names) == 2, "the one with endless arguments is left out"
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names) and len(set(names)) == 2
        assert not re.search(r"[\x00-\x1f\x7f\u202e]", box.declarations)
        for declared in json.loads(box.declarations):
            assert len(declared["function"]["description"]) <= 1000


async def test_without_the_sdk_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ds4chat.tools.mcp_server", None)
    async with started(server()) as box:
        assert list(box.tools) == ["time"]
        assert said(box) == [
            "The tools of MCP servers need the package mcp: install it with `pip install 'ds4chat[tools]'`."
        ]
