"""What a call of a tool came to: one line while it is folded, all of it when it is not. And the calls in a reply."""

from __future__ import annotations

import json
import re

from textual.strip import Strip

from ds4chat.sessions.session import Message, speaker
from ds4chat.ui.entries.message import MessageEntry
from ds4chat.ui.entries.page import Page, make_line
from ds4chat.ui.entries.thought import FoldedText, Memory
from ds4chat.ui.text import wrap
from ds4chat.ui.wording import result_words

MAY_CALL = ("</tool_call>", "</function_call>", "[TOOL_CALLS]")
"""One of these is in every reply with a call between tags."""


class ToolEntry(MessageEntry):
    """A result. Never markup: what a tool says is shown as it is, control characters made visible."""

    def __init__(
        self, message: Message, status: str = "", severity: str = "information", memory: Memory | None = None
    ) -> None:
        self.memory = memory or Memory()
        self._text = FoldedText()
        super().__init__(message, speaker(message), status, severity)

    def take(self, text: str) -> None:
        self._text.set(text)

    @property
    def unfolded(self) -> bool:
        return self.message.id in self.memory.unfolded

    def fold(self) -> bool:
        self.memory.unfolded ^= {self.message.id}
        self.stale = True
        return True

    def estimate(self, page: Page) -> int:
        return super().estimate(page) if self.unfolded else 2

    def render(self, page: Page) -> list[Strip]:
        self.take_over()
        words = f"{self.label} · {result_words(self.message.text)}"
        strips = [self._text.head(page, words, unfolded=self.unfolded)]
        if self.unfolded:
            strips += self._text.all_lines(page)
        if self.status:
            style = page.palette.warning if self.severity == "warning" else page.palette.muted
            strips += [
                make_line(page, (line, style), indent=2) for line in wrap(self.status, page.measure - 2)
            ]
        return [*strips, make_line(page)]

    def forget(self) -> None:
        super().forget()
        self._text.forget()


def may_call(text: str) -> bool:
    """Whether a whole call may be in a text. Cheap."""
    return any(mark in text for mark in MAY_CALL)


def with_calls(text: str) -> str:
    """Markdown in which each whole call stands as a block of code: its name, and a line for its arguments."""
    from ds4chat.engine.tool_calls import blocks

    parts, at = [], 0
    for block in blocks(text):
        parts += [text[at : block.start].rstrip(), "\n\n", _shown(block.body), "\n\n"]
        at = block.end
    rest = text[at:]
    return "".join([*parts, rest.lstrip("\n") if at else rest])


def _shown(body: str) -> str:
    data = json.loads(body)
    lines = []
    for call in data if isinstance(data, list) else [data]:
        arguments = call.get("arguments", call.get("parameters", {}))
        try:
            words = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            words = body
        lines.append(f"{call.get('name', '')} {words}")
    code = "\n".join(lines)
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}call\n{code}\n{fence}"
