"""The one join of database and engine: open, send, stop, switch. The chat screen and `-p` both sit on it.

Promises: whatever is shown came through one list of events, in the order things happened. How turns are worked off
is the conductor's, which sessions are open the shelf's; this is the face of both. Must not know: the screen, llama.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ds4chat import news
from ds4chat.engine.protocol import Sampling
from ds4chat.errors import UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.branching import Branches
from ds4chat.sessions.conductor import Conductor
from ds4chat.sessions.engine_host import EngineOptions
from ds4chat.sessions.search import SearchHit
from ds4chat.sessions.session import Message, Session, SessionInfo, clean_text
from ds4chat.sessions.shelf import Shelf
from ds4chat.sessions.tooling import Answer, ToolInfo
from ds4chat.tools.options import ToolOptions

__all__ = ["EngineOptions", "SessionInfo", "SessionManager", "ToolInfo"]


class SessionManager:
    """All methods are called on one event loop and return at once unless they are coroutines."""

    def __init__(
        self,
        data_dir: Path,
        options: EngineOptions,
        sampling: Sampling,
        *,
        max_tokens: int | None = None,
        system: str = "",
        params: Mapping[str, Any] | None = None,
        save: bool = True,
        tools: ToolOptions | None = None,
    ) -> None:
        """Open the database; the engine is started by `start_engine`. Raises DatabaseError.

        Args:
            system, params: the system prompt and the settings new sessions get.
            tools: what models may call; None: nothing.
            save: False keeps everything in memory (`--no-save`); sessions on disk can be read and gone on in, unsaved.
        """
        self._system, self._params = clean_text(system), dict(params or {})
        self._listeners: list[Callable[[ev.ManagerEvent], None]] = []
        self._shelf = Shelf(
            data_dir,
            save=save,
            on_failure=self._say_failure,
            on_wait=lambda: self._conductor.say_waiting(),
            on_written=lambda told: self._conductor.say_written(told),
            on_unsaved=self._say_unsaved,
        )
        memo = data_dir / "engine.json"
        self._conductor = Conductor(
            self._shelf, options, sampling, max_tokens, self._emit, memo, tools or ToolOptions()
        )
        self._branches = Branches(self._shelf, self._conductor, self._emit)

    # ---- listeners and engine ----

    def subscribe(self, listener: Callable[[ev.ManagerEvent], None]) -> Callable[[], None]:
        """Deliver events to `listener` until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def engine(self) -> ev.EngineStatus:
        """The engine as it stands."""
        return self._conductor.host.status

    @property
    def engine_pid(self) -> int | None:
        """Process id of the engine child, None before it started."""
        return self._conductor.host.pid

    async def start_engine(self) -> None:
        """Start the child and the model load; returns once the process is spawned. Failures come as `EngineChanged`."""
        for sentence in news.kept():
            self._emit(ev.EngineNotice(sentence, severity="warning"))
        if self._conductor.host.status.phase in ("off", "failed"):
            await self._conductor.start_engine()

    # ---- sessions ----

    def list_sessions(
        self, limit: int | None = None, offset: int = 0, *, archived: bool = False, tag: str = ""
    ) -> list[SessionInfo]:
        """Saved sessions, the pinned ones first, then the one used last. `archived`: those that are put away, alone."""
        return self._shelf.db.list_sessions(limit, offset, archived=archived, tag=tag)

    def count_sessions(self, *, archived: bool = False, tag: str = "") -> int:
        """How many sessions `list_sessions` has."""
        return self._shelf.db.count_sessions(archived=archived, tag=tag)

    def all_tags(self) -> list[str]:
        """The tags that saved sessions have."""
        return self._shelf.db.all_tags()

    def search(self, query: str, limit: int = 100) -> list[SearchHit]:
        """Messages of saved sessions with all words of a query, the newest first."""
        return self._shelf.db.search(query, limit)

    def restore_ms(self, info: SessionInfo) -> float | None:
        """About how long a restore of the session will take, from those measured so far; None when nothing of it is on
        disk."""
        return self._conductor.speed.ms(info.stored_bytes)

    @property
    def live_session(self) -> str:
        """The session whose state is in the engine, "" for none."""
        return self._conductor.preparing.live_session

    def prompt_history(self, limit: int) -> list[str]:
        """What the user wrote in all saved sessions, newest first, each text once."""
        return self._shelf.db.prompt_history(limit)

    def new_session(
        self,
        system: str | None = None,
        *,
        incognito: bool = False,
        params: Mapping[str, Any] | None = None,
        model_path: str = "",
    ) -> Session:
        """A session that is written to the database with its first message, so that empty ones leave nothing behind.
        Raises UsageError for settings that are none.

        Args:
            system: None takes the one of this run, as None does for `params`.
            incognito: it never reaches the disk: no row, no checkpoint, no lock.
            params, model_path: settings of this session alone (see `set_params`, `set_model`).
        """
        session = self._shelf.new(self._system if system is None else clean_text(system), incognito=incognito)
        self._conductor.settings.begin(session, self._params if params is None else params, model_path)
        return session

    def is_incognito(self, session_id: str) -> bool:
        """Whether nothing of the session reaches the disk."""
        return self._shelf.is_incognito(session_id)

    def is_saved(self, session_id: str) -> bool:
        """Whether the session outlives this process."""
        return self._shelf.is_saved(session_id)

    def open_session(self, session_id: str) -> Session:
        """Open and lock a session (again: the same object). Raises SessionNotFoundError, SessionLockedError."""
        self._conductor.back_to(session_id)
        return self._shelf.open(session_id)

    def open_read_only(self, session_id: str) -> Session:
        """A session that another ds4chat has open, to look at."""
        return self._shelf.open_read_only(session_id)

    def refresh_read_only(self, session_id: str) -> bool:
        """Read again what another ds4chat wrote in a session that is only there to look at; whether it did. The session
        object stays the same. Raises SessionNotFoundError when it was deleted there."""
        return self._shelf.refresh_read_only(session_id)

    def changed_elsewhere(self) -> bool:
        """Whether another program has written sessions since this was asked last. Cheap."""
        return self._shelf.changed_elsewhere()

    def is_read_only(self, session_id: str) -> bool:
        """Whether the session can only be looked at."""
        return self._shelf.is_read_only(session_id)

    def leave_session(self, session_id: str) -> None:
        """The user looks elsewhere: unlock the session, as soon as nothing of it runs or waits."""
        self._conductor.leave(session_id)

    def fork_session(self, session_id: str, at: int | None = None) -> Session:
        """A new session with the same path, up to and with the message `at`, to go on in when the other is locked or
        elsewhere. Raises UsageError."""
        fork = self._shelf.fork(session_id, at)
        self._emit(ev.SessionListChanged())
        return fork

    def rename_session(self, session_id: str, title: str) -> None:
        """Raises UsageError for a blank title."""
        self._shelf.rename(session_id, title)
        self._emit(ev.SessionListChanged())

    def pin_session(self, session_id: str, pinned: bool) -> None:
        """Keep a session at the top of the list."""
        self._shelf.set_flags(session_id, pinned=pinned)
        self._emit(ev.SessionListChanged())

    def archive_session(self, session_id: str, archived: bool) -> None:
        """Put a session away: it is listed only when asked for."""
        self._shelf.set_flags(session_id, archived=archived)
        self._emit(ev.SessionListChanged())

    def tag_session(self, session_id: str, tags: Sequence[str]) -> None:
        """Replace a session's tags."""
        self._shelf.set_tags(session_id, tags)
        self._emit(ev.SessionListChanged())

    def save_draft(self, session_id: str, text: str) -> None:
        """Keep what is typed and not sent in `Session.draft`."""
        self._shelf.save_draft(session_id, text)

    def kept_draft(self) -> str:
        """What was typed in a session that never had a message, in this run or an earlier one; "" for nothing."""
        return self._shelf.kept_draft()

    def delete_session(self, session_id: str) -> None:
        """Delete a session; until this process closes it can be brought back, then it goes with the checkpoints only it
        stands on. Raises SessionLockedError, UsageError."""
        if self.is_busy(session_id):
            raise UsageError(
                "A reply is being written in this session: stop it first, then delete the session."
            )
        self._shelf.trash(session_id)
        self._conductor.housekeeping.put_up()
        self._conductor.preparing.rest_elsewhere(session_id)
        self._emit(ev.SessionListChanged())

    def undelete_session(self, session_id: str) -> None:
        """Bring back a session that was deleted in this process. Raises SessionNotFoundError."""
        self._shelf.untrash(session_id)
        self._conductor.housekeeping.put_up()
        self._emit(ev.SessionListChanged())

    # ---- branches, turns, the window's summary ----

    def edit_message(self, session_id: str, message_id: int, text: str) -> Message:
        """A sibling of a user's message, and a turn for it; a message that waits is changed as it stands. Raises
        UsageError (blank text, a reply, a session whose reply is being written), SessionLockedError."""
        return self._branches.edit(session_id, message_id, text)

    def regenerate(self, session_id: str, reply_id: int) -> None:
        """A sibling of a reply, with a turn of its own. Raises UsageError, SessionLockedError."""
        self._branches.regenerate(session_id, reply_id)

    def choose_branch(self, session_id: str, message_id: int) -> None:
        """Stand on the newest leaf below a message (one of `Session.siblings`). Raises UsageError."""
        self._branches.choose(session_id, message_id)

    def delete_turn(self, session_id: str, message_id: int) -> list[int]:
        """Hide the turn a message belongs to; the ids for `restore_turn`. Raises UsageError."""
        return self._branches.delete_turn(session_id, message_id)

    def restore_turn(self, session_id: str, ids: Sequence[int]) -> None:
        """Bring a deleted turn back. Raises UsageError."""
        self._branches.restore_turn(session_id, ids)

    def compact(self, session_id: str, instructions: str = "") -> None:
        """Queue a turn in which the model summarises the older part of the window, which then falls out of it: events
        `CompactProgress`, then `SummaryChanged`. Raises UsageError when there is nothing to summarise."""
        self._conductor.compact(session_id, instructions)

    def undo_compact(self, session_id: str) -> None:
        """Take the last summary back: the window is as it was before. Raises UsageError without one."""
        self._conductor.undo_compact(session_id)

    # ---- settings ----

    def set_system(self, session_id: str, text: str) -> None:
        """Another system prompt for the session; its next turn computes all of the window anew."""
        session = self._shelf.writable(session_id)
        self._conductor.settings.set_system(session, text)
        self._conductor.preparing.path_changed(session_id)

    def set_params(self, session_id: str, params: Mapping[str, Any]) -> None:
        """Replace what the session sets for itself: temperature, top_p, top_k, min_p, repeat_penalty, seed, max_tokens,
        ctx, persona. Raises UsageError."""
        self._conductor.settings.set_params(self._shelf.writable(session_id), params)

    def set_model(self, session_id: str, path: Path) -> None:
        """The model of the session from its next turn on. Raises UsageError when there is no such file."""
        self._conductor.settings.set_model(self._shelf.writable(session_id), path)

    def effective(self, session_id: str) -> dict[str, object]:
        """What a turn of the session runs with: model, model_path, ctx, the sampling values, max_tokens, system,
        persona. `ctx` is None while only the engine could tell."""
        session = self._shelf.get(session_id) or self._shelf.db.load_session(session_id)
        return self._conductor.settings.effective(session, self._conductor.host.loaded)

    # ---- chat ----

    def send(self, session_id: str, text: str, *, grammar: str = "") -> Message | None:
        """Append the user's message and queue its turn; None while another program writes to the database: it is
        appended as soon as that ends. Raises UsageError for blank text, SessionLockedError when read-only,
        DatabaseError when it cannot be saved.

        Args:
            grammar: GBNF that this one reply must follow; it is not saved.
        """
        return self._conductor.send(session_id, text, grammar)

    def continue_reply(self, session_id: str) -> None:
        """Queue a turn that goes on from the last token of a reply that was cut off. Raises UsageError without one."""
        self._conductor.continue_reply(session_id)

    # ---- tools ----

    def answer_tool(self, session_id: str, answer: Answer) -> bool:
        """The user's word on the call of `ToolAsked`: "once", "session" (this tool runs unasked while the session is
        open here) or "refuse". False: no call waits for it."""
        return self._conductor.tooling.answer(session_id, answer)

    def asked_tool(self, session_id: str) -> ev.ToolAsked | None:
        """The call of the session that waits for the user's word, if one does."""
        return self._conductor.tooling.asked(session_id)

    async def tools(self) -> list[ToolInfo]:
        """All tools that are configured; starts the servers they are of."""
        return await self._conductor.tooling.tools()

    def has_tools_on(self, session_id: str) -> bool:
        """Whether the session's model is told of the tools."""
        return self._conductor.tooling.is_on(
            self._shelf.get(session_id) or self._shelf.db.load_session(session_id)
        )

    def set_tools(self, session_id: str, on: bool) -> None:
        """Switch the tools of a session on or off. Its next turn computes all of the window anew."""
        session = self._shelf.writable(session_id)
        self._conductor.settings.set_params(session, {**session.params, "tools": on})
        self._conductor.preparing.path_changed(session_id)

    # ---- what runs ----

    def stop(self, session_id: str) -> bool:
        """Stop the session's running turn, else drop its queued one (its text stays). False: nothing to stop."""
        return self._conductor.stop(session_id)

    def is_busy(self, session_id: str) -> bool:
        """Whether a turn of the session runs or waits."""
        return self._conductor.is_busy(session_id)

    def busy_sessions(self) -> dict[str, str]:
        """ "running" or "queued" by session id."""
        return self._conductor.busy_sessions()

    def rest_on(self, session_id: str) -> None:
        """The eye rests on a session (half a second) or types in it: restore its context if the engine is free."""
        self._conductor.preparing.rest_on(session_id)

    async def wait_turn(self, session_id: str) -> ev.TurnEnded:
        """Wait until the session's turns are over; the last one's end. Raises UsageError when there was none."""
        return await self._conductor.wait_turn(session_id)

    async def aclose(self) -> None:
        """Stop what runs (what was generated stays, marked cut), let the engine store its tail, close everything."""
        await self._conductor.aclose()
        self._shelf.close()

    def _say_failure(self, sentence: str) -> None:
        self._emit(ev.EngineNotice(sentence, severity="error"))

    def _say_unsaved(self, why: str) -> None:
        self._emit(ev.SavingChanged(why))
        if why:
            text = f"{why} What is said here meanwhile is saved as soon as that is possible."
            self._emit(ev.EngineNotice(text, severity="error"))

    def _emit(self, event: ev.ManagerEvent) -> None:
        for listener in list(self._listeners):
            with contextlib.suppress(Exception):
                listener(event)
