"""Texts that a grammar in GBNF makes, drawn at random: what a model could write under it."""

from __future__ import annotations

import random

from ds4chat.gbnf import Chars, Group, Literal, Node, Ref, Repeat

FEW = 3
"""Times that something is repeated which may be repeated without end."""

ALPHABET = 'ab Zé日😀\n\t"\\{}[]0:,'


def draw(rules: dict[str, Group], choice: random.Random) -> str:
    """A text of the rule `root`. What is deep already takes the shortest way out."""
    shortest = _depths(rules)
    parts: list[str] = []

    def write(node: Node, budget: int) -> None:
        match node:
            case Literal(text):
                parts.append(text)
            case Chars():
                parts.append(_char(node, choice))
            case Ref(name):
                write(rules[name], budget - 1)
            case Repeat(inner, least, most):
                high = least + FEW if most is None else min(most, least + FEW)
                for _ in range(choice.randint(least, high) if budget > 0 else least):
                    write(inner, budget)
            case Group(alternatives):
                allowed = list(alternatives)
                if budget <= 0:
                    depths = [_deepest(sequence, shortest) for sequence in alternatives]
                    allowed = [alternatives[depths.index(min(depths))]]
                for inner in choice.choice(allowed):
                    write(inner, budget)

    write(rules["root"], 12)
    return "".join(parts)


def _char(node: Chars, choice: random.Random) -> str:
    def fits(code: int) -> bool:
        return any(low <= code <= high for low, high in node.ranges) is not node.negated

    found = [char for char in ALPHABET if fits(ord(char))]
    edges = [chr(code) for pair in node.ranges for code in pair if fits(code)]
    return choice.choice([*found, *edges])


def _depths(rules: dict[str, Group]) -> dict[str, float]:
    """How deep the shortest text of each rule is."""
    found: dict[str, float] = dict.fromkeys(rules, float("inf"))
    changed = True
    while changed:
        changed = False
        for name, group in rules.items():
            depth = 1 + min(_deepest(sequence, found) for sequence in group.alternatives)
            if depth < found[name]:
                found[name], changed = depth, True
    return found


def _deepest(sequence: tuple[Node, ...], known: dict[str, float]) -> float:
    return max((_depth(node, known) for node in sequence), default=0)


def _depth(node: Node, known: dict[str, float]) -> float:
    match node:
        case Ref(name):
            return known[name]
        case Repeat(inner, least, _):
            return _depth(inner, known) if least else 0
        case Group(alternatives):
            return min(_deepest(sequence, known) for sequence in alternatives)
        case _:
            return 0
