"""What the arguments of slash commands mean, the same on the chat screen and in the line mode: pure.

Every function raises UsageError with a sentence when the argument fits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ds4chat.errors import UsageError
from ds4chat.sessions.session import Message, Session
from ds4chat.ui.commands import PARAMETERS
from ds4chat.validation import short

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionInfo

Params = dict[str, float | int | str | bool | None]
Named = TypeVar("Named")

LISTED = 5
"""Names that a sentence about an ambiguous one lists."""


def setting(argument: str, params: Mapping[str, Any]) -> Params:
    """The parameters of a chat after "NAME VALUE"; the value "default" takes one back."""
    from ds4chat.config import check_params

    name, _, value = argument.replace("=", " ").partition(" ")
    name, value = name.strip().lower().replace("-", "_"), value.strip()
    if name not in PARAMETERS:
        raise UsageError(f'There is no parameter "{name}": those of a chat are {", ".join(PARAMETERS)}.')
    if not value:
        raise UsageError(f"/set {name} needs a value, or default to leave it to config.toml.")
    changed = dict(params)
    if value in ("default", "none"):
        changed.pop(name, None)
        return changed
    try:
        number: float | int = PARAMETERS[name](value)
    except ValueError:
        kind = "a whole number" if PARAMETERS[name] is int else "a number"
        raise UsageError(f"{name} must be {kind}, not {value}.") from None
    return changed | check_params({name: number})


def one_of(words: str, named: Iterable[tuple[str, Named]], kind: str) -> Named:
    """The thing that goes by a name: the whole of it, its beginning, or words in it."""
    known = list(named)
    wanted = words.casefold().strip()
    for fits in (
        lambda name: name == wanted,
        lambda name: name.startswith(wanted),
        lambda name: wanted in name,
    ):
        found = [(name, thing) for name, thing in known if fits(name.casefold())]
        if len(found) == 1:
            return found[0][1]
        if found:
            listed = ", ".join(name for name, _ in found[:LISTED]) + (
                " and others" if len(found) > LISTED else ""
            )
            raise UsageError(f'"{words}" fits more than one {kind}: {listed}.')
    raise UsageError(f'There is no {kind} "{words}".')


def session_of(words: str, infos: Sequence[SessionInfo]) -> str:
    """The id of the chat that is meant by an id, the start of one, or a title."""
    for info in infos:
        if info.id == words:
            return info.id
    begun = [info.id for info in infos if len(words) >= 4 and info.id.startswith(words.lower())]
    return begun[0] if len(begun) == 1 else one_of(words, [(info.title, info.id) for info in infos], "chat")


def message_of(session: Session, argument: str, role: str = "") -> Message:
    """Message number N of the chat as it is shown, from 1; without a number the last one (of that role)."""
    path = session.path()
    if not argument:
        for message in reversed(path):
            if not role or message.role == role:
                return message
        raise UsageError("There is no message in this chat yet.")
    number = whole(argument)
    if not 1 <= number <= len(path):
        raise UsageError(f"There is no message {number} in this chat: it has {len(path)}.")
    message = path[number - 1]
    if role and message.role != role:
        whose = "yours" if role == "user" else "a reply"
        raise UsageError(f"Message {number} is not {whose}.")
    return message


def branch_of(session: Session, argument: str) -> Message:
    """Branch N, from 1, of the last message on the path that has any; "N M" of message M."""
    words = argument.split()
    if not words:
        raise UsageError("/branch needs the number of a branch.")
    if len(words) > 1:
        at = message_of(session, words[1])
    else:
        branching = [m for m in session.path() if len(session.siblings(m.id)) > 1]
        if not branching:
            raise UsageError("This chat has no branches: editing or regenerating a message makes one.")
        at = branching[-1]
    siblings = session.siblings(at.id)
    number = whole(words[0])
    if not 1 <= number <= len(siblings):
        raise UsageError(f"There is no branch {number}: that message has {len(siblings)}.")
    return siblings[number - 1]


def tags_of(argument: str) -> list[str]:
    """Tags as typed: words, with or without # and commas."""
    return [tag for tag in (word.strip("#,") for word in argument.split()) if tag]


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f'"{text}" is not a number.') from None


def on_or_off(word: str) -> bool | None:
    """What "on" and "off" mean, None for nothing said. Raises UsageError for another word."""
    said = {"": None, "on": True, "off": False}
    if word.strip().lower() not in said:
        raise UsageError(f'Say on or off, or nothing, and not "{short(word)}".')
    return said[word.strip().lower()]
