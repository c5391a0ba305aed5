"""Textual messages of the chat screen: the manager's events on their way in, what widgets report on their
way up.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from ds4chat.sessions.events import ManagerEvent
from ds4chat.ui.suggestions import Suggestion


class ManagerEventReceived(Message):
    """The session manager told its listeners something."""

    bubble = False

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


class SuggestionsChanged(Message):
    """What the text in the prompt box may be meant to become changed; `chosen` is an index."""

    def __init__(self, suggestions: Sequence[Suggestion], chosen: int) -> None:
        super().__init__()
        self.suggestions = suggestions
        self.chosen = chosen


class SuggestionChosen(Message):
    """A suggestion was clicked."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


class MessagePressed(Message):
    """The mouse was clicked on a message (`message_id` None: on the summary).

    Attributes:
        act: "" for the message as such, "fold", "branch:-1", "branch:1", "code:0" (a block of code), "link:" and an
            address.
        again: the message was chosen already.
    """

    def __init__(self, message_id: int | None, act: str, *, again: bool = False) -> None:
        super().__init__()
        self.message_id = message_id
        self.act = act
        self.again = again
