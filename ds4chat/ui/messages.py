"""Textual messages of the chat screen: the manager's events on their way in, what widgets report on their
way up.
"""

from __future__ import annotations

from textual.message import Message

from ds4chat.sessions.events import ManagerEvent


class ManagerEventReceived(Message):
    """The session manager told its listeners something."""

    def __init__(self, event: ManagerEvent) -> None:
        super().__init__()
        self.event = event


class PromptSubmitted(Message):
    """The user sent the text in the prompt box, which stood in the session `session_id` at that moment."""

    def __init__(self, text: str, session_id: str) -> None:
        super().__init__()
        self.text = text
        self.session_id = session_id


class SessionChosen(Message):
    """A session was chosen in a list. `session_id` "" asks for a new one."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id
