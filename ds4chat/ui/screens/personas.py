"""Personas: looking through them, giving one to this chat, and writing, changing and deleting them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ds4chat.errors import Ds4chatError
from ds4chat.personas import Persona
from ds4chat.ui.desk import Desk
from ds4chat.ui.keys import key
from ds4chat.ui.screens.confirm import ConfirmScreen
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.screens.persona_form import PersonaForm, params_line
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import visible
from ds4chat.ui.widgets.row_list import Column, ListRow, RowList

COLUMNS = (Column(), Column(7))


class PersonasScreen(Panel[Persona | None]):
    """Ends with the persona this chat is to have, or None.

    Args:
        current: name of the one it has, "" for none.
        mine: this chat's system prompt and parameters, for a new persona; None when nothing can be given to it.
        cost: what another system prompt means for this chat, in a sentence.
    """

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#personas"
    BINDINGS = [
        key("enter", "choose", "uses it here", "personas.choose", "Give this chat the persona.", show=True),
        key(
            "n",
            "new",
            "new",
            "personas.new",
            "Write a persona, beginning with what this chat has.",
            show=True,
        ),
        key("e", "edit", "edits", "personas.edit", "Change the persona.", show=True),
        key(
            "d,delete", "delete", "deletes", "personas.delete", "Delete the persona, after asking.", show=True
        ),
        key("escape", "dismiss(None)", "closes", "personas.close", "Leave the chat as it is.", show=True),
    ]

    def __init__(self, desk: Desk, current: str = "", mine: Persona | None = None, cost: str = "") -> None:
        super().__init__()
        self._desk, self._current, self._mine, self._cost = desk, current, mine, cost
        self.personas: list[Persona] = []
        """What the desk has, once it has answered."""

    def compose(self) -> ComposeResult:
        with self.box("Personas"):
            with Horizontal(id="halves"):
                yield RowList(COLUMNS, id="personas", empty="Reading…")
                with VerticalScroll(id="preview", can_focus=False):
                    yield Static("", id="system", markup=False)
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        self._reload(self._current)

    def _reload(self, at: str | None = None) -> None:
        def read() -> tuple[list[Persona], list[str]]:
            return self._desk.personas(), self._desk.complaints()

        def take(answer: tuple[list[Persona], list[str]]) -> None:
            self.personas, complaints = answer
            rows = [
                ListRow(
                    p.name,
                    (p.name, "shipped" if p.path is None else ""),
                    mark="●" if p.name == self._current else " ",
                )
                for p in self.personas
            ]
            self.query_one(RowList).set_rows(rows, at)
            self._preview()
            for sentence in complaints:
                self.notify(sentence, severity="warning", markup=False, timeout=12)

        self.ask(read, take)

    @property
    def _persona(self) -> Persona | None:
        at = self.query_one(RowList).current
        return next((persona for persona in self.personas if persona.name == at), None)

    def _preview(self) -> None:
        persona = self._persona
        if persona is None:
            self.query_one("#system", Static).update("")
            return
        params = params_line(persona.params)
        pieces: list[Content | tuple[str, str]] = [
            (visible(persona.system) or "No system prompt.", "$foreground")
        ]
        if params:
            pieces.append((f"\n\n{visible(params)}", "$accent"))
        self.query_one("#system", Static).update(Content.assemble(*pieces))
        self.query_one("#preview").scroll_home(animate=False)
        here = persona.name == self._current
        self.words("This chat has it." if here else self._cost)

    def on_row_list_moved(self) -> None:
        self._preview()

    def on_row_list_chosen(self) -> None:
        if self._mine is None:
            self.words("This chat is read only: F5 goes on in a copy.", severity="warning")
        elif persona := self._persona:
            self.dismiss(persona)

    def action_choose(self) -> None:
        self.query_one(RowList).action_choose()

    def action_new(self) -> None:
        mine = self._mine or Persona("")
        self.app.push_screen(PersonaForm(Persona("", mine.system, dict(mine.params))), self._save)

    def action_edit(self) -> None:
        if persona := self._persona:
            self.app.push_screen(PersonaForm(persona), self._save)

    def _save(self, persona: Persona | None) -> None:
        if persona is None:
            return

        def failed(error: Ds4chatError) -> None:
            # What was written is not lost with the disk: the form comes back with it.
            self.notify(str(error), severity="error", markup=False)
            self.app.push_screen(PersonaForm(persona), self._save)

        self.ask(lambda: self._desk.save_persona(persona), lambda _: self._reload(persona.name), failed)

    def action_delete(self) -> None:
        persona = self._persona
        if persona is None:
            return

        def delete(sure: bool | None) -> None:
            if sure:
                self.ask(lambda: self._desk.delete_persona(persona.name), lambda _: self._reload())

        if persona.path is None:
            self.words(
                f"{persona.name} comes with ds4chat: e saves one of your own over it.", severity="warning"
            )
        else:
            self.app.push_screen(
                ConfirmScreen(f"Delete the persona “{persona.name}”? Chats that have it keep it."), delete
            )
