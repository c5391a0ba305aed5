"""Where an engine runs: here, or behind a command that pipes the protocol. Must not know: what is asked of it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

PREFIX = "engine:"
"""Of what stands where a model's path would, for an engine that runs elsewhere."""

SETTINGS_VARIABLE = "DS4CHAT_REMOTE"
"""Of an adapter's environment: what it talks to, as JSON."""


class RemoteEngine(msgspec.Struct, frozen=True):
    """An engine that is not the child with llama.cpp in it.

    Attributes:
        name: for people: "work", or the host.
        command: what is started; it speaks the engine's protocol on its standard input and output.
        environment: variables put over this program's own.
        model: asked of it by name or path, "" for its own choice.
        host: that its command has ssh go to, "" for another command; for the words of an error.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}
    model: str = ""
    host: str = ""

    @property
    def path(self) -> Path:
        """What stands for the model's path, in this program and in the database."""
        return Path(PREFIX + self.name.replace("/", "_"))


def is_elsewhere(path: str) -> bool:
    """Whether a model's path stands for an engine elsewhere."""
    return path.startswith(PREFIX)


def worker_command() -> tuple[str, ...]:
    """The engine child with llama.cpp."""
    return (sys.executable, "-m", "ds4chat.engine.worker")


def adapter_command() -> tuple[str, ...]:
    """The child that talks to a server over HTTP."""
    return (sys.executable, "-m", "ds4chat.engine.remote")
