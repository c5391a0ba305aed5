"""How full the context is, session by session: what falls out of it, when that is said, and when it is written down.

Promises: that turns will fall out is said once before it happens, and once when it does. Must not know: the engine, the
screen.
"""

from __future__ import annotations

from collections.abc import Callable

from ds4chat.sessions import events as ev
from ds4chat.sessions.session import Session
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import next_window
from ds4chat.sessions.window import WARN_PERCENT, is_full, is_nearly_full


class Windows:
    """The windows of all open sessions."""

    def __init__(self, shelf: Shelf, emit: Callable[[ev.ManagerEvent], None]) -> None:
        self._shelf, self._emit = shelf, emit
        self._warned: set[tuple[str, int | None]] = set()
        self._not_kept: dict[str, int | None] = {}
        """By session: the window it has for now and not in the database."""

    def used(self, session: Session, tokens: int, n_ctx: int) -> None:
        """A session takes so many tokens of the context."""
        self._emit(ev.ContextUsed(session.id, tokens, n_ctx))
        window = (session.id, session.window_start_id)
        if window in self._warned or is_full(tokens, n_ctx) or not is_nearly_full(tokens, n_ctx):
            return
        if sum(message.role == "user" for message in session.window()) > 1:
            self._warned.add(window)
            text = (
                f"The context is {WARN_PERCENT}% full: the oldest turns fall out of it soon; "
                "/compact keeps a summary of them."
            )
            self._emit(ev.EngineNotice(text, session.id))

    def move(
        self,
        session: Session,
        given: list[int],
        counts: list[int],
        n_ctx: int,
        tokens: int,
        *,
        keep: bool = True,
    ) -> bool:
        """Let the oldest turns fall out of a full context, and say so. False when nothing more can.

        Args:
            given, counts, tokens: see `turn.next_window`.
            keep: False: only `keep` writes it down.
        """
        moved = next_window(session, given, counts, n_ctx, tokens)
        if moved is None:
            return False
        if session.summary and all(m.id != session.window_start_id for m in session.lineage()):
            # It was another branch's; from here on it would pass for this one's.
            session.summary = ""
        session.window_start_id, turns = moved
        self._not_kept[session.id] = session.window_start_id
        if keep:
            self.keep(session)
        self._emit(ev.WindowMoved(session.id, session.window_start_id, turns))
        what = (
            "the oldest turn no longer reaches" if turns == 1 else f"the {turns} oldest turns no longer reach"
        )
        text = f"The context is full: {what} the model (all stays in the transcript)."
        self._emit(ev.EngineNotice(text, session.id))
        return True

    def keep(self, session: Session) -> None:
        """Write the window down if it is not."""
        if session.id in self._not_kept and self._not_kept.pop(session.id) == session.window_start_id:
            write, db = self._shelf.write, self._shelf.db
            write(session.id, db.set_window_start, session.id, session.window_start_id)
            write(session.id, db.set_summary, session.id, session.summary)
