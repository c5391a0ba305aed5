"""The tools that are built in."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.tools.builtin import builtin_tools, read_within
from ds4chat.tools.calculator import calculate
from ds4chat.tools.options import ToolOptions
from ds4chat.tools.tool import ToolError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 * (3 + 4) ** 2", "98"),
        ("7 // 2 % 2 - -1", "2"),
        ("2 ^ 10", "1024"),
        ("sqrt(16) + max(1, 2, 3)", "7.0"),
        ("round(pi, 2)", "3.14"),
        ("2 ** -1", "0.5"),
        ("1e3", "1000.0"),
    ],
)
def test_arithmetic(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9",
        "(2**4000)**4000",
        "-(9**9**9)",
        "10**-(10**10)",
        "round(5, -10**9)",
        "2**2**2**2**2**2",
        "1/0",
        "(-8) ** 0.5",
        "__import__('os')",
        "().__class__",
        "'a' * 10**9",
        "[1] * 9",
        "True + 1",
        "lambda: 1",
        "max(*[1])",
        "sqrt(x=1)",
        "abs",
        "1 if 1 else 2",
        "exp(10**6)",
        "(" * 400,
        "-" * 499,
        "",
        "1" * 501,
        "log(0)",
    ],
)
def test_what_is_refused_is_refused_at_once(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(ToolError) as refused:
        calculate(expression)
    assert str(refused.value).endswith(".") and time.process_time() - began < 5


@given(st.text(alphabet="0123456789+-*/().% ,esqrtpi^\x00", max_size=60))
def test_any_expression_has_a_value_or_a_sentence(expression: str) -> None:
    try:
        assert calculate(expression)
    except ToolError as error:
        assert str(error).endswith(".")


async def test_the_time_and_its_zone() -> None:
    (tool,) = builtin_tools(ToolOptions(builtin=("time", "time")))
    assert "UTC+0000" in (await tool.run({"zone": "UTC"})).text
    assert (await tool.run({})).text
    for zone in ("Nowhere/Land", "../etc/passwd", "/etc/passwd"):
        with pytest.raises(ToolError, match="no such time zone"):
            await tool.run({"zone": zone})
    with pytest.raises(ToolError):
        await tool.run({"zone": 3})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "notes"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("An apple.\n", encoding="utf-8")
    (inside / "sub" / "b.txt").write_text("A bee: é.\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    return inside


def test_a_file_in_the_folders_is_read(folder: Path) -> None:
    assert read_within("a.txt", [folder]) == "An apple.\n"
    assert read_within(str(folder / "sub" / "b.txt"), [folder]) == "A bee: é.\n"
    (folder / "link").symlink_to(folder / "a.txt")
    assert read_within("link", [folder]) == "An apple.\n"


def test_what_is_outside_is_as_if_it_were_not_there(folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "round").symlink_to(folder / "round")
    same = "There is no such file in the folders that may be read."
    for name in (
        "out",
        "up/secret.txt",
        str(tmp_path / "secret.txt"),
        "/etc/passwd",
        "no.txt",
        "round",
        "~/x",
    ):
        with pytest.raises(ToolError) as refused:
            read_within(name, [folder])
        assert str(refused.value) == same
    with pytest.raises(ToolError, match=r'"\.\."'):
        read_within("sub/../a.txt", [folder])
    with pytest.raises(ToolError, match="no such file"):
        read_within("a.txt", [])


def test_what_is_no_text_file_is_refused(folder: Path) -> None:
    (folder / "bin").write_bytes(b"\x7fELF\x00\x01")
    (folder / "latin").write_bytes(b"caf\xe9 and more")
    os.mkfifo(folder / "pipe")
    for name in ("bin", "latin", "pipe", "sub", "a.txt\x00", "x" * 5000):
        with pytest.raises(ToolError):
            read_within(name, [folder])


def test_a_long_file_is_cut_between_characters(folder: Path) -> None:
    (folder / "long").write_text("é" * 100, encoding="utf-8")
    assert read_within("long", [folder], most=51) == "é" * 25 + "\n(cut here: 51 of 200 bytes)"
