"""All keys, made from the bindings themselves."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4chat.ui.screens.bindings import CHAT_BINDINGS
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import fit, wrap
from ds4chat.ui.widgets.prompt_box import PromptBox
from ds4chat.ui.widgets.session_list import SessionList

_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "pageup": "Page Up",
    "pagedown": "Page Down",
    "up": "Up",
    "down": "Down",
    "home": "Home",
    "end": "End",
}


def key_name(keys: str) -> str:
    """The first of the keys as people write it: "ctrl+j,shift+enter" becomes "Ctrl+J"."""

    def part(name: str) -> str:
        return _NAMES.get(name, name.upper() if len(name) <= 3 else name.capitalize())

    first = keys.split(",")[0]
    return "+".join(p.capitalize() if p in ("ctrl", "alt", "shift") else part(p) for p in first.split("+"))


def _lines(bindings: Iterable[object]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for binding in bindings:
        if not isinstance(binding, Binding) or not binding.tooltip:
            continue
        if binding.id and binding.id[-1:].isdigit():
            if binding.id.endswith("1"):
                lines.append((key_name(binding.key) + " to 9", "Open the chat with that number in the list."))
            continue
        lines.append((key_name(binding.key), binding.tooltip))
    return lines


class HelpScreen(ModalScreen[None]):
    """Closes with Esc or F1."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = [Binding("escape,f1,q,enter", "dismiss", "Close", id="help.close", tooltip="Close this.")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc closes"
            yield Static(id="keys", markup=False)

    def on_resize(self) -> None:
        width = self.query_one("#help").scrollable_content_region.width
        self.query_one("#keys", Static).update(self._content(width))

    def _content(self, width: int) -> Content:
        groups = (
            ("Writing", _lines(PromptBox.BINDINGS)),
            ("Chats", _lines(CHAT_BINDINGS)),
            ("In the list of chats", _lines(SessionList.BINDINGS)),
            ("Always", [("Ctrl+P", "All commands, and the themes."), *_lines(type(self.app).BINDINGS)]),
        )
        column = 18 if width > 48 else 12
        parts: list[Content | tuple[str, str]] = []
        for name, lines in groups:
            parts.append((f"{name}\n", "bold $primary"))
            for keys, what in lines:
                names, *more = (line.rstrip() for line in wrap(what, max(width - column - 1, 10)))
                parts.append((fit(keys, column - 1) + " ", "$accent"))
                parts += [(f"{text}\n", "$foreground") for text in (names, *(" " * column + m for m in more))]
            parts.append(("\n", ""))
        return Content.assemble(*parts[:-1])
