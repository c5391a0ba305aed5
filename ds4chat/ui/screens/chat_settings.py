"""The settings of one chat: what it runs with, where each value comes from, and what a change costs.

No widgets: the settings panel shows it, and the keys that open models and personas use it. Values come from the
manager, the sources of those a chat does not set itself from the desk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ds4chat.config import SESSION_KEYS, allowed_values, parse_setting
from ds4chat.personas import Params, Persona, with_persona
from ds4chat.sessions.session import Session
from ds4chat.ui.desk import ConfigRow
from ds4chat.ui.screens.amounts import prefill_rate, recompute_words

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionManager

THIS_CHAT = "this chat"
UNSET = {"seed": "a new one each time", "max_tokens": "no limit", "ctx": "the model's own"}
"""What it means that there is no value."""

LABELS = {
    "model": "Model",
    "persona": "Persona",
    "system": "System prompt",
    "ctx": "Context",
    "temperature": "Temperature",
    "top_p": "Top p",
    "top_k": "Top k",
    "min_p": "Min p",
    "repeat_penalty": "Repeat penalty",
    "seed": "Seed",
    "max_tokens": "Longest reply",
}
MEANINGS = {
    "model": "The GGUF file that answers.",
    "persona": "A system prompt with parameters, by name.",
    "system": "What the model is told before the chat.",
    "ctx": "Tokens of the chat that the model sees at once. With another, the model is loaded again",
    "temperature": "0 always takes the likeliest token",
    "top_p": "Sample from the likeliest tokens that add up to this",
    "top_k": "Sample from so many of the likeliest tokens, 0 from all",
    "min_p": "Drop tokens below this part of the likeliest",
    "repeat_penalty": "1 means none",
    "seed": "Makes sampling repeatable",
    "max_tokens": "Tokens at which a reply ends",
}


@dataclass(frozen=True)
class Setting:
    """A line of the panel. `own` means that the chat has set it for itself."""

    key: str
    value: str
    source: str
    own: bool = False


class ChatSettings:
    """What one session runs with. `config` and `personas` are what the desk said last."""

    def __init__(self, manager: SessionManager, session: Session) -> None:
        self._manager, self.session = manager, session
        self.config: Sequence[ConfigRow] = ()
        self.personas: Sequence[Persona] = ()

    @property
    def persona(self) -> Persona | None:
        """The one the chat has, as it is now in its file."""
        name = self.session.params.get("persona")
        return next((p for p in self.personas if p.name == name), None)

    def rows(self) -> list[Setting]:
        session, params = self.session, self.session.params
        effective = self._manager.effective(session.id)
        name = str(params.get("persona") or "")
        gone = f"{name} (its file is gone)" if name and self.personas and self.persona is None else name
        path = session.model_path
        model = str(effective.get("model") or Path(path).name.removesuffix(".gguf"))
        return [
            Setting("model", model, THIS_CHAT if path else self._config_source("model", "path"), bool(path)),
            Setting("persona", gone or "none", THIS_CHAT if name else "default", bool(name)),
            Setting(
                "system",
                " ".join(session.system.split()) or "none",
                self._system_source(),
                bool(session.system),
            ),
            *(self._param(key, effective, params) for key in SESSION_KEYS),
        ]

    def _param(self, key: str, effective: Mapping[str, object], params: Mapping[str, object]) -> Setting:
        value = effective.get(key)
        own = params.get(key) is not None
        source = self._config_source(SESSION_KEYS[key], key)
        if own:
            persona = self.persona
            brought = persona is not None and persona.params.get(key) == params[key]
            source = f"persona {persona.name}" if persona is not None and brought else THIS_CHAT
        if value is None:
            shown = UNSET.get(key, "the model's own")
        elif isinstance(value, int) and key in ("ctx", "max_tokens"):
            shown = f"{value:,} tokens"
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
        return Setting(key, shown, source, own)

    def _system_source(self) -> str:
        system, persona = self.session.system, self.persona
        if persona is not None and system == persona.system:
            return f"persona {persona.name}"
        row = self._config_row("chat", "system")
        if row is not None and row.value.strip() == system.strip():
            return row.source
        return THIS_CHAT if system else "default"

    def _config_row(self, section: str, key: str) -> ConfigRow | None:
        return next((row for row in self.config if (row.section, row.key) == (section, key)), None)

    def _config_source(self, section: str, key: str) -> str:
        row = self._config_row(section, key)
        return row.source if row is not None else "default"

    # -- what a change means

    def recompute(self) -> str:
        """What another system prompt costs: all that the chat holds comes behind it."""
        return recompute_words(self.session.tokens, prefill_rate(self.session.path()))

    def other_model(self) -> str:
        """What another model costs."""
        if not self.session.messages:
            return "The chat begins with it."
        tokens = f" ({self.session.tokens:,} tokens)" if self.session.tokens else ""
        return f"With another model the chat is computed once{tokens}; checkpoints of this one stay on disk."

    # -- changing; all raise Ds4chatError

    def typed(self, key: str) -> str:
        """The value a chat has for itself, as it would be typed."""
        value = self.session.params.get(key)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    def set(self, key: str, text: str) -> None:
        """Set a parameter to what was typed; "" lets it go back to where it comes from otherwise."""
        params: Params = dict(self.session.params)
        params.pop(key, None)
        if text:
            value = parse_setting(SESSION_KEYS[key], key, text)
            params[key] = value if isinstance(value, float | int | str) else None
        self._manager.set_params(self.session.id, params)

    def set_system(self, text: str) -> None:
        self._manager.set_system(self.session.id, text)

    def set_model(self, path: str) -> None:
        self._manager.set_model(self.session.id, Path(path))

    def give_persona(self, persona: Persona | None) -> None:
        """Give the chat a persona; None takes away the one it has, and what that brought with it."""
        before = self.persona
        params = with_persona(dict(self.session.params), before, persona)
        if persona is not None:
            self.set_system(persona.system)
        elif before is not None and self.session.system == before.system:
            self.set_system(self.default_system())
        self._manager.set_params(self.session.id, params)

    def default_system(self) -> str:
        row = self._config_row("chat", "system")
        return row.value if row is not None else ""

    def as_persona(self) -> Persona:
        """What this chat has, for a persona to be made of it."""
        params: Params = {
            key: value
            for key, value in self.session.params.items()
            if key in SESSION_KEYS and value is not None
        }
        return Persona("", self.session.system, params)


def meaning(key: str) -> str:
    """What a setting is, and what may stand there."""
    allowed = allowed_values().get(f"$.{SESSION_KEYS[key]}.{key}", "") if key in SESSION_KEYS else ""
    return f"{MEANINGS[key]}: {allowed}." if allowed else MEANINGS[key]
