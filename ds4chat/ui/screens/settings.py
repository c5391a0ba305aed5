"""Settings: those of the chat on the screen, and those of all chats, which stand in config.toml.

Each value is shown with where it comes from. A value is checked where it is typed, by the rules of config.toml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.content import Content
from textual.style import Style as ContentStyle
from textual.widgets import Static

from ds4chat.config import parse_setting
from ds4chat.errors import Ds4chatError
from ds4chat.personas import Persona
from ds4chat.sessions.events import EngineChanged, ManagerEvent, SettingsChanged
from ds4chat.ui.desk import ConfigRow, Desk
from ds4chat.ui.keys import key
from ds4chat.ui.messages import ManagerEventReceived
from ds4chat.ui.screens.ask import AskScreen, TextScreen
from ds4chat.ui.screens.chat_settings import LABELS, ChatSettings, meaning
from ds4chat.ui.screens.settings_of_all import COLUMNS, ConfigPart
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.widgets.row_list import ListRow, RowList

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager
    from ds4chat.sessions.session import Session

READ_ONLY = "This chat is read only: F5 goes on in a copy."


class SettingsScreen(ConfigPart):
    """Changes take hold at once: there is nothing to be saved at the end."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#settings"
    BINDINGS = [
        key("enter", "choose", "changes", "settings.change", "Change the setting.", show=True),
        key(
            "delete,backspace,r",
            "reset",
            "resets",
            "settings.reset",
            "Back to where it comes from otherwise.",
            show=True,
        ),
        key(
            "tab,left,right,shift+tab",
            "other",
            "other part",
            "settings.other",
            "This chat, or all chats.",
            show=True,
        ),
        key("escape", "dismiss(None)", "closes", "settings.close", "Back to the chat.", show=True),
    ]

    def __init__(
        self, manager: SessionManager, session: Session, desk: Desk | None, *, read_only: bool = False
    ) -> None:
        super().__init__(ChatSettings(manager, session), desk)
        self._manager, self._read_only = manager, read_only
        self.all_chats = False

    def compose(self) -> ComposeResult:
        with self.box("Settings"):
            yield Static("", id="parts", markup=False)
            yield RowList(COLUMNS, id="settings")
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        self._unsubscribe = self._manager.subscribe(self._receive)
        self._show()
        self._read()

    def on_unmount(self) -> None:
        self._unsubscribe()

    def _receive(self, event: ManagerEvent) -> None:
        self.post_message(ManagerEventReceived(event))

    def on_manager_event_received(self, message: ManagerEventReceived) -> None:
        """What is in use can change meanwhile: a model has loaded, or a turn has ended."""
        if isinstance(message.event, EngineChanged | SettingsChanged) and not self.all_chats:
            self._show()

    def _read(self) -> None:
        """Ask the desk what config.toml and the personas have."""
        desk = self._desk
        if desk is None:
            return

        def take(answer: tuple[list[ConfigRow], list[Persona], list[str]]) -> None:
            self.chat.config, self.chat.personas, complaints = answer
            self._show()
            for sentence in complaints:
                self.notify(sentence, severity="warning", markup=False, timeout=12)

        self.ask(lambda: (desk.config_rows(), desk.personas(), desk.complaints()), take)

    def _show(self, at: str | None = None) -> None:
        names = [("This chat", False)] + ([("All chats (config.toml)", True)] if self._desk else [])
        pieces: list[Content | str] = []
        for name, part in names:
            chosen = part == self.all_chats
            style = ContentStyle.from_meta({"@click": f"screen.part({part})"})
            pieces += ["   "] if pieces else []
            pieces.append(
                Content.styled(name, style).stylize("bold underline" if chosen else "$foreground 60%")
            )
        self.query_one("#parts", Static).update(Content.assemble(*pieces))
        rows = self._rows_of_all() if self.all_chats else self._rows_of_chat()
        self.query_one(RowList).set_rows(rows, at)
        self._say()

    def _rows_of_chat(self) -> list[ListRow]:
        return [
            ListRow(row.key, (LABELS[row.key], row.value, row.source), mark="●" if row.own else " ")
            for row in self.chat.rows()
        ]

    # -- what the cursor is on

    def _say(self) -> None:
        at = self.query_one(RowList).current
        row = self._config_row if self.all_chats else None
        if self._news:
            self.words(self._news)
        elif row is not None:
            wins = "" if row.source in ("default", "config.toml") else f" {row.source} wins in this run."
            self.words(f"{row.section}.{row.key} must be {row.allowed}.{wins}")
        elif at in LABELS:
            self.words(READ_ONLY if self._read_only else meaning(at))

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self._news = self._news if message.listed else ""
        self._say()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        if self.all_chats:
            self._change_all()
        elif self._read_only:
            self.words(READ_ONLY, severity="warning")
        else:
            self._change(message.key)

    def action_choose(self) -> None:
        self.query_one(RowList).action_choose()

    def action_other(self) -> None:
        self.action_part(not self.all_chats)

    def action_part(self, all_chats: bool) -> None:
        if self._desk is not None and all_chats != self.all_chats:
            self.all_chats, self._news = all_chats, ""
            self._show("")

    def _do(self, change: Callable[[], None], news: str) -> None:
        try:
            change()
        except Ds4chatError as error:
            self.tell(error)
        else:
            self._news = news
            self._show()

    # -- this chat

    def _change(self, name: str) -> None:
        chat, desk = self.chat, self._desk
        if name == "system":
            self.app.push_screen(
                TextScreen("System prompt of this chat", chat.session.system, chat.recompute),
                self._take_system,
            )
        elif name == "model" and desk is not None:
            from ds4chat.ui.screens.models import ModelsScreen

            self.app.push_screen(
                ModelsScreen(desk, chat.session.model_path, chat.other_model()), self._take_model
            )
        elif name == "persona" and desk is not None:
            from ds4chat.ui.screens.personas import PersonasScreen

            current = str(chat.session.params.get("persona") or "")
            screen = PersonasScreen(desk, current, chat.as_persona(), chat.recompute())
            self.app.push_screen(screen, self._take_persona)
        elif name not in ("model", "persona"):
            section = "model" if name == "ctx" else "sampling"

            def take(text: str | None) -> None:
                if text is not None:
                    self._do(lambda: chat.set(name, text), "Holds from the next reply on.")

            now = next(row for row in chat.rows() if row.key == name)
            ask = AskScreen(
                LABELS[name],
                chat.typed(name),
                f"{meaning(name)} Nothing: as in all chats.",
                lambda text: parse_setting(section, name, text),
                f"{now.value} ({now.source})",
            )
            self.app.push_screen(ask, take)

    def _take_system(self, text: str | None) -> None:
        if text is not None:
            self._do(lambda: self.chat.set_system(text), self.chat.recompute() or "Saved.")

    def _take_model(self, path: str | None) -> None:
        if path is not None:
            news = "The chat is computed once with the new model." if self.chat.session.messages else ""
            self._do(lambda: self.chat.set_model(path), news)
        self._read()

    def _take_persona(self, persona: Persona | None) -> None:
        if persona is not None:
            self._do(lambda: self.chat.give_persona(persona), self.chat.recompute())
        self._read()

    def action_reset(self) -> None:
        name = self.query_one(RowList).current
        chat = self.chat
        if self.all_chats:
            if row := self._config_row:
                self._save(row, None)
        elif self._read_only:
            self.words(READ_ONLY, severity="warning")
        elif name == "model":
            self.words("A chat keeps the model it was used with: Enter chooses another.", severity="warning")
        elif name == "persona":
            self._do(lambda: chat.give_persona(None), "")
        elif name == "system":
            if chat.session.system != chat.default_system():
                self._do(lambda: chat.set_system(chat.default_system()), chat.recompute())
        elif name:
            self._do(lambda: chat.set(name, ""), "")
