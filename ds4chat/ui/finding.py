"""Finding sessions by a few letters of their titles and tags: pure, quick enough for ten thousand."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ds4chat.ui.listing import Row
from ds4chat.ui.text import one_line

QUERY_LIMIT = 40
"""Letters of a filter that are looked at."""

FOUND_LIMIT = 200
"""Matches that are listed: who sees more types another letter."""


BY_ID, AT_START, TOGETHER, BY_TAG = 2000.0, 1000.0, 800.0, 300.0
"""Scores: the row's id is meant, the letters stand together at the start of a word or within one, in a tag."""


@dataclass(frozen=True)
class Query:
    """A filter as typed: words of the title, `#` words of the tags."""

    text: str
    tags: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.text or self.tags)


def read_query(typed: str) -> Query:
    """Take a filter apart. A lone `#` asks for nothing yet."""
    words = typed[:QUERY_LIMIT].split()
    tags = tuple(word[1:].casefold() for word in words if word.startswith("#") and len(word) > 1)
    return Query(" ".join(word for word in words if not word.startswith("#")), tags)


def fold(text: str) -> str:
    """The text without case, letter for letter: offsets stay what they are."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    # Some letters fold to several (as "ß").
    return "".join(char.casefold()[0] for char in text)


def match(query: str, title: str) -> tuple[float, tuple[int, ...]] | None:
    """How well `query` fits a title, and which letters it found; None when its letters are not there in order.

    Letters that stand together count most, at the start of a word more than within.
    """
    wanted, text = fold(query), fold(title)
    best = -1
    at = text.find(wanted)
    while at >= 0:
        if at == 0 or not text[at - 1].isalnum():
            return AT_START - min(at, 100), tuple(range(at, at + len(wanted)))
        best = at if best < 0 else best
        at = text.find(wanted, at + 1)
    if best >= 0:
        return TOGETHER - min(best, 100), tuple(range(best, best + len(wanted)))
    return _scattered(wanted.replace(" ", ""), text)


def _scattered(wanted: str, text: str) -> tuple[float, tuple[int, ...]] | None:
    offsets: list[int] = []
    at, score = 0, 0.0
    for index, letter in enumerate(wanted):
        found = text.find(letter, at)
        if found < 0:
            return None
        near = found
        if index == 0 or found != at:
            # Prefer the letter at the start of a word, if the rest is still behind it.
            start = _at_word_start(letter, text, found)
            if start >= 0 and _in_order(wanted[index + 1 :], text, start + 1):
                near = start
        starts = near == 0 or not text[near - 1].isalnum()
        score += 6.0 if starts else 4.0 if offsets and near == offsets[-1] + 1 else 1.0
        offsets.append(near)
        at = near + 1
    spread = offsets[-1] - offsets[0] + 1 if offsets else 0
    return score * 10 - spread, tuple(offsets)


def _at_word_start(letter: str, text: str, start: int) -> int:
    at = start
    while at >= 0:
        if at == 0 or not text[at - 1].isalnum():
            return at
        at = text.find(letter, at + 1)
    return -1


def _in_order(wanted: str, text: str, at: int) -> bool:
    for letter in wanted:
        at = text.find(letter, at) + 1
        if not at:
            return False
    return True


class Finder:
    """Rows that are looked through letter by letter: what a title is compared by is made once."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._known: list[tuple[Row, str, str, tuple[str, ...]]] = []
        self._hits: list[tuple[float, int]] = []
        self._typed = ""
        self._looked_at = 0
        self.add(rows)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, rows: Iterable[Row]) -> None:
        """Look through these too, from the next `find` on."""
        for row in rows:
            title = one_line(row.title)
            self._known.append((row, title, fold(title), tuple(tag.casefold() for tag in row.tags)))

    def find(self, typed: str) -> list[Row]:
        """The rows whose title, tags or id fit a filter, best match first, then as they were. They stand without
        headings: their order is not that of days."""
        query = read_query(typed)
        if typed != self._typed:
            self._hits, self._typed, self._looked_at = [], typed, 0
        self._look(query)
        rows = [self._known[index] for _, index in heapq.nsmallest(FOUND_LIMIT, self._hits)]
        found = [
            (_refined(row, title, tags, query), place) for place, (row, title, _, tags) in enumerate(rows)
        ]
        found.sort(key=lambda hit: (-hit[0][0], hit[1]))
        return [row for (_, row), _ in found]

    def _look(self, query: Query) -> None:
        """Score what was not looked at yet, roughly: the best are weighed again."""
        wanted = fold(query.text)
        letters = wanted.replace(" ", "")
        by_id = len(wanted) >= 3
        hits = self._hits
        for index in range(self._looked_at, len(self._known)):
            row, _, text, tags = self._known[index]
            if query.tags and not _has_tags(tags, query.tags):
                continue
            if not wanted:
                hits.append((0.0, index))
            elif by_id and row.session_id.startswith(wanted):
                hits.append((-BY_ID, index))
            elif (at := text.find(wanted)) >= 0:
                hits.append((-TOGETHER + min(at, 100), index))
            elif (spread := _spread(letters, text)) >= 0:
                hits.append((float(spread), index))
            elif any(wanted in tag for tag in tags):
                hits.append((-BY_TAG, index))
        self._looked_at = len(self._known)


def _spread(letters: str, text: str) -> int:
    """How far apart the letters are when they are in the text in order, -1 when they are not."""
    first = at = text.find(letters[0]) if letters else -1
    if at < 0:
        return -1
    for letter in letters[1:]:
        at = text.find(letter, at + 1)
        if at < 0:
            return -1
    return at - first


def _has_tags(tags: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return all(any(tag.startswith(word) for tag in tags) for word in wanted)


def _refined(row: Row, title: str, folded: tuple[str, ...], query: Query) -> tuple[float, Row]:
    """The score of a row that fits, and the row with what was found in it."""
    tags = tuple(
        tag
        for tag, text in zip(row.tags, folded, strict=True)
        if any(text.startswith(word) for word in query.tags)
    )
    score = 0.0
    offsets: tuple[int, ...] = ()
    if query.text:
        wanted = fold(query.text)
        found = match(query.text, title)
        if len(wanted) >= 3 and row.session_id.startswith(wanted):
            score = BY_ID
        elif found is not None:
            score, offsets = found
        else:
            score = BY_TAG
            tags += tuple(tag for tag, text in zip(row.tags, folded, strict=True) if wanted in text)
    return score, replace(row, title=title, group="", matched=offsets, matched_tags=tags)


def find(rows: Sequence[Row], typed: str) -> list[Row]:
    """The rows that fit a filter (see `Finder.find`); all as they are when it asks for nothing."""
    return Finder(rows).find(typed) if read_query(typed) else list(rows)
