"""Which turn the engine works on, and what becomes of it: queue, window, streaming, saving, crashes.

Promises: what a user typed is in the database before anything is computed; what was shown of a reply is in it at most
`SAVE_SECONDS` later; one turn runs at a time and the others wait in order; a crash of the engine ends a turn, not the
chat. Must not know: the screen, llama.cpp, checkpoint files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ds4chat.engine.protocol import (
    Cancel,
    ContextFull,
    Done,
    Event,
    Failed,
    Forget,
    Generate,
    Notice,
    Prefill,
    Prepare,
    Prepared,
    Restored,
    Sampling,
    Started,
    Stored,
    Token,
)
from ds4chat.errors import DatabaseError, UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.engine_host import EngineHost, EngineOptions
from ds4chat.sessions.session import Message, MessageState, Session, clean_text, is_unfinished
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.turn import Turn, entries, next_window
from ds4chat.sessions.window import is_full

log = logging.getLogger(__name__)

SAVE_SECONDS = 0.4
"""Longest time a streamed word is only in memory; the promise is half a second."""

CANCEL_SECONDS = 5.0
"""How long a quit waits for the running turn to end before it goes on without."""

CONTEXT_EVERY_TOKENS = 16
"""Generated tokens between two `ContextUsed` events."""


class Conductor:
    """Works the turns of all open sessions off, one at a time."""

    def __init__(
        self,
        shelf: Shelf,
        options: EngineOptions,
        sampling: Sampling,
        max_tokens: int | None,
        emit: Callable[[ev.ManagerEvent], None],
        memo: Path,
    ) -> None:
        """`memo` is where the engine host remembers what this machine cannot do."""
        self._shelf, self._sampling, self._max_tokens, self._emit = shelf, sampling, max_tokens, emit
        self._default_model = options.model_path
        self.host = EngineHost(options, self._engine_event, self._engine_status, self._engine_crashed, memo)
        self._left: set[str] = set()
        self._queue: list[Turn] = []
        self._last_turn = 0
        self._preparing: tuple[str, int] | None = None
        self._resting = ""
        self._live: tuple[str, int | None] = ("", None)
        self._to_prefill = ""
        self._ends: dict[str, ev.TurnEnded] = {}
        self._waiters: dict[str, list[asyncio.Future[ev.TurnEnded]]] = {}
        self._save_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._to_forget: list[Forget] = []

    def send(self, session_id: str, text: str) -> Message:
        """Append the user's message and queue its turn. Raises UsageError for blank text, SessionLockedError when
        read-only."""
        text = clean_text(text)
        if not text.strip():
            raise UsageError("There is nothing to send: type a message first.")
        session = self._shelf.writable(session_id)
        message = Message(0, session.head_id, "user", text, "queued", created=time.time())
        self._shelf.append(session, message)
        waiting = next((t for t in self._queue if t.session_id == session_id and not t.running), None)
        if waiting is not None and not waiting.continue_reply:
            # Both are answered together: the engine has not seen the first one yet.
            waiting.user_id = message.id
            turn = waiting
        else:
            turn = self._enqueue(session_id, message.id)
        self._emit(ev.MessageAdded(session_id, message.id))
        self._emit(ev.SessionListChanged())
        self._pump()
        if not turn.running:
            self._emit(
                ev.TurnQueued(session_id, message.id, self._queue.index(turn) if turn in self._queue else 0)
            )
        return message

    def continue_reply(self, session_id: str) -> None:
        """Queue a turn that goes on with a cut reply, or answers a question. Raises UsageError without either."""
        session = self._shelf.writable(session_id)
        if self.is_busy(session_id):
            raise UsageError("A reply is being written in this session already.")
        if not is_unfinished(session.path()) or session.head_id is None:
            raise UsageError("The last reply is whole: there is nothing to continue.")
        last = session.messages[session.head_id]
        if last.role == "user" or last.parent_id is None:
            turn = self._enqueue(session_id, last.id)
        else:
            turn = self._enqueue(session_id, last.parent_id)
            turn.continue_reply, turn.reply, turn.saved = True, last, len(last.tokens)
        self._pump()
        if not turn.running:
            self._emit(ev.TurnQueued(session_id, turn.user_id, self._queue.index(turn)))

    def stop(self, session_id: str) -> bool:
        """Stop the session's running turn, else drop its queued one (its text stays in the transcript). False:
        nothing to stop."""
        for turn in self._queue:
            if turn.session_id == session_id:
                if turn.running:
                    turn.cancelled = True
                    self.host.send(Cancel(session_id, turn.number))
                else:
                    self._end(turn, "complete")
                return True
        return False

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of the session runs or waits."""
        return any(t.session_id == session_id for t in self._queue)

    def busy_sessions(self) -> dict[str, str]:
        """ "running" or "queued" by session id."""
        return {t.session_id: "running" if t.running else "queued" for t in reversed(self._queue)}

    def rest_on(self, session_id: str) -> None:
        """The user's eye rests on a session (half a second) or they type in it: restore its context if the engine
        is free."""
        self._resting = session_id
        self._prepare()

    async def wait_turn(self, session_id: str) -> ev.TurnEnded:
        """Wait until the session's turns are over; the last one's end. Raises UsageError when there was none."""
        if not self.is_busy(session_id):
            if session_id in self._ends:
                return self._ends[session_id]
            raise UsageError("No message was sent in this session.")
        waiter: asyncio.Future[ev.TurnEnded] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(session_id, []).append(waiter)
        return await waiter

    async def aclose(self) -> None:
        """Stop what runs (what was generated stays, marked cut) and let the engine store its tail."""
        self._closing = True
        running = next((t for t in self._queue if t.running), None)
        for turn in [t for t in self._queue if not t.running]:
            self._end(turn, "complete")
        if running is not None:
            running.cancelled = True
            waiter = asyncio.ensure_future(self.wait_turn(running.session_id))
            self.host.send(Cancel(running.session_id, running.number))
            await asyncio.wait([waiter], timeout=CANCEL_SECONDS)
            if running in self._queue:
                self._end(running, "cut")
                await waiter
        await self.host.aclose()

    def back_to(self, session_id: str) -> None:
        """The user looks at the session again before it could be put away."""
        self._left.discard(session_id)

    def forget(self, session_id: str, spans: list[str], keep: Iterable[str]) -> None:
        """A session was deleted: nothing of it stays in the engine or comes onto the disk again."""
        if self._resting == session_id:
            self._resting = ""
        self._to_forget.append(Forget(session_id, spans, list(keep)))
        self._send_forgets()

    def _send_forgets(self) -> None:
        while self._to_forget and self.host.is_ready:
            self.host.send(self._to_forget.pop(0))

    def leave(self, session_id: str) -> None:
        """Put the session away, as soon as nothing of it runs or waits."""
        self._left.add(session_id)
        self._put_away_left(session_id)

    def _put_away_left(self, session_id: str) -> None:
        if session_id in self._left and not self.is_busy(session_id):
            self._left.discard(session_id)
            self._shelf.put_away(session_id)

    # ---- the queue ----

    def _enqueue(self, session_id: str, user_id: int) -> Turn:
        self._last_turn += 1
        turn = Turn(self._last_turn, session_id, user_id)
        self._ends.pop(session_id, None)
        self._queue.append(turn)
        return turn

    def _pump(self) -> None:
        """Give the engine the next turn when it is free, and the right model for it when it is not there."""
        if not self._queue or self._queue[0].running or self._closing:
            return
        turn = self._queue[0]
        session = self._shelf[turn.session_id]
        wanted = self._model_for(session)
        if self.host.status.phase in ("off", "failed"):
            self.host.request_start(wanted)
        elif self.host.is_ready and self.host.loaded is not None:
            if Path(self.host.loaded.path) != wanted:
                self.host.request_start(wanted)
            else:
                self._start(turn, session)

    def _model_for(self, session: Session) -> Path:
        """The named model, else the session's own while its file is there, else the default."""
        own = Path(session.model_path) if session.model_path else None
        return self._default_model if self.host.options.pinned or own is None or not own.is_file() else own

    def _start(self, turn: Turn, session: Session) -> None:
        loaded = self.host.loaded
        assert loaded is not None
        turn.running = True
        if self._preparing is not None:
            self.host.send(Cancel(*self._preparing))
        if session.model_path != loaded.path:
            session.model, session.model_path = loaded.name, loaded.path
            self._write(self._shelf.db.set_model, session.id, loaded.name, loaded.path)
        for message in session.path(turn.user_id):
            if message.state == "queued":
                message.state = "complete"
                self._write(self._shelf.db.set_state, message.id, "complete")
        if turn.reply is None:
            reply = Message(0, turn.user_id, "assistant", "", "streaming", created=time.time())
            reply.fingerprint, reply.model = loaded.fingerprint, loaded.name
            try:
                self._shelf.append(session, reply)
            except DatabaseError as error:
                self._end(turn, "failed", str(error))
                return
            turn.reply = reply
            self._emit(ev.MessageAdded(session.id, reply.id))
        else:
            if turn.reply.fingerprint != loaded.fingerprint:
                # Other weights go on from the text: its tokens are theirs to choose.
                turn.reply.tokens, turn.reply.fingerprint, turn.reply.model = (
                    [],
                    loaded.fingerprint,
                    loaded.name,
                )
                self._write(self._shelf.db.set_author, turn.reply.id, loaded.fingerprint, loaded.name)
            turn.reply.state = "streaming"
            self._write(self._shelf.db.set_state, turn.reply.id, "streaming")
        self._emit(ev.TurnStarted(session.id, turn.user_id, turn.reply.id))
        for ahead, waiting in enumerate(self._queue):
            if not waiting.running:
                self._emit(ev.TurnQueued(waiting.session_id, waiting.user_id, ahead))
        self._ask(turn, session)

    def _ask(self, turn: Turn, session: Session) -> None:
        """Send the turn to the engine, with the window as it is now."""
        loaded, reply = self.host.loaded, turn.reply
        assert loaded is not None and reply is not None
        path = [m for m in session.window() if m.id <= turn.user_id] or session.path(turn.user_id)
        path = [m for m in session.path(turn.user_id) if m.id >= path[0].id]
        going_on = turn.continue_reply and bool(reply.text or reply.tokens)
        given = entries(session, [*path, reply] if going_on else path, loaded.fingerprint)
        turn.given = [e.first_id or 0 for e in given]
        left = None if self._max_tokens is None else max(1, self._max_tokens - turn.stats.generated_tokens)
        command = Generate(
            session=session.id,
            turn=turn.number,
            messages=[e.message for e in given],
            sampling=self._sampling,
            max_tokens=left,
            continue_reply=going_on,
            cold=not session.cold_done,
            force=turn.forced,
        )
        self._live = (session.id, None)
        self.host.send(command)

    def _end(self, turn: Turn, state: MessageState, error: str = "") -> None:
        """Finish a turn in whatever state it is."""
        if turn in self._queue:
            self._queue.remove(turn)
        session = self._shelf[turn.session_id]
        reply = turn.reply
        if reply is not None:
            reply.state = state
            if turn.stats.stop_reason:
                reply.stats = turn.stats_dict()
            self._save_reply(turn)
        for message in session.path(turn.user_id):
            if message.state == "queued":
                message.state = "complete"
                self._write(self._shelf.db.set_state, message.id, "complete")
        end = ev.TurnEnded(session.id, turn.user_id, reply.id if reply else None, state, turn.stats, error)
        self._ends[session.id] = end
        self._emit(end)
        self._emit(ev.SessionListChanged())
        if not self.is_busy(session.id):
            for waiter in self._waiters.pop(session.id, []):
                if not waiter.done():
                    waiter.set_result(end)
        self._put_away_left(session.id)
        self._pump()
        self._prepare()

    def _prepare(self) -> None:
        """Restore what the user rests on, or prefill a window that moved, while the engine has nothing else to do."""
        loaded = self.host.loaded
        if (
            self._queue
            or self._closing
            or loaded is None
            or not self.host.is_ready
            or self._preparing is not None
        ):
            return
        session_id = self._to_prefill or self._resting
        session = self._shelf.get(session_id)
        if session is None or session.head_id is None or Path(loaded.path) != self._model_for(session):
            self._to_prefill = ""
            return
        if self._live == (session_id, session.head_id) and not self._to_prefill:
            return
        given = entries(session, session.window(), loaded.fingerprint)
        self._last_turn += 1
        self._preparing = (session_id, self._last_turn)
        self._live = (session_id, session.head_id)
        prefill, self._to_prefill = bool(self._to_prefill), ""
        self.host.send(Prepare(session_id, self._last_turn, [e.message for e in given], prefill))

    # ---- engine events ----

    def _engine_status(self, status: ev.EngineStatus) -> None:
        self._emit(ev.EngineChanged(status))
        if status.phase == "ready":
            self._live, self._preparing = ("", None), None
            self._send_forgets()
            self._pump()
            self._prepare()
        elif status.phase == "failed":
            for turn in list(self._queue):
                if not turn.running:
                    self._end_waiting(turn, status.message)

    def _end_waiting(self, turn: Turn, error: str) -> None:
        """A turn that never reached the engine: the user's message stays, unanswered."""
        self._queue.remove(turn)
        self._queue.insert(0, turn)
        self._end(turn, "failed", error)

    def _engine_crashed(self, sentence: str) -> None:
        self._live, self._preparing = ("", None), None
        running = next((t for t in self._queue if t.running), None)
        self._emit(ev.EngineNotice(sentence, running.session_id if running else "", "error"))
        if running is not None:
            self._end(running, "cut", sentence)

    def _engine_event(self, event: Event) -> None:
        match event:
            case Stored():
                if self._shelf.is_saved(event.session):
                    span = (event.sha1, event.start, event.end, event.reason, event.size)
                    self._write(self._shelf.db.record_span, event.session, *span)
                return
            case Notice(message):
                self._emit(ev.EngineNotice(message, severity="warning"))
                return
            case Restored():
                self._emit(ev.ContextRestored(event.session, event.tokens, event.ms))
                return
            case Prepared():
                if self._preparing == (event.session, event.turn):
                    self._preparing = None
                    self._emit(ev.ContextUsed(event.session, event.live_tokens, self.host.status.n_ctx))
                    self._prepare()
                return
            case Failed() if self._preparing == (event.session, event.turn):
                self._preparing = None
                log.warning("preparing session %s: %s", event.session, event.message)
                return
        turn = next((t for t in self._queue if t.running and t.number == getattr(event, "turn", None)), None)
        if turn is None or turn.session_id != getattr(event, "session", None):
            # What is left of a turn that was given up already.
            if isinstance(event, Prefill):
                self._emit(ev.PromptProgress(event.session, event.done, event.total))
            return
        self._turn_event(turn, event)

    def _turn_event(self, turn: Turn, event: Event) -> None:
        session, reply = self._shelf[turn.session_id], turn.reply
        assert reply is not None
        match event:
            case Prefill():
                self._emit(ev.PromptProgress(session.id, event.done, event.total))
            case Started():
                turn.prompt_tokens = event.prompt_tokens
                self._emit(ev.ContextUsed(session.id, event.prompt_tokens, self.host.status.n_ctx))
            case Token():
                reply.text += event.text
                reply.tokens += event.tokens
                turn.announced += len(event.tokens)
                self._emit(ev.TextStreamed(session.id, reply.id, event.text))
                if turn.announced % CONTEXT_EVERY_TOKENS == 0:
                    self._emit(
                        ev.ContextUsed(
                            session.id, turn.prompt_tokens + turn.announced, self.host.status.n_ctx
                        )
                    )
                if self._save_timer is None:
                    self._save_timer = asyncio.get_running_loop().call_later(SAVE_SECONDS, self._save_running)
            case ContextFull():
                # What fits in no window is refused as it stands: the chat must not be forgotten for it.
                alone = event.message_tokens[-1] + (event.message_tokens[0] if turn.given[0] == 0 else 0)
                fits = len(turn.given) == 1 or alone < event.n_ctx
                if fits and self._move_window(session, turn.given, event.message_tokens, event.prompt_tokens):
                    self._ask(turn, session)
                elif turn.stats.generated_tokens:
                    self._end(turn, "length")
                else:
                    turn.forced = True
                    self._ask(turn, session)
            case Done():
                self._done(turn, session, reply, event)
            case Failed():
                self.host.turn_done()
                self._end(turn, "failed", event.message)

    def _done(self, turn: Turn, session: Session, reply: Message, done: Done) -> None:
        self.host.turn_done()
        turn.add_stats(done)
        if done.cold and not session.cold_done:
            session.cold_done = True
            self._write(self._shelf.db.set_cold_done, session.id)
        session.tokens = done.live_tokens
        self._write(self._shelf.db.set_tokens, session.id, done.live_tokens)
        self._emit(ev.ContextUsed(session.id, done.live_tokens, self.host.status.n_ctx))
        given = turn.given if reply.id in turn.given else [*turn.given, reply.id]
        if done.stop_reason == "context" and not turn.cancelled:
            # The reply does not end for want of room: older turns make it.
            turn.continue_reply, turn.announced = True, 0
            if self._move_window(session, given, done.message_tokens, done.live_tokens):
                self._ask(turn, session)
                return
        elif is_full(done.live_tokens, self.host.status.n_ctx) and self._move_window(
            session, given, done.message_tokens, done.live_tokens
        ):
            self._to_prefill = session.id
        states: dict[str, MessageState] = {"stop": "complete", "length": "length", "context": "length"}
        state = states.get(done.stop_reason, "cut" if self._closing else "stopped")
        self._live = (session.id, reply.id)
        self._end(turn, state)

    def _move_window(self, session: Session, given: list[int], counts: list[int], tokens: int) -> bool:
        """Let the oldest turns fall out of a full context, and say so. False when nothing more can."""
        moved = next_window(session, given, counts, self.host.status.n_ctx, tokens)
        if moved is None:
            return False
        session.window_start_id, turns = moved
        self._write(self._shelf.db.set_window_start, session.id, session.window_start_id)
        self._emit(ev.WindowMoved(session.id, session.window_start_id, turns))
        what = (
            "the oldest turn no longer reaches" if turns == 1 else f"the {turns} oldest turns no longer reach"
        )
        text = f"The context is full: {what} the model (all stays in the transcript)."
        self._emit(ev.EngineNotice(text, session.id))
        return True

    # ---- saving ----

    def _save_running(self) -> None:
        self._save_timer = None
        for turn in self._queue:
            if turn.running and turn.reply is not None and len(turn.reply.tokens) != turn.saved:
                self._save_reply(turn)

    def _save_reply(self, turn: Turn) -> None:
        reply = turn.reply
        assert reply is not None
        turn.saved = len(reply.tokens)
        stats = reply.stats or None
        self._write(self._shelf.db.update_reply, reply.id, reply.text, reply.tokens, reply.state, stats)

    def _write(self, write: Callable[..., object], *args: object) -> None:
        self._shelf.guard(write, *args)
