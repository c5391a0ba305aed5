"""Parent side of the engine: spawn the child, send commands, hand its events on, notice its end.

Promises: callbacks run on the event loop, in order; a child that dies is reported exactly once; nothing of the child's
prints reaches the terminal (its stderr is a log file). Must not know: sessions, llama.cpp.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from ds4chat.engine.place import RemoteEngine, worker_command
from ds4chat.engine.protocol import Command, Event, Quit, decode_event, encode
from ds4chat.engine.spawn import child_environment
from ds4chat.errors import EngineError

log = logging.getLogger(__name__)

LINE_LIMIT = 64 * 1024 * 1024
"""Longest event line, bytes."""

GRACE_SECONDS = 12.0
"""For the child to store its tail and go; it forces itself after 10."""

LOG_LIMIT = 5_000_000
"""Bytes of log from which on the file starts anew (the last one is kept beside it)."""


class EngineClient:
    """One engine child process."""

    def __init__(
        self,
        on_event: Callable[[Event], None],
        on_exit: Callable[[int], None],
        log_path: Path | None = None,
        remote: RemoteEngine | None = None,
    ) -> None:
        """`on_exit` gets the return code (negative: the signal that ended it), unless `close` was called before.

        Args:
            remote: what is started in place of the child with llama.cpp.
        """
        self._on_event, self._on_exit, self._log_path = on_event, on_exit, log_path
        self._command = worker_command() if remote is None else remote.command
        self._environment = {} if remote is None else remote.environment
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Spawn the child. Raises EngineError."""
        with contextlib.ExitStack() as stack:
            try:
                stderr = stack.enter_context(self._open_log())
                # Its own session: Ctrl+C and a hang-up of the terminal must not end it before it has stored its tail.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    env=child_environment() | self._environment,
                    start_new_session=True,
                    limit=LINE_LIMIT,
                )
            except OSError as error:
                if isinstance(error, FileNotFoundError | PermissionError):
                    raise EngineError(
                        f"The engine's command {self._command[0]} cannot be run ({error.strerror}): install it, or "
                        "correct the engine in config.toml."
                    ) from error
                few_files = error.errno in (errno.EMFILE, errno.ENFILE)
                way_out = "raise the limit with `ulimit -n`" if few_files else "free some memory"
                raise EngineError(
                    f"The engine process could not be started ({error.strerror}): {way_out} and try again."
                ) from error
        self._reader = asyncio.create_task(self._read(self._process))

    def _open_log(self) -> BinaryIO:
        if self._log_path is not None:
            try:
                self._log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                if self._log_path.exists() and self._log_path.stat().st_size > LOG_LIMIT:
                    self._log_path.replace(self._log_path.with_suffix(".old.log"))
                fd = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                with contextlib.suppress(OSError):
                    os.fchmod(fd, 0o600)
                return os.fdopen(fd, "ab")
            except OSError as error:
                log.warning("no engine log: %s", error)
        return Path(os.devnull).open("ab")

    def send(self, command: Command) -> None:
        """Queue a command. A child that is gone is reported by `on_exit`, not here."""
        process = self._process
        if process is not None and process.stdin is not None and process.returncode is None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                process.stdin.write(encode(command))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                log.error("the engine wrote an event line beyond %d bytes", LINE_LIMIT)
                continue
            if not line:
                break
            try:
                event = decode_event(line)
            except msgspec.DecodeError as error:
                log.error("not an event: %s", error)
                continue
            try:
                self._on_event(event)
            except Exception:
                # One event that could not be handled must not leave the rest unread and the chat waiting for ever.
                log.exception("handling %s", type(event).__name__)
        code = await process.wait()
        if not self._closing:
            self._on_exit(code)

    async def close(self) -> None:
        """Let the child store its tail and go; kill it when it does not."""
        self._closing = True
        process = self._process
        if process is None:
            return
        self.send(Quit())
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                if self._reader is not None:
                    await asyncio.shield(self._reader)
        except TimeoutError:
            log.error("the engine did not stop in %.0f seconds and is killed", GRACE_SECONDS)
            self.kill()
            if self._reader is not None:
                await self._reader

    def kill(self) -> None:
        """End the child at once (a decode that hangs, or memory that must come back)."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
