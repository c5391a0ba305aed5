"""What is to be written while another program writes to the session database, or while the disk takes nothing: it is
done as soon as that ends.

Promises: jobs are done in the order they were given, and before anything that is written at once; the event loop waits
for none of them longer than a key may take to be shown. Must not know: what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ds4chat.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseUnwritableError,
    SessionNotFoundError,
)

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.05
"""How long the event loop waits for another program: most writes take less."""

RETRY_SECONDS = 0.2

DISK_SECONDS = 2.0
"""Between two tries while the disk takes nothing."""

TELL_SECONDS = 1.0
"""How long something may wait before that is said."""


class Patient(Protocol):
    """What is waited for."""

    patience: float | None


@dataclass
class _Job:
    do: Callable[[], object]
    key: object = None


class Backlog:
    """The jobs of one database. Where no event loop runs there is none: a job then takes the time it takes."""

    def __init__(
        self,
        database: Patient,
        tell: Callable[[], None],
        done: Callable[[bool], None],
        failed: Callable[[DatabaseError], None],
    ) -> None:
        """`tell` is called once when jobs have waited for `TELL_SECONDS`; `done` when none waits any more, with whether
        that was told; `failed` with what went wrong with a job that had waited."""
        self._database, self._tell, self._done, self._failed = database, tell, done, failed
        self._jobs: deque[_Job] = deque()
        self._working = self._told = False
        self._disk_refuses = False
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def do(self, job: Callable[[], object], key: object = None) -> bool:
        """Do a job, or keep it for later when the database is busy or others wait; whether it is done. What goes wrong
        at once is raised, and so is that the disk still takes nothing of what waits.

        Args:
            key: a job of the same key that was given last has nothing to do any more.
        """
        if self._disk_refuses and not self._working:
            self.flush()
        if self._working or not self._jobs:
            try:
                with self.patience():
                    job()
                return True
            except DatabaseBusyError:
                if not _has_loop():
                    raise
        self.later(job, key)
        return False

    def later(self, job: Callable[[], object], key: object = None) -> None:
        """Do a job as soon as the database is free and those before it are done."""
        if key is not None and self._jobs and self._jobs[-1].key == key and not self._working:
            self._jobs[-1].do = job
        else:
            self._jobs.append(_Job(job, key))
        if self._timer is None and not self._working:
            self._since = self._since or time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)

    def keep(self, job: Callable[[], object], key: object = None) -> bool:
        """Do a job as soon as the disk takes it again; False where no event loop runs to wait in."""
        if not _has_loop():
            return False
        self._disk_refuses = self._told = True
        self.later(job, key)
        return True

    @contextlib.contextmanager
    def first(self, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
        """What waits is done before what is written inside. Raises DatabaseBusyError when that must wait longer than
        so many seconds."""
        with self.patience(seconds):
            self.flush()
            yield

    @contextlib.contextmanager
    def patience(self, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
        """How long the event loop may wait for a write inside; the outermost counts."""
        if not _has_loop() or self._database.patience is not None:
            yield
            return
        self._database.patience = seconds
        try:
            yield
        finally:
            self._database.patience = None

    def flush(self) -> None:
        """Do what waits. Raises DatabaseBusyError and DatabaseUnwritableError; what fails otherwise is given up and
        said."""
        if self._working or not self._jobs:
            return
        self._working = True
        try:
            while self._jobs:
                with self.patience():
                    self._attempt(self._jobs[0])
                self._jobs.popleft()
        finally:
            self._working = False
        if self._timer is not None:
            self._timer.cancel()
        told = self._told
        self._timer, self._told, self._since = None, False, 0.0
        self._disk_refuses = False
        self._done(told)

    def _attempt(self, job: _Job) -> None:
        try:
            job.do()
        except (DatabaseBusyError, DatabaseUnwritableError):
            raise
        except SessionNotFoundError as error:
            log.info("%s", error)
        except DatabaseError as error:
            self._failed(error)
        except Exception:
            log.exception("a write that had waited failed")

    def _retry(self) -> None:
        self._timer = None
        try:
            self.flush()
        except DatabaseBusyError:
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)
            if not self._told and time.monotonic() - self._since >= TELL_SECONDS:
                self._told = True
                self._tell()
        except DatabaseUnwritableError:
            self._disk_refuses = True
            self._timer = asyncio.get_running_loop().call_later(DISK_SECONDS, self._retry)

    async def finish(self, seconds: float) -> bool:
        """Wait until nothing waits any more, so many seconds at most; whether that came to be."""
        deadline = time.monotonic() + seconds
        while self._jobs:
            try:
                self.flush()
            except DatabaseBusyError:
                if time.monotonic() >= deadline:
                    return False
                await asyncio.sleep(RETRY_SECONDS / 2)
            except DatabaseUnwritableError:
                return False
        return True

    def close(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
