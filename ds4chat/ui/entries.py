"""What the transcript is made of: messages, notices and rules, each painting itself into cached lines.

An entry paints for one `Page` (a width and a palette) and keeps the lines until the page or its content
changes. Nothing here is a widget: the transcript draws the lines and asks for new ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ds4chat.sessions.session import Message
from ds4chat.ui.palette import Palette
from ds4chat.ui.text import clip, fit, one_line, visible, wrap

if TYPE_CHECKING:
    from ds4chat.ui.markdown import Block

MARKDOWN_LIMIT = 200_000
"""Characters; a longer reply is shown as plain text, since parsing it would hold up the keys."""

FENCE_PIECE = 40
"""Lines of a fence that is still growing that are highlighted at a time, and then kept."""

READING_WIDTH = 100
"""Cells; text is not set wider than this, because long lines are tiring to read."""


@dataclass(frozen=True)
class Page:
    """What lines are painted for. Two equal pages give the same lines."""

    width: int
    palette: Palette

    @property
    def margin(self) -> int:
        """Empty cells on the left: on a wide screen the text stands in the middle."""
        return max(1 if self.width < 60 else 2, (self.width - READING_WIDTH) // 2)

    @property
    def measure(self) -> int:
        """Cells of a line of text."""
        return max(self.width - 2 * self.margin, 8)


def _line(page: Page, *parts: tuple[str, Style], indent: int = 0) -> Strip:
    """A full line of the page out of styled pieces."""
    pad = Segment(" " * (page.margin + indent), page.palette.base)
    return Strip([pad, *(Segment(text, style) for text, style in parts)]).extend_cell_length(
        page.width, page.palette.base
    )


class Entry:
    """A part of the transcript."""

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


class RuleEntry(Entry):
    """A thin line with a few words in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def render(self, page: Page) -> list[Strip]:
        text = clip(f" {self.text} ", page.measure - 4)
        rest = page.measure - len(text) - 2
        faint = page.palette.faint
        return [
            _line(page, ("──", faint), (text, page.palette.muted), ("─" * max(rest, 0), faint)),
            _line(page),
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
                _line(page, (f"{mark} " if i == 0 else "  ", style), (text, style))
                for i, text in enumerate(lines)
            ),
            _line(page),
        ]

    def estimate(self, page: Page) -> int:
        return 2 + len(self.text) // page.measure


class MessageEntry(Entry):
    """A message. `label` names who speaks; `status` is the line below it, "" for none."""

    def __init__(self, message: Message, label: str, status: str = "", severity: str = "information") -> None:
        super().__init__()
        self.message = message
        self.label = one_line(label)
        self.status = visible(status)
        self.severity = severity
        self._seen = 0
        self.pull()

    def pull(self) -> bool:
        """Take over what the message's text has grown by; whether there was anything."""
        text = self.message.text
        if len(text) == self._seen:
            return False
        self.grow(text[self._seen :] if len(text) > self._seen else text, restart=len(text) < self._seen)
        self._seen = len(text)
        self.stale = True
        return True

    def set_status(self, status: str, severity: str = "information") -> bool:
        """Change the line that goes with the message; whether it is another one."""
        if (status, severity) == (self.status, self.severity):
            return False
        self.status, self.severity = visible(status), severity
        self.stale = True
        return True

    def grow(self, text: str, *, restart: bool) -> None:
        raise NotImplementedError

    def estimate(self, page: Page) -> int:
        text = self.message.text
        return 3 + text.count("\n") + len(text) // page.measure


class UserEntry(MessageEntry):
    """What the user wrote, as they wrote it: no Markdown, white space kept."""

    def grow(self, text: str, *, restart: bool) -> None:
        self._source = visible(self.message.text)

    _source = ""

    def render(self, page: Page) -> list[Strip]:
        palette = page.palette
        inner = page.measure - 2
        bar = ("▌ ", palette.user_bar)
        status = clip(self.status, max(inner - len(self.label) - 4, 0))
        status += " " if status else ""
        head = fit(self.label, inner - cell_len(status))
        strips = [_line(page, bar, (head, palette.user_label), (status, palette.user_muted))]
        strips += [
            _line(page, bar, (fit(text, inner), palette.user)) for text in wrap(self._source, inner - 1)
        ]
        strips.append(_line(page))
        return strips


class ReplyEntry(MessageEntry):
    """A reply of the model: Markdown, painted block by block.

    Finished blocks keep their lines; the live one is painted again with each change. Inside a fence that
    grows long, so do the pieces that are full: the price is that a string over several lines can be coloured
    wrongly at a seam until the fence closes.
    """

    def __init__(self, message: Message, label: str, status: str = "", severity: str = "information") -> None:
        self._blocks: list[Block] = []
        self._live = ""
        self._pieces: dict[tuple[str, bool], list[Strip]] = {}
        self._painted_for: Page | None = None
        super().__init__(message, label, status, severity)

    def grow(self, text: str, *, restart: bool) -> None:
        if restart:
            self._blocks, self._live = [], ""
        self._live += visible(text)

    def _settle_blocks(self) -> None:
        """Move what is final from the live text to the finished blocks."""
        from ds4chat.ui.markdown import take_finished

        blocks, self._live = take_finished(self._live)
        if blocks:
            self._blocks += blocks
            self._pieces.clear()

    def render(self, page: Page) -> list[Strip]:
        palette = page.palette
        strips = [_line(page, ("◆ ", palette.reply_label), (self.label, palette.reply_label))]
        if len(self.message.text) > MARKDOWN_LIMIT:
            whole = "".join(block.source for block in self._blocks) + self._live
            strips += [_line(page, (text, palette.base), indent=2) for text in wrap(whole, page.measure - 2)]
        else:
            strips += self._body(page)
        if self.status:
            style = {"warning": palette.warning, "error": palette.error}.get(self.severity, palette.muted)
            if len(strips) > 1:
                strips.append(_line(page))
            strips += [_line(page, (text, style), indent=2) for text in wrap(self.status, page.measure - 2)]
        strips.append(_line(page))
        return strips

    def _body(self, page: Page) -> list[Strip]:
        if not self._live and not self._blocks:
            return []
        from ds4chat.ui.markdown import render_block

        if self._painted_for != page:
            self._pieces.clear()
            for block in self._blocks:
                block.strips = None
            self._painted_for = page
        self._settle_blocks()
        width = page.measure - 2
        blank = _line(page)
        strips: list[Strip] = []
        for block in self._blocks:
            if block.strips is None:
                block.strips = self._place(page, render_block(block.source, page.palette, width))
            if block.strips:
                strips += block.strips
                if not block.joined:
                    strips.append(blank)
        strips += self._place(page, self._render_live(page, width))
        while strips and strips[-1] is blank:
            strips.pop()
        return strips

    def _render_live(self, page: Page, width: int) -> list[Strip]:
        from ds4chat.ui.markdown import open_fence, render_block, render_code

        lines = self._live.split("\n")
        if self.message.state != "streaming" or len(lines) <= FENCE_PIECE * 2:
            return render_block(self._live, page.palette, width)
        info = open_fence(self._live)
        if info is None:
            return render_block(self._live, page.palette, width)
        language, code = info.strip().partition(" ")[0], lines[1:]
        if not code[-1]:
            code.pop()
        strips: list[Strip] = []
        for at in range(0, len(code), FENCE_PIECE):
            piece, first = "\n".join(code[at : at + FENCE_PIECE]), at == 0
            if at + FENCE_PIECE >= len(code):
                strips += render_code(piece, language, page.palette, width, label=first)
                continue
            key = (piece, first)
            if key not in self._pieces:
                self._pieces[key] = render_code(piece, language, page.palette, width, label=first)
            strips += self._pieces[key]
        return strips

    def _place(self, page: Page, strips: list[Strip]) -> list[Strip]:
        pad = Segment(" " * (page.margin + 2), page.palette.base)
        return [Strip([pad, *strip]).extend_cell_length(page.width, page.palette.base) for strip in strips]

    def forget(self) -> None:
        super().forget()
        self._pieces.clear()
        self._painted_for = None
        for block in self._blocks:
            block.strips = None
