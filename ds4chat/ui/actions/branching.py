"""The tree of messages: edits, other replies, branches, forks, deleted turns, and the summary of what lies above.

An action works on the chosen message; without one, on the last that it makes sense for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ds4chat.errors import Ds4chatError
from ds4chat.ui.actions.editing import EditingActions
from ds4chat.ui.entries import MessageEntry

CHANGES = frozenset({"edit_message", "regenerate", "walk_branch", "delete_turn", "undo_compact"})
"""Actions on a message that a session which is only looked at does not allow."""

CHOSEN_ACTIONS = CHANGES | {"copy_message", "copy_code", "quote_message", "fork_here", "open_link", "fold"}
"""Actions on a message."""


class BranchActions(EditingActions):
    """The part of the chat screen that changes what a session stands on."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._views.current
        if view is None:
            return super().check_action(action, parameters)
        if action in CHOSEN_ACTIONS and self.transcript.chosen is not None:
            # All of them, whatever the message: a key that does nothing to it says so, and is not taken for text.
            return True
        if action in CHOSEN_ACTIONS:
            return self._can(action, read_only=view.read_only)
        match action:
            case "copy_last":
                return self.transcript.last_message("assistant") is not None
            case "regenerate_last":
                return not view.read_only and self.transcript.last_message("assistant") is not None
            case "compact":
                return not view.read_only and not view.is_new
        return super().check_action(action, parameters)

    def _can(self, action: str, *, read_only: bool) -> bool:
        """Whether an action makes sense without a choice."""
        if read_only and action in CHANGES:
            return False
        if action == "undo_compact":
            return self._views.current is not None and bool(self._views.current.session.summary)
        entry = self._target(action)
        return entry is not None and (action != "walk_branch" or entry.branch is not None)

    def _target(self, action: str) -> MessageEntry | None:
        """What an action works on: the chosen message if it fits, else the last that does."""
        role = {"edit_message": "user", "fold": "assistant"}.get(action)
        if self.transcript.chosen is None:
            return self.transcript.last_message(role or "assistant")
        chosen = self.transcript.chosen_message
        if chosen is not None and action == "fold" and chosen.message.role == "tool":
            return chosen
        return chosen if chosen is not None and role in (None, chosen.message.role) else None

    # -- branches

    def change_tree(self, change: Callable[[], object]) -> bool:
        """Do something to the messages of a session; whether that was possible."""
        try:
            change()
        except Ds4chatError as error:
            self.tell(error)
            return False
        return True

    def action_edit_message(self) -> None:
        entry = self._target("edit_message")
        if entry is None:
            self.say("only your own messages can be edited; R has a reply written again")
            return
        self.begin_edit(entry.message.id)

    def action_regenerate(self) -> None:
        entry = self._target("regenerate")
        if entry is not None and entry.message.role == "user":
            entry = self.transcript.message_after(entry)
        self._regenerate(entry)

    def action_regenerate_last(self) -> None:
        reply, asked = self.transcript.last_message("assistant"), self.transcript.last_message("user")
        unanswered = asked is not None and self.transcript.message_after(asked) is None
        self._regenerate(None if unanswered else reply)

    def _regenerate(self, reply: MessageEntry | None) -> None:
        if reply is None or reply.message.role != "assistant":
            self.say("there is no reply to this message yet: Ctrl+G answers it")
        elif self.change_tree(partial(self.manager.regenerate, self.current_id, reply.message.id)):
            self.transcript.choose(None)
            self.set_focus(self.prompt)
            self.transcript.follow_end()

    def action_walk_branch(self, by: int) -> None:
        """Go on with an alternative of the message."""
        entry, view = self._target("walk_branch"), self._views.current
        if entry is None or view is None:
            return
        siblings = [message.id for message in view.session.siblings(entry.message.id)]
        at = siblings.index(entry.message.id) + by if entry.message.id in siblings else -1
        if 0 <= at < len(siblings):
            self.change_tree(partial(self.manager.choose_branch, self.current_id, siblings[at]))
        else:
            self.say("there is no branch that way" if len(siblings) > 1 else "this message has no branches")

    def action_fork_here(self) -> None:
        entry = self._target("fork_here")
        if entry is None:
            return
        draft = self.prompt.text if self.editing is None else ""

        def fork() -> None:
            session = self.manager.fork_session(self.current_id, entry.message.id)
            self.open(session.id)
            self.prompt.put(draft)
            self.say("this is a copy up to that message")

        self.change_tree(fork)

    def action_delete_turn(self) -> None:
        if entry := self._target("delete_turn"):
            self.drop_turn(entry.message.id)

    def drop_turn(self, message_id: int) -> None:
        """Delete a message with its counterpart; the last delete can be undone."""
        session_id = self.current_id
        gone: list[int] = []
        if self.change_tree(lambda: gone.extend(self.manager.delete_turn(session_id, message_id))):
            self.undo.append(partial(self._bring_back, session_id, gone))
            self.say("deleted · Alt+Z brings it back")

    def _bring_back(self, session_id: str, ids: list[int]) -> None:
        if session_id == self.current_id or self.open(session_id):
            self.change_tree(partial(self.manager.restore_turn, session_id, ids))

    # -- the summary

    def action_compact(self) -> None:
        if self.change_tree(partial(self.manager.compact, self.current_id)):
            self.transcript.follow_end()

    def action_undo_compact(self) -> None:
        if self.change_tree(partial(self.manager.undo_compact, self.current_id)):
            self.say("the summary was taken back")
