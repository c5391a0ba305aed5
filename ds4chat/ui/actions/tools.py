"""Calls of tools on the chat screen: the question before one runs, and what is told of one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ds4chat.sessions.events import ToolAsked
from ds4chat.ui.screens.viewing import ViewingScreen

if TYPE_CHECKING:
    from ds4chat.sessions.tooling import Answer
    from ds4chat.ui.screens.tool_question import ToolQuestion


class ToolActions(ViewingScreen):
    """The part of the chat screen that asks."""

    _question: ToolQuestion | None = None
    _asked: ToolAsked | None = None

    def on_screen_resume(self) -> None:
        self.call_later(self._ask_for_tool)

    def _refresh_state(self) -> None:
        super()._refresh_state()
        self._ask_for_tool()

    def _ask_for_tool(self) -> None:
        """Ask what is to be asked in the chat that is looked at, and no longer what was answered or stopped."""
        if self._views.current is None:
            return
        asked = self.manager.asked_tool(self.current_id)
        if self._question is not None:
            if asked != self._asked and self._question.is_current:
                self._question.dismiss("")
            return
        if asked is None or self.app.screen is not self or self._leaving:
            return
        from ds4chat.ui.screens.tool_question import ToolQuestion

        self._asked = asked
        self._question = ToolQuestion(asked.name, asked.where, asked.arguments)
        self.app.push_screen(self._question, self._answered)

    def _answered(self, answer: str | None) -> None:
        asked, self._asked, self._question = self._asked, None, None
        if asked is not None and answer:
            self.manager.answer_tool(asked.session_id, cast("Answer", answer))

    def _tool_asked(self, asked: ToolAsked) -> None:
        """A call waits for the user's word: tell it when nobody looks."""
        if self.app.app_focus and asked.session_id == self.current_id:
            return
        self._unread.add(asked.session_id)
        if asked.session_id != self.current_id:
            self.notify("A call of a tool waits for your word in another chat.", markup=False)
        if self.bell_when_done:
            self.app.bell()
