"""Sentences that must not go under, whoever finds out: the command line prints those that are left when it ends."""

from __future__ import annotations

_sentences: list[str] = []
_printed = ""
"""The last sentence that stands where it stays."""


def add(sentence: str) -> None:
    """Keep a sentence until it is printed."""
    _sentences.append(sentence)


def kept() -> list[str]:
    """Those not printed yet, oldest first."""
    return list(_sentences)


def take() -> list[str]:
    """`kept`, for who prints them."""
    taken = kept()
    _sentences.clear()
    return taken


def printed(sentence: str) -> None:
    """It stands on standard error or output, where it stays."""
    global _printed
    _printed = sentence
    if sentence in _sentences:
        _sentences.remove(sentence)


def is_last_printed(sentence: str) -> bool:
    """Whether it was the last to be printed, so that to print it again would tell nothing."""
    return sentence == _printed
