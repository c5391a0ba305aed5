"""Which key does what: the actions as they are declared, the presets, and what the user set in config.toml.

Actions are found by their bindings: every class of ds4chat that declares some is a place with keys. `dump` lists them
all; `docs/keys.md` is made from it.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key

from ds4chat.errors import UsageError
from ds4chat.key_settings import KeySettings
from ds4chat.ui.keys import NO_KEY
from ds4chat.validation import short

PRESETS: dict[str, dict[str, str]] = {
    "default": {},
    "vim": {
        # Where nothing is typed: in the prompt box letters stay text.
        "chat.stop": "escape,i",
        "chat.normal": "escape",
        "chat.up": "ctrl+up,k",
        "chat.down": "ctrl+down,j",
        "chat.start": "ctrl+home,g",
        "chat.end": "ctrl+end,G",
        "chat.pageup": "pageup,ctrl+u",
        "chat.pagedown": "pagedown,ctrl+d",
        "chat.search": "ctrl+f,slash",
        "app.palette": "ctrl+p,colon",
        "message.up": "up,k",
        "message.down": "down,j",
        "message.first": "home,g",
        "message.last": "end,G",
        "message.back": "escape,enter,i",
        "list.up": "up,k",
        "list.down": "down,j",
        "list.first": "home,g",
        "list.last": "end,G",
        "list.pageup": "pageup,ctrl+u",
        "list.pagedown": "pagedown,ctrl+d",
        "rows.first": "home,g",
        "rows.last": "end,G",
        "rows.pageup": "pageup,ctrl+u",
        "rows.pagedown": "pagedown,ctrl+d",
    },
}
"""Keys by id; an id that is not there is passed over."""

SWALLOWED = {
    "ctrl+i": "terminals send the same for it as for Tab",
    "ctrl+m": "terminals send the same for it as for Enter",
    "ctrl+h": "many terminals send the same for it as for Backspace",
    "ctrl+tab": "terminals keep it for themselves or send Tab",
    "ctrl+shift+tab": "terminals keep it for themselves",
    "ctrl+enter": "most terminals send Enter",
    "ctrl+backspace": "most terminals send Backspace or Ctrl+W",
    "ctrl+left_square_bracket": "terminals send Esc",
    "alt+f": "it arrives as Ctrl+Right",
    "alt+b": "it arrives as Ctrl+Left",
    "alt+left_square_bracket": "escape sequences begin with what it sends",
    "alt+shift+o": "escape sequences begin with what it sends",
    "alt+tab": "the desktop keeps it for itself",
    "alt+escape": "the desktop keeps it for itself",
    "alt+f4": "the desktop closes the window",
}
"""Keys that do not reach a program in a terminal, and why."""

MODAL_PRESETS = frozenset({"vim"})
"""In which a letter typed over the transcript does not go to the prompt box."""

_MODIFIERS = ("alt", "ctrl", "shift")
"""In the order in which Textual writes them."""

_NAMED = frozenset(
    key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<") and len(key.value) > 1
) - {"ignore"}


@dataclass(frozen=True)
class Action:
    """Something a key does.

    Attributes:
        id: as in config.toml.    keys: names with commas between them, as declared.
        name: for the footer and the palette.    about: a sentence.
        place: where it works: "Chat", "Prompt box", "Help".    footer: whether the footer may show it.
        action: what Textual runs.
    """

    id: str
    keys: str
    name: str
    about: str
    place: str
    footer: bool
    action: str


PLACES = {
    "ChatApp": "Everywhere",
    "ChatScreen": "Chat",
    "PromptBox": "Prompt box",
    "SessionList": "List of chats",
    "LineList": "Lists",
    "RowList": "Lists in panels",
    "ChoosingTranscript": "Chosen message",
    "AskScreen": "Asking for a value",
    "TextScreen": "Writing a text",
    "ConfirmScreen": "A question",
    "ToolQuestion": "A call of a tool",
}
"""Names of places, by class; others go by the class, "SwitcherScreen" as "Switcher"."""


def _place(kind: type) -> str:
    name = kind.__name__
    if name in PLACES:
        return PLACES[name]
    bare = name.removesuffix("Screen").removesuffix("Box")
    return "".join(f" {c.lower()}" if c.isupper() and i else c for i, c in enumerate(bare))


@functools.cache
def kinds() -> tuple[type[DOMNode], ...]:
    """Every class of the screen that declares keys, the app and the chat first. Imports them all."""
    from ds4chat.ui import screens, widgets

    importlib.import_module("ds4chat.ui.app")
    for package in (screens, widgets):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: list[type[DOMNode]] = []
    pending: list[type[DOMNode]] = [DOMNode]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind not in found and kind.__module__.startswith("ds4chat.") and "BINDINGS" in kind.__dict__:
            found.append(kind)
    order = ["PromptBox", "ChatScreen", "ChatApp"]
    first = {name: index for index, name in enumerate(order)}
    found.sort(key=lambda kind: (first.get(kind.__name__, len(order)), kind.__module__, kind.__name__))
    return tuple(found)


def actions_of(kind: type[DOMNode]) -> list[Action]:
    """The actions a class declares itself, in its order."""
    place = _place(kind)
    return [
        Action(b.id, b.key, b.description, b.tooltip, place, b.show, b.action)
        for b in kind.__dict__.get("BINDINGS", ())
        if isinstance(b, Binding) and b.id
    ]


def dump() -> list[Action]:
    """All actions of the program, by place."""
    return [action for kind in kinds() for action in actions_of(kind)]


def resolve(settings: KeySettings) -> tuple[dict[str, str], list[str]]:
    """What the settings make of the keys.

    Returns:
        Keys by id for `App.set_keymap`, and sentences about keys that may not do what is hoped for.

    Raises:
        UsageError: no such preset, action or key, a key that no terminal sends, or one key for two actions in one
            place; the sentence names the file, the id and what may stand there.
    """
    if not settings.preset and not settings.keys:
        return {}, []
    fault = f"The configuration {settings.file} has a fault:"
    if settings.preset and settings.preset not in PRESETS:
        names = ", ".join(f'"{name}"' for name in PRESETS)
        raise UsageError(f'{fault} keys.preset must be one of {names}, not "{short(settings.preset)}".')
    actions = dump()
    ids = {action.id for action in actions}
    preset = {id: keys for id, keys in PRESETS[settings.preset or "default"].items() if id in ids}
    own: dict[str, str] = {}
    for id, keys in settings.keys.items():
        if id not in ids:
            near = difflib.get_close_matches(id, sorted(ids), 3, 0.5) or sorted(ids)[:3]
            raise UsageError(
                f'{fault} there is no action "{short(id)}" in [keys]; near it are {", ".join(near)}, and '
                "F1 and docs/keys.md have them all."
            )
        own[id] = ",".join(_check_key(part, id, fault) for part in keys.split(",") if keys.strip())
    _check_clashes(actions, preset, own, fault)
    chosen = {**preset, **own}
    return _complete(chosen), _warnings(actions, own)


def _check_key(text: str, id: str, fault: str) -> str:
    """The key as Textual calls it. Raises UsageError."""
    name = text.strip()
    *modifiers, base = (
        name.split("+") if name != "+" and not name.endswith("++") else [*name[:-1].split("+")[:-1], "+"]
    )
    modifiers = [part.lower() for part in modifiers if part]
    example = (
        'a key is a character or a name such as "f10", "pageup" or "slash", after "ctrl+", "alt+" or "shift+"'
    )
    if len(base) == 1:
        if "shift" in modifiers and base.isalpha() and modifiers == ["shift"]:
            modifiers, base = [], base.upper()
        base = _character_to_key(base.lower() if modifiers else base)
    else:
        base = base.lower()
    known = (len(base) == 1 and base.isprintable()) or base in _NAMED or _is_character_name(base)
    if (
        not known
        or any(part not in _MODIFIERS for part in modifiers)
        or len(set(modifiers)) != len(modifiers)
    ):
        near = difflib.get_close_matches(base, sorted(_NAMED), 1, 0.6) if not known else []
        hint = f' (near it is "{near[0]}")' if near else ""
        raise UsageError(f'{fault} keys.{id} has no key "{short(name)}"{hint}: {example}.')
    key = "+".join([*(part for part in _MODIFIERS if part in modifiers), base])
    if key in SWALLOWED:
        raise UsageError(
            f'{fault} keys.{id} cannot be "{key}", because {SWALLOWED[key]}: choose another key.'
        )
    # Most terminals send NUL for it.
    return "ctrl+space,ctrl+@" if key == "ctrl+space" else key


def _is_character_name(name: str) -> bool:
    """Whether Textual calls a character so: "slash", "question_mark"."""
    if name in ("slash", "minus", "plus", "underscore", "at", "backslash"):
        return True
    try:
        return len(unicodedata.lookup(name.replace("_", " ").upper())) == 1
    except KeyError:
        return False


def _check_clashes(
    actions: Iterable[Action], preset: Mapping[str, str], own: Mapping[str, str], fault: str
) -> None:
    taken: dict[tuple[str, str], Action] = {}
    for action in sorted(actions, key=lambda action: action.id in own):
        for key in own.get(action.id, preset.get(action.id, action.keys)).split(","):
            other = taken.get((action.place, key))
            if other is None or other.id == action.id or not key:
                taken[(action.place, key)] = action
            elif action.id in own:
                raise UsageError(
                    f'{fault} keys.{action.id} and keys.{other.id} are both "{key}" ({action.place.lower()}): '
                    "give one of them another key."
                )


def _complete(chosen: dict[str, str]) -> dict[str, str]:
    """`chosen` and all that share a key with it in their class: where one of two that share a key is changed, Textual
    takes the key from the other too, unless that one is set as well."""
    keymap = dict(chosen)
    for kind in kinds():
        declared = actions_of(kind)
        touched = {
            key
            for action in declared
            if action.id in chosen
            for key in (*action.keys.split(","), *chosen[action.id].split(","))
        }
        for action in declared:
            if action.id not in keymap and touched & set(action.keys.split(",")):
                keymap[action.id] = action.keys
    return {id: keys or NO_KEY for id, keys in keymap.items()}


def _warnings(actions: Iterable[Action], own: Mapping[str, str]) -> list[str]:
    from ds4chat.ui.widgets.prompt_box import editing

    edits = editing(own)
    warnings: list[str] = []
    for action in actions:
        for key in own.get(action.id, "").split(","):
            if not key or action.place in ("Prompt box", "Lists", "List of chats"):
                continue
            typed = len(key) == 1 or _is_character_name(key) or key in edits
            if action.place in ("Chat", "Everywhere") and typed:
                warnings.append(
                    f"{action.id} is on {key}, which is for text in the prompt box: it works elsewhere."
                )
            elif key.startswith("ctrl+") and ("shift" in key or key[-1].isdigit()):
                warnings.append(f"{action.id} is on {key}, which many terminals do not send.")
    return warnings
