"""A long reply with everything that is costly to show, and with numbered words to see when what was shown."""

from __future__ import annotations

import re

CHARACTERS = 20_000
"""Of the reply."""

TOKEN_CHARACTERS = 3.45
"""Of a token, as English Markdown has them: the reply takes about 58 s at 100 tokens a second."""

MARK = re.compile(rb"mk(\d{4})x")
"""A numbered word in what a terminal gets."""

LAST_WORDS = "thatwasall"
"""Ends the reply."""


def reply(characters: int = CHARACTERS) -> str:
    """Paragraphs, lists, tables and code, a mark every forty characters or so."""
    parts: list[str] = []
    length = number = 0

    def mark() -> str:
        nonlocal number
        number += 1
        return f"mk{number:04d}x"

    while length < characters:
        section = len(parts)
        parts.append(f"## Part {section} {mark()}\n\n")
        parts.append(
            " ".join(f"The *quick* brown fox {mark()} jumps over **lazy** dogs and" for _ in range(6))
            + " rests.\n\n"
        )
        parts.append(
            "".join(f"- point `{mark()}` of the list, said in a few plain words\n" for _ in range(4)) + "\n"
        )
        parts.append(f"| name | {mark()} | value |\n|---|---|---|\n")
        parts.append("".join(f"| row {i} | {mark()} | {i * 37} |\n" for i in range(6)) + "\n")
        parts.append("```python\ndef area(width: int, height: int) -> int:\n")
        parts.append("".join(f'    {mark()} = width * {i} + len("text {i}")  # and why\n' for i in range(8)))
        parts.append("    return width * height\n```\n\n")
        length = sum(map(len, parts))
    text = "".join(parts)
    return text[: text.rindex("\n\n", 0, characters)] + f"\n\n{LAST_WORDS}\n"


def tokens(text: str) -> list[str]:
    """The text in pieces of the length tokens have, alternately shorter and longer."""
    pieces, at, turn = [], 0, 0
    sizes = (3, 4, 2, 5, 3, 4, 3, 3, 4, 3)
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[at : at + size])
        at, turn = at + size, turn + 1
    return pieces
