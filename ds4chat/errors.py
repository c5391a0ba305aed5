"""The project's own errors: each carries one sentence that names the thing and the way out.

Whatever reaches a user is a `Ds4chatError`; the command line prints its sentence and exits with `exit_code`, the
screen shows it in a notice. Details belong in the log. A sentence is one line without control characters, whatever
the names in it hold.
"""

from __future__ import annotations

from ds4chat.safe_text import one_line


class Ds4chatError(Exception):
    """A failure with a sentence for the user.

    Attributes:
        exit_code: what the command line exits with: 1 for a failure, 2 for bad usage.
    """

    exit_code = 1

    def __init__(self, sentence: str = "") -> None:
        super().__init__(one_line(sentence))


class UsageError(Ds4chatError):
    """The command, an option or a file's content was not what it must be."""

    exit_code = 2


class ModelError(Ds4chatError):
    """A model could not be found or loaded."""


class EngineError(Ds4chatError):
    """The engine process failed, or answered a request with a failure."""


class SessionNotFoundError(UsageError):
    """No session, or more than one, goes by the name that was given."""


class SessionLockedError(Ds4chatError):
    """The session is open in another ds4chat."""


class DatabaseError(Ds4chatError):
    """The session database could not be opened, read or written."""


class DatabaseBusyError(DatabaseError):
    """Another program writes to the session database, for longer than was waited."""


class DatabaseUnwritableError(DatabaseError):
    """The session database cannot be written for now: the disk is full, or may not be written to."""


class DatabaseDamagedError(DatabaseError):
    """The session database is damaged, or holds what contradicts itself."""


class InterchangeError(UsageError):
    """A file to import is not readable as a session."""


class CheckpointError(Exception):
    """A checkpoint cannot be used or written. It never reaches a user: the caller logs it and recomputes."""
