"""What `--print` is given besides the question: files, and the grammar or the schema that the answer must follow.

All of it is read and checked before a session or an engine is touched. Must not know: sessions, the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ds4chat import gbnf
from ds4chat.attached_files import LIMIT_BYTES, block, decode, expand_user, read_text, weight
from ds4chat.errors import UsageError

STDIN = "-"

STDIN_NAME = "stdin"
"""What standard input is called as a file."""

MOST_NOT_KEPT = 5
"""Keywords that are named in one sentence."""


@dataclass(frozen=True)
class Constraint:
    """What an answer must follow. `kind` is "grammar" or "schema", `notice` a sentence for the user or ""."""

    grammar: str = ""
    kind: str = ""
    notice: str = ""


NO_CONSTRAINT = Constraint()


def with_files(prompt: str, names: Sequence[str]) -> tuple[str, str]:
    """The prompt with files in front of it, and what they weigh in a few words.

    Raises UsageError for a folder, a binary or unreadable file, and one that is too long.
    """
    blocks: dict[str, str] = {}
    weights: list[str] = []
    for name in names:
        if name in blocks:
            continue
        if name == STDIN:
            text = decode(sys.stdin.buffer.read(LIMIT_BYTES + 1), "Standard input", "")
        else:
            text = read_text(_path(name), name, "", pipes=True)
        shown = STDIN_NAME if name == STDIN else " ".join(name.split())
        blocks[name] = block(shown, text)
        weights.append(weight(shown, len(text.encode())))
    return "\n\n".join([*blocks.values(), prompt]), " · ".join(weights)


def constraint(grammar: str | None, schema: str | None) -> Constraint:
    """From what `--grammar` or `--json-schema` was given. Raises UsageError with what is wrong with it."""
    if grammar is not None:
        is_text = "::=" in grammar
        name = "of --grammar" if is_text else grammar
        text = grammar if is_text else _read(grammar, "the path of a file with a GBNF grammar")
        try:
            gbnf.parse(text)
        except gbnf.GrammarError as error:
            raise UsageError(f"The grammar {name} cannot be used: {error}.") from None
        return Constraint(text, "grammar")
    if schema is None:
        return NO_CONSTRAINT
    from ds4chat.json_schema import SchemaError, to_gbnf

    is_text = schema.lstrip().startswith("{")
    name = "of --json-schema" if is_text else schema
    text = schema if is_text else _read(schema, "the path of a file with a JSON schema")
    try:
        made, not_kept = to_gbnf(text)
        gbnf.parse(made)
    except (SchemaError, gbnf.GrammarError) as error:
        raise UsageError(f"The schema {name} cannot be used: {error}.") from None
    return Constraint(made, "schema", _not_kept(not_kept))


def _read(name: str, what: str) -> str:
    if not name.strip():
        raise UsageError(f"Nothing is named: give {what}, or its text.")
    return read_text(_path(name), name, f"Give {what}, or its text.", pipes=True)


def _path(name: str) -> Path:
    return Path(expand_user(name))


def _not_kept(keywords: Sequence[str]) -> str:
    if not keywords:
        return ""
    more = f" and {len(keywords) - MOST_NOT_KEPT} more" if len(keywords) > MOST_NOT_KEPT else ""
    named = ", ".join(keywords[:MOST_NOT_KEPT]) + more
    return f"The answer is not held to all of the schema: check it for {named}."
