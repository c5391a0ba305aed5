"""The cursor of the transcript: which message is chosen, how that is shown, and what the mouse does.

What happens to a chosen message is the screen's affair: the keys here name its actions.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from ds4chat.ui.entries import Entry, MessageEntry
from ds4chat.ui.keys import key
from ds4chat.ui.messages import MessagePressed
from ds4chat.ui.widgets.transcript import Transcript

MESSAGE_KEYS = [
    key("up,k", "screen.move_choice(-1)", "Message above", "message.up", "Choose the message above."),
    key("down,j", "screen.move_choice(1)", "Message below", "message.down", "Choose the message below."),
    key("home", "screen.choose_first", "First message", "message.first", "Choose the first message."),
    key("end", "screen.choose_last", "Last message", "message.last", "Choose the last message."),
    key("c", "screen.copy_message", "Copy", "message.copy", "Copy the message.", show=True),
    key(
        "b", "screen.copy_code", "Code", "message.code", "Copy its block of code; again: the next.", show=True
    ),
    key(
        "e", "screen.edit_message", "Edit", "message.edit", "Write your message anew, on a branch.", show=True
    ),
    key("r", "screen.regenerate", "Redo", "message.regenerate", "Have another reply written.", show=True),
    key("left", "screen.walk_branch(-1)", "Branch before", "message.before", "Go to the branch before this."),
    key("right", "screen.walk_branch(1)", "Branch after", "message.after", "Go to the branch after this."),
    key(
        "q",
        "screen.quote_message",
        "Quote",
        "message.quote",
        "Put the message into yours as a quote.",
        show=True,
    ),
    key("f", "screen.fork_here", "Fork", "message.fork", "Go on from here in a new chat.", show=True),
    key("d", "screen.delete_turn", "Drop", "message.delete", "Delete question and reply.", show=True),
    key("o", "screen.open_link", "Link", "message.link", "Open its first link; again: the next.", show=True),
    key("space", "screen.fold", "Fold", "message.fold", "Fold or unfold what was thought.", show=True),
    key("u", "screen.undo_compact", "Undo summary", "message.unsummarise", "Take the summary back."),
    key("escape,enter", "screen.leave_message", "Back", "message.back", "Back to the prompt box.", show=True),
]


class ChoosingTranscript(Transcript):
    """A transcript in which one entry can be chosen."""

    BINDINGS = [*MESSAGE_KEYS]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen: Entry | None = None
        self._code: int | None = None
        self._span = (0, -1)
        self._span_in: list[Strip] | None = None
        self._revealing = False
        self._placed: tuple[Entry, list[int], tuple[int, int] | None] | None = None

    @property
    def chosen_message(self) -> MessageEntry | None:
        return self.chosen if isinstance(self.chosen, MessageEntry) else None

    def choosable(self) -> list[Entry]:
        """Everything the cursor can stop at."""
        return [entry for entry in self._entries if entry.choosable]

    def last_message(self, role: str) -> MessageEntry | None:
        """The last message of the user's or of the model's."""
        messages = (
            e for e in reversed(self._entries) if isinstance(e, MessageEntry) and e.message.role == role
        )
        return next(messages, None)

    def message_after(self, entry: Entry) -> MessageEntry | None:
        """The message below an entry."""
        below = self._entries[self._entries.index(entry) + 1 :]
        return next((e for e in below if isinstance(e, MessageEntry)), None)

    def takes(self, key: str) -> bool:
        """Whether a key does something to the chosen message, or would to another: it is not text then."""
        active = self.screen.active_bindings.get(key) if self.chosen is not None else None
        return active is not None and active.node is self

    def choose(self, entry: Entry | None, *, bring: bool = True) -> None:
        """Put the cursor on an entry, None takes it away; the view follows if it must."""
        if entry is not self.chosen:
            # The keys are the same for all messages: making the footer again takes longer than the move.
            if (entry is None) != (self.chosen is None):
                self.refresh_bindings()
            self.chosen = entry
            self._code = None
        if entry is not None and bring:
            self.bring(entry)
        self.refresh()

    def choose_end(self, *, last: bool = True) -> None:
        """Choose the last message, or the first."""
        if entries := self.choosable():
            self.choose(entries[-1 if last else 0])

    def choose_near(self) -> None:
        """Choose the last message that can be seen, without moving the view."""
        top = self.scroll_offset.y
        bottom = top + self.scrollable_content_region.height
        seen = [entry for entry in self.choosable() if (span := self.span_of(entry)) and span[0] < bottom]
        if seen:
            self.choose(seen[-1], bring=False)

    def _is_seen(self, entry: Entry) -> bool:
        """Whether any of it is in the view: the reader may have scrolled away from what is chosen."""
        span, top = self.span_of(entry), self.scroll_offset.y
        return span is not None and span[0] < top + self.scrollable_content_region.height and sum(span) > top

    def move_choice(self, by: int) -> None:
        """Choose the next entry above or below."""
        entries = self.choosable()
        if self.chosen not in entries or not self._is_seen(self.chosen):
            self.choose_near()
            return
        at = entries.index(self.chosen) + by
        if 0 <= at < len(entries):
            self.choose(entries[at])
        elif by > 0:
            self.follow_end()

    def reveal(self, message_id: int) -> bool:
        """Scroll to a message and choose it; whether it is there. Takes the focus, so that its keys work."""
        entry = self.message(message_id)
        if entry is None:
            return False
        self._revealing = not self.has_focus
        self.choose(entry)
        self.screen.set_focus(self)
        return True

    def fold(self, entry: Entry) -> bool:
        """Fold or unfold an entry, whose first line stays where it is seen; whether there was anything to fold."""
        before = self.span_of(entry)
        if before is None or not entry.fold():
            return False
        row = before[0] - self.scroll_offset.y
        self.settle()
        if (after := self.span_of(entry)) is not None and row >= 0:
            self.scroll_to_line(after[0] - row)
        self.refresh()
        return True

    def mark_code(self, index: int | None) -> None:
        """Mark a block of code of the chosen message."""
        self._code, self._span_in = index, None
        if index is not None and self.chosen is not None:
            spans = self.chosen.code_spans()
            if index < len(spans):
                self.bring(self.chosen, spans[index])
        self.refresh()

    @property
    def marked_code(self) -> int | None:
        return self._code

    def on_focus(self) -> None:
        self._revealing = False

    def on_blur(self) -> None:
        # A dialog over the screen takes the focus for a while only.
        if self.screen.focused is not self and not self._revealing:
            self.choose(None)

    # -- mouse

    def on_click(self, event: events.Click) -> None:
        if self.text_selection is not None:
            return
        found = self.entry_at(self.scroll_offset.y + event.y)
        if found is None or not found[0].choosable:
            return
        entry, line = found
        again = entry is self.chosen
        self.choose(entry, bring=False)
        style = event.style
        act = str(style.meta.get("act", ""))
        if act == "code":
            starts = [first for first, _ in entry.code_spans()]
            act = f"code:{starts.index(line)}" if line in starts else ""
        elif style.link:
            act = f"link:{style.link}"
        message_id = entry.message.id if isinstance(entry, MessageEntry) else None
        self.post_message(MessagePressed(message_id, act, again=again))

    # -- drawing

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if self.chosen is None or self._page is None:
            return strip
        if self._placed is None or self._placed[0] is not self.chosen or self._placed[1] is not self._tops:
            self._placed = (self.chosen, self._tops, self.span_of(self.chosen))
        span = self._placed[2]
        line = self.scroll_offset.y + y
        # The last line of an entry is the gap below it.
        if span is None or not span[0] <= line < span[0] + span[1] - 1:
            return strip
        palette = self._page.palette
        style = Style(color=palette.user_bar.color, bgcolor=palette.base.bgcolor, bold=True)
        strip = _put(strip, self._page.margin - 1, "┃", style)
        if self._code is not None:
            first, last = self._marked_lines(self.chosen, self._code)
            if first <= line - span[0] <= last:
                strip = _put(strip, self._page.margin + 1, "▐", style)
        return strip

    def _marked_lines(self, entry: Entry, index: int) -> tuple[int, int]:
        """Where the marked block of code is, looked for once in each painting of the entry."""
        if self._span_in is not entry.strips:
            spans = entry.code_spans()
            self._span_in, self._span = entry.strips, spans[index] if index < len(spans) else (0, -1)
        return self._span


def _put(strip: Strip, x: int, char: str, style: Style) -> Strip:
    return Strip.join([strip.crop(0, x), Strip([Segment(char, style)]), strip.crop(x + 1)])
