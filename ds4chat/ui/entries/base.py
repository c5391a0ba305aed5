"""An entry as such, and the simple ones: rules and sentences of the program."""

from __future__ import annotations

from rich.cells import cell_len
from textual.strip import Strip

from ds4chat.ui.entries.page import Page, make_line
from ds4chat.ui.text import clip, visible, wrap


class Entry:
    """A part of the transcript."""

    choosable = False
    """Whether the cursor stops here."""

    def __init__(self) -> None:
        self.strips: list[Strip] = []
        self.page: Page | None = None
        """What the lines were painted for, None while there are none."""
        self.stale = True
        """Whether the content has changed since."""

    def is_painted(self, page: Page) -> bool:
        """Whether `strips` show the content as it is, on this page."""
        return self.page == page and not self.stale

    def paint(self, page: Page) -> None:
        """Bring `strips` up to date."""
        if not self.is_painted(page):
            self.strips = self.render(page)
            self.page = page
            self.stale = False

    def forget(self) -> None:
        """Give the painted lines back; they can be painted again."""
        self.strips = []
        self.page = None

    def render(self, page: Page) -> list[Strip]:
        raise NotImplementedError

    def estimate(self, page: Page) -> int:
        """A guess at the number of lines, without painting."""
        return 1

    def fold(self) -> bool:
        """Fold or unfold what can be; whether there was anything."""
        return False

    def code_spans(self) -> list[tuple[int, int]]:
        """First and last line of each block of code, as painted now."""
        return []


class RuleEntry(Entry):
    """A thin line with a few words in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def render(self, page: Page) -> list[Strip]:
        text = clip(f" {self.text} ", page.measure - 4)
        rest = page.measure - cell_len(text) - 2
        faint = page.palette.faint
        return [
            make_line(page, ("──", faint), (text, page.palette.muted), ("─" * max(rest, 0), faint)),
            make_line(page),
        ]

    def estimate(self, page: Page) -> int:
        return 2


class NoteEntry(Entry):
    """A sentence of the program, set apart from what was said."""

    def __init__(self, text: str, severity: str = "information") -> None:
        super().__init__()
        self.text = visible(text)
        self.severity = severity

    def render(self, page: Page) -> list[Strip]:
        palette = page.palette
        style = {"warning": palette.warning, "error": palette.error}.get(self.severity, palette.muted)
        mark = "i" if self.severity == "information" else "!"
        lines = wrap(self.text, page.measure - 2)
        return [
            *(
                make_line(page, (f"{mark} " if i == 0 else "  ", style), (text, style))
                for i, text in enumerate(lines)
            ),
            make_line(page),
        ]

    def estimate(self, page: Page) -> int:
        return 2 + len(self.text) // page.measure
