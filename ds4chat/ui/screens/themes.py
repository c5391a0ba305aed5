"""Choosing a theme: the whole screen takes it on while the cursor stands on it."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message as TextualMessage
from textual.screen import ModalScreen
from textual.timer import Timer

from ds4chat.sessions.session import Message, Session
from ds4chat.ui.keys import key
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, fit
from ds4chat.ui.theming import ThemedApp
from ds4chat.ui.widgets.conversation import Conversation, Note
from ds4chat.ui.widgets.line_list import LineList

QUESTION = "How do I see whether a number is even?"

REPLY = """\
## Even numbers

Look at the *rest* after a division by `2`, as the **manual** says ([operators](https://docs.python.org)):

```python
def is_even(n: int) -> bool:
    # True for 0, 2, 4 ...
    return n % 2 == 0 and n != "2"
```

| number | rest | even |
|---|---|---|
| 7 | 1 | no |
| 8 | 0 | yes |

- a list, and
- another item

> A quotation stands a little back.
"""

WARNING = "A warning looks like this."


PREVIEW_SECONDS = 0.06
"""How long the cursor stays on a theme before it is put on."""


class ThemeList(LineList):
    """Posts `Looked` for each theme the cursor comes to, `Chosen` for Enter and a click."""

    COMPONENT_CLASSES = {
        f"theme-list--{part}" for part in ("title", "faint", "heading", "mark", "current", "cursor", "match")
    }
    PREFIX = "theme-list"

    class Looked(TextualMessage):
        """The cursor stands on a theme."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Chosen(Looked):
        """A theme is to be kept."""

    def __init__(self, current: str) -> None:
        super().__init__(id="theme-list")
        self._current = current
        self._names: list[str] = []
        self._notes: dict[str, str] = {}

    def set_groups(self, groups: dict[str, list[str]], notes: dict[str, str]) -> None:
        """Show themes by name under headings; the cursor stays on its theme."""
        at = self.name_at(self.cursor) or self._current
        self._names = [name for names in groups.values() for name in names]
        self._notes = notes
        headings: dict[int, str] = {}
        count = 0
        for heading, names in groups.items():
            if names:
                headings[count] = heading
                count += len(names)
        self.set_items(count, headings)
        if at in self._names:
            self.cursor = self._names.index(at)

    def name_at(self, index: int) -> str:
        """The theme at an index, "" when there is none."""
        return self._names[index] if 0 <= index < len(self._names) else ""

    def watch_cursor(self, cursor: int) -> None:
        super().watch_cursor(cursor)
        if name := self.name_at(cursor):
            self.post_message(self.Looked(name))

    def paint(self, index: int, width: int) -> list[Segment]:
        name = self._names[index]
        note = clip(self._notes.get(name, ""), max(width - 12, 0))
        room = max(width - 3 - len(note), 1)
        mark = "▸ " if name == self._current else "  "
        return [
            Segment(mark, self._part("mark")),
            Segment(fit(name, room), self._part("title")),
            Segment(f"{note} ", self._part("faint")),
        ]

    def style_of(self, index: int) -> Style:
        return Style(bold=True) if self._names[index] == self._current else Style()

    def choose(self, index: int) -> None:
        self.post_message(self.Chosen(self._names[index]))


class ThemesScreen(ModalScreen[str | None]):
    """Ends with the name of a theme to keep; None asks whoever opened it to go back to the one before."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#theme-list"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]
    BINDINGS = [
        key("escape", "dismiss(None)", "Back", "themes.back", "Go back to the theme before.", show=True)
    ]

    app: ThemedApp

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current
        self._looked = ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="themes") as box:
            box.border_title = "Themes"
            box.border_subtitle = "Enter keeps · Esc goes back"
            with Horizontal(id="theme-panes"):
                yield ThemeList(self._current)
                yield Conversation(id="sample")

    def on_mount(self) -> None:
        self._sample = self.query_one("#sample", Conversation)
        self._sample.can_focus = False
        self._list = self.query_one(ThemeList)
        self.app.theme_changed_signal.subscribe(self, lambda _: self._sample.set_palette(self.app.palette()))
        self._sample.set_palette(self.app.palette())
        session = Session("sample")
        session.append(Message(1, None, "user", QUESTION))
        session.append(Message(2, 1, "assistant", REPLY, model="A sample"))
        self._sample.show_session(session, [Note(2, WARNING, "warning")], (0, 0))
        self.show_themes()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._sample.scroll_home, animate=False)

    def show_themes(self) -> None:
        """List what there is now."""
        groups: dict[str, list[str]] = {
            name: [] for name in ("Yours", "Dark", "Light", "The terminal's own colours", "Textual's")
        }
        notes: dict[str, str] = {}
        for name, theme in sorted(self.app.available_themes.items()):
            mine = self.app.theme_of(name)
            shipped = (
                mine is not None
                and mine.path is not None
                and mine.path.parent == self.app.shelf.directories[0]
            )
            if mine is not None and not shipped:
                group = "Yours"
            elif mine is None:
                group = "Textual's"
            elif theme.ansi:
                group = "The terminal's own colours"
            else:
                group = "Dark" if theme.dark else "Light"
            groups[group].append(name)
            if group in ("Yours", "Textual's"):
                notes[name] = "16 colours" if theme.ansi else "dark" if theme.dark else "light"
            elif mine is not None and mine.contrast >= 7:
                notes[name] = "high contrast"
        self._list.set_groups(groups, notes)

    def on_theme_list_looked(self, message: ThemeList.Looked) -> None:
        """Another theme costs more than a move of the cursor: those that are passed by are not put on."""
        message.stop()
        self._looked = message.name
        if self._timer is None:
            self._timer = self.set_timer(PREVIEW_SECONDS, self._put_on)

    def _put_on(self) -> None:
        self._timer = None
        if self._looked in self.app.available_themes and self._looked != self.app.theme:
            self.app.theme = self._looked

    def on_theme_list_chosen(self, message: ThemeList.Chosen) -> None:
        message.stop()
        self._looked = message.name
        self._put_on()
        self.dismiss(self.app.theme)

    def on_unmount(self) -> None:
        if self._timer is not None:
            self._timer.stop()
