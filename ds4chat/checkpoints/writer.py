"""The writer thread: hashes and writes spans while the engine computes, and lends it buffers for them.

Promises that drafts are put in the order they were submitted, that each gets exactly one answer, and that a
failing put ends neither the thread nor the chat. It must not know the engine; a buffer is memory with an
address.

The pool is what keeps the engine from running ahead of the disk: with all buffers in flight, `acquire` waits.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from ds4chat.checkpoints.span import Outcome, PutResult, SpanDraft
from ds4chat.errors import CheckpointError

log = logging.getLogger(__name__)

BUFFERS = 2
"""One being filled while the other is written; more would only hide a disk that is too slow."""

_ROUND = 2**20


class Putter(Protocol):
    """Where drafts go: a `Store`."""

    def put(self, draft: SpanDraft) -> PutResult:
        """Store one span, blocking until it is durable."""


class Buffer:
    """Writable memory of the pool. It is the holder's until it is submitted with a draft or released.

    Memory touched for the first time costs several times the copy, so buffers are kept and only ever grow.
    """

    def __init__(self, give_back: Callable[[Buffer], None]) -> None:
        self._give_back = give_back
        self._map: mmap.mmap | None = None
        self._address = 0
        self.nbytes = 0
        """Bytes asked for; the memory may be larger."""

    @property
    def address(self) -> int:
        """Of the first byte, for a C function to write to."""
        return self._address

    @property
    def view(self) -> memoryview:
        """The bytes asked for, writable."""
        if self._map is None:
            return memoryview(bytearray())
        return memoryview(self._map)[: self.nbytes]

    def release(self) -> None:
        """Give it back to the pool, when it is not submitted."""
        self._give_back(self)

    def _resize(self, nbytes: int) -> None:
        if self._map is None or len(self._map) < nbytes:
            size = max(-(-nbytes // _ROUND), 1) * _ROUND
            # The old memory goes with its last view, not before.
            self._map = mmap.mmap(-1, size)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.nbytes = nbytes


@dataclass(frozen=True)
class _Job:
    draft: SpanDraft
    on_done: Callable[[PutResult], None] | None
    buffer: Buffer | None


class Writer:
    """One thread over one store. Make it, submit drafts, and `close` it in the end."""

    def __init__(self, store: Putter, buffers: int = BUFFERS) -> None:
        self._store = store
        self._free = [Buffer(self._give_back) for _ in range(buffers)]
        self._jobs: deque[_Job] = deque()
        self._busy = False
        self._closed = False
        self._changed = threading.Condition()
        # A daemon: a disk that hangs must not keep the process from going.
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
        self._thread.start()

    def acquire(self, nbytes: int, timeout: float | None = None) -> Buffer:
        """A buffer of at least `nbytes` bytes, waiting up to `timeout` seconds (None: for ever) while all are
        in flight.

        Raises `CheckpointError` when none came free in time, no memory is left, or the writer is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._closed, timeout)
            if self._closed:
                raise CheckpointError("the writer is closed")
            if not self._free:
                raise CheckpointError(f"no buffer came free in {timeout} seconds")
            buffer = self._free.pop()
        try:
            buffer._resize(nbytes)
        except (OSError, MemoryError, OverflowError, ValueError) as error:
            buffer.release()
            raise CheckpointError(f"no memory for a buffer of {nbytes} bytes: {error}") from error
        return buffer

    def submit(
        self,
        draft: SpanDraft,
        buffer: Buffer | None = None,
        on_done: Callable[[PutResult], None] | None = None,
    ) -> None:
        """Queue a draft and return at once. `buffer`, which holds its payload, is released after the put;
        `on_done` is then called on the writer thread. A closed writer answers DISABLED at once."""
        job = _Job(draft, on_done, buffer)
        with self._changed:
            if not self._closed:
                self._jobs.append(job)
                self._changed.notify_all()
                return
        self._finish(job, PutResult(Outcome.DISABLED, message="the writer is closed"))

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was submitted is answered; False when that took more than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more drafts, write those queued, end the thread; False when that took more than `timeout`
        seconds, and what is still queued then may be lost. Waits in `acquire` end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _give_back(self, buffer: Buffer) -> None:
        with self._changed:
            if buffer not in self._free:
                self._free.append(buffer)
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
                self._busy = True
            self._finish(job, self._put(job.draft))
            # Without this the local name would hold the payload of the last draft until the next one comes.
            del job
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _put(self, draft: SpanDraft) -> PutResult:
        started = time.monotonic()
        try:
            result = self._store.put(draft)
        except Exception as error:
            log.exception("span %d..%d was not stored", draft.start, draft.end)
            return PutResult(Outcome.FAILED, message=str(error))
        seconds = time.monotonic() - started
        log.debug("span %d..%d: %s in %.3f s", draft.start, draft.end, result.outcome.value, seconds)
        return result

    def _finish(self, job: _Job, result: PutResult) -> None:
        if job.buffer is not None:
            job.buffer.release()
        if job.on_done is not None:
            try:
                job.on_done(result)
            except Exception:
                log.exception("the answer to span %d..%d was not taken", job.draft.start, job.draft.end)
