"""Hostile values, and examples changed at random: bytes, and trees as TOML and JSON have them.

Everything comes from the `random.Random` it is given, so that an input can be made again from its seed.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

Tree = Any
"""What TOML and JSON hold: dicts, lists, strings, numbers, booleans, times, None."""

STRINGS = (
    "", " ", "\n", "\t", "\x00", "a\x00b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b]52;c;QUJD\x07",
    "\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "\x1bP1$r\x1b\\", "\x9b31m", "\x90q\x9c", "\x7f", "\r\rover",
    "a\b\b\bb", "\u2028", "\u2029", "\u202egnp.exe", "\u2066iso\u2069", "\u200b\u200d\ufeff", "e" + "\u0301" * 300,
    "日本語",
    "👩‍👩‍👧", "[bold]x[/bold]", "{{ x }}", "../../outside/x", "/etc/passwd", "~/x", "C:\\x", "con", "a" * 300,
    "a/b", ".", "..", "null", "nan", "1e999", "%s%n", "'; DROP TABLE sessions; --", "user", "assistant", "system",
    "default", "vim", "ctrl+c", "escape", "f1", "none", "#7aa7e8", "#fff", "red", "auto 50%", "rgb(1,2,3)", "ansi_blue",
    "initial", "transparent", "hsl(1e99,1%,1%)", "$primary", "url(x)", "<s>", "<|im_start|>", "\ufffe", "\U0010ffff",
)  # fmt: skip
SURROGATES = ("\ud800", "x\udfff", "\udc80abc", "\ud83d")
INTS = (
    0, 1, -1, 2, 7, 63, 64, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63,
    2**64 - 1, 2**64, -(2**31), -(2**63), -(2**63) - 1, 10**30, 10**400, 253_402_300_799, 253_402_300_800,
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, 1.0, 1e-320, 1e15, 1e16, 1e308, -1e308, math.inf, -math.inf, math.nan)
TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime(2025, 3, 1),
    date(2025, 2, 28),
    time(12, 0),
)


def string(draw: random.Random) -> str:
    """A hostile string, now and then a long one or several in one."""
    kind = draw.randrange(20)
    if kind == 0:
        return draw.choice(SURROGATES)
    if kind == 1:
        return draw.choice(STRINGS) * draw.choice((2, 50, 5000))
    if kind == 2:
        return "".join(draw.choice(STRINGS) for _ in range(draw.randrange(2, 6)))
    if kind == 3:
        return "".join(
            chr(draw.randrange(1, draw.choice((0x80, 0x300, 0xD800)))) for _ in range(draw.randrange(1, 40))
        )
    return draw.choice(STRINGS)


def scalar(draw: random.Random) -> Tree:
    """Any value that is no table or list."""
    kind = draw.randrange(8)
    if kind < 3:
        return string(draw)
    if kind < 5:
        return draw.choice(INTS) if draw.random() < 0.8 else draw.randrange(-(2**70), 2**70)
    if kind == 5:
        return draw.choice(FLOATS)
    if kind == 6:
        return draw.choice((True, False))
    return draw.choice((None, *TIMES))


def value(draw: random.Random, depth: int = 0) -> Tree:
    """Any value, small or nested."""
    kind = draw.randrange(12)
    if depth > 3 or kind < 8:
        return scalar(draw)
    if kind == 8 and depth == 0:
        return nested(draw.choice((20, 90, 200)), draw.random() < 0.5)
    if kind < 11:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {string(draw): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def nested(depth: int, lists: bool) -> Tree:
    """Lists in lists, or tables in tables."""
    tree: Tree = 1
    for _ in range(depth):
        tree = [tree] if lists else {"a": tree}
    return tree


# ---- trees -----------------------------------------------------------------------------------------------------------


def mutate_tree(draw: random.Random, tree: Tree) -> Tree:
    """The tree with a few places changed; what was given stays as it is."""
    tree = copy(tree)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        tree = _mutate_once(draw, tree)
    return tree


def copy(tree: Tree) -> Tree:
    """Of tables and lists; the values are shared."""
    if isinstance(tree, dict):
        return {key: copy(inner) for key, inner in tree.items()}
    return [copy(inner) for inner in tree] if isinstance(tree, list) else tree


def _mutate_once(draw: random.Random, tree: Tree) -> Tree:
    holder, key = _place(draw, tree)
    if holder is None:
        return value(draw) if draw.random() < 0.1 else tree
    old = holder[key]
    kind = draw.randrange(9)
    if kind < 3:
        holder[key] = _alike(draw, old)
    elif kind == 3:
        holder[key] = value(draw)
    elif kind == 4:
        del holder[key]
    elif kind == 5 and isinstance(holder, dict):
        holder[draw.choice((string(draw), str(key) + "x"))] = holder.pop(key)
    elif kind == 6 and isinstance(holder, list):
        holder.extend(copy(old) for _ in range(draw.choice((1, 3, 150))))
    elif kind == 7:
        holder[key] = draw.choice(([old], {"a": old}, str(old), [], {}))
    elif isinstance(holder, dict):
        holder[string(draw)] = value(draw)
    else:
        holder.insert(draw.randrange(len(holder) + 1), value(draw))
    return tree


def _place(draw: random.Random, tree: Tree) -> tuple[Any, Any]:
    """A table or list somewhere in the tree and a key of it."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(places) < 400:
        here = waiting.pop()
        inner = list(
            here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        )
        places += [(here, key) for key, _ in inner]
        waiting += [child for _, child in inner if isinstance(child, dict | list)]
    return draw.choice(places) if places else (None, None)


def _alike(draw: random.Random, old: Tree) -> Tree:
    """Another value, mostly of the same type."""
    if isinstance(old, bool):
        return draw.choice((not old, int(old), str(old).lower(), None))
    if isinstance(old, str):
        at = draw.randrange(len(old) + 1)
        return draw.choice((string(draw), old[:at] + string(draw) + old[at:], old.upper(), old[at:], old * 2))
    if isinstance(old, int):
        return draw.choice(
            (draw.choice(INTS), old + 1, -old, old + 0.0 if abs(old) < 2**60 else 0.5, str(old)[:300])
        )
    if isinstance(old, float):
        return draw.choice((draw.choice(FLOATS), -old, 1, str(old)))
    if isinstance(old, datetime | date):
        return draw.choice((*TIMES, 0, ""))
    return value(draw)


# ---- as text ---------------------------------------------------------------------------------------------------------


def json_bytes(draw: random.Random, tree: Tree) -> bytes:
    """JSON as careless writers make it: NaN, lone surrogates, keys twice."""
    plain = draw.random() < 0.5
    try:
        text = json.dumps(tree, ensure_ascii=plain, default=str, indent=draw.choice((None, None, 1)))
    except (RecursionError, ValueError):
        text = "[" * 5000 + "]" * 5000
    if draw.random() < 0.05:
        text = text.replace("{", '{"id":"00000000",', 1) + draw.choice(("", ",", "}", "\n{}", "//"))
    if draw.random() < 0.01:
        depth = draw.choice((900, 20_000))
        text = text.replace(draw.choice(("[", "{", '"')), "[" * depth + draw.choice(("", "]" * depth)), 1)
    if draw.random() < 0.02:
        text = text.replace("1", "1" * draw.choice((20, 400, 5000)), 1)
    return text.encode("utf-8", "surrogatepass")


def toml_bytes(draw: random.Random, tree: Tree) -> bytes:
    """TOML of a tree, in one of the ways there are to write it; the tree may hold what TOML cannot."""
    try:
        return _toml_bytes(draw, tree)
    except RecursionError:
        return b"a = " + b"[" * 5000


def _toml_bytes(draw: random.Random, tree: Tree) -> bytes:
    if not isinstance(tree, dict):
        tree = {"a": tree}
    lines: list[str] = []
    tables: list[str] = []
    for key, inner in tree.items():
        name = _key(draw, key)
        if isinstance(inner, dict) and draw.random() < 0.9:
            tables.append(f"[{name}]")
            tables += [f"{_key(draw, k)} = {toml_value(draw, v)}" for k, v in inner.items()]
        elif (
            isinstance(inner, list)
            and inner
            and all(isinstance(i, dict) for i in inner)
            and draw.random() < 0.9
        ):
            for table in inner:
                tables.append(f"[[{name}]]")
                tables += [f"{_key(draw, k)} = {toml_value(draw, v)}" for k, v in table.items()]
        else:
            lines.append(f"{name} = {toml_value(draw, inner)}")
    if draw.random() < 0.03:
        lines.append(".".join("a" * draw.choice((3, 70, 3000))) + " = 1")
    text = "\n".join([*lines, *tables]) + "\n"
    if draw.random() < 0.1:
        text = text.replace("\n", "\r\n")
    return text.encode("utf-8", "surrogatepass")


def _key(draw: random.Random, key: object) -> str:
    text = str(key)
    bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if bare and draw.random() < 0.95 else json.dumps(text, ensure_ascii=draw.random() < 0.5)


def toml_value(draw: random.Random, tree: Tree, depth: int = 0) -> str:
    """One value."""
    if isinstance(tree, bool):
        return "true" if tree else "false"
    if isinstance(tree, int):
        if draw.random() < 0.03:
            return "0x" + "f" * draw.choice((20, 5000))
        long = abs(tree) >= 10**300
        return hex(tree) if tree >= 0 and (long or draw.random() < 0.05) else str(tree)
    if isinstance(tree, float):
        return "nan" if math.isnan(tree) else str(tree)
    if isinstance(tree, datetime | date | time):
        return tree.isoformat()
    if isinstance(tree, str):
        if "\n" in tree and "'''" not in tree and draw.random() < 0.3:
            return f"'''{tree}'''"
        return json.dumps(tree, ensure_ascii=draw.random() < 0.3)
    if isinstance(tree, list):
        if draw.random() < 0.01:
            return "[" * draw.choice((300, 3000)) + "]" * draw.choice((0, 300, 3000))
        return "[" + ", ".join(toml_value(draw, inner, depth + 1) for inner in tree) + "]"
    if isinstance(tree, dict):
        inner = (f"{_key(draw, k)} = {toml_value(draw, v, depth + 1)}" for k, v in tree.items())
        return "{" + ", ".join(inner) + "}"
    return draw.choice(('""', "null", ""))


# ---- bytes -----------------------------------------------------------------------------------------------------------


def mutate_bytes(draw: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The bytes after one to five changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        data = draw.choice(_CHANGES)(draw, data)
    if others and draw.random() < 0.15:
        other = draw.choice(others)
        data = data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]
    return data


def _flip(draw: random.Random, data: bytes) -> bytes:
    if not data:
        return draw.randbytes(3)
    changed = bytearray(data)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _delete(draw: random.Random, data: bytes) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.choice((1, 2, 8, 100, 1000)) :]


def _insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    piece = draw.choice(
        (draw.randbytes(draw.choice((1, 4, 40))), string(draw).encode("utf-8", "surrogatepass"))
    )
    return data[:at] + piece + data[at:]


def _repeat(draw: random.Random, data: bytes) -> bytes:
    start = draw.randrange(len(data) + 1)
    piece = data[start : start + draw.choice((1, 2, 30, 400))]
    return data[:start] + piece * draw.choice((2, 3, 30, 400)) + data[start:]


def _number(draw: random.Random, data: bytes) -> bytes:
    """A length field, as it were."""
    form, size = draw.choice((("<B", 1), ("<H", 2), ("<I", 4), ("<Q", 8), (">I", 4)))
    if len(data) < size:
        return data
    at = draw.randrange(len(data) - size + 1)
    number = draw.choice((0, 1, 2**31, 2**63, 2**64 - 1, draw.randrange(2**64), len(data))) % 256**size
    return data[:at] + struct.pack(form, number) + data[at + size :]


def _digits(draw: random.Random, data: bytes) -> bytes:
    places = [i for i, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if not places:
        return _insert(draw, data)
    at = draw.choice(places)
    number = draw.choice(
        (b"-1", b"0", b"1e999", b"9" * 30, b"9" * 5000, b"0x" + b"f" * 5000, b"NaN", b"1.5", b'"1"')
    )
    return data[:at] + number + data[at + 1 :]


def _swap(draw: random.Random, data: bytes) -> bytes:
    """Words that change the structure."""
    pairs = (
        (b'"', b"'"),
        (b"{", b"["),
        (b"]", b"}"),
        (b":", b"="),
        (b"\n", b"\r"),
        (b",", b""),
        (b"true", b"null"),
    )
    old, new = draw.choice(pairs)
    return data.replace(old, new, draw.choice((1, 1, 3, -1)))


_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _flip, _flip, _cut, _delete, _insert, _insert, _repeat, _number, _number, _digits, _swap,
)  # fmt: skip
