"""The tags of a session."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.suggester import Suggester
from textual.widgets import Input, Static

from ds4chat.ui.screens.early_keys import EarlyKeys
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line
from ds4chat.ui.widgets.dialog_input import DialogInput


def split_tags(text: str) -> list[str]:
    """The tags in what was typed, each once: commas part them, a `#` before one may be left out."""
    tags = (" ".join(part.replace("#", " ").split()) for part in text.split(","))
    return list(dict.fromkeys(tag for tag in tags if tag))


def complete(text: str, known: Sequence[str]) -> str | None:
    """The text with its last tag completed to the first known one that begins like it and is not there yet."""
    head, comma, last = text.rpartition(",")
    begun = last.lstrip().lstrip("#")
    if not begun:
        return None
    there = set(split_tags(head))
    for tag in known:
        if tag.casefold().startswith(begun.casefold()) and tag != begun and tag not in there:
            return f"{head}{comma}{last[: len(last) - len(begun)]}{begun}{tag[len(begun) :]}"
    return None


class TagSuggester(Suggester):
    """Completes the tag that is being typed."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._known = known

    async def get_suggestion(self, value: str) -> str | None:
        return complete(value, self._known)


class TagsScreen(EarlyKeys[list[str] | None]):
    """Ends with the tags, or None when they are to stay as they are."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", id="tags.cancel", tooltip="Keep the tags."),
        Binding(
            "tab", "complete", "Complete", id="tags.complete", priority=True, tooltip="Complete the tag."
        ),
    ]

    def __init__(self, tags: Sequence[str], known: Sequence[str]) -> None:
        super().__init__()
        self._tags, self._known = tags, known

    def compose(self) -> ComposeResult:
        with Vertical(id="tags") as box:
            box.border_title = "Tags of this chat"
            box.border_subtitle = "Enter saves · Tab completes · Esc"
            text = "".join(f"{one_line(tag)}, " for tag in self._tags)
            yield DialogInput(
                text,
                placeholder="Words, parted by commas",
                suggester=TagSuggester(self._known),
                id="tags-input",
                select_on_focus=False,
            )
            known = "  ".join(f"#{one_line(tag)}" for tag in self._known)
            yield Static(known or "No chat has a tag yet", id="known", markup=False)

    def action_complete(self) -> None:
        field = self.query_one(Input)
        completed = complete(field.value, self._known)
        if completed is not None:
            field.value = f"{completed}, "
            field.cursor_position = len(field.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(split_tags(event.value))
