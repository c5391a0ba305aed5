"""Turns that write a reply: what the engine is asked, and what becomes of what it says.

Promises: a reply is a message of the session from the first moment and grows in place; a full context is met by letting
the oldest turns fall out, and only what fits in no window is refused. Must not know: the queue, the engine child, the
screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ds4chat.engine.protocol import (
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    Loaded,
    Prefill,
    Started,
    Token,
)
from ds4chat.sessions import events as ev
from ds4chat.sessions.preparing import Preparing
from ds4chat.sessions.saving import ReplySaver
from ds4chat.sessions.session import Message, MessageState, Session
from ds4chat.sessions.settings import Settings
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import Turn, entries, window_to
from ds4chat.sessions.window import is_full
from ds4chat.sessions.windows import Windows

CONTEXT_EVERY_TOKENS = 16
"""Generated tokens between two `ContextUsed` events."""

STATES: dict[str, MessageState] = {"stop": "complete", "length": "length", "context": "length"}
"""Of a reply, by why the engine stopped; else it was told to."""


class Replying:
    """The turns of kind "reply"."""

    def __init__(
        self,
        shelf: Shelf,
        settings: Settings,
        windows: Windows,
        preparing: Preparing,
        emit: Callable[[ev.ManagerEvent], None],
        ask: Callable[[Turn, Session], None],
        drop: Callable[[Turn], None],
        ended: Callable[[ev.TurnEnded], None],
        whole: Callable[[Session, Message], object],
    ) -> None:
        """`ask` sends the turn's question to the engine again; `drop` takes the turn out of the queue, `ended` lets the
        next one begin; `whole` hears of a reply that ended by itself, before the listeners do."""
        self._shelf, self._settings, self._windows, self._preparing = shelf, settings, windows, preparing
        self._emit, self._ask, self._drop, self._ended = emit, ask, drop, ended
        self._whole = whole
        self._saver = ReplySaver(shelf)

    def begin(self, turn: Turn, session: Session, loaded: Loaded) -> None:
        """The engine takes the turn up: its reply comes to be, or goes on. Raises DatabaseError."""
        self._nothing_waits(turn, session)
        reply = turn.reply
        if reply is None:
            reply = Message(0, turn.user_id, "assistant", "", "streaming", created=time.time())
            reply.fingerprint, reply.model = loaded.fingerprint, loaded.name
            self._shelf.append(session, reply)
            turn.reply = reply
            self._emit(ev.MessageAdded(session.id, reply.id))
        else:
            if reply.fingerprint != loaded.fingerprint:
                # Other weights go on from the text: its tokens are theirs to choose.
                reply.tokens, reply.fingerprint, reply.model = [], loaded.fingerprint, loaded.name
                self._write(session, self._shelf.db.set_author, reply.id, loaded.fingerprint, loaded.name)
            reply.state = "streaming"
            self._write(session, self._shelf.db.set_state, reply.id, "streaming")
        self._emit(ev.TurnStarted(session.id, turn.user_id, reply.id))

    def question(self, turn: Turn, session: Session, loaded: Loaded) -> Generate:
        """What the engine is asked, with the window as it is now."""
        reply = turn.reply
        assert reply is not None
        turn.n_ctx = loaded.n_ctx
        path = window_to(session, turn.user_id)
        going_on = turn.continue_reply and bool(reply.text or reply.tokens)
        said = [*path, reply] if going_on else path
        given = entries(session, said, loaded.fingerprint, tools=loaded.tools)
        turn.given = [e.first_id or 0 for e in given]
        most = self._settings.max_tokens(session)
        others = 0 if turn.continue_reply else max(0, len(session.siblings(reply.id)) - 1)
        return Generate(
            session=session.id,
            turn=turn.number,
            messages=[e.message for e in given],
            sampling=self._settings.sampling(session, others),
            max_tokens=None if most is None else max(1, most - turn.stats.generated_tokens),
            continue_reply=going_on,
            cold=not session.cold_done,
            force=turn.forced,
            store=not self._shelf.is_incognito(session.id),
            grammar=turn.grammar,
            tools=self._settings.tools(session, loaded) or "",
        )

    def event(self, turn: Turn, session: Session, event: Event) -> None:
        """What the engine says of a reply."""
        reply = turn.reply
        assert reply is not None
        match event:
            case Prefill():
                self._emit(ev.PromptProgress(session.id, event.done, event.total))
            case Started():
                turn.prompt_tokens = event.prompt_tokens
                self._windows.used(session, event.prompt_tokens, turn.n_ctx)
            case Token():
                reply.text += event.text
                reply.tokens += event.tokens
                # Engines that tell no ids send a piece for about each token.
                turn.announced += len(event.tokens) or 1
                self._emit(ev.TextStreamed(session.id, reply.id, event.text))
                if turn.announced % CONTEXT_EVERY_TOKENS == 0:
                    self._windows.used(session, turn.prompt_tokens + turn.announced, turn.n_ctx)
                self._saver.soon(turn)
            case ContextFull():
                self._full(turn, session, event)
            case Done():
                self._done(turn, session, reply, event)
            case Failed():
                cut = bool(reply.text) or event.passing
                if cut:
                    # What has come of it can be gone on with: its line says that, so that the sentence comes apart.
                    self._emit(ev.EngineNotice(event.message, session.id, "error"))
                self.end(turn, session, "cut" if cut else "failed", event.message)

    def end(self, turn: Turn, session: Session, state: MessageState, error: str = "") -> None:
        """Finish a turn in whatever state it is."""
        self._drop(turn)
        reply = turn.reply
        if reply is not None:
            reply.state = state
            if turn.stats.stop_reason:
                reply.stats = turn.stats_dict()
            self._saver.save(turn)
        elif turn.head_before is not None:
            # Another reply was asked for, and none came to be: back to the one that is there.
            session.head_id = turn.head_before
            self._emit(ev.PathChanged(session.id))
        self._nothing_waits(turn, session)
        end = ev.TurnEnded(session.id, turn.user_id, reply.id if reply else None, state, turn.stats, error)
        if reply is not None and state == "complete":
            self._whole(session, reply)
        self._emit(end)
        self._ended(end)

    def _full(self, turn: Turn, session: Session, full: ContextFull) -> None:
        # What fits in no window is refused as it stands: the chat must not be forgotten for it.
        counts = full.message_tokens
        alone = counts[-1] + (counts[0] if turn.given[0] == 0 else 0)
        fits = len(turn.given) == 1 or alone < full.n_ctx
        if fits and self._windows.move(session, turn.given, counts, full.n_ctx, full.prompt_tokens):
            self._ask(turn, session)
        elif turn.stats.generated_tokens:
            self.end(turn, session, "length")
        else:
            turn.forced = True
            self._ask(turn, session)

    def _done(self, turn: Turn, session: Session, reply: Message, done: Done) -> None:
        turn.add_stats(done)
        if done.cold and not session.cold_done:
            session.cold_done = True
            self._write(session, self._shelf.db.set_cold_done, session.id)
        session.tokens = done.live_tokens
        self._write(session, self._shelf.db.set_tokens, session.id, done.live_tokens)
        self._windows.used(session, done.live_tokens, turn.n_ctx)
        given = turn.given if reply.id in turn.given else [*turn.given, reply.id]
        counts, tokens = done.message_tokens, done.live_tokens
        if done.stop_reason == "context" and not turn.cancelled:
            # The reply does not end for want of room: older turns make it.
            turn.continue_reply, turn.announced = True, 0
            if self._windows.move(session, given, counts, turn.n_ctx, tokens):
                self._ask(turn, session)
                return
        elif is_full(tokens, turn.n_ctx) and self._windows.move(session, given, counts, turn.n_ctx, tokens):
            self._preparing.prefill(session.id)
        self._preparing.set_live(session.id, reply.id)
        self.end(turn, session, STATES.get(done.stop_reason, "cut" if turn.closing else "stopped"))

    def _nothing_waits(self, turn: Turn, session: Session) -> None:
        """What a turn answers has been heard."""
        for message in session.path(turn.user_id):
            if message.state == "queued":
                message.state = "complete"
                self._write(session, self._shelf.db.set_state, message.id, "complete")

    def _write(self, session: Session, write: Callable[..., object], *args: object) -> None:
        self._shelf.write(session.id, write, *args)
