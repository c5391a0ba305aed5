"""A message, and what the user wrote."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ds4chat.sessions.session import Message
from ds4chat.ui.entries.base import Entry
from ds4chat.ui.entries.page import Page, make_line, pressable
from ds4chat.ui.links import find_urls
from ds4chat.ui.text import TAB_SIZE, clip, one_line, visible, wrap

# Thousands of messages have the same few names and measures.
_label = lru_cache(64)(one_line)
_status = lru_cache(1024)(visible)


class MessageEntry(Entry):
    """A message. `label` names who speaks; `status` is the line that goes with it, "" for none."""

    choosable = True

    def __init__(self, message: Message, label: str, status: str = "", severity: str = "information") -> None:
        super().__init__()
        self.message = message
        self.label = _label(label)
        self.status = _status(status)
        self.severity = severity
        self.branch: tuple[int, int] | None = None
        """Which of its alternatives it is, from 1, and how many there are; None when it is the only one."""
        self._seen: tuple[int, str] | None = None
        self._untaken = True
        self.pull()

    def pull(self) -> bool:
        """Take over what the message's text has grown by; whether there was anything."""
        seen = (len(self.message.text), self.message.state)
        if seen == self._seen:
            return False
        self._seen = seen
        self._untaken = True
        self.stale = True
        if self.message.state == "streaming":
            self.take_over()
        return True

    def take_over(self) -> None:
        """Read the text, if that was not done yet: of thousands of messages most are never painted."""
        if self._untaken:
            self._untaken = False
            self.take(self.message.text)

    def take(self, text: str) -> None:
        """Take over the whole text, which mostly is the one before and more."""
        raise NotImplementedError

    @property
    def said(self) -> str:
        """What the message says, without what was thought before."""
        return self.message.text

    def set_status(self, status: str, severity: str = "information") -> bool:
        """Change the line that goes with the message; whether it is another one."""
        if (status, severity) == (self.status, self.severity):
            return False
        self.status, self.severity = visible(status), severity
        self.stale = True
        return True

    def set_branch(self, branch: tuple[int, int] | None) -> bool:
        """Change which of its alternatives the message is; whether that is new."""
        if branch == self.branch:
            return False
        self.branch = branch
        self.stale = True
        return True

    def links(self) -> list[str]:
        """Addresses in the message that can be opened, in their order, each once."""
        return list(dict.fromkeys(url for _, _, url in find_urls(self.message.text)))

    def estimate(self, page: Page) -> int:
        text = self.message.text
        return 3 + text.count("\n") + len(text) // page.measure

    def branch_parts(self, style: Style, bold: Style) -> list[tuple[str, Style]]:
        """`< 2/3 >` as styled pieces, with what a click on them does."""
        if self.branch is None:
            return []
        at, of = self.branch
        return [
            ("  ", style),
            ("< ", pressable(bold if at > 1 else style, "branch:-1")),
            (f"{at}/{of}", style),
            (" >", pressable(bold if at < of else style, "branch:1")),
        ]


class UserEntry(MessageEntry):
    """What the user wrote, as they wrote it: no Markdown, white space kept."""

    _source = ""

    def take(self, text: str) -> None:
        self._source = visible(text).expandtabs(TAB_SIZE)

    def render(self, page: Page) -> list[Strip]:
        self.take_over()
        palette = page.palette
        inner = page.measure - 2
        bar = ("▌ ", palette.user_bar)
        branch = self.branch_parts(palette.user_muted, palette.user_label)
        label = clip(self.label, inner)
        room = inner - cell_len(label) - sum(cell_len(text) for text, _ in branch)
        status = clip(self.status, max(room - 3, 0))
        status += " " if status else ""
        gap = " " * max(room - cell_len(status), 0)
        strips = [
            make_line(
                page,
                bar,
                (label, palette.user_label),
                *branch,
                (gap, palette.user),
                (status, palette.user_muted),
            )
        ]
        for text in self._source.split("\n"):
            strips += [make_line(page, bar, *parts) for parts in _line_parts(text, inner, palette.user)]
        strips.append(make_line(page))
        return strips

    def code_spans(self) -> list[tuple[int, int]]:
        if self.page is None:
            return []
        from ds4chat.ui.markdown_parts import code_blocks

        width = self.page.measure - 3
        starts = [1]
        for text in self._source.split("\n"):
            starts.append(starts[-1] + len(wrap(text, width)))
        blocks = code_blocks(self._source, indented=False)
        return [(starts[block.first], starts[min(block.last + 1, len(starts) - 1)] - 1) for block in blocks]


def _line_parts(text: str, width: int, style: Style) -> list[list[tuple[str, Style]]]:
    """A line of text, wrapped and filled up to `width` cells, with the addresses in it as links."""
    pieces = wrap(text, width - 1)
    urls = find_urls(text) if ":" in text else []
    lines: list[list[tuple[str, Style]]] = []
    at = 0
    for piece in pieces:
        parts: list[tuple[str, Style]] = []
        if urls:
            at = max(text.find(piece, at), at)
            done = at
            for start, end, url in urls:
                start, end = max(start, done), min(end, at + len(piece))
                if start < end:
                    parts.append((text[done:start], style))
                    parts.append((text[start:end], style + Style(underline=True, link=url)))
                    done = end
            parts.append((text[done : at + len(piece)], style))
            at += len(piece)
        else:
            parts.append((piece, style))
        parts.append((" " * (width - cell_len(piece)), style))
        lines.append(parts)
    return lines


def place(page: Page, strips: list[Strip]) -> list[Strip]:
    """Lines of text where the text of a reply stands on the page."""
    pad = Segment(" " * (page.margin + 2), page.palette.base)
    return [Strip([pad, *strip]).extend_cell_length(page.width, page.palette.base) for strip in strips]
