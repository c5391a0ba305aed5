"""All keys as they are set, made from the bindings themselves, and found by typing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ds4chat.ui.keys import key, keys_of
from ds4chat.ui.screens.bindings import CHAT_GROUPS
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import fit, wrap
from ds4chat.ui.widgets.key_lines import KeyLines, Piece

if TYPE_CHECKING:
    from ds4chat.ui.keymap import Action

_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "pageup": "Page Up",
    "pagedown": "Page Down",
    "delete": "Delete",
    "backspace": "Backspace",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "full_stop": ".",
    "comma": ",",
    "underscore": "_",
    "minus": "-",
    "plus": "+",
    "at": "@",
    "backslash": "\\",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
}

Line = tuple[str, str, str]
"""Keys, what they do, and other words it is found by."""


def key_name(keys: str) -> str:
    """The first of the keys as people write it: "ctrl+j,shift+enter" becomes "Ctrl+J"."""
    *modifiers, base = keys.split(",")[0].split("+")
    if base in _NAMES:
        name = _NAMES[base]
    elif len(base) == 1:
        name = base.upper() if modifiers else base
    else:
        name = base.upper() if len(base) <= 3 and base[0] == "f" else base.replace("_", " ").capitalize()
    return "+".join([*(part.capitalize() for part in modifiers), name])


def key_names(keys: Iterable[str]) -> str:
    """All keys of an action: "Ctrl+J, Shift+Enter"."""
    return ", ".join(key_name(key) for key in keys) or "no key"


def _lines(actions: Iterable[Action], keymap: Mapping[str, str]) -> list[Line]:
    lines: list[Line] = []
    for action in actions:
        keys = keys_of(action.id, action.keys, keymap)
        if action.id[-1:].isdigit():
            # One line for the nine keys of the nine numbers.
            if action.id.endswith("1"):
                lines.append(
                    (f"{key_names(keys)} to 9", "Open the chat with that number in the list.", action.id)
                )
        elif action.about and keys:
            lines.append((key_names(keys), action.about, f"{action.name} {action.id}"))
    return lines


def help_groups(keymap: Mapping[str, str]) -> dict[str, list[Line]]:
    """All keys by what they are about, the chat's first."""
    from ds4chat.ui.keymap import actions_of, kinds

    of_chat = {binding.id: name for name, group in CHAT_GROUPS.items() for binding in group}
    groups: dict[str, list[Action]] = {name: [] for name in (*CHAT_GROUPS, "Everywhere")}
    for kind in kinds():
        for action in actions_of(kind):
            name = "Writing" if kind.__name__ == "PromptBox" else of_chat.get(action.id, action.place)
            groups.setdefault(name, []).append(action)
    return {name: lines for name, actions in groups.items() if (lines := _lines(actions, keymap))}


class HelpScreen(ModalScreen[None]):
    """Closes with Esc or F1; what is typed narrows it down."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#help-filter"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    BINDINGS = [
        key("escape,f1", "dismiss", "Close", "help.close", "Close the help."),
        Binding("up", "scroll(-1)", "Up", id="help.up", priority=True, show=False, tooltip="Scroll up."),
        Binding(
            "down", "scroll(1)", "Down", id="help.down", priority=True, show=False, tooltip="Scroll down."
        ),
        key("pageup", "page(-1)", "Page up", "help.pageup", "Scroll up by a page."),
        key("pagedown", "page(1)", "Page down", "help.pagedown", "Scroll down by a page."),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc closes"
            yield Input(placeholder="Type to search: a key, or what it does", id="help-filter")
            yield KeyLines(id="keys")

    def on_mount(self) -> None:
        self._keys = self.query_one(KeyLines)
        self._groups = help_groups(getattr(self.app, "keymap", {}))

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def on_input_changed(self) -> None:
        self._fill()
        self._keys.scroll_home(animate=False)

    def on_input_submitted(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        self._keys.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        self._keys.scroll_relative(y=by * max(self._keys.size.height - 1, 1), animate=False)

    def _fill(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        self._keys.set_lines(self._lines(self._keys.scrollable_content_region.width, words))

    def _lines(self, width: int, words: list[str]) -> list[list[Piece]]:
        column = 22 if width > 60 else 12
        lines: list[list[Piece]] = []
        for name, group in self._groups.items():
            found = [line for line in group if _has(words, name, *line)]
            if not found:
                continue
            lines.append([(name, "heading")])
            for keys, what, _ in found:
                left = [line.rstrip() for line in wrap(keys, column - 1)]
                right = [line.rstrip() for line in wrap(what, max(width - column, 10))]
                for row in range(max(len(left), len(right))):
                    key_part = fit(left[row] if row < len(left) else "", column)
                    lines.append([(key_part, "key"), (right[row] if row < len(right) else "", "text")])
            lines.append([])
        return lines[:-1] or [[("No key with these words.", "text")]]


def _has(words: Iterable[str], *texts: str) -> bool:
    """Whether each word is in some text."""
    whole = " ".join(texts).casefold()
    return all(word in whole for word in words)
