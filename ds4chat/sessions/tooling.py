"""Calls of tools: what a chat's model may call, the user's word on each call, and the turns that follow from results.

Promises: nothing runs that the user did not allow; each call that is worked off leaves a result in the chat, and the
reply that made it stays as it was sampled; whatever a tool does ends within its time; after a start of the program
nothing runs by itself. Must not know: the engine child, the screen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ds4chat.errors import DatabaseError, UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.session import Message, Session
from ds4chat.sessions.shelf import PATIENT_SECONDS, Shelf
from ds4chat.tools.options import ToolOptions

if TYPE_CHECKING:
    from ds4chat.engine.protocol import Loaded
    from ds4chat.sessions.calls import Call
    from ds4chat.tools.tool import Result
    from ds4chat.tools.toolbox import Toolbox

log = logging.getLogger(__name__)

Answer = Literal["once", "session", "refuse"]
"""The user's word on a call: let it run, let this tool run for as long as the chat is open here, refuse it."""

MOST_ROUNDS = 8
"""Replies with calls in a row that are worked off by themselves."""

MOST_BYTES = 100_000
"""Of a result, however large the context is."""

BYTES_PER_TOKEN = 2
"""Of context that a result may take: about half of the context with the four bytes a token that are common."""

LEAST_BYTES = 1_000

REFUSED = "The user refused this call."
STOPPED = "The user stopped this call."
BAD_ARGUMENTS = "The arguments must be a JSON object."


class ToolInfo(msgspec.Struct, frozen=True):
    """A tool as the user is told of it. `where`: "built in", or the server it is of."""

    name: str
    description: str
    where: str


class _Round:
    """The calls of one reply that are being worked off."""

    def __init__(self, reply: Message) -> None:
        self.reply = reply
        self.task: asyncio.Task[None] | None = None
        self.asked: ev.ToolAsked | None = None
        self.answer: asyncio.Future[Answer] | None = None
        self.last: Message | None = None
        """The last result, once all calls were worked off."""


class Tooling:
    """The tools of all chats of one run."""

    def __init__(
        self,
        shelf: Shelf,
        options: ToolOptions,
        emit: Callable[[ev.ManagerEvent], None],
        answer: Callable[[str, int], None],
        ended: Callable[[ev.TurnEnded], None],
        ready: Callable[[], None],
        n_ctx: Callable[[], int],
    ) -> None:
        """
        Args:
            answer: queues a turn for the last result of a session.
            ended: hears of calls that no turn follows.
            ready: hears that the tools are there, or that they never will be.
            n_ctx: tokens of context, 0 when unknown.
        """
        self._shelf, self._options, self._emit = shelf, options, emit
        self._answer, self._ended, self._ready, self._n_ctx = answer, ended, ready, n_ctx
        self._box: Toolbox | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_ready = False
        self._rounds: dict[str, _Round] = {}
        self._always: dict[str, set[str]] = {}
        self._told: set[tuple[str, str]] = set()
        self._closing = False

    # ---- what there is ----

    def is_on(self, session: Session) -> bool:
        """Whether the chat's model may call tools: as the chat says, else as the configuration does."""
        own = session.params.get("tools")
        return own if isinstance(own, bool) else self._options.enabled

    def declarations(self, session: Session, loaded: Loaded) -> str | None:
        """What the model is told of tools, "" for nothing, None while the servers were not started yet."""
        if not self.is_on(session) or not loaded.tools:
            return ""
        return self._box.declarations if self._is_ready and self._box is not None else None

    def is_ready_for(self, session: Session, loaded: Loaded) -> bool:
        """Whether a turn may begin. When not, the servers are being started, and `ready` hears of it."""
        if not self.is_on(session):
            return True
        if not loaded.tools:
            self._say_none(session, loaded)
            return True
        if self._is_ready:
            return True
        self._start()
        return False

    def keep(self, session: Session, loaded: Loaded) -> None:
        """A turn begins: a chat that has begun with tools goes on with them, so that its prompt stays the same."""
        if loaded.tools and self.is_on(session) and "tools" not in session.params:
            session.params["tools"] = True
            self._shelf.write(session.id, self._shelf.db.set_params, session.id, dict(session.params))

    def _say_none(self, session: Session, loaded: Loaded) -> None:
        if (session.id, loaded.name) not in self._told:
            self._told.add((session.id, loaded.name))
            text = (
                f"The chat template of {loaded.name} has no place for tools: this chat goes on without them."
            )
            self._emit(ev.EngineNotice(text, session.id))

    def _start(self) -> None:
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start_box())

    async def _start_box(self) -> None:
        box = self._toolbox()
        try:
            await box.start()
        except Exception:
            log.exception("the tools did not start")
            self._say("The tools could not be started: the log has the details.")
        self._is_ready = True
        if not box.tools:
            self._say("No tools are configured: name some under [tools] builtin, or servers under [[mcp]].")
        if not self._closing:
            self._ready()

    def _toolbox(self) -> Toolbox:
        if self._box is None:
            from ds4chat.tools.toolbox import Toolbox

            self._box = Toolbox(self._options, self._say)
        return self._box

    def _say(self, sentence: str) -> None:
        self._emit(ev.EngineNotice(sentence, severity="warning"))

    async def tools(self) -> list[ToolInfo]:
        """All tools there are; the servers are started for that."""
        self._start()
        assert self._starting is not None
        await asyncio.shield(self._starting)
        tools = self._toolbox().tools.values()
        return [ToolInfo(tool.name, tool.description, tool.where) for tool in tools]

    # ---- calls ----

    def is_busy(self, session_id: str) -> bool:
        """Whether a call of the session runs or waits for the user's word."""
        return session_id in self._rounds

    @property
    def busy(self) -> Collection[str]:
        """The sessions with such a call."""
        return self._rounds.keys()

    def asked(self, session_id: str) -> ev.ToolAsked | None:
        """The call that waits for the user's word, if one does."""
        found = self._rounds.get(session_id)
        return found.asked if found is not None else None

    def reply_ended(self, session: Session, reply: Message) -> None:
        """A reply is whole: work its calls off, if it has any and the chat did not go on without them."""
        if self._closing or self._box is None or not self._is_ready or not self.is_on(session):
            return
        if "{" not in reply.text or not self._box.tools:
            return
        from ds4chat.sessions.calls import calls_in

        calls = calls_in(reply.text, self._box.tools)
        if not calls:
            return
        if session.head_id != reply.id:
            text = "The chat went on before the call of a tool was answered: it was not run."
            self._emit(ev.EngineNotice(text, session.id))
            return
        if _rounds_before(session, reply) >= MOST_ROUNDS:
            text = f"The model called tools {MOST_ROUNDS} times in a row: stopped there. Your next message goes on."
            self._emit(ev.EngineNotice(text, session.id, "warning"))
            return
        work = self._rounds[session.id] = _Round(reply)
        work.task = asyncio.ensure_future(self._work(session, work, calls))
        work.task.add_done_callback(lambda task: self._over(session, work, task))

    async def _work(self, session: Session, work: _Round, calls: list[Call]) -> None:
        """Work calls off, one after the other. Raises DatabaseError."""
        last: Message | None = None
        for call in calls:
            try:
                outcome, result = await self._one(session, work, call)
            except asyncio.CancelledError:
                self._note(session, call, "stopped", STOPPED)
                return
            last = self._note(session, call, outcome, result.text)
        work.last = last

    def _over(self, session: Session, work: _Round, task: asyncio.Task[None]) -> None:
        """The calls are worked off, or were stopped: the model goes on, or the turn is over."""
        if self._rounds.get(session.id) is work:
            del self._rounds[session.id]
        error = None if task.cancelled() else task.exception()
        if work.last is not None and not self._closing:
            self._answer(session.id, work.last.id)
            return
        sentence = ""
        if error is not None:
            log.error("the calls of session %s: %s", session.id, type(error).__name__)
            sentence = (
                str(error) if isinstance(error, DatabaseError) else "The calls of tools failed: send again."
            )
        state = "failed" if error is not None else "stopped"
        end = ev.TurnEnded(session.id, work.reply.parent_id or 0, work.reply.id, state, error=sentence)
        self._emit(end)
        self._ended(end)

    async def _one(self, session: Session, work: _Round, call: Call) -> tuple[str, Result]:
        """Work one call off: how it ended, and with what."""
        from ds4chat.tools.tool import Result

        assert self._box is not None
        tool = self._box.tools.get(call.name)
        if tool is None:
            known = ", ".join(self._box.tools)
            return "failed", Result(f"There is no such tool. There are: {known}.", failed=True)
        if call.arguments is None:
            return "failed", Result(BAD_ARGUMENTS, failed=True)
        if call.name not in self._always.get(session.id, ()):
            work.answer = asyncio.get_running_loop().create_future()
            work.asked = ev.ToolAsked(session.id, work.reply.id, call.id, call.name, tool.where, call.shown)
            self._emit(work.asked)
            answer = await work.answer
            work.asked = work.answer = None
            if answer == "refuse":
                return "refused", Result(REFUSED, failed=True)
            if answer == "session":
                self._always.setdefault(session.id, set()).add(call.name)
        self._emit(ev.ToolRunning(session.id, work.reply.id, call.id, call.name))
        most = max(LEAST_BYTES, min(MOST_BYTES, self._n_ctx() * BYTES_PER_TOKEN))
        result = await self._box.call(call.name, call.arguments, most)
        return "failed" if result.failed else "ran", result

    def _note(self, session: Session, call: Call, outcome: str, text: str) -> Message:
        """Add a result to the chat. Raises DatabaseError."""
        stats: dict[str, Any] = {"tool": call.name[:64], "call": call.id[:200], "outcome": outcome}
        message = Message(0, session.head_id, "tool", text, created=time.time(), stats=stats)
        self._shelf.append(session, message, PATIENT_SECONDS)
        self._emit(ev.MessageAdded(session.id, message.id))
        return message

    def answer(self, session_id: str, answer: Answer) -> bool:
        """The user's word on the call that waits for it. False: none does."""
        work = self._rounds.get(session_id)
        if work is None or work.answer is None or work.answer.done():
            return False
        work.asked = None
        work.answer.set_result(answer)
        return True

    def stop(self, session_id: str) -> bool:
        """Stop the call that runs or waits, and the turn with it. False: there is none."""
        work = self._rounds.get(session_id)
        if work is None or work.task is None:
            return False
        work.asked = None
        work.task.cancel()
        return True

    def must_not_wait(self, session_id: str) -> None:
        """Raises UsageError when a call runs or waits: what is sent would come between it and its result."""
        if session_id in self._rounds:
            asked = self._rounds[session_id].asked is not None
            what = "A call of a tool waits for your word" if asked else "A tool is running"
            raise UsageError(f"{what} in this chat: answer it, or stop it, and then send your message.")

    async def stop_all(self) -> None:
        """Stop all calls; none begins any more."""
        self._closing = True
        tasks = [work.task for work in self._rounds.values() if work.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def end_servers(self) -> None:
        """End the servers, and wait for that."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._box is not None:
            await self._box.aclose()


def _rounds_before(session: Session, reply: Message) -> int:
    """Replies with results since the user's last message, before this one."""
    rounds, below = 0, reply
    while below.parent_id is not None:
        message = session.messages[below.parent_id]
        if message.role == "user":
            break
        rounds += message.role == "assistant"
        below = message
    return rounds
