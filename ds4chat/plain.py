"""`--plain`: the chat line by line, for screen readers, dumb terminals and pipes. It sits on the session manager alone.

Promises: plain lines in the order things happen, no cursor movement, no colour, no escape sequence; all that the chat
screen can do with sessions and messages can be done by a slash command (the same table, `ui/commands.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Literal, TextIO

from ds4chat import news, signals
from ds4chat.errors import Ds4chatError, EngineError
from ds4chat.plain_commands import PlainCommands
from ds4chat.plain_input import LineReader
from ds4chat.printing import FAILURE_GRACE_SECONDS, visible
from ds4chat.sessions.events import (
    ContextRestored,
    EngineChanged,
    EngineNotice,
    ManagerEvent,
    MessageAdded,
    PromptProgress,
    TextStreamed,
    ToolAsked,
    ToolRunning,
    TurnEnded,
    TurnStarted,
    WindowMoved,
)
from ds4chat.sessions.session import speaker
from ds4chat.ui import attachments
from ds4chat.ui.commands import COMMANDS, Slash, read

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager
    from ds4chat.ui.desk import Desk

PROMPT = "You: "

HISTORY = 500

AGAIN_SECONDS = 2.0
"""A second Ctrl+C within this time quits."""

PROGRESS_SECONDS = 3.0
"""Between two lines about a long prompt: a screen reader reads each of them out."""

TOOL_QUESTION = "Run it? (y: once, s: from now on in this chat, n: no) "
TOOL_ANSWERS: dict[str, Literal["once", "session", "refuse"]] = {
    "y": "once",
    "yes": "once",
    "s": "session",
    "session": "session",
}
"""The user's words; all others refuse."""

ENDS = {
    "stopped": "stopped; /continue goes on",
    "cut": "cut off; /continue goes on",
    "length": "stopped at the length limit; /continue goes on",
}


def run(
    manager: SessionManager,
    *,
    session_id: str | None,
    desk: Desk | None = None,
    greeting: str = "",
    out: TextIO | None = None,
) -> tuple[int, str | None]:
    """Chat until the user leaves; the manager is closed then.

    Args:
        session_id: the session to go on in, None for a new one.
        greeting: a sentence to begin with.

    Returns:
        The exit code (0; 128 and the number of a signal that ended it; 1 when the last message got no answer), and the
        id of the session that can be resumed.
    """
    chat = PlainChat(manager, LineReader(), out or sys.stdout, desk)
    try:
        code = asyncio.run(chat.run(session_id, greeting))
    except asyncio.CancelledError:  # a signal came while the manager was being closed
        code = chat.exit_code
    return code, chat.resumable


class PlainChat(PlainCommands):
    """One conversation at a time, read and written as lines."""

    def __init__(
        self, manager: SessionManager, reader: LineReader, out: TextIO, desk: Desk | None = None
    ) -> None:
        super().__init__(manager, desk)
        self.reader = reader
        self.exit_code = 0
        self.resumable: str | None = None
        self._out = out
        self._at_line_start = True
        self._changed = asyncio.Event()
        self._streaming = 0
        self._interrupted = float("-inf")
        self._progress_at = 0.0
        self._answering = self._quiet = False
        self._ending = False

    async def run(self, session_id: str | None, greeting: str = "") -> int:
        manager = self.manager
        unsubscribe = manager.subscribe(self._on_event)
        task = asyncio.current_task()
        assert task is not None
        handlers = {
            signal.SIGINT: lambda: self._interrupt(task),
            signal.SIGTERM: lambda: self._end(signal.SIGTERM, task),
            signal.SIGHUP: lambda: self._end(signal.SIGHUP, task),
            signal.SIGTSTP: self._suspend,
        }
        signals.catch(handlers)
        try:
            self.session = manager.new_session() if session_id is None else manager.open_session(session_id)
            if greeting:
                self.line(greeting)
            self.line("ds4chat, line by line. /help lists the commands, /quit leaves.")
            self.describe()
            await manager.start_engine()
            history = [attachments.collapse(text) for text in manager.prompt_history(HISTORY)]
            self.reader.prepare(history[::-1], self._complete)
            await self._converse()
        except asyncio.CancelledError:
            pass
        finally:
            self._ending = True
            self.reader.restore()
            unsubscribe()
            try:
                await manager.aclose()
            finally:
                signals.let_go(handlers)
                session = self.session
                if session is not None and session.head_id is not None and manager.is_saved(session.id):
                    self.resumable = session.id
                self._fresh_line()
        return self.exit_code

    async def _converse(self) -> None:
        while not self.leaving:
            text = await self.ask(PROMPT)
            while text is not None and text.endswith("\\"):
                more = await self.ask("... ")
                text = text[:-1] + "\n" + (more or "")
            if text is None:
                return
            if not text.strip():
                continue
            self.reader.remember(text)
            try:
                await self.take(text)
            except EngineError as error:
                self.exit_code = 1
                self.line(str(error))
            except Ds4chatError as error:
                self.line(str(error))

    async def take(self, text: str) -> None:
        """Do what a line says. Raises Ds4chatError with the reason why not."""
        meant = read(text)
        if isinstance(meant, Slash):
            await self.run_command(meant)
        else:
            await self.send(meant)

    async def send(self, text: str) -> None:
        """Send a message and print the reply as it comes."""
        self.manager.send(self.session.id, attachments.expand(text))
        await self.wait()

    async def ask(self, prompt: str) -> str | None:
        """A line from the user; when there is no terminal it is printed, so that what comes out can be read."""
        self._fresh_line()
        line = await self.reader.line(prompt)
        if line is not None and not self.reader.is_terminal:
            self.line(prompt + line)
        self._at_line_start = True
        if line is None and self.reader.is_terminal:
            self._at_line_start = False
        return line

    async def wait(self, *, quiet: bool = False) -> None:
        """Print what comes, until nothing of this chat runs or waits. `quiet`: that the window moves is no news."""
        manager, session_id = self.manager, self.session.id
        self._answering, self._quiet = True, quiet
        self.exit_code = 0
        try:
            if manager.engine.phase in ("starting", "loading") and manager.is_busy(session_id):
                self.line(f"(loading {manager.engine.model or 'the model'})")
            while manager.is_busy(session_id):
                if (asked := manager.asked_tool(session_id)) is not None:
                    await self._ask_for(asked)
                    continue
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), FAILURE_GRACE_SECONDS)
                except TimeoutError:
                    if manager.engine.phase == "failed":
                        manager.stop(session_id)
                        raise EngineError(manager.engine.message or "The engine failed: try again.") from None
        finally:
            self._answering = self._quiet = False
            self._fresh_line()

    async def _ask_for(self, asked: ToolAsked) -> None:
        """Show a call, and ask whether it may run. The end of the input refuses it."""
        self.line(f"The model calls {asked.name} ({asked.where}) with {asked.arguments}")
        answer = await self.ask(TOOL_QUESTION)
        word = TOOL_ANSWERS.get((answer or "").strip().lower(), "refuse")
        if self.manager.answer_tool(asked.session_id, word) and word == "refuse":
            self.line("(refused)")

    # -- what happens

    def _on_event(self, event: ManagerEvent) -> None:
        current = self.session.id if self.session is not None else ""
        match event:
            case EngineChanged():
                self._changed.set()
            case EngineNotice(message, session_id) if session_id in ("", current):
                self.line(f"* {message}")
                news.printed(message)
            case TurnStarted(session_id) if session_id == current:
                self._streaming, self._progress_at = 0, time.monotonic()
            case ContextRestored(session_id, tokens, ms) if session_id == current and self._answering:
                self.line(f"(restored {tokens:,} tokens in {ms:.0f} ms)")
            case PromptProgress(session_id, done, total) if session_id == current and self._answering:
                now = time.monotonic()
                if done < total and now - self._progress_at > PROGRESS_SECONDS:
                    self._progress_at = now
                    self.line(f"(reading the prompt: {done:,} of {total:,} tokens)")
            case TextStreamed(session_id, message_id, text) if session_id == current:
                if self._streaming != message_id:
                    self._streaming = message_id
                    self.line(f"{self.speaker}: ", end="")
                self._write(visible(text))
            case WindowMoved(session_id, _, turns) if session_id == current and not self._quiet:
                words = (
                    "1 older turn no longer reaches" if turns == 1 else f"{turns} older turns no longer reach"
                )
                self.line(f"* The context was full: {words} the model.")
            case ToolAsked(session_id) if session_id == current:
                self._changed.set()
            case ToolRunning(session_id, name=name) if session_id == current:
                self.line(f"({name} is running)")
            case MessageAdded(session_id, message_id) if session_id == current:
                result = self.session.messages[message_id]
                if result.role == "tool":
                    self.line(f"{speaker(result)}: {result.text}")
            case TurnEnded(session_id, _, _, state, _, error) if session_id == current:
                self._fresh_line()
                self._streaming = 0
                if error:
                    self.exit_code = 1
                    if not news.is_last_printed(error):
                        self.line(error)
                elif state in ENDS:
                    self.line(f"({ENDS[state]})")
                self._changed.set()
            case _:
                pass

    @property
    def speaker(self) -> str:
        """Who answers."""
        return self.manager.engine.model or "Reply"

    # -- signals

    def _interrupt(self, task: asyncio.Task[int]) -> None:
        """Ctrl+C: stop the reply; with none, the second one quits."""
        if self._answering and self.manager.stop(self.session.id):
            self._interrupted = float("-inf")
            return
        now = time.monotonic()
        if now - self._interrupted < AGAIN_SECONDS:
            self.leaving = True
            task.cancel()
            return
        self._interrupted = now
        self.line("(Ctrl+C again quits)")

    def _end(self, number: int, task: asyncio.Task[int]) -> None:
        """Leave, unless that has begun: hang-ups come in pairs, and the second must not cut short what is saved."""
        if self._ending:
            return
        self.exit_code = 128 + number
        self.leaving = self._ending = True
        task.cancel()

    def _suspend(self) -> None:
        self.reader.suspend()
        self._prompt_again()

    # -- what is written

    def line(self, text: str, end: str = "\n") -> None:
        """A line of its own; a prompt that stood there is written again behind it."""
        if self.reader.waiting and self.reader.is_terminal:
            self._write("\n")
        self._fresh_line()
        self._write(visible(text) + end)
        if self.reader.waiting and self.reader.is_terminal:
            self._prompt_again()

    def _prompt_again(self) -> None:
        if self.reader.waiting:
            self._write(visible(self.reader.waiting + self.reader.typed))
            self._at_line_start = True

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            with contextlib.suppress(BrokenPipeError):
                self._out.write(text)
                self._out.flush()

    def _complete(self, word: str) -> list[str]:
        names = [f"/{command.name}" for command in COMMANDS if command.plain]
        return [f"{name} " for name in names if name.startswith(word)] if word.startswith("/") else []
