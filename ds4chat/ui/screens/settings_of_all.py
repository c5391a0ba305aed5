"""The part of the settings that is about all chats: the keys of config.toml, changed through the desk."""

from __future__ import annotations

from functools import partial

from ds4chat.config import parse_setting
from ds4chat.ui.desk import ConfigRow, Desk
from ds4chat.ui.screens.ask import AskScreen, TextScreen
from ds4chat.ui.screens.chat_settings import ChatSettings
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.widgets.row_list import Column, ListRow, RowList

COLUMNS = (Column(26), Column(), Column(18, need=44))
LONG_TEXTS = {("chat", "system")}
"""Keys of config.toml that are written on several lines."""


class ConfigPart(Panel[None]):
    """What the settings panel does with config.toml."""

    def __init__(self, chat: ChatSettings, desk: Desk | None) -> None:
        super().__init__()
        self.chat, self._desk = chat, desk
        self._news = ""

    def _read(self) -> None:
        """Ask the desk again what there is."""
        raise NotImplementedError

    def _rows_of_all(self) -> list[ListRow]:
        rows, section = [], ""
        for row in self.chat.config:
            if row.section != section:
                section = row.section
                rows.append(ListRow("", (f"[{section}]", "", ""), heading=True))
            mark = "●" if row.source != "default" else " "
            rows.append(
                ListRow(f"{section}.{row.key}", (row.key, row.value or "not set", row.source), mark=mark)
            )
        return rows

    @property
    def _config_row(self) -> ConfigRow | None:
        section, _, name = self.query_one(RowList).current.partition(".")
        return next((row for row in self.chat.config if (row.section, row.key) == (section, name)), None)

    def _change_all(self) -> None:
        row = self._config_row
        if row is None:
            return
        if row.allowed == "true or false":
            self._save(row, "false" if row.value == "true" else "true")
            return

        def take(text: str | None) -> None:
            if text is not None:
                self._save(row, text or None)

        desk = self._desk
        title = f"{row.section}.{row.key}"
        if title == "model.path" and desk is not None:
            from ds4chat.ui.screens.models import ModelsScreen

            self.app.push_screen(
                ModelsScreen(
                    desk, row.value if row.value.startswith("/") else "", "New chats begin with it."
                ),
                take,
            )
        elif title == "chat.persona" and desk is not None:
            from ds4chat.ui.screens.personas import PersonasScreen

            screen = PersonasScreen(desk, row.value, self.chat.as_persona(), "New chats begin with it.")
            self.app.push_screen(screen, lambda persona: take(persona.name if persona else None))
        elif (row.section, row.key) in LONG_TEXTS:
            self.app.push_screen(TextScreen(title, row.value, hint="Of new chats. Nothing: none."), take)
        else:
            hint = f"{title} must be {row.allowed}. Nothing: the default."
            check = partial(parse_setting, row.section, row.key)
            self.app.push_screen(AskScreen(title, row.value, hint, check), take)

    def _save(self, row: ConfigRow, text: str | None) -> None:
        desk = self._desk
        if desk is None:
            return

        def saved(_: None) -> None:
            self._news = "Saved in config.toml; holds from the next start on."
            self._read()

        self.ask(lambda: desk.save_setting(row.section, row.key, text), saved)
