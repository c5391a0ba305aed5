"""What the screen may ask of the configuration, the personas, the models and the checkpoints on disk.

Plain values and one Protocol: the command line brings what answers it. Calls read and write files, so the screen makes
them in a thread; none of them touches the engine or a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ds4chat.personas import Persona


@dataclass(frozen=True)
class ModelChoice:
    """A GGUF file that could be chatted with.

    Attributes:
        current: it is what a new chat would use.
        context: tokens it was trained for, 0 when unknown.
        place: where it was found, in a word or two: "models folder", "Ollama".
        fault: why it cannot be used, "" when it can.
    """

    name: str
    path: str
    size_bytes: int = 0
    current: bool = False
    quantization: str = ""
    context: int = 0
    place: str = ""
    fault: str = ""


@dataclass(frozen=True)
class CheckpointRow:
    """What one session has on disk.

    Attributes:
        session_id: "" for checkpoints that no session stands on.
        last_used: seconds since the epoch, 0 when unknown.
        reusable_tokens: how many of them its model can use now.
        reusable: why it is none, "" when some are.
    """

    session_id: str
    title: str
    tokens: int
    bytes: int
    last_used: float
    pinned: bool
    reusable: str
    reusable_tokens: int = 0


@dataclass(frozen=True)
class CheckpointReport:
    """The directory as it is. `budget_bytes` 0 means no limit."""

    rows: Sequence[CheckpointRow] = field(default_factory=list)
    total_bytes: int = 0
    budget_bytes: int = 0
    directory: str = ""


@dataclass(frozen=True)
class ConfigRow:
    """A key of config.toml.

    Attributes:
        value: in use, as people write it; "" when it is left to the model or the engine.
        source: "config.toml", "default", or the flag or variable that wins, as typed.
    """

    section: str
    key: str
    value: str
    source: str
    allowed: str


class Desk(Protocol):
    """Failures are `ds4chat.errors` types with a sentence for the user."""

    def models(self) -> list[ModelChoice]:
        """The models in the places where people keep them."""

    def look_at_model(self, path: str) -> ModelChoice:
        """One model by its path, with the fault when it cannot be used."""

    def personas(self) -> list[Persona]:
        """All that can be used, by name."""

    def complaints(self) -> list[str]:
        """What is wrong with files of personas; each sentence is given once."""

    def save_persona(self, persona: Persona) -> None:
        """Write its file, in place of the one it came from."""

    def delete_persona(self, name: str) -> None:
        """Delete its file."""

    def checkpoints(self) -> CheckpointReport:
        """What is on disk, by session."""

    def pin_checkpoints(self, session_id: str, on: bool) -> None:
        """Keep a session's checkpoints whatever space is needed, or let them go again."""

    def verify_checkpoints(self, progress: Callable[[int, int], bool]) -> str:
        """Read all files and check them; a sentence with what was found. `progress` gets bytes done of all, and False
        from it ends the reading."""

    def clear_checkpoints(self, session_id: str | None) -> int:
        """Delete what only that session stands on, or everything; how many bytes went."""

    def set_budget(self, megabytes: str) -> int:
        """Save the budget of all checkpoints as typed and delete down to it; how many bytes went."""

    def config_rows(self) -> list[ConfigRow]:
        """All keys of config.toml."""

    def save_setting(self, section: str, key: str, text: str | None) -> None:
        """Write what was typed into config.toml, checked as it is when read; None takes the key out."""
