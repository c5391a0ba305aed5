"""Messages: choosing one by keys or mouse, and what can be done with it.

An action works on the chosen message; without one, on the last that it makes sense for.
"""

from __future__ import annotations

import asyncio

from ds4chat.ui.actions.branching import BranchActions
from ds4chat.ui.entries import MessageEntry, SummaryEntry
from ds4chat.ui.keys import key
from ds4chat.ui.links import open_link
from ds4chat.ui.messages import MessagePressed

KEYS = [
    key(
        "tab",
        "choose_message",
        "Messages",
        "chat.messages",
        "Choose a message, to copy, edit or branch from it.",
    ),
    key("alt+c", "copy_last", "Copy reply", "chat.copy", "Copy the last reply."),
    key(
        "alt+r",
        "regenerate_last",
        "Regenerate",
        "chat.regenerate",
        "Have the last reply written again, on a branch.",
    ),
    key("alt+w", "compact", "Compact", "chat.compact", "Have the older part of this chat summarised."),
]


class MessageActions(BranchActions):
    """The part of the chat screen that chooses a message, copies, quotes, folds it, and opens its links."""

    # -- choosing

    def action_choose_message(self) -> None:
        """Tab: from the prompt box to the messages, from anywhere else to the prompt box."""
        if self.focused is self.prompt and self.transcript.choosable():
            self.set_focus(self.transcript)
            self.transcript.choose_near()
        elif self.focused is self.prompt:
            self.focus_next()
        else:
            self.set_focus(self.prompt)

    def action_leave_message(self) -> None:
        self.transcript.choose(None)
        self.set_focus(self.prompt)

    def action_move_choice(self, by: int) -> None:
        self.transcript.move_choice(by)

    def action_choose_first(self) -> None:
        self.transcript.choose_end(last=False)

    def action_choose_last(self) -> None:
        self.transcript.choose_end()

    async def on_message_pressed(self, message: MessagePressed) -> None:
        act, _, argument = message.act.partition(":")
        match act:
            case "fold":
                self.action_fold()
            case "branch":
                self.action_walk_branch(int(argument))
            case "code":
                self._copy_code(int(argument))
            case "link":
                self._open(argument)

    # -- copying, quoting, opening

    def action_copy_message(self) -> None:
        entry: MessageEntry | SummaryEntry | None = self._target("copy_message")
        if isinstance(self.transcript.chosen, SummaryEntry):
            entry = self.transcript.chosen
        if entry is not None:
            self.app.copy_to_clipboard(entry.said)

    def action_copy_last(self) -> None:
        if entry := self.transcript.last_message("assistant"):
            self.app.copy_to_clipboard(entry.said)

    def action_copy_code(self) -> None:
        """The first block of code, then the next with each time."""
        marked = self.transcript.marked_code
        self._copy_code(0 if marked is None else marked + 1)

    def _copy_code(self, index: int) -> None:
        from ds4chat.ui.markdown_parts import code_blocks

        entry = self._target("copy_code")
        if entry is None:
            return
        blocks = code_blocks(entry.said, indented=entry.message.role == "assistant")
        if not blocks:
            self.say("there is no block of code in this message")
            return
        index %= len(blocks)
        if self.transcript.chosen is not None:
            self.transcript.mark_code(index)
        self.app.copy_to_clipboard(blocks[index].text)
        language = f", {blocks[index].language}" if blocks[index].language else ""
        self.say(f"code block {index + 1} of {len(blocks)}{language}")

    def action_quote_message(self) -> None:
        """The message as lines that start with `>`, behind what is written already."""
        entry = self._target("quote_message")
        if entry is None:
            return
        quoted = "\n".join(f"> {line}".rstrip() for line in entry.said.split("\n"))
        written = self.prompt.text.rstrip("\n")
        self.prompt.put((f"{written}\n\n" if written else "") + quoted + "\n\n")
        self.action_leave_message()

    def action_open_link(self) -> None:
        """The first link of the message, then the next with each time."""
        entry = self._target("open_link")
        if entry is None:
            return
        links = entry.links()
        if not links:
            self.say("there is no link in this message")
            return
        message_id, index = self._last_link
        index = (index + 1) % len(links) if message_id == entry.message.id else 0
        self._last_link = (entry.message.id, index)
        self._open(links[index])

    _last_link = (-1, 0)

    def _open(self, url: str) -> None:
        self.run_worker(self._browse(url), name="browse", group="browse", exit_on_error=False)

    async def _browse(self, url: str) -> None:
        opened = await asyncio.to_thread(open_link, url)
        text = f"opened {url}" if opened else f"there is no browser here to open {url}"
        self.notify(text, severity="information" if opened else "warning", markup=False)

    def action_fold(self) -> None:
        entry = self.transcript.chosen
        if entry is None:
            entry = self._target("fold")
        if entry is None or not self.transcript.fold(entry):
            self.say("there is nothing to fold here")
