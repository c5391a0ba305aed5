"""The table [keys] of config.toml: a preset, and keys by the id of an action.

Both ways to write an id are read: `"chat.new" = "f10"` and `chat.new = "f10"`. Whether there is such an action and
such a key is not known here: see `ui.keymap`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ds4chat.config import read_tree
from ds4chat.errors import UsageError
from ds4chat.validation import short


@dataclass(frozen=True)
class KeySettings:
    """What config.toml says of keys.

    Attributes:
        file: for the words of an error.
        preset: "" for ds4chat's own keys.
        keys: by id, key names with commas between them; "" takes a key away.
    """

    file: Path = Path("config.toml")
    preset: str = ""
    keys: dict[str, str] = field(default_factory=dict)


def load_key_settings(path: Path) -> KeySettings:
    """Read [keys]; empty without a file. DS4CHAT_KEYS_PRESET wins over its preset. Raises UsageError naming file and
    key."""
    table = read_tree(path)[1].get("keys", {})
    keys: dict[str, str] = {}
    preset = ""
    for name, value in table.items() if isinstance(table, dict) else ():
        for id, text in (
            ((f"{name}.{k}", v) for k, v in value.items()) if isinstance(value, dict) else [(name, value)]
        ):
            if isinstance(text, list) and all(isinstance(part, str) for part in text):
                text = ",".join(text)
            if not isinstance(text, str):
                raise UsageError(
                    f"The configuration {path} has a fault: keys.{short(id)} must be the names of keys such as "
                    f'"ctrl+n,f10", not of type {type(text).__name__}.'
                )
            if id == "preset":
                preset = text
            else:
                keys[id] = text
    return KeySettings(path, os.environ.get("DS4CHAT_KEYS_PRESET") or preset, keys)
