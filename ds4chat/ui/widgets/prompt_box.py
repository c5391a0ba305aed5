"""The box the user writes in: it grows with the text, and nothing written in it is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding
from textual.widgets import TextArea

from ds4chat.ui.keys import keys_of
from ds4chat.ui.messages import PromptSubmitted, SuggestionsChanged
from ds4chat.ui.recall import Recall
from ds4chat.ui.screens.early_keys import pass_on
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.suggestions import Suggestion
from ds4chat.ui.text import visible


class PromptBox(TextArea):
    """Posts `PromptSubmitted` at Enter. Keys that only make sense in the transcript are left to the
    screen.
    """

    DEFAULT_CSS = stylesheet(__file__)

    BINDINGS = [
        Binding(
            "enter",
            "submit",
            "Send",
            id="prompt.send",
            show=False,
            tooltip="Send the message. While a reply is being written it queues.",
        ),
        Binding(
            "ctrl+j,shift+enter,alt+enter",
            "newline",
            "New line",
            id="prompt.newline",
            show=False,
            tooltip="Start a new line (Shift+Enter where the terminal tells it from Enter).",
        ),
        Binding(
            "up",
            "earlier",
            "Earlier message",
            id="prompt.earlier",
            show=False,
            tooltip="In the first line: take up a message sent earlier, one that begins with what is typed.",
        ),
        Binding(
            "down",
            "later",
            "Later message",
            id="prompt.later",
            show=False,
            tooltip="In the last line: back towards what was being written.",
        ),
        Binding(
            "ctrl+underscore",
            "undo",
            "Undo",
            id="prompt.undo",
            show=False,
            tooltip="Take back a change of the text (Ctrl+Z suspends). Ctrl+Y does it again.",
        ),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
        self.recall = Recall()
        self.completer: Callable[[str, int, int], list[Suggestion]] = lambda line, row, column: []
        """What may be meant by the cursor's line."""
        self.session_id = ""
        """The session that is written in: what is sent belongs to it, whatever is shown when the message arrives."""
        self.suggestions: list[Suggestion] = []
        self.chosen = 0
        self._looked_at: tuple[str, tuple[int, int]] = ("", (0, 0))
        self._dismissed: tuple[str, tuple[int, int]] | None = None

    def put(self, text: str) -> None:
        """Replace the text; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def on_paste(self, event: events.Paste) -> None:
        """Pasted line ends become newlines, and control characters visible: the terminal must not obey
        them.
        """
        event.text = pasted(event.text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The page keys scroll the transcript, which is longer than this box; F6 and F7 are the screen's."""
        return (
            False
            if action in ("cursor_page_up", "cursor_page_down", "select_line", "select_all")
            else super().check_action(action, parameters)
        )

    async def on_key(self, event: events.Key) -> None:
        """Editing keys act here and now.

        Textual runs bindings only after the key went up through all parents; of keys that come fast, a letter
        would overtake the Enter or the Backspace before it.
        """
        if pass_on(self, event):
            return
        action = self._editing().get(event.key)
        if event.key in SUGGESTING and self._use_suggestion(event.key):
            event.stop()
            event.prevent_default()
        elif action is not None and self.check_action(action.partition("(")[0], ()) is not False:
            event.stop()
            event.prevent_default()
            await self.run_action(action)
        elif event.key.startswith("alt+") or not event.is_printable:
            await self._run_screen_key(event)
            if event.key.startswith("alt+"):
                # Alt and a digit carries the digit as its character; it is a key of the screen, not text.
                event.prevent_default()

    def _editing(self) -> Mapping[str, str]:
        """Action by key; another than declared when the configuration says so."""
        keymap = getattr(self.app, "keymap", None)
        return editing(keymap) if keymap else EDITING

    async def _run_screen_key(self, event: events.Key) -> None:
        """A key of the screen acts before what was typed behind it, so that words go to the chat they were meant
        for."""
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.node is self.screen and active.enabled:
            event.stop()
            event.prevent_default()
            await self.screen.run_action(active.binding.action)

    def action_submit(self) -> None:
        """Hand the text over and empty the box; whoever cannot use it calls `give_back`."""
        text = self.text
        if text.strip() and not self.read_only:
            self.load_text("")
            self.recall.add(text.strip())
            self.post_message(PromptSubmitted(text, self.session_id))

    def give_back(self, text: str) -> None:
        """Put text that could not be sent before what has been typed since."""
        self.put(f"{text}\n{self.text}" if self.text else text)

    def action_newline(self) -> None:
        if not self.read_only:
            self._replace_via_keyboard("\n", *self.selection)

    def action_copy(self) -> None:
        if not self.selected_text:
            raise SkipAction()
        super().action_copy()

    # -- messages sent before

    def action_earlier(self) -> None:
        """Up: one line up; in the first line, the message sent before that begins with what is typed."""
        found = self.recall.earlier(self.text) if self.cursor_at_first_line else None
        if found is None:
            self.action_cursor_up()
        else:
            self.put(found)

    def action_later(self) -> None:
        """Down: one line down; in the last line of a message taken up again, the one sent after it."""
        found = self.recall.later(self.text) if self.cursor_at_last_line else None
        if found is None:
            self.action_cursor_down()
        else:
            self.put(found)

    # -- suggestions

    def on_text_area_changed(self) -> None:
        self.look_up()

    def on_text_area_selection_changed(self) -> None:
        self.look_up()

    def look_up(self) -> None:
        """Find out anew what may be meant, if the text or the cursor is another."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        at = (line, (row, column))
        if at == self._looked_at:
            return
        self._looked_at = at
        recalled = self.recall.stands_in(self.text)
        wanted = self.selection.is_empty and not self.read_only and not recalled and at != self._dismissed
        found = self.completer(line, row, column) if wanted else []
        if found != self.suggestions:
            self.suggestions, self.chosen = found, 0
            self.post_message(SuggestionsChanged(found, 0))

    def close_suggestions(self) -> None:
        """Show none, until something else is typed."""
        self._dismissed = self._looked_at
        if self.suggestions:
            self.suggestions = []
            self.post_message(SuggestionsChanged([], 0))

    def _use_suggestion(self, key: str) -> bool:
        """Whether a key was meant for the list above the box."""
        self.look_up()
        if not self.suggestions:
            return False
        if key == "escape":
            self.close_suggestions()
        elif key in ("up", "down"):
            self.chosen = (self.chosen + (1 if key == "down" else -1)) % len(self.suggestions)
            self.post_message(SuggestionsChanged(self.suggestions, self.chosen))
        else:
            self.accept(self.chosen, run=key == "enter")
        return True

    def accept(self, index: int, *, run: bool = False) -> None:
        """Put a suggestion in; with `run`, send it too if it is whole."""
        if not 0 <= index < len(self.suggestions):
            return
        suggestion = self.suggestions[index]
        row = self.cursor_location[0]
        self._replace_via_keyboard(suggestion.insert, (row, suggestion.start), (row, suggestion.end))
        self.look_up()
        if run and suggestion.run:
            self.close_suggestions()
            self.action_submit()


def pasted(text: str) -> str:
    """Pasted text as it goes into the box."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


SUGGESTING = frozenset({"up", "down", "tab", "enter", "escape"})
"""Keys that belong to the list of suggestions while it is open."""

SCREEN_KEYS = ("ctrl+z", "f6", "f7")
"""Keys that `TextArea` would take: Ctrl+Z is the app's, F6 and F7 are the screen's."""


def editing(keymap: Mapping[str, str]) -> dict[str, str]:
    """Action by key: what `TextArea` and the box itself bind, with the keys that were set by the ids of actions."""
    return {
        key: binding.action
        for binding in (*TextArea.BINDINGS, *PromptBox.BINDINGS)
        if isinstance(binding, Binding) and binding.action != "copy"
        for key in keys_of(binding.id, binding.key, keymap)
        if key not in SCREEN_KEYS
    }


EDITING = editing({})
