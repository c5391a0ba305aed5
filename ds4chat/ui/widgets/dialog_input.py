"""The input of a dialog (see `screens.early_keys`)."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from ds4chat.ui.screens.early_keys import EarlyKeys


class DialogInput(Input):
    """An input whose Enter and Esc act in order with the letters around them, however fast they come."""

    async def on_key(self, event: events.Key) -> None:
        dialog = self.screen
        if not isinstance(dialog, EarlyKeys):
            return
        if dialog.is_waiting:
            event.stop()
            event.prevent_default()
            dialog.take_key(event)
        elif event.key in ("enter", "escape"):
            event.stop()
            event.prevent_default()
            dialog.hold()
            if event.key == "enter":
                await self.action_submit()
            else:
                dialog.dismiss(None)
