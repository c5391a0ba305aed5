"""The footer: the keys that do something now."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class KeyFooter(Footer):
    """Textual's footer, made anew only when it would show something else, and without half a key at its end.

    Textual says that bindings may have changed at every move of the focus and with every event of a turn, and its
    footer makes all keys again each time: a good part of what a start, or a step through the messages, costs.
    """

    DEFAULT_CSS = ""

    def __init__(self) -> None:
        super().__init__(compact=True, show_command_palette=False)
        self._shown: tuple[tuple[str, str, str, str, bool, str], ...] = ()
        """Of each key: its name, what it is called, what it does in a word, the action, whether that is possible, and a
        sentence on it."""
        self._asked = False

    def compose(self) -> ComposeResult:
        # Textual's own keys are bound to the footer, which never lets go of them: in a long run they fill the memory.
        for key, called, description, action, enabled, tooltip in self._shown:
            yield FooterKey(key, called, description, action, disabled=not enabled, tooltip=tooltip)

    def bindings_changed(self, screen: Screen[object]) -> None:
        if self._asked or not self.is_attached or screen is not self.screen or not screen.app.app_focus:
            return
        self._asked = True
        self.call_after_refresh(self._renew)

    async def _renew(self) -> None:
        self._asked = False
        if not self.is_attached:
            return
        by_action: dict[str, tuple[str, str, str, str, bool, str]] = {}
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and binding.action not in by_action:
                called = self.app.get_key_display(binding)
                by_action[binding.action] = (
                    binding.key,
                    called,
                    binding.description,
                    binding.action,
                    enabled,
                    tooltip,
                )
        if self._shown != (shown := tuple(by_action.values())):
            self._shown = shown
            await self.recompose()
            self.call_after_refresh(self._fit)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Half a key is worse than none: F1 has them all."""
        for key in self.query(FooterKey):
            fits = key.virtual_region.right <= self.size.width
            if key.visible != fits:
                key.visible = fits
