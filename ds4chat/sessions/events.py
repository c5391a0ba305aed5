"""What the session manager tells its listeners: the screen and `-p` see the chat through these alone.

Events are plain frozen structs (which are made faster than dataclasses when the program starts), delivered on the
manager's event loop in the order things happened. Times are milliseconds, lengths are tokens.
"""

from __future__ import annotations

from typing import Literal

import msgspec

EnginePhase = Literal["off", "starting", "loading", "ready", "failed"]


class EngineStatus(msgspec.Struct, frozen=True):
    """The engine as it stands.

    Attributes:
        phase: off (never started), starting (the process), loading (the model), ready, failed (see `message`).
        model: name of the model being loaded or in use, "" when unknown.
        progress: of the model load, 0 to 1.
        n_ctx: context length in use, tokens; 0 until ready.
        silent: it has said nothing for too long; stopping what it does starts it anew.
        place: the name of an engine elsewhere, "" for this machine's own.
    """

    phase: EnginePhase = "off"
    model: str = ""
    progress: float = 0.0
    n_ctx: int = 0
    message: str = ""
    silent: bool = False
    place: str = ""


class TurnStats(msgspec.Struct, frozen=True):
    """The measures of one reply; `prompt_tokens = cached_tokens + prefilled_tokens`."""

    stop_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    restore_ms: float = 0.0
    prefill_ms: float = 0.0
    generate_ms: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Generation speed; 0 when nothing was generated."""
        return 1000.0 * self.generated_tokens / self.generate_ms if self.generate_ms > 0 else 0.0


class EngineChanged(msgspec.Struct, frozen=True):
    """The engine's phase, progress or model changed."""

    status: EngineStatus


class SessionListChanged(msgspec.Struct, frozen=True):
    """A session was made, renamed, deleted, or moved to the top by a message: read the list again."""


class MessageAdded(msgspec.Struct, frozen=True):
    """A message was appended to a session's head: the user's at once when sent, the reply's when its turn starts."""

    session_id: str
    message_id: int


class TurnQueued(msgspec.Struct, frozen=True):
    """A sent message waits for the engine behind `ahead` other turns (0: it is next)."""

    session_id: str
    message_id: int
    ahead: int


class TurnStarted(msgspec.Struct, frozen=True):
    """The engine took up a turn; its reply is `reply_id`, an empty assistant message that will grow."""

    session_id: str
    message_id: int
    reply_id: int


class PromptProgress(msgspec.Struct, frozen=True):
    """Prefill: `done` of `total` new tokens are computed."""

    session_id: str
    done: int
    total: int


class ContextRestored(msgspec.Struct, frozen=True):
    """`tokens` tokens of the session came from disk in `ms` milliseconds."""

    session_id: str
    tokens: int
    ms: float


class ContextUsed(msgspec.Struct, frozen=True):
    """The session holds `tokens` of `n_ctx` tokens of context. Comes with each turn's start, end, and a few times a
    second."""

    session_id: str
    tokens: int
    n_ctx: int


class TextStreamed(msgspec.Struct, frozen=True):
    """`text` was appended to a reply, whole characters only."""

    session_id: str
    message_id: int
    text: str


class TurnEnded(msgspec.Struct, frozen=True):
    """A turn is over. `state` is the reply's final state (see `session.MessageState`).

    Attributes:
        reply_id: None when no reply came to be (the turn was cancelled while it waited, or failed before it began).
        error: one sentence when the turn failed, else "".
    """

    session_id: str
    message_id: int
    reply_id: int | None
    state: str
    stats: TurnStats = TurnStats()
    error: str = ""


class ToolAsked(msgspec.Struct, frozen=True):
    """A reply calls a tool, which runs when the user says so: `SessionManager.answer_tool`.

    Attributes:
        message_id: of the reply.    call: its id.    where: "built in", or the server the tool is of.
        arguments: as JSON, one argument a line. The model's own words: any text.
    """

    session_id: str
    message_id: int
    call: str
    name: str
    where: str
    arguments: str


class ToolRunning(msgspec.Struct, frozen=True):
    """A call runs. What it comes to is a message of role "tool" (`MessageAdded`)."""

    session_id: str
    message_id: int
    call: str
    name: str


class WindowMoved(msgspec.Struct, frozen=True):
    """The context was full: messages before `first_message_id` no longer reach the model (`turns` of them fell out
    now)."""

    session_id: str
    first_message_id: int
    turns: int


class PathChanged(msgspec.Struct, frozen=True):
    """The session stands on other messages than before: an edit, another reply, a branch walked to, a turn deleted or
    brought back. Read `Session.path()` again; what was added to the end since came as `MessageAdded`."""

    session_id: str


class SummaryChanged(msgspec.Struct, frozen=True):
    """A summary of what lies before the window was written, given up (an `EngineNotice` says why) or taken back: read
    `Session.summary` again. Each `compact` ends in one of these."""

    session_id: str


class CompactProgress(msgspec.Struct, frozen=True):
    """A summary is being written. `text` was appended to it; "" says that it begins (again)."""

    session_id: str
    text: str


class SettingsChanged(msgspec.Struct, frozen=True):
    """The session's model, system prompt or parameters were set: `effective()` says what its next turn runs with."""

    session_id: str


class SavingChanged(msgspec.Struct, frozen=True):
    """What is said is not saved for now, and why in a sentence; "": all of it is saved again."""

    why: str


class EngineNotice(msgspec.Struct, frozen=True):
    """One sentence for the user. `session_id` "" means it concerns no session in particular."""

    message: str
    session_id: str = ""
    severity: Literal["information", "warning", "error"] = "information"


ManagerEvent = (
    EngineChanged
    | SessionListChanged
    | MessageAdded
    | TurnQueued
    | TurnStarted
    | PromptProgress
    | ContextRestored
    | ContextUsed
    | TextStreamed
    | TurnEnded
    | ToolAsked
    | ToolRunning
    | WindowMoved
    | PathChanged
    | SummaryChanged
    | CompactProgress
    | SettingsChanged
    | SavingChanged
    | EngineNotice
)
