"""Which turn the engine works on, and what becomes of it: queue, window, streaming, crashes.

Promises: what a user typed is in the database before anything is computed; one turn runs at a time and the others wait
in order; a crash of the engine ends a turn, not the chat. Must not know: the screen, llama.cpp, checkpoint files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ds4chat import news
from ds4chat.engine.place import is_elsewhere
from ds4chat.engine.protocol import Cancel, Done, Event, Failed, Notice, Prefill, Restored, Sampling, Stored
from ds4chat.errors import DatabaseBusyError, DatabaseError, UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.compacting import Compacting
from ds4chat.sessions.ends import Ends
from ds4chat.sessions.engine_host import EngineHost, EngineOptions
from ds4chat.sessions.housekeeping import Housekeeping
from ds4chat.sessions.preparing import Preparing
from ds4chat.sessions.replying import Replying
from ds4chat.sessions.session import Message, MessageState, Session, clean_text, is_unfinished
from ds4chat.sessions.settings import RestoreSpeed, Settings
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.tooling import Tooling
from ds4chat.sessions.turn import Turn
from ds4chat.sessions.windows import Windows
from ds4chat.tools.options import ToolOptions

CANCEL_SECONDS = 5.0
"""How long a quit waits for the running turn to end before it goes on without."""

WRITING_SECONDS = 8.0
"""How long a quit waits for another program that writes to the database."""

log = logging.getLogger(__name__)


@dataclass
class Unsent:
    """What the user sent and is not saved yet: another program writes to the database."""

    session_id: str
    text: str
    message: Message | None = None
    waited: bool = False
    grammar: str = ""


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
        tools: ToolOptions,
    ) -> None:
        """`memo` is where the engine host remembers what this machine cannot do."""
        self._shelf, self._emit = shelf, emit
        self._left: set[str] = set()
        self._queue: list[Turn] = []
        self._unsent: list[Unsent] = []
        self._last_turn = 0
        self._closing = False
        self._ends = Ends()
        told = (self._engine_event, self._engine_status, self._engine_crashed)
        self.host = EngineHost(options, *told, memo, self._engine_silent)
        self.tooling = Tooling(
            shelf, tools, emit, self.answer, self._ended, self._tools_ready, lambda: self.host.status.n_ctx
        )
        self.settings = Settings(shelf, options, sampling, max_tokens, emit, self.tooling.declarations)
        self.speed = RestoreSpeed()
        self.housekeeping = Housekeeping(shelf, self.host, emit, memo)
        self._windows = Windows(shelf, emit)
        self.preparing = Preparing(
            shelf,
            self.settings,
            self._windows,
            self.host,
            emit,
            self._next_number,
            lambda: not self._queue and not self._closing,
        )
        joints = (self._ask, self._drop, self._ended)
        whole = self.tooling.reply_ended
        self._replying = Replying(shelf, self.settings, self._windows, self.preparing, emit, *joints, whole)
        self._compacting = Compacting(shelf, self.settings, emit, self.preparing, *joints)

    async def start_engine(self) -> None:
        """Start the engine as the session that was opened last wants it."""
        session = self._shelf.get(self._shelf.opened_last)
        if session is None:
            await self.host.start()
        else:
            await self.host.start(self.settings.model(session), self.settings.ctx(session))

    def send(self, session_id: str, text: str, grammar: str = "") -> Message | None:
        """Append the user's message and queue its turn, None when that must wait for another program that writes to the
        database. Raises UsageError for blank text, SessionLockedError when read-only."""
        text = clean_text(text)
        if not text.strip():
            raise UsageError("There is nothing to send: type a message first.")
        self._shelf.writable(session_id)
        self.tooling.must_not_wait(session_id)
        unsent = Unsent(session_id, text, grammar=grammar)
        self._unsent.append(unsent)
        try:
            unsent.waited = not self._shelf.backlog.do(lambda: self._post(unsent))
        except DatabaseError:
            if unsent in self._unsent:
                self._unsent.remove(unsent)
            raise
        return unsent.message

    def _post(self, unsent: Unsent) -> None:
        """Send what the user sent. Raises DatabaseBusyError; another DatabaseError only at once."""
        if unsent not in self._unsent:
            return
        session_id = unsent.session_id
        session = self._shelf[session_id]
        message = Message(0, session.head_id, "user", unsent.text, "queued", created=time.time())
        if self._closing:
            message.state = "complete"
        try:
            self._shelf.append(session, message)
        except DatabaseBusyError:
            raise
        except DatabaseError as error:
            self._unsent.remove(unsent)
            if not unsent.waited:
                raise
            self._not_sent(unsent, str(error))
            return
        self._unsent.remove(unsent)
        unsent.message = message
        if not self._closing:
            self._sent(session, message, unsent.grammar)

    def _sent(self, session: Session, message: Message, grammar: str) -> None:
        """A message of the user's is saved: queue its turn."""
        session_id = session.id
        mine = [t for t in self._queue if t.session_id == session_id and not t.running]
        waiting = mine[-1] if mine else None
        if waiting is not None and waiting.kind == "reply" and not waiting.continue_reply:
            # Both are answered together: the engine has not seen the first one yet.
            waiting.user_id, waiting.head_before = message.id, None
            turn = waiting
        else:
            turn = self._enqueue(session_id, message.id)
        turn.grammar = grammar
        self._emit(ev.MessageAdded(session_id, message.id))
        self._emit(ev.SessionListChanged())
        self._pump()
        if not turn.running:
            self._emit(
                ev.TurnQueued(session_id, message.id, self._queue.index(turn) if turn in self._queue else 0)
            )

    def _not_sent(self, unsent: Unsent, why: str = "") -> None:
        """What waited will not be sent: give the text back, and what waits for the turn its end."""
        words = f'{why} Not sent: "{unsent.text}"'.strip()
        self._emit(ev.EngineNotice(words, unsent.session_id, "error" if why else "information"))
        end = ev.TurnEnded(unsent.session_id, 0, None, "failed" if why else "complete", error=why)
        self._emit(end)
        self._ended(end)

    def say_waiting(self) -> None:
        """What is to be written has been waiting for a while."""
        text = "Another program is writing to the session database: what is said here is saved as soon as it is done."
        self._emit(ev.EngineNotice(text, severity="warning"))
        for unsent in self._unsent:
            self._emit(ev.EngineNotice(f'It waits to be sent: "{unsent.text}"', unsent.session_id))

    def say_written(self, told: bool) -> None:
        """Nothing waits to be written any more."""
        if told:
            self._emit(ev.EngineNotice("The session database is free again: everything is saved."))
        self._emit(ev.SessionListChanged())

    def continue_reply(self, session_id: str) -> None:
        """Queue a turn that goes on with a cut reply, or answers a question. Raises UsageError without either."""
        session = self._shelf.writable(session_id)
        if self.is_busy(session_id):
            raise UsageError("A reply is being written in this session already.")
        path = session.path()
        if not is_unfinished(path):
            raise UsageError("The last reply is whole: there is nothing to continue.")
        last = path[-1]
        if last.role != "assistant" or last.parent_id is None:
            turn = self._enqueue(session_id, last.id)
        else:
            turn = self._enqueue(session_id, last.parent_id)
            turn.continue_reply, turn.reply, turn.saved = True, last, len(last.tokens)
        self._pump()
        if not turn.running:
            self._emit(ev.TurnQueued(session_id, turn.user_id, self._queue.index(turn)))

    def answer(self, session_id: str, user_id: int, *, head_before: int | None = None) -> None:
        """Queue a turn for a message that is there. `head_before`: see `Turn`."""
        turn = self._enqueue(session_id, user_id)
        turn.head_before = head_before
        self._pump()
        if not turn.running and turn in self._queue:
            self._emit(ev.TurnQueued(session_id, user_id, self._queue.index(turn)))

    def compact(self, session_id: str, instructions: str) -> None:
        """Queue a turn that summarises what is older. Raises UsageError when there is nothing to summarise."""
        session = self._shelf.writable(session_id)
        self._compacting.check(session)
        turn = self._enqueue(session_id, 0)
        turn.kind, turn.instructions = "compact", " ".join(clean_text(instructions).split())
        self._emit(ev.SessionListChanged())
        self._pump()

    def undo_compact(self, session_id: str) -> None:
        """Take the last summary back. Raises UsageError."""
        session = self._shelf.writable(session_id)
        if self.is_busy(session_id):
            raise UsageError("A reply is being written in this session: stop it first.")
        self._compacting.undo(session)
        self.path_changed(session)

    def path_changed(self, session: Session) -> None:
        """The session reads otherwise than what the engine holds of it."""
        self.preparing.path_changed(session.id)
        last = next((m for m in reversed(session.path()) if m.role == "assistant" and m.stats), None)
        if last is not None:
            counts = [last.stats.get(name, 0) for name in ("prompt_tokens", "generated_tokens")]
            session.tokens = sum(int(count) for count in counts)
            self._shelf.write(session.id, self._shelf.db.set_tokens, session.id, session.tokens)
            if self.host.status.n_ctx:
                self._emit(ev.ContextUsed(session.id, session.tokens, self.host.status.n_ctx))
        self.preparing.go_on()

    def stop(self, session_id: str) -> bool:
        """Stop the session's running turn, else drop its queued one (its text stays in the transcript). False:
        nothing to stop."""
        if self.tooling.stop(session_id):
            return True
        for turn in self._queue:
            if turn.session_id == session_id:
                if turn.running:
                    turn.cancelled = True
                    if not self.host.give_up():
                        self.host.send(Cancel(session_id, turn.number))
                else:
                    self._end(turn, "complete")
                    self.host.give_up()
                return True
        unsent = next((unsent for unsent in self._unsent if unsent.session_id == session_id), None)
        if unsent is None:
            return False
        self._unsent.remove(unsent)
        self._not_sent(unsent)
        return True

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of the session runs or waits, or a call that one of its replies made."""
        return (
            any(t.session_id == session_id for t in self._queue)
            or self.tooling.is_busy(session_id)
            or any(unsent.session_id == session_id for unsent in self._unsent)
        )

    def busy_sessions(self) -> dict[str, str]:
        """ "running" or "queued" by session id."""
        waiting = {unsent.session_id: "queued" for unsent in self._unsent}
        waiting |= dict.fromkeys(self.tooling.busy, "running")
        return waiting | {t.session_id: "running" if t.running else "queued" for t in reversed(self._queue)}

    async def wait_turn(self, session_id: str) -> ev.TurnEnded:
        """Wait until the session's turns are over; the last one's end. Raises UsageError when there was none."""
        return await self._ends.wait(session_id, busy=self.is_busy(session_id))

    async def aclose(self) -> None:
        """Stop what runs (what was generated stays, marked cut) and let the engine store its tail."""
        self._closing = True
        await self.tooling.stop_all()
        servers = asyncio.ensure_future(self.tooling.end_servers())
        running = next((t for t in self._queue if t.running), None)
        for turn in [t for t in self._queue if not t.running]:
            self._end(turn, "complete")
        if running is not None:
            running.cancelled = running.closing = True
            waiter = asyncio.ensure_future(self.wait_turn(running.session_id))
            self.host.send(Cancel(running.session_id, running.number))
            await asyncio.wait([waiter], timeout=0 if self.host.status.silent else CANCEL_SECONDS)
            if running in self._queue:
                self._end(running, "cut")
                await waiter
        self.housekeeping.empty_trash()
        await self.host.aclose()
        await servers
        if not await self._shelf.backlog.finish(WRITING_SECONDS):
            self._give_up_writing()

    def _give_up_writing(self) -> None:
        """Another program writes for longer than a quit waits, or the disk takes nothing."""
        why = self._shelf.unsaved or "The session database is busy."
        log.error("what was said last is not saved: %s", why)
        text = f"What was said last could not be saved. {why}"
        self._emit(ev.EngineNotice(text, severity="error"))
        news.add(text)
        if self._unsent:
            texts = [unsent.text for unsent in self._unsent]
            self._shelf.keep_draft("\n".join(filter(None, [*texts, self._shelf.kept_draft()])))

    def back_to(self, session_id: str) -> None:
        """The user looks at the session again before it could be put away."""
        self._left.discard(session_id)

    def leave(self, session_id: str) -> None:
        """Put the session away, as soon as nothing of it runs or waits."""
        self._left.add(session_id)
        self._put_away_left(session_id)

    def _put_away_left(self, session_id: str) -> None:
        if session_id in self._left and not self.is_busy(session_id):
            self._left.discard(session_id)
            self._shelf.put_away(session_id)

    # ---- the queue ----

    def _next_number(self) -> int:
        self._last_turn += 1
        return self._last_turn

    def _enqueue(self, session_id: str, user_id: int) -> Turn:
        turn = Turn(self._next_number(), session_id, user_id)
        self._ends.begins(session_id)
        self._queue.append(turn)
        return turn

    def _pump(self) -> None:
        """Give the engine the next turn when it is free, and the right model for it when it is not there."""
        try:
            self._pump_now()
        except DatabaseBusyError:
            self._shelf.backlog.later(self._pump_now, key=self._pump_now)

    def _pump_now(self) -> None:
        """As `_pump`. Raises DatabaseBusyError when it must be done again."""
        if not self._queue or self._queue[0].running or self._closing:
            return
        turn = self._queue[0]
        session = self._shelf[turn.session_id]
        model, ctx = self.settings.model(session), self.settings.ctx(session)
        if self.host.has(model, ctx):
            assert self.host.loaded is not None
            if self.tooling.is_ready_for(session, self.host.loaded):
                self._start(turn, session)
        elif self.host.is_ready or self.host.status.phase in ("off", "failed"):
            self.host.request_start(model, ctx)

    def _tools_ready(self) -> None:
        self._pump()
        self.preparing.go_on()

    def _start(self, turn: Turn, session: Session) -> None:
        loaded = self.host.loaded
        assert loaded is not None
        turn.running = True
        self.preparing.make_way()
        # An engine elsewhere is one of the run: the chat keeps its model of this machine for another one.
        path = session.model_path if is_elsewhere(loaded.path) else loaded.path
        if (session.model, session.model_path) != (loaded.name, path):
            before = session.model_path
            if before and path != before and not Path(before).is_file():
                gone = (
                    f"The model {session.model_path} of this chat is gone: {loaded.name} answers from now on."
                )
                self._emit(ev.EngineNotice(gone, session.id, "warning"))
            session.model, session.model_path = loaded.name, path
            self._shelf.write(session.id, self._shelf.db.set_model, session.id, loaded.name, path)
        self._windows.keep(session)
        self.tooling.keep(session, loaded)
        if turn.kind == "reply":
            try:
                self._replying.begin(turn, session, loaded)
            except DatabaseBusyError:
                turn.running = False
                raise
            except DatabaseError as error:
                self._end(turn, "failed", str(error))
                return
        for ahead, waiting in enumerate(self._queue):
            if not waiting.running and waiting.kind == "reply":
                self._emit(ev.TurnQueued(waiting.session_id, waiting.user_id, ahead))
        self._ask(turn, session)

    def _kind(self, turn: Turn) -> Replying | Compacting:
        return self._replying if turn.kind == "reply" else self._compacting

    def _ask(self, turn: Turn, session: Session) -> None:
        """Send the turn to the engine, with the window as it is now."""
        assert self.host.loaded is not None
        self.preparing.set_live(session.id, None)
        self.host.send(self._kind(turn).question(turn, session, self.host.loaded))

    def _end(self, turn: Turn, state: MessageState, error: str = "") -> None:
        self._kind(turn).end(turn, self._shelf[turn.session_id], state, error)

    def _drop(self, turn: Turn) -> None:
        if turn in self._queue:
            self._queue.remove(turn)

    def _ended(self, end: ev.TurnEnded) -> None:
        self._emit(ev.SessionListChanged())
        self._ends.ended(end, last=not self.is_busy(end.session_id))
        self._put_away_left(end.session_id)
        self._pump()
        self.preparing.go_on()

    # ---- engine events ----

    def _engine_status(self, status: ev.EngineStatus) -> None:
        self._emit(ev.EngineChanged(status))
        if status.phase == "ready":
            self.preparing.engine_is_new()
            self.housekeeping.engine_is_ready()
            self._pump()
            self.preparing.go_on()
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
        self.preparing.engine_is_new()
        running = next((t for t in self._queue if t.running), None)
        self._emit(ev.EngineNotice(sentence, running.session_id if running else "", "error"))
        if running is not None:
            self._end(running, "cut", sentence)

    def _engine_silent(self, sentence: str) -> None:
        """The engine says nothing for too long, or goes on (then there is no sentence)."""
        self._emit(ev.EngineChanged(self.host.status))
        if sentence:
            running = next((t for t in self._queue if t.running), None)
            self._emit(ev.EngineNotice(sentence, running.session_id if running else "", "warning"))

    def _engine_event(self, event: Event) -> None:
        match event:
            case Stored():
                if self._shelf.is_saved(event.session):
                    span = (event.sha1, event.start, event.end, event.reason, event.size)
                    self._shelf.write(event.session, self._shelf.db.record_span, event.session, *span)
                    if self._shelf.has_trash:
                        self.housekeeping.put_up()
                return
            case Notice(message):
                self._emit(ev.EngineNotice(message, severity="warning"))
                return
            case Restored():
                size = event.tokens * (self.host.loaded.kv_bytes_per_token if self.host.loaded else 0)
                self.speed.saw(size, event.ms)
                self._emit(ev.ContextRestored(event.session, event.tokens, event.ms))
                return
        if self.preparing.takes(event):
            return
        turn = next((t for t in self._queue if t.running and t.number == getattr(event, "turn", None)), None)
        if turn is None or turn.session_id != getattr(event, "session", None):
            # What is left of a turn that was given up already.
            if isinstance(event, Prefill):
                self._emit(ev.PromptProgress(event.session, event.done, event.total))
            return
        if isinstance(event, Done | Failed):
            self.host.turn_done()
        self._kind(turn).event(turn, self._shelf[turn.session_id], event)
