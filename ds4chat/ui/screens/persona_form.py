"""Writing a persona: its name, its parameters on a line, its system prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static, TextArea

from ds4chat.config import SESSION_KEYS, parse_setting
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.personas import Params, Persona, check_name
from ds4chat.ui.keys import key
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import one_line

HINT = "Parameters as in “temperature=0.3 top_k=20”. Tab goes on."


def params_line(params: Mapping[str, object]) -> str:
    """Parameters on a line, as `parse_params` reads them."""
    return " ".join(
        f"{name}={f'{value:g}' if isinstance(value, float) else value}" for name, value in params.items()
    )


def parse_params(line: str) -> Params:
    """Parameters from a line like "temperature=0.3, top_k=20". Raises UsageError."""
    params: Params = {}
    for part in line.replace(",", " ").replace(" = ", "=").split():
        name, equals, value = part.partition("=")
        if name not in SESSION_KEYS:
            raise UsageError(
                f'There is no parameter "{one_line(name)}": allowed are {", ".join(SESSION_KEYS)}.'
            )
        parsed = parse_setting(SESSION_KEYS[name], name, value if equals else "")
        params[name] = parsed if isinstance(parsed, float | int | str) else None
    return params


class PersonaForm(Panel[Persona | None]):
    """Ends with the persona as it was written, or None."""

    DEFAULT_CSS = stylesheet(__file__)
    BINDINGS = [
        key("ctrl+s", "save", "saves", "persona.save", "Save the persona.", show=True),
        key(
            "escape",
            "leave",
            "cancels",
            "persona.cancel",
            "Leave it; asked twice when it was changed.",
            show=True,
        ),
    ]

    def __init__(self, persona: Persona) -> None:
        super().__init__()
        self._persona = persona
        self._warned = False

    def compose(self) -> ComposeResult:
        with self.box("Persona", "-medium"):
            with Horizontal(classes="line"):
                yield Static("Name", classes="label", markup=False)
                yield Input(self._persona.name, id="name", compact=True, select_on_focus=False)
            with Horizontal(classes="line"):
                yield Static("Parameters", classes="label", markup=False)
                yield Input(
                    params_line(self._persona.params), id="params", compact=True, select_on_focus=False
                )
            yield TextArea(
                self._persona.system, id="text", compact=True, soft_wrap=True, tab_behavior="focus"
            )
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        area = self.query_one("#text", TextArea)
        area.move_cursor(area.document.end)
        self.query_one("#text" if self._persona.name else "#name").focus()
        self.words(HINT)

    def _typed(self) -> tuple[str, str, str]:
        name, params = (self.query_one(f"#{line}", Input).value for line in ("name", "params"))
        return name, params, self.query_one("#text", TextArea).text

    @property
    def _changed(self) -> bool:
        persona = self._persona
        return self._typed() != (persona.name, params_line(persona.params), persona.system)

    def on_input_changed(self) -> None:
        self._warned = False
        self.words(HINT)

    def on_text_area_changed(self) -> None:
        self.on_input_changed()

    def on_input_submitted(self) -> None:
        self.focus_next()

    def action_save(self) -> None:
        name, line, system = self._typed()
        try:
            persona = dataclasses.replace(
                self._persona, name=check_name(name), params=parse_params(line), system=system.strip()
            )
        except Ds4chatError as error:
            self.tell(error)
        else:
            self.dismiss(persona)

    def action_leave(self) -> None:
        if self._changed and not self._warned:
            self._warned = True
            self.words(
                "This was changed and not saved. Esc again throws the change away.", severity="warning"
            )
        else:
            self.dismiss(None)
