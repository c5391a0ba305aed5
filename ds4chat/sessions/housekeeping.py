"""What is done beside the chat: the trash is emptied for good, and an update of the engine is said.

Must not know: the engine child, the screen.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from ds4chat.engine.protocol import Expendable, Forget
from ds4chat.engine.spawn import updated_from
from ds4chat.errors import DatabaseError
from ds4chat.sessions import events as ev
from ds4chat.sessions.engine_host import EngineHost
from ds4chat.sessions.shelf import Shelf

log = logging.getLogger(__name__)

KEEP_SECONDS = 24 * 3600.0
"""How long what another process deleted and never emptied (it was killed) stays in the trash."""


class Housekeeping:
    """One run's."""

    def __init__(
        self,
        shelf: Shelf,
        host: EngineHost,
        emit: Callable[[ev.ManagerEvent], None],
        memo: Path,
    ) -> None:
        """`memo` remembers the engine's version."""
        self._shelf, self._host, self._emit, self._memo = shelf, host, emit, memo
        self._done = False
        self._put_up: list[str] = []

    def engine_is_ready(self) -> None:
        """Say which checkpoints go first. Once a run: say that checkpoints are of no use any more, take away what was
        left in the trash."""
        self._put_up = []
        self.put_up()
        if self._done or not self._shelf.save:
            return
        self._done = True
        updated = updated_from(self._memo) if self._host.options.elsewhere is None else None
        with contextlib.suppress(DatabaseError):
            if updated is not None and self._shelf.db.all_spans():
                what = "The engine was updated ({} to {})".format(*updated)
                text = f"{what}: each chat is computed once more when it is opened next."
                self._emit(ev.EngineNotice(text))
        self._forget_all(self._shelf.leftovers(time.time() - KEEP_SECONDS))

    def put_up(self) -> None:
        """The trash, or what its sessions stand on, may have changed: tell the engine which checkpoints go first when
        room is made, so that what was deleted is not kept in place of what is still talked in."""
        if not self._host.is_ready:
            return
        try:
            spans = self._shelf.db.spans_of_trash()
        except DatabaseError:
            log.exception("checkpoints of deleted sessions are kept as others are")
            return
        if spans != self._put_up:
            self._put_up = spans
            self._host.send(Expendable(spans))

    def empty_trash(self) -> None:
        """Delete for good what was deleted in this run. Without an engine only what has no checkpoints: those would
        stay and be nobody's, so that a later start deletes the session with them."""
        self._forget_all(self._shelf.empty_trash(with_spans=self._host.is_ready))

    def _forget_all(self, emptied: dict[str, list[str]]) -> None:
        if not emptied:
            return
        try:
            keep = self._shelf.db.all_spans()
        except DatabaseError:
            log.exception("checkpoints of deleted sessions stay")
            return
        for session_id, spans in emptied.items():
            said = self._shelf.said_in_trash.pop(session_id, [])
            names = [*spans, *self._traces(spans, said, keep)]
            self._host.send(Forget(session_id, names, keep))
            if self._host.options.elsewhere is not None:
                self._remove_here(names, keep)

    def _remove_here(self, names: list[str], keep: list[str]) -> None:
        """The engine is elsewhere, and deletes what it has; what this machine's engine stored is deleted here."""
        directory = self._host.options.kv.directory
        if not directory or not names:
            return
        from ds4chat.checkpoints.store import remove_spans

        try:
            remove_spans(directory, map(bytes.fromhex, names), map(bytes.fromhex, keep))
        except (OSError, ValueError):
            log.exception("checkpoints of a deleted session stay")

    def _traces(self, spans: list[str], said: list[str], keep: list[str]) -> list[str]:
        """Checkpoints of a deleted session that were never written down."""
        directory = self._host.options.kv.directory
        if not directory:
            return []
        from ds4chat.checkpoints.traces import traces

        try:
            found = traces(Path(directory), map(bytes.fromhex, spans), said, map(bytes.fromhex, keep))
        except (OSError, ValueError):
            log.exception("checkpoints of deleted sessions were not looked for")
            return []
        return [name.hex() for name in found]
