"""The list above the prompt box: commands and files that may be meant."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.widgets import Static

from ds4chat.ui.messages import SuggestionChosen
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.suggestions import Suggestion
from ds4chat.ui.text import fit, one_line

ROWS = 8
"""At most; a third of a small screen."""


class SuggestionList(Static):
    """Shows the rows around the chosen one, which has a mark before it. A click posts `SuggestionChosen`."""

    DEFAULT_CSS = stylesheet(__file__)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._suggestions: Sequence[Suggestion] = ()
        self._first = 0
        self.display = False

    def show_suggestions(self, suggestions: Sequence[Suggestion], chosen: int) -> None:
        """None hide it."""
        rows = max(min(ROWS, self.app.size.height // 3), 1)
        if suggestions is not self._suggestions:
            self._suggestions, self._first = suggestions, 0
        self._first = min(max(self._first, chosen - rows + 1), chosen)
        self.display = bool(suggestions)
        if not suggestions:
            return
        shown = suggestions[self._first : self._first + rows]
        width = min(max(len(one_line(s.label)) for s in shown), 32)
        lines = []
        for index, suggestion in enumerate(shown, self._first):
            mark = "› " if index == chosen else "  "
            label, detail = fit(one_line(suggestion.label), width), one_line(suggestion.detail)
            style = "bold reverse" if index == chosen else ""
            lines.append(Content.assemble((mark + label, style), ("  " + detail, "dim")))
        self.update(Content("\n").join(lines))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is not None and self._first + offset.y < len(self._suggestions):
            self.post_message(SuggestionChosen(self._first + offset.y))
