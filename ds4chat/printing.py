"""`-p/--print`: one question, its answer on standard output, and out. It sits on the session manager alone.

Standard output carries the answer and nothing else; notices go to standard error. Formats: `text` streams the
answer as it comes, `json` prints one object at the end, `stream-json` prints one object a line as things
happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal, TextIO

import msgspec

from ds4chat import news, signals
from ds4chat.errors import EngineError
from ds4chat.safe_text import escaped_json
from ds4chat.safe_text import visible as visible
from ds4chat.script_input import NO_CONSTRAINT, Constraint
from ds4chat.sessions.events import (
    ContextRestored,
    EngineChanged,
    EngineNotice,
    ManagerEvent,
    MessageAdded,
    PromptProgress,
    TextStreamed,
    ToolAsked,
    TurnEnded,
    TurnStarted,
    WindowMoved,
)
from ds4chat.sessions.manager import SessionManager
from ds4chat.sessions.session import Session, called, outcome

OutputFormat = Literal["text", "json", "stream-json"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Each stops the reply, which is kept, and gives the exit code a shell reports for it: 128 and its number."""

CUT_OFF = 3
"""Exit code of an answer that does not follow its grammar to the end."""

CUT_OFF_BY = {
    "length": "allow it more tokens with --max-tokens",
    "context": "the context is full, so choose a larger --ctx",
}
"""What to do about it, by why the engine stopped."""

CALL_MARKS = ("<tool_call>", "<function_call>", "[TOOL_CALLS]")
"""What a call in a reply begins with."""

FAILURE_GRACE_SECONDS = 1.0
"""How long a turn may take to end by itself after the engine was reported as failed."""


def shown(text: str, out: TextIO | None = None) -> str:
    """Text as it is for a file or a pipe, and made `visible` for a terminal; `out` is standard output by default."""
    return visible(text) if (out or sys.stdout).isatty() else text


def dump_json(value: object, out: TextIO, indent: int | None = None) -> str:
    """JSON in the characters that `out` can take, none of which acts on a terminal."""
    utf8 = (getattr(out, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    return escaped_json(json.dumps(value, ensure_ascii=not utf8, indent=indent))


def print_reply(
    manager: SessionManager,
    prompt: str,
    *,
    session_id: str | None,
    output_format: OutputFormat,
    out: TextIO,
    err: TextIO,
    constraint: Constraint = NO_CONSTRAINT,
    allow_tools: Collection[str] = (),
) -> int:
    """Ask `prompt` in a session (None: a new one), print the answer, close the manager.

    Args:
        allow_tools: names of the tools that run when the model calls them; all others are refused.

    Returns:
        The exit code: 0, or 130 when Ctrl+C stopped the answer (what came of it is printed and kept); 143 and 129
        when SIGTERM and SIGHUP did; 3 when the answer was cut off before it was all that `constraint` asks for.

    Raises:
        EngineError: the engine could not answer.
        BrokenPipeError: nobody reads `out` any more; the answer was stopped.
    """
    printer = _Printer(manager, output_format, out, err, constraint, allow_tools)
    try:
        return asyncio.run(printer.run(prompt, session_id))
    except asyncio.CancelledError:  # a signal came while the manager was being closed
        return printer.exit_code


class _CallFilter:
    """Holds a call back that a reply may be making: it is no part of the answer when a tool is asked."""

    def __init__(self) -> None:
        self.held = ""

    def passed(self, text: str) -> str:
        """The text, and what was held before, as far as no call begins in it."""
        whole = self.held + text
        at = min((i for mark in CALL_MARKS if (i := _begins(whole, mark)) >= 0), default=len(whole))
        self.held = whole[at:]
        return whole[:at]


def _begins(text: str, mark: str) -> int:
    """Where a mark begins in a text, be it only the first part of it at the end; -1 for nowhere."""
    at = text.find(mark)
    if at >= 0:
        return at
    parts = (length for length in range(min(len(mark), len(text)), 0, -1) if text.endswith(mark[:length]))
    return len(text) - next(parts, len(text) + 1)


class _Printer:
    def __init__(
        self,
        manager: SessionManager,
        output_format: OutputFormat,
        out: TextIO,
        err: TextIO,
        constraint: Constraint,
        allow_tools: Collection[str] = (),
    ) -> None:
        self._constraint = constraint
        self._cut_off = False
        self._manager = manager
        self._allow_tools = allow_tools
        self._format = output_format
        self._out = out
        self._err = err
        self._safe: Callable[[str], str] = visible if out.isatty() else str
        self._session: Session | None = None
        self._session_id = ""
        self._reply_id: int | None = None
        self._text: list[str] = []
        self._calls = _CallFilter()
        self._last = ""
        """The last character of the answer so far."""
        self._stopped_by = 0
        self._over = False
        """The answer is out; what storing its end has to say still counts."""
        self._broken: BrokenPipeError | None = None
        self._failed: asyncio.Event = asyncio.Event()

    async def run(self, prompt: str, session_id: str | None) -> int:
        manager = self._manager
        unsubscribe = manager.subscribe(self._on_event)
        task = asyncio.current_task()
        assert task is not None
        signals.catch({number: partial(self._interrupt, number, task) for number in STOP_SIGNALS})
        try:
            # Opened before the engine starts, so that a session that is locked or gone is told at once.
            session = manager.new_session() if session_id is None else manager.open_session(session_id)
            self._session, self._session_id = session, session.id
            await manager.start_engine()
            if self._constraint.notice:
                self._notice(self._constraint.notice)
            manager.send(session.id, prompt, grammar=self._constraint.grammar)
            self._line({"type": "session", "session": session.id})
            ended = await self._wait()
            self._finish(ended)
            if ended.error:
                raise EngineError(ended.error)
            self._check_whole(ended)
        except asyncio.CancelledError:
            if not self._stopped_by:
                raise
        finally:
            self._over = True
            try:
                await manager.aclose()
            finally:
                unsubscribe()
                signals.let_go(STOP_SIGNALS)
        if self._broken is not None:
            raise self._broken
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """0, what a shell reports for the signal that stopped the reply, or that it was cut off."""
        if self._stopped_by:
            return 128 + self._stopped_by
        return CUT_OFF if self._cut_off else 0

    def _check_whole(self, ended: TurnEnded) -> None:
        """An answer that was to follow a grammar and was cut off is no such answer: whoever reads it must know."""
        why = CUT_OFF_BY.get(ended.stats.stop_reason)
        if self._constraint.grammar and why is not None:
            self._cut_off = True
            self._notice(
                f"The answer was cut off before it was all that the {self._constraint.kind} asks for: {why}."
            )

    def _interrupt(self, number: int, task: asyncio.Task[int]) -> None:
        """Stop the reply, which then ends as usual; with nothing to stop, leave. The second Ctrl+C leaves at once; a
        second hang-up, which comes with the first, does not cut short what is saved.
        """
        again = bool(self._stopped_by)
        self._stopped_by = number
        if number != signal.SIGINT and (again or self._over):
            return
        if again or not self._session_id or not self._manager.stop(self._session_id):
            task.cancel()

    async def _wait(self) -> TurnEnded:
        """The turn's end. An engine that failed for good may leave none; then its message is the turn's."""
        turn = asyncio.ensure_future(self._manager.wait_turn(self._session_id))
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            await asyncio.wait({turn, failed}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                await asyncio.wait({turn}, timeout=FAILURE_GRACE_SECONDS)
            if turn.done():
                return turn.result()
            message = self._manager.engine.message or "The engine failed: try again."
            return TurnEnded(self._session_id, -1, self._reply_id, "failed", error=message)
        finally:
            for waiting in (turn, failed):
                waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await failed

    def _on_event(self, event: ManagerEvent) -> None:
        if self._over and not isinstance(event, EngineNotice):
            return
        match event:
            case EngineChanged(status) if status.phase == "failed":
                self._failed.set()
            case EngineNotice(message):
                self._notice(message)
            case WindowMoved(session_id, _, turns) if session_id == self._session_id:
                self._line({"type": "window", "turns": turns})
            case TurnStarted(session_id, _, reply_id) if session_id == self._session_id:
                self._reply_id = reply_id
                self._next_reply()
            case ToolAsked() if event.session_id == self._session_id:
                self._asked(event)
            case MessageAdded(session_id, message_id) if session_id == self._session_id:
                self._result(message_id)
            case ContextRestored(session_id, tokens, ms) if session_id == self._session_id:
                self._line({"type": "restored", "tokens": tokens, "ms": round(ms, 3)})
            case PromptProgress(session_id, done, total) if session_id == self._session_id:
                self._line({"type": "prefill", "done": done, "total": total})
            case TextStreamed(session_id, _, text) if session_id == self._session_id:
                self._text.append(text)
                self._line({"type": "text", "text": text})
                if self._format == "text":
                    self._say(self._calls.passed(text))
            case _:
                pass

    def _next_reply(self) -> None:
        """A reply behind the results of calls: the text of the last one is the answer."""
        self._calls = _CallFilter()
        self._end_line()
        self._text.clear()

    def _say(self, text: str) -> None:
        """A part of the answer."""
        self._write(self._safe(text))
        self._last = text[-1:] or self._last

    def _end_line(self) -> None:
        if self._format == "text" and self._last not in ("", "\n"):
            self._write("\n")
            self._last = "\n"

    def _asked(self, asked: ToolAsked) -> None:
        allowed = asked.name in self._allow_tools
        if not allowed:
            hint = f"--allow-tool {shlex.quote(asked.name)} lets it run"
            self._notice(f"The call of the tool {asked.name} was refused: {hint}.")
        call = {"type": "tool_call", "call": asked.call, "name": asked.name, "allowed": allowed}
        self._line({**call, "arguments": json.loads(asked.arguments)})
        self._manager.answer_tool(asked.session_id, "once" if allowed else "refuse")

    def _result(self, message_id: int) -> None:
        message = self._session.messages.get(message_id) if self._session is not None else None
        if message is not None and message.role == "tool":
            told = {"name": called(message), "outcome": outcome(message), "text": message.text}
            self._line({"type": "tool_result", "call": str(message.stats.get("call", "")), **told})

    def _finish(self, ended: TurnEnded) -> None:
        text = "".join(self._text)
        if self._format == "text":
            self._say(self._calls.held)
            self._end_line()
            return
        if ended.error:
            self._line({"type": "error", "message": ended.error})
            return
        stats = {
            k: round(v, 3) if isinstance(v, float) else v
            for k, v in msgspec.structs.asdict(ended.stats).items()
        }
        if ended.state == "stopped":
            stats["stop_reason"] = stats["stop_reason"] or "cancelled"
        reply_id = self._reply_id if ended.reply_id is None else ended.reply_id
        result = {
            "session": self._session_id,
            "message": reply_id,
            "model": self._manager.engine.model,
            "text": text,
            **stats,
        }
        if self._format == "json":
            self._write(dump_json(result, self._out) + "\n")
        self._line({"type": "done", **result})

    def _line(self, event: dict[str, object]) -> None:
        if self._format == "stream-json":
            self._write(dump_json(event, self._out) + "\n")

    def _write(self, text: str) -> None:
        """Print at once. When nobody reads any more the reply is stopped; the manager must not see the
        failure."""
        if self._broken is not None:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError as error:
            self._broken = error
            self._manager.stop(self._session_id)

    def _notice(self, message: str) -> None:
        with contextlib.suppress(OSError):
            print(f"ds4chat: {visible(message)}", file=self._err, flush=True)
            news.printed(message)
