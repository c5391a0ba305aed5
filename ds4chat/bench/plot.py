"""The bench as a picture: milliseconds by length, both on scales of powers, as SVG or PNG.

Must not know: how anything was measured.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from ds4chat.bench.report import Length, Report
from ds4chat.errors import UsageError

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 64, 60
_FONT = "font-family='system-ui, sans-serif'"

SERIES: tuple[tuple[str, str, Callable[[Length], float]], ...] = (
    ("prefill", "#b3402e", lambda length: length.prefill_ms),
    ("whole state, load", "#8a6d1d", lambda length: length.whole_load_ms),
    ("restore", "#1f6f8b", lambda length: length.restore_ms),
    ("plain read", "#6b7280", lambda length: length.read_ms),
    ("XXH3 pass", "#7a5ea8", lambda length: length.xxh3_ms),
)
"""Name, colour and value of each line."""


def write_plot(report: Report, path: Path) -> None:
    """Write the picture; the file's ending says which kind. Raises UsageError."""
    check_plot(path)
    svg = draw(report)
    try:
        if path.suffix.lower() == ".png":
            importlib.import_module("cairosvg").svg2png(bytestring=svg.encode(), write_to=str(path), scale=2)
        else:
            path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The plot {path} could not be written ({error.strerror}): give another file with --plot."
        ) from error


def check_plot(path: Path) -> None:
    """Raise UsageError when such a file cannot be made: better before minutes of measuring than after."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--plot writes SVG or PNG, and {path.name} ends in neither: name it .svg or .png.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot has no folder to write {path} into: make it, or give another file.")
    if path.suffix.lower() == ".png":
        try:
            importlib.import_module("cairosvg")
        except (ImportError, OSError) as error:
            raise UsageError(
                "--plot writes PNG with the package cairosvg, which is not installed: install it, or write an .svg."
            ) from error


def draw(report: Report) -> str:
    """The SVG. A single length gives points without lines."""
    xs = [float(length.tokens) for length in report.lengths]
    values = {name: [max(value(length), 0.01) for length in report.lengths] for name, _, value in SERIES}
    everything = [v for line in values.values() for v in line]
    low, high = _decades(everything)
    x = _Scale(min(xs) / 1.1, max(xs) * 1.1, LEFT, WIDTH - RIGHT)
    y = _Scale(low, high, HEIGHT - BOTTOM, TOP)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' "
        f"viewBox='0 0 {WIDTH} {HEIGHT}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        _text(LEFT, 28, f"{report.model}, {report.kv_type} KV", size=17, weight="600"),
        _text(LEFT, 48, _subtitle(report.lengths[-1]), size=12, fill="#4b5563"),
    ]
    decade = low
    while decade <= high * 1.001:
        parts.append(
            f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y(decade):.1f}' y2='{y(decade):.1f}' stroke='#e5e7eb'/>"
        )
        parts.append(_text(LEFT - 8, y(decade) + 4, _duration(decade), size=12, anchor="end", fill="#4b5563"))
        decade *= 10
    for tokens in xs:
        parts.append(
            _text(x(tokens), HEIGHT - BOTTOM + 20, f"{tokens:,.0f}", size=12, anchor="middle", fill="#4b5563")
        )
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "tokens", size=12, anchor="middle"))
    labels = _spread([y(values[name][-1]) for name, _, _ in SERIES], 17)
    for (name, colour, _), label in zip(SERIES, labels, strict=True):
        points = [(x(t), y(v)) for t, v in zip(xs, values[name], strict=True)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        parts += [f"<circle cx='{px:.1f}' cy='{py:.1f}' r='3.5' fill='{colour}'/>" for px, py in points]
        said = f"{name}  {_duration(values[name][-1])}"
        parts.append(_text(WIDTH - RIGHT + 12, label + 4, said, size=13, fill=colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _subtitle(longest: Length) -> str:
    return (
        f"{longest.tokens:,} tokens: a restore is {longest.prefill_over_restore:,.0f} times faster than computing "
        f"them, {longest.restore_over_xxh3:.2f} times one XXH3 pass"
    )


def _duration(ms: float) -> str:
    if ms >= 1000:
        return f"{ms / 1000:,.4g} s"
    return f"{ms:.3g} ms"


def _decades(values: Sequence[float]) -> tuple[float, float]:
    low = 10.0 ** math.floor(math.log10(min(values)))
    return low, max(10.0 ** math.ceil(math.log10(max(values))), low * 10)


class _Scale:
    """From a value to a place, by its logarithm."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._start = math.log(low), start
        self._factor = (end - start) / (math.log(high) - math.log(low))

    def __call__(self, value: float) -> float:
        return self._start + (math.log(value) - self._low) * self._factor


def _spread(places: Sequence[float], distance: float) -> list[float]:
    """The places, moved apart to at least `distance`, in the order they were given."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + distance)
    over = moved[order[-1]] - (HEIGHT - BOTTOM)
    if over > 0:
        moved[order[-1]] -= over
        for below, above in pairwise(reversed(order)):
            moved[above] = min(moved[above], moved[below] - distance)
    return moved


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    anchor: str = "start",
    fill: str = "#111827",
    weight: str = "400",
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' "
        f"fill='{fill}'>{escape(text)}</text>"
    )
