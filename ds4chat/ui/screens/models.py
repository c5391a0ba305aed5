"""Choosing a model among the GGUF files in the places where people keep them. Files are listed, never moved or loaded
before they are chosen.
"""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Input

from ds4chat.ui.desk import Desk, ModelChoice
from ds4chat.ui.keys import key
from ds4chat.ui.screens.amounts import size_words, tokens_words
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.widgets.row_list import Column, ListRow, RowList

COLUMNS = (
    Column(),
    Column(8, need=40),
    Column(7, right=True),
    Column(6, need=56, right=True),
    Column(13, need=56),
)


class ModelsScreen(Panel[str | None]):
    """Ends with the path of the model that was chosen, or None.

    Args:
        current: path of the model the chat has now, "" for none.
        consequence: what choosing another means for this chat, in a sentence.
    """

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#models"
    BINDINGS = [
        key("enter", "choose", "uses it here", "models.choose", "Use the model in this chat.", show=True),
        key(
            "d",
            "make_default",
            "for new chats",
            "models.default",
            "Use the model in all new chats.",
            show=True,
        ),
        key("slash", "filter", "finds", "models.filter", "Find a model by a part of its name.", show=True),
        key("f5,r", "reload", "reads again", "models.reload", "Look for models again.", show=True),
        key("escape", "leave", "closes", "models.close", "Keep the model.", show=True),
    ]

    def __init__(self, desk: Desk, current: str = "", consequence: str = "") -> None:
        super().__init__()
        self._desk, self._current, self._consequence = desk, current, consequence
        self._models: list[ModelChoice] | None = None

    def compose(self) -> ComposeResult:
        with self.box("Models"):
            yield Input(placeholder="A part of its name", id="filter", compact=True)
            yield RowList(COLUMNS, id="models", empty="Looking for models…")
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        self.action_reload()

    def action_reload(self) -> None:
        self.ask(self._find, self._take)

    def _find(self) -> list[ModelChoice]:
        found = self._desk.models()
        if self._current and all(not _same(model.path, self._current) for model in found):
            found.insert(0, self._desk.look_at_model(self._current))
        return found

    def _take(self, models: list[ModelChoice]) -> None:
        self._models = models
        self._show(at=self._current)

    def _show(self, at: str | None = None) -> None:
        wanted = self.query_one("#filter", Input).value.casefold().split()
        rows = []
        for model in self._models or []:
            text = f"{model.name} {model.quantization} {model.place}".casefold()
            if not all(word in text for word in wanted):
                continue
            here = _same(model.path, self._current)
            mark = "✗" if model.fault else "●" if here else "○" if model.current else " "
            cells = (
                model.name,
                model.quantization,
                _size(model),
                tokens_words(model.context) if model.context else "",
                model.place,
            )
            rows.append(ListRow(model.path, cells, mark=mark, faint=bool(model.fault)))
        listed = self.query_one(RowList)
        listed.empty = (
            "No model has these letters"
            if wanted
            else "No model was found: put a GGUF file into the models folder"
        )
        listed.set_rows(rows, at)

    def _model(self, path: str) -> ModelChoice | None:
        return next((model for model in self._models or [] if model.path == path), None)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        model = self._model(message.key)
        if model is None:
            self.words("")
            return
        if model.fault:
            self.words(f"{model.path} {model.fault}.", severity="warning")
            return
        says = "In use in this chat." if _same(model.path, self._current) else self._consequence
        default = "What new chats use. " if model.current else ""
        self.words(f"{default}{says}\n{model.path}".strip())

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        model = self._model(message.key)
        if model is None:
            return
        if model.fault:
            self.words(f"{model.path} {model.fault}: choose another.", severity="error")
            return
        self.dismiss(None if _same(model.path, self._current) else model.path)

    def action_choose(self) -> None:
        self.query_one(RowList).action_choose()

    def action_make_default(self) -> None:
        model = self._model(self.query_one(RowList).current)
        if model is None or model.fault:
            self.words("Such a file cannot be used: choose another.", severity="error")
            return

        def saved(_: None) -> None:
            self.action_reload()

        self.ask(lambda: self._desk.save_setting("model", "path", model.path), saved)

    def action_filter(self) -> None:
        self.query_one("#filter", Input).display = True
        self.query_one("#filter", Input).focus()

    def on_input_changed(self) -> None:
        if self._models is not None:
            self._show()

    def on_input_submitted(self) -> None:
        self.query_one(RowList).focus()

    def action_leave(self) -> None:
        """Out of the filter first, then out of the panel."""
        line = self.query_one("#filter", Input)
        if line.has_focus or line.value:
            line.value = ""
            line.display = False
            self.query_one(RowList).focus()
        else:
            self.dismiss(None)


def _size(model: ModelChoice) -> str:
    if not model.fault:
        return size_words(model.size_bytes)
    return "gone" if model.fault == "is not there" else "unfit"


def _same(path: str, other: str) -> bool:
    return bool(path) and bool(other) and Path(path) == Path(other)
