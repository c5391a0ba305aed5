"""The summary of what no longer fits into the context: as it is written, and as it stands."""

from __future__ import annotations

from textual.strip import Strip

from ds4chat.ui.entries.base import Entry
from ds4chat.ui.entries.page import Page, make_line
from ds4chat.ui.entries.thought import FoldedText
from ds4chat.ui.wording import count_words


class SummaryEntry(Entry):
    """Folded to one line at first; it can be chosen."""

    choosable = True

    def __init__(self, text: str) -> None:
        super().__init__()
        self.unfolded = False
        self._text = FoldedText()
        self.set(text)

    @property
    def said(self) -> str:
        return self._text.text

    def set(self, text: str) -> None:
        self._text.set(text)
        self.stale = True

    def fold(self) -> bool:
        self.unfolded = not self.unfolded
        self.stale = True
        return True

    def render(self, page: Page) -> list[Strip]:
        words = f"Summary of what lies above, {count_words(self._text.word_count)}"
        strips = [self._text.head(page, words, unfolded=self.unfolded, indent=0)]
        if self.unfolded:
            strips += self._text.all_lines(page, indent=0)
        return [*strips, make_line(page)]

    def estimate(self, page: Page) -> int:
        return 2 + (len(self.said) // page.measure if self.unfolded else 0)

    def forget(self) -> None:
        super().forget()
        self._text.forget()


class SummaryGrowingEntry(Entry):
    """A summary that is being written: how far it is, and its last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._source = ""
        self._text = FoldedText()

    def add(self, text: str) -> None:
        """More of it; "" starts again."""
        self._source = self._source + text if text else ""
        self._text.set(self._source)
        self.stale = True

    def render(self, page: Page) -> list[Strip]:
        muted = page.palette.muted
        words = (
            f"summarising what lies above… {count_words(self._text.word_count)}"
            if self._source
            else ("summarising what lies above…")
        )
        return [make_line(page, ("i ", muted), (words, muted)), *self._text.tail(page, 0), make_line(page)]

    def estimate(self, page: Page) -> int:
        return 5
