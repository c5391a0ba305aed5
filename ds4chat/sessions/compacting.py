"""Summaries of what is about to fall out of the window, written by the model itself.

The question goes behind the window as it stands, so that the engine computes only the question; where that does not
fit, the model is given the part alone that the summary is to stand for. Promises: a summary that was stopped, came to
nothing or failed changes nothing; the messages stay; what was changed can be taken back. Must not know: the engine
child, the screen.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ds4chat.engine.protocol import (
    ChatMessage,
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    Loaded,
    Prefill,
    Token,
)
from ds4chat.errors import UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.preparing import Preparing
from ds4chat.sessions.reasoning import visible_answer
from ds4chat.sessions.session import Message, MessageState, Session, clean_text
from ds4chat.sessions.settings import Settings
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import Turn, entries
from ds4chat.sessions.window import plan, turns_between

QUESTION = (
    "Summarise our conversation so far, together with any summary it began with, so that it can go on from the summary "
    "alone. Keep names, facts, numbers, decisions, open questions and what I asked for; leave out greetings. Write "
    "plain sentences in the language we speak, and nothing else."
)

SUMMARY_TOKENS = 400
"""Longest summary: what it stands for is seldom less than ten times that."""

SHARE_OF_CONTEXT = 8
"""A small context gives a summary no more than this part of it: the turns that stay need the room."""

TEMPERATURE = 0.2
"""Of a summary, at most: what is wanted is what was said."""

NOTHING = "There is nothing to summarise yet: the last turn always stays as it is."


class Compacting:
    """The turns of kind "compact"."""

    def __init__(
        self,
        shelf: Shelf,
        settings: Settings,
        emit: Callable[[ev.ManagerEvent], None],
        preparing: Preparing,
        ask: Callable[[Turn, Session], None],
        drop: Callable[[Turn], None],
        ended: Callable[[ev.TurnEnded], None],
    ) -> None:
        """`ask`, `drop`, `ended`: see `Replying`."""
        self._shelf, self._settings, self._emit, self._preparing = shelf, settings, emit, preparing
        self._ask, self._drop, self._ended = ask, drop, ended
        self._before: dict[str, list[tuple[str, int | None]]] = {}
        """By session: summary and window start as they were before each summary of this run."""

    def check(self, session: Session) -> None:
        """Raises UsageError when there is nothing to summarise."""
        if sum(message.role == "user" for message in _answered(session)) < 2:
            raise UsageError(NOTHING)

    def question(self, turn: Turn, session: Session, loaded: Loaded) -> Generate:
        """What the engine is asked, with the window as it is now."""
        turn.summary = ""
        self._emit(ev.CompactProgress(session.id, ""))
        given = entries(session, _answered(session), loaded.fingerprint, tools=loaded.tools)
        if turn.forced:
            given = given[: [e.first_id for e in given].index(turn.first_kept)]
        turn.given = [e.first_id or 0 for e in given]
        wish = f"{QUESTION} {turn.instructions}".strip()
        sampling = self._settings.sampling(session)
        return Generate(
            session=session.id,
            turn=turn.number,
            messages=[*(e.message for e in given), ChatMessage("user", wish)],
            sampling=msgspec.structs.replace(sampling, temperature=min(sampling.temperature, TEMPERATURE)),
            max_tokens=min(SUMMARY_TOKENS, loaded.n_ctx // SHARE_OF_CONTEXT),
            force=turn.forced,
            # The question is none of the chat's: what follows goes on without it.
            store=False,
            tools=self._settings.tools(session, loaded) or "",
        )

    def event(self, turn: Turn, session: Session, event: Event) -> None:
        """What the engine says of a summary."""
        match event:
            case Prefill():
                self._emit(ev.PromptProgress(session.id, event.done, event.total))
            case Token():
                turn.summary += event.text
                self._emit(ev.CompactProgress(session.id, event.text))
            case ContextFull():
                if not turn.forced:
                    self._plan(turn, session, event.message_tokens)
                    turn.forced = turn.first_kept is not None
                if turn.forced:
                    self._ask(turn, session)
                else:
                    self.end(turn, session, "failed", NOTHING)
            case Done():
                self._done(turn, session, event)
            case Failed():
                self.end(turn, session, "failed", f"No summary was written: {event.message}")

    def end(self, turn: Turn, session: Session, state: MessageState, error: str = "") -> None:
        """A summary came to nothing: say so."""
        self._drop(turn)
        how = "cut off" if state == "cut" else "stopped"
        reason = error if error and state == "failed" else f"The summary was {how}: nothing changed."
        self._emit(ev.EngineNotice(reason, session.id, "warning"))
        self._emit(ev.SummaryChanged(session.id))
        self._ended(ev.TurnEnded(session.id, 0, None, state, turn.stats, error))

    def _done(self, turn: Turn, session: Session, done: Done) -> None:
        turn.add_stats(done)
        if done.stop_reason == "cancelled":
            self.end(turn, session, "stopped")
            return
        if not turn.forced:
            self._plan(turn, session, done.message_tokens)
        summary = clean_text(visible_answer(turn.summary)).strip()
        if turn.first_kept is None or not summary:
            error = NOTHING if turn.first_kept is None else "The model wrote no summary: nothing changed."
            self.end(turn, session, "failed", error)
            return
        self._drop(turn)
        window = session.window()
        roles = [message.role for message in window]
        first = next((i for i, message in enumerate(window) if message.id == turn.first_kept), 0)
        self._before.setdefault(session.id, []).append((session.summary, session.window_start_id))
        self._set(session, summary, turn.first_kept)
        self._emit(ev.SummaryChanged(session.id))
        self._emit(ev.WindowMoved(session.id, turn.first_kept, turns_between(roles, 0, first)))
        self._preparing.prefill(session.id)
        self._ended(ev.TurnEnded(session.id, 0, None, "complete", turn.stats))

    def undo(self, session: Session) -> None:
        """The window and the summary as they were before; of a summary of an earlier run only that it is gone, and what
        does not fit falls out again. Raises UsageError."""
        if not session.summary:
            raise UsageError("This session has no summary to take back.")
        before = self._before.get(session.id)
        self._set(session, *(before.pop() if before else ("", None)))
        self._emit(ev.SummaryChanged(session.id))
        self._emit(ev.PathChanged(session.id))

    def _set(self, session: Session, summary: str, window_start_id: int | None) -> None:
        session.summary, session.window_start_id = summary, window_start_id
        db = self._shelf.db
        self._shelf.write(session.id, db.set_summary, session.id, summary)
        self._shelf.write(session.id, db.set_window_start, session.id, window_start_id)

    @staticmethod
    def _plan(turn: Turn, session: Session, message_tokens: list[int]) -> None:
        """What stays: turns from the end on that take at most half of what the window takes now, one at least."""
        counts = message_tokens[: len(turn.given)]
        roles = ["system" if id_ == 0 else session.messages[id_].role for id_ in turn.given]
        first = plan(counts, roles, sum(counts))
        oldest = 1 if roles[0] == "system" else 0
        turn.first_kept = turn.given[first] if first > oldest else None


def _answered(session: Session) -> list[Message]:
    """The window as far as it is answered: what waits is no part of a summary."""
    window = session.window()
    while window and window[-1].role == "user":
        window.pop()
    return window
