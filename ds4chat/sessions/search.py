"""What a search looks for and where in a text it stands: words as the index has them, queries, hits with their line.

One function, `spans`, says what the words of a text are: the index is made of them (`terms`), a query is read by them,
and the marks of a hit are found by them, so that whatever the index finds has a place to show. Letters are compared
without case, accents and width; scripts written without spaces and symbols (emoji) count character by character, so
that any part of a run is found.

A query is a list of words: each must be in the message, at least as the beginning of a word. What stands in quotes is
looked for word by word in that order. Nothing in a query is an operator. Pure: no database, no clock.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

MAX_TERM = 64
"""Characters of a word that count: what is longer is data in letters, and would make most of the index."""

MAX_QUERY = 1000
"""Characters of a query that count."""

MAX_WORDS = 32
"""Of a query: each costs a walk through the index."""

MAX_FOUND = 1000
"""Places of one word in one message that are looked at to choose a line."""

LINE = 200
"""Characters of a hit's line: two lines of a terminal, so that what stands around the hit says what it is about."""

BEFORE = 60
"""Characters shown before the hit where its line is cut."""

_SINGLE = (
    "\u0e00-\u0eff\u0f00-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Tibetan, Myanmar, Hangul letters, Khmer
    "\u2190-\u2bff"  # arrows, mathematical, technical, dingbats
    "\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u3031-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"  # Hangul and kana, ideographs
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
"""Characters that are a word each."""

_MARKS = (
    "\u00ad\u200c\u200d\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
"""Characters that belong to the word around them and are no letters to Python."""

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_REST, _NO_MORE, _GAP = "[a-z0-9]*", "(?![a-z0-9])", "[^a-z0-9]+"
_KANA_VOICE = "\u3099\u309a"
_IGNORED = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff\ufe0e\ufe0f")
_QUOTES = re.compile('["\u201c\u201d\u201e]')

_NO_PART_OF_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that a search found.

    Attributes:
        line: the one line with the hit, cut around it; harmless on a terminal, and not markup.
        marks: what of `line` was found, as (start, end) in characters, in order and apart.
        created: of the message, seconds since the epoch.
        archived: whether its session is.
    """

    session_id: str
    title: str
    message_id: int
    role: str
    line: str
    marks: tuple[tuple[int, int], ...]
    created: float
    archived: bool


@dataclass(frozen=True, slots=True)
class Needle:
    """Words that must stand behind each other; of the last one the beginning suffices when `prefix` is set."""

    words: tuple[str, ...]
    prefix: bool


@cache
def _piece() -> re.Pattern[str]:
    """What a word is made from. Compiled when a text first needs it: that takes as long as opening the database."""
    return re.compile(rf"[{_SINGLE}][{_KANA_VOICE}]?|(?:[^\W_{_SINGLE}]|[{_MARKS}])+")


@lru_cache(maxsize=20_000)
def _fold(piece: str) -> tuple[str, ...]:
    """The words of a piece of text that `_piece` found: mostly one, several for signs like ㍿ that stand for many."""
    letters = "".join(
        c
        for c in unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", piece).casefold())
        if c not in _IGNORED and (not unicodedata.combining(c) or c in _KANA_VOICE)
    )
    folded = unicodedata.normalize("NFKC", letters)
    return tuple(match[0][:MAX_TERM] for match in _piece().finditer(folded))


def spans(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text in order, each with the part `[start, end)` of the text it was made from."""
    if text.isascii():
        for match in _ASCII_WORD.finditer(text.lower()):
            yield match[0][:MAX_TERM], match.start(), match.end()
        return
    for match in _piece().finditer(text):
        for word in _fold(match[0]):
            yield word, match.start(), match.end()


def terms(text: str) -> str:
    """The words of a text with spaces between them: what the index holds of it."""
    # The words of `spans` without their places: each message that is saved comes by here.
    if text.isascii():
        return " ".join([word[:MAX_TERM] for word in _ASCII_WORD.findall(text.lower())])
    return " ".join([word for piece in _piece().findall(text) for word in _fold(piece)])


def parse(query: str) -> list[Needle]:
    """What a query looks for; nothing when it holds no word. A quote that is still open is being typed: its last word
    may go on."""
    needles: dict[Needle, None] = {}
    parts = _QUOTES.split(query[:MAX_QUERY])
    for i, part in enumerate(parts):
        quoted = i % 2 == 1
        for chunk in [part] if quoted else part.split():
            words = tuple(word for word, _, _ in spans(chunk))
            if words:
                needles[Needle(words, not quoted or i == len(parts) - 1)] = None
    return list(needles)[:MAX_WORDS]


def expression(needles: list[Needle]) -> str:
    """The needles as an FTS5 query over `terms`. Words hold neither quotes nor spaces."""
    return " AND ".join(f'"{" ".join(n.words)}"{" *" if n.prefix else ""}' for n in needles)


def locate(text: str, query: str) -> tuple[str, tuple[tuple[int, int], ...]] | None:
    """The line of a text that shows a query best, with its marks; None when the text does not fit the query.

    Best is the line with most of what is looked for, the first of several. A query without a word in it is looked for
    as it is written.
    """
    needles = parse(query)
    if not needles:
        found = _literal(text, query.strip())
    else:
        found = ascii_places(text, needles) if text.isascii() else places(text, needles)
    if found is None:
        return None
    starts = [0]
    while (at := text.find("\n", starts[-1]) + 1) > 0:
        starts.append(at)
    shown: dict[int, set[int]] = {}
    for which, start, _ in found:
        shown.setdefault(bisect_right(starts, start) - 1, set()).add(which)
    best = max(shown, key=lambda line: (len(shown[line]), -line))
    begin = starts[best]
    end = starts[best + 1] - 1 if best + 1 < len(starts) else len(text)
    marks = [(start - begin, min(stop, end) - begin) for _, start, stop in found if begin <= start < end]
    return _clip(_NO_PART_OF_A_LINE.sub(" ", text[begin:end]), _apart(marks))


def ascii_places(text: str, needles: list[Needle]) -> list[tuple[int, int, int]] | None:
    """What `places` gives, at a tenth of its time, of a text in ASCII."""
    lowered = text.lower()
    found: list[tuple[int, int, int]] = []
    for number, needle in enumerate(needles):
        ends = [_REST if len(word) == MAX_TERM else _NO_MORE for word in needle.words]
        ends[-1] = _REST if needle.prefix else ends[-1]
        pattern = _GAP.join(word + end for word, end in zip(needle.words, ends, strict=True))
        # Within a look-ahead, so that what is found may overlap.
        matches = re.finditer(f"(?<![a-z0-9])(?=({pattern}))", lowered)
        these = [(number, *match.span(1)) for match, _ in zip(matches, range(MAX_FOUND), strict=False)]
        if not these:
            return None
        found += these
    return found


def places(text: str, needles: list[Needle]) -> list[tuple[int, int, int]] | None:
    """Where each needle stands, as (its number, start, end); None when one is missing."""
    pieces = list(spans(text))
    words = [word for word, _, _ in pieces]
    where: dict[str, list[int]] = {}
    for i, word in enumerate(words):
        where.setdefault(word, []).append(i)
    found: list[tuple[int, int, int]] = []
    for number, needle in enumerate(needles):
        *head, tail = needle.words
        fits = {w for w in where if w.startswith(tail)} if needle.prefix else {tail} & where.keys()
        ends = (
            sorted(i for word in fits for i in where[word])
            if not head
            else [i + len(head) for i in where.get(head[0], ())]
        )
        count = 0
        for last in ends:
            first = last - len(head)
            if last < len(words) and words[last] in fits and words[first:last] == head:
                found.append((number, pieces[first][1], pieces[last][2]))
                count += 1
                if count == MAX_FOUND:
                    break
        if not count:
            return None
    return found


def _literal(text: str, query: str) -> list[tuple[int, int, int]] | None:
    if not query:
        return None
    found = re.finditer(re.escape(query), text)
    return [
        (0, match.start(), match.end()) for match, _ in zip(found, range(MAX_FOUND), strict=False)
    ] or None


def _apart(marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The marks in order; those that meet become one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(marks):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _clip(line: str, marks: list[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """At most `LINE` characters of a line around its first mark, without the space around them."""
    first = marks[0][0]
    begin, end = 0, len(line)
    if len(line) > LINE:
        begin = max(0, min(first - BEFORE, len(line) - LINE))
        if begin:
            # At a word, where there is one; else never between a letter and what combines with it.
            gap = line.find(" ", begin, first)
            begin = gap + 1 if gap >= 0 else _whole(line, begin, first)
        end = min(len(line), begin + LINE)
        if end < len(line):
            gap = line.rfind(" ", begin + LINE - 20, end)
            end = gap if gap > first else _whole(line, end, len(line))
    begin += len(line[begin:first]) - len(line[begin:first].lstrip())
    text = line[begin:end].rstrip()
    before, after = "…" * (begin > 0 and bool(line[:begin].strip())), "…" * bool(line[end:].strip())
    shift = len(before) - begin
    kept = tuple((s + shift, min(e, begin + len(text)) + shift) for s, e in marks if s < begin + len(text))
    return before + text + after, tuple((s, e) for s, e in kept if s >= len(before) and s < e)


def _whole(line: str, at: int, limit: int) -> int:
    """`at`, moved on past what belongs to the character before it."""
    while at < limit and (
        unicodedata.combining(line[at])
        or line[at] in _IGNORED
        or "\U0001f3fb" <= line[at] <= "\U0001f3ff"
        or line[at - 1] == "\u200d"
    ):
        at += 1
    return at
