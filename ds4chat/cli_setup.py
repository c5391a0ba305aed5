"""From flags, environment and config.toml to what a chat is run with."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ds4chat import config as configuration
from ds4chat import paths
from ds4chat.config import Config
from ds4chat.config_environment import given
from ds4chat.engine.protocol import PLAIN_KV_TYPES
from ds4chat.errors import UsageError
from ds4chat.paths import Paths
from ds4chat.sessions.database import Database
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.tool_settings import servers_of, tool_options

FLAGS = {
    "model": {"ctx": "--ctx", "threads": "--threads", "gpu_layers": "--gpu-layers", "kv_type": "--kv-type"},
    "sampling": {
        "temperature": "--temperature",
        "top_p": "--top-p",
        "top_k": "--top-k",
        "min_p": "--min-p",
        "repeat_penalty": "--repeat-penalty",
        "seed": "--seed",
        "max_tokens": "--max-tokens",
    },
    "kv": {
        "space_mb": "--kv-disk-space-mb",
        "min_tokens": "--kv-cache-min-tokens",
        "cold_max_tokens": "--kv-cache-cold-max-tokens",
        "continued_interval_tokens": "--kv-cache-continued-interval-tokens",
        "boundary_trim_tokens": "--kv-cache-boundary-trim-tokens",
        "boundary_align_tokens": "--kv-cache-boundary-align-tokens",
        "accept_different_quant": "--kv-cache-accept-different-quant",
    },
}
"""The flag for each key of config.toml that has one."""


def resolve_paths(data_dir: str | None, kv_dir: str | None, config: Config | None = None) -> Paths:
    """The paths; the checkpoints' folder may also be set in config.toml, which is read when `config` is None.

    Raises UsageError when config.toml cannot be used.
    """
    where = paths.resolve(data_dir=data_dir, kv_dir=kv_dir)
    if kv_dir or os.environ.get("DS4CHAT_KV_DIR"):
        return where
    config = configuration.load_config(where.config_file) if config is None else config
    if not config.kv.dir:
        return where
    paths.check_name(config.kv.dir)
    return dataclasses.replace(where, kv_dir=paths.absolute(config.kv.dir, where.config_dir))


@dataclass(frozen=True)
class Setup:
    """Paths, and the settings with the flags put over them."""

    paths: Paths
    config: Config
    tree: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """The values of config.toml, for the tables of which there may be several."""

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Setup:
        """Read config.toml and put the command line's flags over it. Raises UsageError."""
        file = paths.resolve().config_file
        tree = configuration.read_tree(file)[1]
        config = configuration.load_tree(tree, file)
        where = resolve_paths(flags["data_dir"], flags["kv_dir"], config)
        if flags["kv_options"] is not None:
            config = configuration.override(config, "kv", configuration.parse_kv_options(flags["kv_options"]))
        for section, names in FLAGS.items():
            given = {key: (name, flags[key]) for key, name in names.items()}
            config = configuration.override(config, section, given)
        if flags["no_kv"]:
            config = configuration.override(config, "kv", {"enabled": ("--no-kv", False)})
        return cls(where, config, tree)

    def database(self) -> Database:
        """The session database. Raises DatabaseError."""
        return Database(self.paths.database)

    def engine_options(self, flags: Mapping[str, Any], session_id: str | None = None) -> EngineOptions:
        """How this machine's engine is started, with the model that is meant. Raises ModelError, DatabaseError."""
        session_model = ""
        if session_id is not None and flags["model"] is None:
            with self.database() as database:
                session_model = database.model_path(session_id)
        model = configuration.choose_model(
            flags["model"],
            session_model,
            self.config,
            self.paths,
            session_name=session_id or "",
            starter=paths.starter_model(),
        )
        settings = self.config.model
        if not settings.flash_attention and settings.kv_type not in PLAIN_KV_TYPES:
            raise UsageError(
                f"KV type {settings.kv_type} needs flash attention, which [model] flash_attention turns off: set it to "
                f"true, or choose one of {', '.join(PLAIN_KV_TYPES)} with --kv-type."
            )
        return EngineOptions(
            model_path=model,
            n_ctx=settings.ctx,
            threads=settings.threads,
            gpu_layers=None if settings.gpu_layers == -1 else settings.gpu_layers,
            kv_type=settings.kv_type,
            flash_attention=settings.flash_attention,
            kv=configuration.kv_options(self.config, self.paths.kv_dir, read_only=flags["no_save"]),
            log_path=self.paths.engine_log,
            pinned=flags["model"] is not None or bool(given("model", "path")),
        )

    def options_elsewhere(self, flags: Mapping[str, Any]) -> EngineOptions | None:
        """How the engine elsewhere that is meant is started, None for this machine's own. Raises UsageError."""
        named = flags["engine"] or os.environ.get("DS4CHAT_ENGINE") or None
        if named is None and "engine" not in self.tree:
            return None
        from ds4chat.engine_settings import choose_engine, engines_of

        remote = choose_engine(named, engines_of(self.tree, self.paths.config_file), flags["model"])
        if remote is None:
            return None
        return EngineOptions(
            model_path=remote.path,
            n_ctx=flags["ctx"],
            kv=configuration.kv_options(self.config, self.paths.kv_dir, read_only=flags["no_save"]),
            log_path=self.paths.engine_log,
            pinned=True,
            remote=remote,
        )

    def manager(self, flags: Mapping[str, Any], session_id: str | None) -> SessionManager:
        """The session manager with the model that is meant, not started. Raises ModelError, DatabaseError."""
        options = self.options_elsewhere(flags) or self.engine_options(flags, session_id)
        servers = servers_of(self.tree, self.paths.config_file)
        system, params = self._beginning(flags)
        return SessionManager(
            self.paths.data_dir,
            options,
            configuration.sampling(self.config, options.model_path),
            max_tokens=self.config.sampling.max_tokens,
            system=system,
            params=params,
            save=not flags["no_save"],
            tools=tool_options(self.config.tools, servers, self.paths, on=flags["tools"]),
        )

    def _beginning(self, flags: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """System prompt and settings of a new chat: the configured persona's, where no flag says otherwise. Raises
        UsageError when there is no such persona."""
        name = self.config.chat.persona
        if flags["system"] is not None:
            return flags["system"], {}
        if not name:
            return self.config.chat.system, {}
        from ds4chat.personas import find

        try:
            persona = find(self.paths.config_dir / "personas", name)
        except UsageError as error:
            file = self.paths.config_file
            raise UsageError(f"The configuration {file} has a fault: chat.persona: {error}") from None
        params = {
            key: value
            for key, value in persona.params.items()
            if flags.get(key) is None and not given(configuration.SESSION_KEYS[key], key)
        }
        return persona.system, params | {"persona": persona.name}
