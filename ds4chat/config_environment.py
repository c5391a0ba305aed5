"""Settings from the environment: `DS4CHAT_SAMPLING_TEMPERATURE` for `temperature` in [sampling], and so every key.

They win over config.toml, and flags win over them; an empty variable counts as unset. A value is read and checked as
one that is typed into the settings. Must not know: files, flags.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Mapping

import msgspec

from ds4chat import paths
from ds4chat.config import Config, parse_setting
from ds4chat.errors import UsageError
from ds4chat.validation import short

BY_PATHS = frozenset({("model", "path"), ("kv", "dir")})
"""Relative ones are taken from the current folder, those of config.toml from its own: `config.choose_model` and
`paths.resolve` read these themselves."""


def variable(section: str, key: str) -> str:
    """The name of the variable for a key."""
    return f"DS4CHAT_{section}_{key}".upper()


def variables() -> dict[str, tuple[str, str]]:
    """Section and key of each variable there can be."""
    return {
        variable(section, key): (section, key)
        for section, struct in typing.get_type_hints(Config).items()
        for key in struct.__struct_fields__
    }


def given(section: str, key: str, env: Mapping[str, str] | None = None) -> str:
    """What the environment says of a key, "" for nothing."""
    return (os.environ if env is None else env).get(variable(section, key), "")


def with_environment(config: Config, env: Mapping[str, str] | None = None) -> Config:
    """The settings with the environment's over them. Raises UsageError naming the variable and what it may be."""
    env = os.environ if env is None else env
    found = {at: env[name] for name, at in variables().items() if env.get(name) and at not in BY_PATHS}
    if ("chat", "system") in found:
        # A persona of config.toml has a system prompt too, which would win.
        found.setdefault(("chat", "persona"), "")
    for (section, key), text in found.items():
        value = _value(section, key, text)
        struct = msgspec.structs.replace(getattr(config, section), **{key: value})
        config = msgspec.structs.replace(config, **{section: struct})
    return config


def faults(env: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable that cannot be used, those of a section that are no setting included."""
    env = os.environ if env is None else env
    known = variables()
    found = []
    for name, text in env.items():
        if not text:
            continue
        if name in known:
            try:
                _value(*known[name], text)
            except UsageError as error:
                found.append(str(error))
        elif any(name.startswith(variable(section, "")) for section in Config.__struct_fields__):
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"near it is {near[0]}" if near else "`ds4chat config show` lists the settings"
            found.append(str(UsageError(f"{short(name)} is no setting: {hint}.")))
    return found


def _value(section: str, key: str, text: str) -> object:
    if isinstance(getattr(getattr(Config(), section), key), bool):
        text = {"1": "true", "0": "false"}.get(text.strip(), text)
    value = parse_setting(section, key, text, variable(section, key))
    if isinstance(value, list):
        # Relative folders are taken from the current one.
        return tuple(str(paths.absolute(item)) if key == "folders" else item for item in value)
    return value
