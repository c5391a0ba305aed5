"""`ds4chat bench` without an engine: what it asks for, what it prints and draws, what it refuses."""

from __future__ import annotations

import importlib
import itertools
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ds4chat import cli_bench
from ds4chat.bench.plot import draw, write_plot
from ds4chat.bench.report import Generation, Growth, Length, Progress, Report, Request
from ds4chat.errors import EngineError, UsageError
from tests.cli.conftest import Line


def length(tokens: int, scale: float = 1.0) -> Length:
    return Length(
        tokens=tokens,
        spans=3,
        file_bytes=tokens * 23_062,
        prefill_ms=tokens * 9.5,
        restore_ms=tokens * 0.005 * scale,
        xxh3_ms=tokens * 0.0035,
        read_ms=tokens * 0.004,
        whole_bytes=tokens * 23_052,
        whole_save_ms=tokens * 0.012,
        whole_load_ms=tokens * 0.006,
        restore_over_xxh3=1.43,
        restore_over_read=1.25,
        restore_over_whole_load=0.83,
        prefill_over_restore=1900.0,
    )


REPORT = Report(
    model="Smol <&> Co",
    architecture="llama",
    memory="dense",
    kv_type="f16",
    n_ctx=8192,
    kv_bytes_per_token=23_040,
    build="0.3.36",
    cores=2,
    rounds=9,
    lengths=[length(512), length(2048), length(6000)],
    growth=Growth(6000, 13, 25, 138_312_744, 138_381_997, 1_811_375_604, 1.0005, 13.1),
    generation=Generation(9, 128, 82.0, 81.5, 0.994),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Request, dict[str, Any]]]:
    """What reached the child; it answers with two steps and `REPORT`."""
    seen: list[tuple[Request, dict[str, Any]]] = []

    def run(request: Request, on_progress: Callable[[Progress], None], **where: Any) -> Report:
        seen.append((request, where))
        on_progress(Progress("restoring 512 tokens", 0, 9))
        on_progress(Progress("restoring 512 tokens", 1, 9))
        return REPORT

    monkeypatch.setattr(cli_bench, "run_bench", run)
    return seen


def test_the_table_and_the_sentences(line: Line, asked: list[Any]) -> None:
    result = line("bench")
    assert result.code == 0
    assert "Smol <&> Co: dense memory, f16 KV, context 8,192, 23,040 bytes a token" in result.out
    for expected in ("6,000", "57.0 s", "30.0 ms", "1.43", "1,900", "138.4 MB in 3", "1.000 times", "0.994"):
        assert expected in result.out
    assert result.err.count("restoring 512 tokens ...") == 1


def test_json_is_the_whole_report_and_nothing_else(line: Line, asked: list[Any]) -> None:
    result = line("bench", "--json")
    assert json.loads(result.out) == msgspec.to_builtins(REPORT)


def test_what_is_asked_for(line: Line, asked: list[Any]) -> None:
    line("bench", "--tokens", "2048, 512,512", "--ctx", "4096", "--kv-type", "q8_0", "--threads", "1")
    (request, where), *_ = asked
    assert request.lengths == [512, 2048]
    assert (request.load.n_ctx, request.load.kv_type, request.load.threads) == (4096, "q8_0", 1)
    assert request.load.model_path.endswith("tiny.gguf")
    assert request.chat[0].role == "system" and request.chat[1].role == "user"
    assert request.parts == ["lengths", "generation", "growth"]
    assert where["beside"] == line.folder / "kv"
    assert where["memo"] == line.folder / "data" / "engine.json"


def test_options_before_the_command_count_and_those_behind_it_win(line: Line, asked: list[Any]) -> None:
    line("--ctx", "2048", "--kv-type", "q8_0", "--no-kv", "bench", "--ctx", "4096", "--only", "growth")
    request = asked[0][0]
    assert (request.load.n_ctx, request.load.kv_type, request.parts) == (4096, "q8_0", ["growth"])
    assert request.load.kv.enabled and not request.load.kv.read_only


@pytest.mark.parametrize("tokens", ["", "x", "512,", "63", "1.5", "-512", "1000001"])
def test_lengths_that_are_none(line: Line, asked: list[Any], tokens: str) -> None:
    result = line("bench", "--tokens", tokens)
    assert result.code == 2 and "--tokens" in result.err and not asked


def test_a_failure_is_one_sentence(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Report:
        raise EngineError("It is not to be: try again.")

    monkeypatch.setattr(cli_bench, "run_bench", run)
    result = line("bench")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "ds4chat: It is not to be: try again."


def test_the_plot_is_drawn(line: Line, asked: list[Any]) -> None:
    assert line("bench", "--plot", str(line.folder / "plot.svg")).code == 0
    root = ET.fromstring((line.folder / "plot.svg").read_text())
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Smol <&> Co, f16 KV" in words
    assert {"512", "2,048", "6,000", "tokens", "prefill  57 s", "restore  30 ms"} <= set(words)
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 5


@pytest.mark.parametrize("lengths", [[length(512)], [length(64, 1000.0), length(10**6)]])
def test_any_report_can_be_drawn_inside_of_the_picture(lengths: list[Length]) -> None:
    root = ET.fromstring(draw(msgspec.structs.replace(REPORT, lengths=lengths)))
    for element in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(element.attrib["cx"]) < 760 and 0 < float(element.attrib["cy"]) < 470
    places = [float(e.attrib["y"]) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(0 < place < 470 for place in places)
    labels = sorted(places[-5:])
    assert all(b - a > 12 for a, b in itertools.pairwise(labels))


@pytest.mark.parametrize(
    ("plot", "said"), [("plot.gif", ".svg or .png"), ("nowhere/plot.svg", "folder"), ("plot", ".svg or .png")]
)
def test_a_plot_that_cannot_be_is_refused_before_anything_is_measured(
    line: Line, asked: list[Any], plot: str, said: str
) -> None:
    result = line("bench", "--plot", str(line.folder / plot))
    assert result.code == 2 and said in result.err and not asked


def test_a_plot_needs_the_lengths(line: Line, asked: list[Any]) -> None:
    result = line("bench", "--only", "growth", "--plot", str(line.folder / "plot.svg"))
    assert result.code == 2 and "--only lengths" in result.err and not asked


def test_png_without_cairosvg_is_one_sentence(
    line: Line, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name == "cairosvg":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    result = line("bench", "--plot", str(line.folder / "plot.png"))
    assert result.code == 2 and "cairosvg" in result.err and ".svg" in result.err and not asked


def test_png_by_cairosvg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cairosvg")
    write_plot(REPORT, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plot.svg").mkdir()
    with pytest.raises(UsageError, match="could not be written"):
        write_plot(REPORT, tmp_path / "plot.svg")


def test_help_names_the_options(line: Line) -> None:
    said = line("bench", "--help").out
    for option in ("--json", "--tokens", "--only", "--plot", "--model", "--ctx", "--kv-type"):
        assert option in said
