"""Why a checkpoint was stored, as its header keeps it. Knows nothing else."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Why a span ends where it does. The numbers are part of the file format."""

    COLD = 1
    """In a session's first long prompt: the end of its system block, or an aligned frontier behind it."""
    CONTINUED = 2
    """The live length reached a multiple of the interval."""
    PROMPT = 3
    """The last but one token of a prompt, on models that cannot be cut back."""
    EVICT = 4
    """The tail, before another session took the engine."""
    IDLE = 5
    """The tail, a little after a turn ended."""
    SHUTDOWN = 6
    """The tail, on a clean exit."""

    @property
    def is_anchor(self) -> bool:
        """Whether a session is likely to come back to exactly this end; eviction counts such a span twice."""
        return self is not Reason.CONTINUED

    @property
    def label(self) -> str:
        """The name in events and listings: "cold", "continued", ..."""
        return self.name.lower()
