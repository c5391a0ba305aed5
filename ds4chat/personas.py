"""Personas: named system prompts with parameters, as TOML files in the folder `personas` beside config.toml.

A file has `name`, `system` and a table `[params]` with the keys a chat may set for itself. A file that cannot be used
is skipped and told about; a user's persona takes the place of a shipped one of the same name. Must not know: the
screen, sessions, the engine.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ds4chat.config import SESSION_KEYS, check_params
from ds4chat.errors import UsageError
from ds4chat.files import read_limited, write_private
from ds4chat.toml_text import parse_toml
from ds4chat.validation import explain, short

Params = dict[str, float | int | str | bool | None]

MAX_FILE_BYTES = 200_000
MAX_FILES = 500
NAME_LENGTH = 60

_NAME = f"a name of 1 to {NAME_LENGTH} characters on one line"


class _PersonaFile(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)]
    system: str = ""
    params: dict[str, object] = {}


_ALLOWED = {
    "$": ", ".join(_PersonaFile.__struct_fields__),
    "$.name": _NAME,
    "$.system": "a string",
    "$.params": f"a table of {', '.join(SESSION_KEYS)}",
}


@dataclass(frozen=True)
class Persona:
    """A system prompt with a name, and settings that go with it. `path` is None for one that is shipped."""

    name: str
    system: str = ""
    params: Params = field(default_factory=dict)
    path: Path | None = None


SHIPPED = (
    Persona(
        "Editor",
        "You are a careful copy editor. Correct spelling, grammar and punctuation, and tighten what is wordy. Keep the "
        "writer's voice, meaning and language. Give the corrected text first, then list the changes that are a matter "
        "of taste, each with its reason in a few words. Never add facts.",
        {"temperature": 0.3},
    ),
    Persona(
        "Programmer",
        "You are an experienced programmer. Answer with working code first and a short explanation after it. Name the "
        "language and version you assume. Prefer the standard library. Say what you are not sure of, and how to test "
        "it. When a question leaves out something that changes the answer, ask for it in one sentence.",
        {"temperature": 0.2, "top_p": 0.9},
    ),
    Persona(
        "Teacher",
        "You are a patient teacher. Explain one step at a time in plain words, with a small example for each idea, and "
        "begin from what the learner seems to know. End with one question that shows whether it was understood. When "
        "an answer is wrong, say what is right about it before you correct it.",
        {"temperature": 0.6},
    ),
)


def parse(text: str, path: Path | None = None) -> Persona:
    """A persona from the text of its file. Raises UsageError naming the file, the key and what may stand there."""
    where = f"The persona {path}" if path is not None else "The persona"
    try:
        tree = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{where} is not TOML ({short(str(error))}): mend it or move it away.") from None
    try:
        data = msgspec.convert(tree, _PersonaFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} has a fault: {explain(error, _ALLOWED)}.") from None
    try:
        return Persona(check_name(data.name), data.system, check_params(data.params), path)
    except UsageError as error:
        raise UsageError(f"{where} has a fault: {error}") from None


def check_name(name: str) -> str:
    """The name without white space around it. Raises UsageError when it cannot be one."""
    name = unicodedata.normalize("NFC", name.strip())
    if (
        not name
        or len(name) > NAME_LENGTH
        or any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)
    ):
        raise UsageError(f"name must be {_NAME}, not {short(name) or 'nothing'}.")
    return name


def load_personas(folder: Path) -> tuple[list[Persona], list[str]]:
    """All personas by name, and a sentence for each file that was skipped. A missing folder is empty."""
    found = {persona.name.casefold(): persona for persona in SHIPPED}
    faults: list[str] = []
    try:
        files = sorted(folder.glob("*.toml"))[:MAX_FILES]
    except OSError as error:
        return list(SHIPPED), [
            f"The personas in {folder} cannot be read ({error.strerror}): see to the folder."
        ]
    for path in files:
        try:
            persona = parse(_read(path), path)
        except UsageError as error:
            faults.append(str(error))
            continue
        twin = found.get(persona.name.casefold())
        if twin is not None and twin.path is not None:
            faults.append(
                f'The persona {path} was skipped: {twin.path} has the name "{persona.name}" already.'
            )
        else:
            found[persona.name.casefold()] = persona
    return sorted(found.values(), key=lambda persona: persona.name.casefold()), faults


def find(folder: Path, name: str) -> Persona:
    """The persona of that name. Raises UsageError naming those there are, or the fault of its file."""
    known, faults = load_personas(folder)
    for persona in known:
        if persona.name.casefold() == name.strip().casefold():
            return persona
    listed = ", ".join(persona.name for persona in known)
    more = f" {faults[0]}" if faults else ""
    raise UsageError(f'There is no persona "{short(name)}": there are {listed}.{more}')


def with_persona(params: Params, before: Persona | None, persona: Persona | None) -> Params:
    """A chat's parameters when it gets a persona in place of another (None: it has none).

    What the one before brought goes, what the new one brings wins, and what was set by hand stays otherwise.
    """
    brought = before.params if before is not None else {}
    kept = {k: v for k, v in params.items() if k != "persona" and not (k in brought and brought[k] == v)}
    return kept if persona is None else kept | persona.params | {"persona": persona.name}


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"The persona {path} is not a file: move it away.")
        data = read_limited(path, MAX_FILE_BYTES)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"The persona {path} is larger than {MAX_FILE_BYTES // 1000} KB: make it smaller."
            )
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"The persona {path} is not UTF-8 text: save it as UTF-8.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"The persona {path} cannot be read ({reason}): mend it or move it away.") from None


def save(folder: Path, persona: Persona) -> Persona:
    """Write a persona; where its own file is known and lies in the folder, that one is replaced.

    Raises:
        UsageError: the name or a parameter is not one.
        OSError: it cannot be written.
    """
    import tomli_w

    name = check_name(persona.name)
    data: dict[str, object] = {"name": name, "system": persona.system}
    if params := check_params(persona.params):
        data["params"] = params
    path = persona.path if persona.path is not None and persona.path.parent == folder else _free(folder, name)
    source = tomli_w.dumps(data, multiline_strings=True)
    with contextlib.suppress(tomllib.TOMLDecodeError):
        # On several lines a prompt can be edited by hand; what does not survive that is written on one.
        source = source if tomllib.loads(source) == data else tomli_w.dumps(data)
    write_private(path, source)
    return Persona(name, persona.system, dict(params), path)


def delete(folder: Path, name: str) -> None:
    """Delete the file of a persona. Raises UsageError when there is none to delete, OSError."""
    persona = find(folder, name)
    if persona.path is None:
        raise UsageError(
            f"{persona.name} comes with ds4chat and cannot be deleted: save one of that name over it."
        )
    persona.path.unlink(missing_ok=True)


def _free(folder: Path, name: str) -> Path:
    """The file of that persona, or a new name for one."""
    for persona in load_personas(folder)[0]:
        if persona.path is not None and persona.name.casefold() == name.casefold():
            return persona.path
    stem = re.sub(r"[^\w]+", "-", name.lower()).strip("-_")[:40] or "persona"
    taken = {path.name.casefold() for path in folder.glob("*.toml")} if folder.is_dir() else set()
    candidates = (f"{stem}.toml", *(f"{stem}-{n}.toml" for n in range(2, MAX_FILES + 2)))
    return folder / next(file for file in candidates if file.casefold() not in taken)
