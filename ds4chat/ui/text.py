"""Text made safe (see `safe_text`) and cut to a width before it is painted: pure, knows no widget."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells

from ds4chat.safe_text import one_line as one_line
from ds4chat.safe_text import visible as visible

_WORD = re.compile(r"\s+|[^\s]+\s?")

TAB_SIZE = 4
"""Columns of a tab stop, in plain text and in code."""


def clip(text: str, width: int) -> str:
    """The text cut to `width` cells, with an ellipsis where something was cut off."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    return chop_cells(text, width - 1)[0] + "…" if width > 1 else "…"


def fit(text: str, width: int) -> str:
    """The text cut or padded to exactly `width` cells."""
    text = clip(text, width)
    return text + " " * (width - cell_len(text))


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at white space where that is possible; white space is kept.

    Linear in the length of the text, a megabyte on one line included.
    """
    width = max(width, 2)
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.expandtabs(TAB_SIZE)
        if (len(line) if line.isascii() else cell_len(line)) <= width:
            lines.append(line)
        else:
            lines.extend(_wrap_line(line, width))
    return lines


def _wrap_line(line: str, width: int) -> list[str]:
    measure = len if line.isascii() else cell_len
    lines: list[str] = []
    current: list[str] = []
    used = 0
    for word in _WORD.findall(line):
        size = measure(word)
        if used + size > width:
            # A space at the end of a line may hang over the edge: nobody sees it.
            bare = word.rstrip()
            if bare and used + measure(bare) <= width:
                current.append(bare)
                lines.append("".join(current))
                current, used = [], 0
                continue
            if current:
                lines.append("".join(current))
                current, used = [], 0
            if size > width:
                pieces = _chop(word, width)
                lines.extend(pieces[:-1])
                word = pieces[-1]
                size = measure(word)
        current.append(word)
        used += size
    if current:
        lines.append("".join(current))
    return lines


def _chop(word: str, width: int) -> list[str]:
    if word.isascii():
        return [word[i : i + width] for i in range(0, len(word), width)]
    return chop_cells(word, width)
