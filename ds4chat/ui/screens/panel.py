"""What the panels over the chat share: a box with its keys in the border, words at its foot, and work in threads.

A panel asks the desk and the manager, never a file. What takes time runs in a thread and comes back as a message, so
that the panel can be left meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rich.cells import cell_len
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, ScreenResultType
from textual.style import Style as ContentStyle
from textual.widgets import Static

from ds4chat.errors import Ds4chatError
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import visible

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Answered(Message):
    """A thread is done: `then` takes what it found."""

    def __init__(self, then: Callable[[Any], None], answer: Any) -> None:
        super().__init__()
        self.then, self.answer = then, answer


class Refused(Message):
    """A thread failed with a sentence for the user."""

    def __init__(self, error: Ds4chatError, then: Callable[[Ds4chatError], None] | None = None) -> None:
        super().__init__()
        self.error, self.then = error, then


class Panel(ModalScreen[ScreenResultType], Generic[ScreenResultType]):
    """A box in the middle of the screen. A subclass composes it with `box(...)` and ends it with `foot()`."""

    DEFAULT_CSS = stylesheet(__file__)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]

    def box(self, title: str, size: str = "-large") -> Vertical:
        """The bordered box, to be used as a context manager in `compose`."""
        box = Vertical(id="panel", classes=size)
        box.border_title = Content(visible(title))
        return box

    def foot(self) -> Static:
        """The lines at the bottom that say what is to be said."""
        return Static("", id="words", markup=False)

    def words(self, text: str, *, severity: str = "information") -> None:
        """Say something at the bottom of the panel."""
        line = self.query_one("#words", Static)
        line.update(Content(visible(text)))
        line.set_class(severity == "error", "-error")
        line.set_class(severity == "warning", "-warning")
        line.display = bool(text)

    def on_mount(self) -> None:
        for line in self.query("#words"):
            line.display = bool(str(line.render()))
        self.bindings_updated_signal.subscribe(self, lambda _: self._show_keys())
        self.call_after_refresh(self._show_keys)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        """The keys that work now, in the lower border; each can be clicked. Esc is always among them."""
        # Loaded here: it shows the keys of all screens.
        from ds4chat.ui.screens.help import key_name

        if not self.is_attached or not (boxes := self.query("#panel")):
            return
        box = boxes.first(Vertical)
        shown: dict[str, Binding] = {}
        # Not `active_bindings`: what has the focus may act on the same key and name nothing.
        for node, bindings in self._modal_binding_chain:
            for _, binding in bindings:
                if binding.show and self.app._check_action_state(binding.action, node):
                    shown.setdefault(binding.action, binding)
        own = [binding.action for binding in self.BINDINGS if isinstance(binding, Binding)]
        ranked = sorted(shown.values(), key=lambda b: own.index(b.action) if b.action in own else len(own))
        names = [(binding, _label(binding.key, key_name), binding.description) for binding in ranked]
        last = [name for name in names if name[0].key.startswith("escape")][:1]
        room = box.size.width - 4 - sum(cell_len(f"{key} {what}") for _, key, what in last)
        parts: list[tuple[Binding, str, str]] = []
        for binding, key, what in names:
            size = cell_len(f"{key} {what} · ")
            if (binding, key, what) in last or size > room:
                continue
            room -= size
            parts.append((binding, key, what))
        pieces: list[Content | str] = []
        for binding, key, what in parts + last:
            action = binding.action if "." in binding.action.partition("(")[0] else f"screen.{binding.action}"
            style = ContentStyle.from_meta({"@click": action})
            pieces += [" · "] if pieces else []
            pieces.append(Content.styled(f"{key} {what}", style))
        box.border_subtitle = Content.assemble(*pieces)

    # -- work in threads

    def ask(
        self,
        work: Callable[[], Answer],
        then: Callable[[Answer], None],
        otherwise: Callable[[Ds4chatError], None] | None = None,
    ) -> None:
        """Do work in a thread; `then` gets its answer in the screen's own time. An error is said, and
        `otherwise` called with it."""

        async def run() -> None:
            try:
                answer = await asyncio.to_thread(work)
            except Ds4chatError as error:
                self.post_message(Refused(error, otherwise))
            except Exception as error:
                log.exception("A panel's work failed")
                sentence = f"That failed ({error}); the log has the details."
                self.post_message(Refused(Ds4chatError(sentence), otherwise))
            else:
                self.post_message(Answered(then, answer))

        self.run_worker(run(), exit_on_error=False)

    def on_answered(self, message: Answered) -> None:
        message.stop()
        if self.is_attached:
            message.then(message.answer)

    def on_refused(self, message: Refused) -> None:
        message.stop()
        if self.is_attached:
            self.tell(message.error)
            if message.then is not None:
                message.then(message.error)

    def tell(self, error: Ds4chatError) -> None:
        """Show an error's sentence in the panel, where the eye is."""
        self.words(str(error), severity="error")


def _label(keys: str, key_name: Callable[[str], str]) -> str:
    """The first of the keys: a letter as it is typed, others as people write them."""
    first = keys.split(",")[0]
    return {"slash": "/"}.get(first, first if len(first) == 1 else key_name(first))
