"""The footer: the keys that do something now."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class KeyFooter(Footer):
    """Textual's footer, made anew only when it would show something else.

    Textual says that bindings may have changed at every move of the focus and with every event of a turn, and its
    footer makes all keys again each time: a good part of what a start, or a step through the messages, costs.
    """

    DEFAULT_CSS = ""

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        self._shown: tuple[object, ...] | None = None
        self._asked = False

    def compose(self) -> ComposeResult:
        """One key for each action. Textual's own binds each to the footer, which never lets go of them: in a long run
        they would fill the memory."""
        if not self._bindings_ready:
            return
        actions: set[str] = set()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in actions:
                actions.add(binding.action)
                key = self.app.get_key_display(binding)
                yield FooterKey(
                    binding.key,
                    key,
                    binding.description,
                    binding.action,
                    disabled=not enabled,
                    tooltip=tooltip,
                )

    def bindings_changed(self, screen: Screen[object]) -> None:
        self._bindings_ready = True
        if self._asked or not self.is_attached or screen is not self.screen or not screen.app.app_focus:
            return
        self._asked = True
        self.call_after_refresh(self._renew)

    async def _renew(self) -> None:
        self._asked = False
        if not self.is_attached:
            return
        shown = tuple(
            (binding.key, binding.description, binding.action, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show
        )
        if shown != self._shown:
            self._shown = shown
            await self.recompose()
            self.call_after_refresh(self._fit)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Half a key is worse than none: F1 has them all."""
        for key in self.query("FooterKey"):
            key.visible = key.virtual_region.right <= self.size.width
