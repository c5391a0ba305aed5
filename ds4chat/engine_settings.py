"""The tables [[engine]] of config.toml and the value of `--engine`: engines that run elsewhere.

Nothing here opens a connection, and no key is read: the child that talks to the server does both.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ds4chat.config import described, read_tree
from ds4chat.engine.place import SETTINGS_VARIABLE, RemoteEngine, adapter_command
from ds4chat.errors import UsageError
from ds4chat.validation import explain, short

LOCAL = "local"
"""The name of this machine's own engine."""

KEY_VARIABLE = "DS4CHAT_ENGINE_KEY"
"""Holds the key for a server that is given by its URL alone."""

_HOST = re.compile(r"(?:[\w.+-]+@)?[\w.:\[\]%-]+")
_NAME = Meta(
    pattern=r"^[A-Za-z0-9][\w.-]{0,39}$", description="a name of up to 40 letters, digits, dots and dashes"
)


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table [[engine]]: a name, and one of `url`, `ssh` and `command`."""

    name: Annotated[str, _NAME]
    url: Annotated[str, Meta(description="the address of a server, http://... or https://...")] = ""
    ssh: Annotated[str, Meta(description="a host, as ssh takes it")] = ""
    command: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...], Meta(description="a list of words of a command")
    ] = ()
    model: Annotated[str, Meta(description="the name of a model there")] = ""
    ctx: (
        Annotated[int, Meta(ge=64, le=2**31 - 1, description="a whole number of tokens from 64 up")] | None
    ) = None
    key_env: (
        Annotated[str, Meta(pattern=r"^\w+$", description="the name of an environment variable")] | None
    ) = None
    keyring: (
        Annotated[
            str, Meta(pattern=r"^[^/]+/[^/]+$", description='a service and a user, as in "ds4chat/work"')
        ]
        | None
    ) = None
    default: Annotated[bool, Meta(description="true or false")] = False


@functools.cache
def _allowed() -> dict[str, str]:
    return described(EngineSettings, "$") | {"$.command[...]": "a word of a command"}


def load_engines(path: Path) -> list[EngineSettings]:
    """`engines_of` a file, none without one. Raises UsageError."""
    return engines_of(read_tree(path)[1], path)


def engines_of(tree: Mapping[str, Any], path: Path) -> list[EngineSettings]:
    """The engines of the values of config.toml. Raises UsageError naming file, engine and key."""
    engines, faults = _look_at(tree)
    if faults:
        raise UsageError(f"The configuration {path} has a fault: {faults[0]}.")
    return engines


def engine_faults(tree: Mapping[str, Any]) -> list[str]:
    """All that is wrong with the engines, without full stops."""
    return _look_at(tree)[1]


def _look_at(tree: Mapping[str, Any]) -> tuple[list[EngineSettings], list[str]]:
    """The engines that can be used, and what is wrong with the others."""
    tables = tree.get("engine", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return [], ["engines are tables, each under its own [[engine]]: mend it there"]
    engines: list[EngineSettings] = []
    faults: list[str] = []
    for number, table in enumerate(tables, 1):
        try:
            engine = msgspec.convert(table, EngineSettings)
        except msgspec.ValidationError as error:
            faults.append(f"[[engine]] number {number}: {explain(error, _allowed())}")
        except RecursionError:
            faults.append(f"[[engine]] number {number} is nested too deeply")
        else:
            if fault := _fault(engine, engines):
                faults.append(f'the engine "{engine.name}" {fault}')
            else:
                engines.append(engine)
    return engines, faults


def _fault(engine: EngineSettings, before: Sequence[EngineSettings]) -> str:
    places = [engine.url, engine.ssh, engine.command]
    if sum(map(bool, places)) != 1:
        return "must have one of url, ssh and command"
    if engine.url and "@" in engine.url:
        return "has a url with a user or a password in it: use key_env or keyring"
    if engine.url and not _is_url(engine.url):
        return f"has a url that is no address (http://HOST:PORT or https://HOST): {short(engine.url)}"
    if (engine.ssh and not _HOST.fullmatch(engine.ssh)) or engine.ssh.startswith("-"):
        return f"has a host that ssh would not take: {short(engine.ssh)}"
    if engine.name.casefold() == LOCAL:
        return f"has the name of this machine's own engine, {LOCAL}: choose another"
    if engine.name.casefold() in (other.name.casefold() for other in before):
        return "is there twice: give each a name of its own"
    if not engine.url and (engine.key_env or engine.keyring):
        return "has a key, which only an engine with a url takes"
    if engine.key_env and engine.keyring:
        return "has key_env and keyring: one is enough"
    if engine.default and any(other.default for other in before):
        return "is the second one with default = true: one is enough"
    return ""


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
        )
    except ValueError:
        return False


def choose_engine(
    given: str | None, engines: Sequence[EngineSettings], model: str | None = None
) -> RemoteEngine | None:
    """The engine that `--engine` names, or the default one of config.toml; None: this machine's own.

    Args:
        given: a name of config.toml, an address, "ssh:HOST", "local", or None.
        model: asked of it, None for the configured one.

    Raises:
        UsageError: there is no such engine.
    """
    if given is None:
        settings = next((engine for engine in engines if engine.default), None)
        return None if settings is None else _remote(settings, model)
    word = given.strip()
    if word.casefold() == LOCAL:
        return None
    named = next((engine for engine in engines if engine.name.casefold() == word.casefold()), None)
    if named is not None:
        return _remote(named, model)
    if word.startswith("ssh:"):
        host = word.removeprefix("ssh:").removeprefix("//")
        if not _HOST.fullmatch(host) or host.startswith("-"):
            raise UsageError(f"--engine {short(word)} names no host: give ssh:HOST or ssh:USER@HOST.")
        return _remote(EngineSettings(name=host, ssh=host), model)
    if "://" in word and "@" in word:
        # It is not repeated: the sentence goes into a log.
        raise UsageError(
            f"An address after --engine must not have a user or a password in it: put the key into {KEY_VARIABLE}."
        )
    if "://" in word:
        if not _is_url(word):
            raise UsageError(f"--engine {short(word)} is no address: give http://HOST:PORT or https://HOST.")
        return _remote(EngineSettings(name=urlsplit(word).netloc, url=word, key_env=KEY_VARIABLE), model)
    known = ", ".join([LOCAL, *(engine.name for engine in engines)])
    raise UsageError(
        f'There is no engine "{short(word)}": give one of {known}, an address (http://...), or ssh:HOST.'
    )


def _remote(settings: EngineSettings, model: str | None) -> RemoteEngine:
    model = settings.model if model is None else model
    if settings.ssh:
        # BatchMode: the terminal belongs to the screen, so ssh must not ask for a password.
        words = ("ssh", "-T", "-o", "BatchMode=yes", settings.ssh, "ds4chat", "engine")
        return RemoteEngine(settings.name, words, model=model, host=settings.ssh)
    if settings.command:
        return RemoteEngine(settings.name, settings.command, model=model)
    about: dict[str, Any] = {
        "name": settings.name,
        "url": settings.url,
        "model": model,
        "n_ctx": settings.ctx,
        "key_env": settings.key_env or "",
        "keyring": settings.keyring or "",
    }
    return RemoteEngine(settings.name, adapter_command(), {SETTINGS_VARIABLE: json.dumps(about)}, model)
