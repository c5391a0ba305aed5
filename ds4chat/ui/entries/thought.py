"""What a model thought before it answered: one line while it is folded, all of it when it is not."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.strip import Strip

from ds4chat.ui.entries.page import Page, make_line, pressable
from ds4chat.ui.text import visible, wrap
from ds4chat.ui.wording import thought_words

TAIL = 3
"""Lines of a thought that is being written."""


@dataclass
class Memory:
    """What is known of messages as long as the program runs, by message id.

    Attributes:
        seconds: that a thought took, as far as it was watched.
        unfolded: messages whose thought is open.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    unfolded: set[int] = field(default_factory=set)


class FoldedText:
    """A secondary text below a line that says what it is; the paragraphs before the last are painted once."""

    def __init__(self) -> None:
        self.text = ""
        self.words = 0
        self._counted = 0
        self._painted: list[Strip] = []
        self._painted_to = 0
        self._page: Page | None = None

    def set(self, text: str) -> None:
        """Take over the text, which mostly is the one before and more."""
        text = visible(text).strip("\n")
        if len(text) < len(self.text):
            self.words = self._counted = 0
            self.forget()
        self.text = text
        # Words before the last white space are final.
        end = max(text.rfind(" "), text.rfind("\n"), 0)
        if end > self._counted:
            self.words += len(text[self._counted : end].split())
            self._counted = end

    @property
    def word_count(self) -> int:
        return self.words + len(self.text[self._counted :].split())

    def forget(self) -> None:
        self._painted, self._painted_to, self._page = [], 0, None

    def _line(self, page: Page, text: str, indent: int) -> Strip:
        return make_line(page, ("│ ", page.palette.faint), (text, page.palette.muted), indent=indent)

    def head(self, page: Page, words: str, *, unfolded: bool, indent: int = 2) -> Strip:
        """The line that says what is folded."""
        mark = "▾ " if unfolded else "▸ "
        words = wrap(words, page.measure - indent - 2)[0]
        return make_line(page, (mark + words, pressable(page.palette.muted, "fold")), indent=indent)

    def all_lines(self, page: Page, indent: int = 2) -> list[Strip]:
        width = page.measure - indent - 2
        if self._page != page:
            self.forget()
            self._page = page
        end = self.text.rfind("\n") + 1
        if end > self._painted_to:
            final = self.text[self._painted_to : end - 1]
            self._painted += [self._line(page, line, indent) for line in wrap(final, width)]
            self._painted_to = end
        live = [self._line(page, line, indent) for line in wrap(self.text[self._painted_to :], width)]
        return self._painted + live

    def tail(self, page: Page, indent: int = 2) -> list[Strip]:
        """The last few lines."""
        width = page.measure - indent - 2
        text = self.text[-width * (TAIL + 2) :]
        if len(text) < len(self.text):
            text = text.partition(" ")[2] or text
        lines = [line for line in wrap(text, width) if line.strip()]
        return [self._line(page, line, indent) for line in lines[-TAIL:]]


class Thought(FoldedText):
    """`closed`: the model said that it has thought enough. `seconds`: it took, None when nobody watched."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = True
        self.seconds: float | None = None

    @property
    def words_come(self) -> bool:
        """Whether it is open and more than a tag."""
        return not self.closed and bool(self.text.strip())

    def render(self, page: Page, *, unfolded: bool, streaming: bool) -> list[Strip]:
        """The lines, none when nothing was thought."""
        if not self.text.strip():
            return []
        growing = streaming and not self.closed
        words = thought_words(self.word_count, self.seconds, growing=growing, closed=self.closed)
        strips = [self.head(page, words, unfolded=unfolded)]
        if unfolded:
            strips += self.all_lines(page)
        elif growing:
            strips += self.tail(page)
        return strips
