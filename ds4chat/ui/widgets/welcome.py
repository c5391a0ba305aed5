"""What an empty chat shows: the model, the keys that matter, the chats to go back to."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from ds4chat.sessions.events import EngineStatus
from ds4chat.ui.listing import Row
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import fit, one_line
from ds4chat.ui.wording import engine_words

HINTS = (
    ("Enter", "send a message"),
    ("Ctrl+O", "find an earlier chat"),
    ("Ctrl+F", "search in all chats"),
    ("F1", "all keys"),
)

INCOGNITO = ("This chat leaves nothing behind:", "no title, no text and no state on the disk.")

WIDTH = 46


class Welcome(Widget):
    """Centred; on a low screen the lower parts are left out."""

    DEFAULT_CSS = stylesheet(__file__)
    COMPONENT_CLASSES = {"welcome--name", "welcome--key", "welcome--text", "welcome--faint", "welcome--alarm"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._engine = EngineStatus()
        self._recent: Sequence[Row] = ()
        self._incognito = False

    def set_state(self, engine: EngineStatus, recent: Sequence[Row], *, incognito: bool = False) -> None:
        recent = tuple(recent[:5])
        if (engine, recent, incognito) != (self._engine, self._recent, self._incognito):
            self._engine, self._recent, self._incognito = engine, recent, incognito
            self.refresh()

    def _lines(self, width: int) -> list[list[tuple[str, Style]]]:
        name, key, text, faint, alarm = (
            self.get_component_rich_style(f"welcome--{part}")
            for part in ("name", "key", "text", "faint", "alarm")
        )
        failed = self._engine.phase == "failed"
        words = one_line(engine_words(self._engine))
        lines = [
            [(fit("ds4chat", width), name)],
            [(fit(words, width), alarm if failed else text)],
            [],
            *([(fit(line, width), text)] for line in INCOGNITO if self._incognito),
            *([[]] if self._incognito else []),
            *([(fit(keys, 9), key), (fit(what, width - 9), text)] for keys, what in HINTS),
        ]
        if self._recent and not self._incognito:
            lines += [[], [(fit("Recent", width), faint)]]
            for number, row in enumerate(self._recent, 1):
                title = fit(one_line(row.title), width - 10)
                lines.append([(fit(f"Alt+{number}", 9), key), (title, text), ("", text)])
        return lines

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        inner = min(WIDTH, width - 2)
        lines = self._lines(max(inner, 10))[: max(height, 0)]
        top = max((height - len(lines)) // 2, 0)
        base = self.rich_style
        if not top <= y < top + len(lines):
            return Strip.blank(width, base)
        left = max((width - inner) // 2, 0)
        segments = [Segment(" " * left, base), *(Segment(text, style) for text, style in lines[y - top])]
        return Strip(segments).adjust_cell_length(width, base)
