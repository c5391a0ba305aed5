"""A reply of the model: what it thought, and Markdown, painted block by block."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from textual.strip import Strip

from ds4chat.sessions.reasoning import split, visible_answer
from ds4chat.sessions.session import Message
from ds4chat.ui.entries.message import MessageEntry, place
from ds4chat.ui.entries.page import Page, make_line
from ds4chat.ui.entries.thought import Memory, Thought
from ds4chat.ui.entries.tool import may_call, with_calls
from ds4chat.ui.text import visible, wrap

if TYPE_CHECKING:
    from ds4chat.ui.markdown import Block

MARKDOWN_LIMIT = 200_000
"""Characters; a longer reply is shown as plain text, since parsing it would hold up the keys."""

FENCE_PIECE = 40
"""Lines of a fence that is still growing that are highlighted at a time, and then kept."""

FRESH = 40
"""Characters; a reply first seen with more has been thinking for nobody knows how long."""


class ReplyEntry(MessageEntry):
    """Finished blocks keep their lines; the live one is painted again with each change.

    Inside a fence that grows long, so do the pieces that are full: the price is that a string over several lines can
    be coloured wrongly at a seam until the fence closes. What was thought is told from the answer only as long as the
    answer has not begun.
    """

    def __init__(
        self,
        message: Message,
        label: str,
        status: str = "",
        severity: str = "information",
        memory: Memory | None = None,
    ) -> None:
        self.thought: Thought | None = None
        self.memory = memory or Memory()
        self._answer_at: int | None = None
        self._opened: float | None = None
        self._taken = self._calls = 0
        self._blocks: list[Block] = []
        self._live = ""
        self._pieces: dict[tuple[str, bool], list[Strip]] = {}
        self._painted_for: Page | None = None
        self._blank = Strip([])
        super().__init__(message, label, status, severity)

    def take(self, text: str) -> None:
        answer = text[self._answer_at :] if self._answer_at is not None else self._part(text)
        if may_call(answer):
            answer = with_calls(answer)
            calls = answer.count("```call\n")
            if calls != self._calls:
                # What was text until its end came is shown as a block.
                self._blocks, self._live, self._taken, self._calls = [], "", 0, calls
        if len(answer) < self._taken:
            self._blocks, self._live, self._taken = [], "", 0
        self._live += visible(answer[self._taken :])
        self._taken = len(answer)

    def _part(self, text: str) -> str:
        """Take what was thought out of the text; the answer."""
        streaming = self.message.state == "streaming"
        parts = split(text, whole=not streaming)
        thoughts = [part for part in parts if part.kind == "reasoning"]
        answer = "".join(part.text for part in parts if part.kind == "answer")
        if thoughts:
            self._think("\n\n".join(part.text for part in thoughts), thoughts[-1].closed, streaming)
        if answer.strip():
            at = len(text) - len(answer)
            # The end of an answer in a channel has its mark.
            if text.endswith(answer) and "<|channel|>" not in text[:at]:
                self._answer_at = at
            if self.thought is not None:
                self._stop_thinking()
        # Before the answer has begun, white space is nothing of it.
        return answer.lstrip("\n") if not answer.strip() else answer

    def _think(self, text: str, closed: bool, streaming: bool) -> None:
        if self.thought is None:
            self.thought = Thought()
            self.thought.seconds = self.memory.seconds.get(self.message.id)
            if streaming and len(self.message.text) <= FRESH:
                self._opened = monotonic()
        self.thought.set(text)
        self.thought.closed = closed
        if closed or not streaming:
            self._stop_thinking()
        elif self._opened is not None:
            self.thought.seconds = monotonic() - self._opened

    def _stop_thinking(self) -> None:
        if self.thought is not None and self._opened is not None:
            self.thought.seconds = self.memory.seconds[self.message.id] = monotonic() - self._opened
            self._opened = None

    @property
    def said(self) -> str:
        text = self.message.text
        self.take_over()
        if self._answer_at is not None:
            return text[self._answer_at :].strip("\n")
        return visible_answer(text, whole=self.message.state != "streaming").strip("\n") or text

    @property
    def unfolded(self) -> bool:
        return self.message.id in self.memory.unfolded

    def fold(self) -> bool:
        self.take_over()
        if self.thought is None:
            return False
        self.memory.unfolded ^= {self.message.id}
        self.stale = True
        return True

    def links(self) -> list[str]:
        from ds4chat.ui.markdown_parts import links

        return links(self.said)

    def code_spans(self) -> list[tuple[int, int]]:
        from ds4chat.ui.markdown_parts import painted_code

        return painted_code(self.strips)

    def _settle_blocks(self) -> None:
        """Move what is final from the live text to the finished blocks."""
        from ds4chat.ui.markdown import take_finished

        blocks, self._live = take_finished(self._live)
        if blocks:
            self._blocks += blocks
            self._pieces.clear()

    def render(self, page: Page) -> list[Strip]:
        self.take_over()
        palette = page.palette
        streaming = self.message.state == "streaming"
        branch = self.branch_parts(palette.muted, palette.reply_label)
        strips = [make_line(page, ("◆ ", palette.reply_label), (self.label, palette.reply_label), *branch)]
        if self.thought is not None:
            strips += self.thought.render(page, unfolded=self.unfolded, streaming=streaming)
        body = self._body(page)
        if body and len(strips) > 1:
            strips.append(make_line(page))
        strips += body
        thinking = streaming and self.thought is not None and self.thought.words_come
        if self.status and not thinking:
            style = {"warning": palette.warning, "error": palette.error}.get(self.severity, palette.muted)
            if len(strips) > 1:
                strips.append(make_line(page))
            strips += [
                make_line(page, (text, style), indent=2) for text in wrap(self.status, page.measure - 2)
            ]
        strips.append(make_line(page))
        return strips

    def _body(self, page: Page) -> list[Strip]:
        if not self._live and not self._blocks:
            return []
        if self._taken > MARKDOWN_LIMIT:
            whole = "".join(block.source for block in self._blocks) + self._live
            base = page.palette.base
            return [make_line(page, (text, base), indent=2) for text in wrap(whole, page.measure - 2)]
        from ds4chat.ui.markdown import render_block

        if self._painted_for != page:
            self._pieces.clear()
            for block in self._blocks:
                block.strips = None
            self._painted_for, self._blank = page, make_line(page)
        self._settle_blocks()
        width = page.measure - 2
        # The same line from frame to frame, so that the transcript sees that it is.
        blank = self._blank
        strips: list[Strip] = []
        for block in self._blocks:
            if block.strips is None:
                block.strips = place(page, render_block(block.source, page.palette, width))
            if block.strips:
                strips += block.strips
                if not block.joined:
                    strips.append(blank)
        strips += place(page, self._render_live(page, width))
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

    def forget(self) -> None:
        super().forget()
        if self.thought is not None:
            self.thought.forget()
        self._pieces.clear()
        self._painted_for = None
        for block in self._blocks:
            block.strips = None
