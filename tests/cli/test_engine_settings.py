"""[[engine]] in config.toml and the value of --engine: what is taken, and the sentence for what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds4chat.cli_config import faults
from ds4chat.config import read_config
from ds4chat.engine.place import SETTINGS_VARIABLE, is_elsewhere
from ds4chat.engine_settings import choose_engine, load_engines
from ds4chat.errors import UsageError
from tests.support.program import Program

GOOD = """
[[engine]]
name = "work"
url = "https://llm.example.org/v1"
model = "qwen3"
ctx = 32768
key_env = "WORK_KEY"

[[engine]]
name = "attic"
ssh = "me@attic"
default = true

[[engine]]
name = "box"
command = ["box", "run", "ds4chat", "engine"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(GOOD)
    return path


def test_engines_are_found_by_name_and_by_what_they_are(file: Path) -> None:
    engines = load_engines(file)
    assert read_config(file).model.path == "", "the rest of the file is read without them"
    work = choose_engine("WORK", engines)
    assert work is not None and is_elsewhere(str(work.path)) and str(work.path) == "engine:work"
    assert work.command[1:] == ("-m", "ds4chat.engine.remote")
    assert json.loads(work.environment[SETTINGS_VARIABLE]) == {
        "name": "work",
        "url": "https://llm.example.org/v1",
        "model": "qwen3",
        "n_ctx": 32768,
        "key_env": "WORK_KEY",
        "keyring": "",
    }
    attic = choose_engine(None, engines, "other.gguf")
    assert attic is not None and (attic.name, attic.model, attic.host) == ("attic", "other.gguf", "me@attic")
    assert attic.command == ("ssh", "-T", "-o", "BatchMode=yes", "me@attic", "ds4chat", "engine")
    box = choose_engine("box", engines)
    assert box is not None and box.command == ("box", "run", "ds4chat", "engine") and not box.host
    assert choose_engine("local", engines) is None and choose_engine(None, []) is None
    there = choose_engine("ssh:you@there", engines)
    assert there is not None and there.command[4] == "you@there"
    bare = choose_engine("http://localhost:8080", [])
    assert bare is not None and bare.name == "localhost:8080"
    assert json.loads(bare.environment[SETTINGS_VARIABLE])["key_env"] == "DS4CHAT_ENGINE_KEY"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "nowhere",
            'There is no engine "nowhere": give one of local, work, attic, box, an address (http://...), or ssh:HOST.',
        ),
        (
            "ssh:-oProxyCommand=x",
            "--engine ssh:-oProxyCommand=x names no host: give ssh:HOST or ssh:USER@HOST.",
        ),
        ("ssh:", "--engine ssh: names no host: give ssh:HOST or ssh:USER@HOST."),
        ("ftp://x", "--engine ftp://x is no address: give http://HOST:PORT or https://HOST."),
        ("http://", "--engine http:// is no address: give http://HOST:PORT or https://HOST."),
        (
            "http://me:pw@x",
            "An address after --engine must not have a user or a password in it: put the key into DS4CHAT_ENGINE_KEY.",
        ),
    ],
)
def test_what_is_no_engine(file: Path, given: str, sentence: str) -> None:
    with pytest.raises(UsageError) as told:
        choose_engine(given, load_engines(file))
    assert str(told.value) == sentence


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('name = "a"', 'the engine "a" must have one of url, ssh and command.'),
        ('name = "a"\nurl = "http://x"\nssh = "x"', 'the engine "a" must have one of url, ssh and command.'),
        (
            'name = "a"\nurl = "x"',
            'the engine "a" has a url that is no address (http://HOST:PORT or https://HOST): x.',
        ),
        ('name = "a"\nurl = "http://me:pw@x"', "a user or a password in it: use key_env or keyring."),
        ('name = "a"\nssh = "-v"', 'the engine "a" has a host that ssh would not take: -v.'),
        ('name = "local"\nssh = "x"', "local: choose another."),
        ('name = "work"\nssh = "x"', 'the engine "work" is there twice: give each a name of its own.'),
        (
            'name = "a"\nssh = "x"\nkey_env = "K"',
            'the engine "a" has a key, which only an engine with a url takes.',
        ),
        ('name = "a"\nssh = "x"\ndefault = true', "is the second one with default = true: one is enough."),
        (
            'name = "a"\nurl = "http://x"\nkey_env = "K"\nkeyring = "a/b"',
            'the engine "a" has key_env and keyring: one is enough.',
        ),
        ('name = "a b"\nssh = "x"', "a name of up to 40 letters, digits, dots and dashes"),
        ('name = "a"\nurl = "http://x"\nctx = 3', "a whole number of tokens from 64 up"),
        ('name = "a"\nurl = "http://x"\nkeyring = "k"', 'a service and a user, as in "ds4chat/work"'),
        (
            'name = "a"\nurl = "http://x"\nport = 3',
            "name, url, ssh, command, model, ctx, key_env, keyring, default",
        ),
        ('ssh = "x"', "name"),
    ],
)
def test_faults_of_the_file_name_file_engine_and_what_is_allowed(file: Path, table: str, words: str) -> None:
    file.write_text(f"{GOOD}\n[[engine]]\n{table}\n")
    with pytest.raises(UsageError) as told:
        load_engines(file)
    assert str(told.value).startswith(f"The configuration {file} has a fault") and words in str(told.value)
    assert faults(file) == [str(told.value)]


@pytest.mark.parametrize("source", ["engine = 3", '[engine]\nurl = "http://x"', "engine = [1]"])
def test_engines_that_are_no_tables(file: Path, source: str) -> None:
    file.write_text(source)
    (fault,) = faults(file)
    assert fault == (
        f"The configuration {file} has a fault: engines are tables, each under its own [[engine]]: mend it there."
    )


def test_all_faults_are_told_at_once(file: Path) -> None:
    file.write_text(
        GOOD
        + '[[engine]]\nname = "a b"\nssh = "x"\n[[engine]]\nname = "b"\nurl = "x"\n[sampling]\nheat = 1\n'
    )
    assert [("number 4" in f, '"b"' in f, "heat" in f) for f in faults(file)] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_what_needs_this_machines_engine_has_it_whatever_the_default_is(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "config.toml").write_text(
        '[[engine]]\nname = "far"\nurl = "http://127.0.0.1:9"\ndefault = true\n'
    )
    done = program.run("bench", "-m", str(tmp_path / "none.gguf"))
    assert done.returncode != 0 and "none.gguf given by --model is not there" in done.stderr
    done = program.run("-p", "x")
    assert "There is no connection to http://127.0.0.1:9" in done.stderr


def test_the_file_is_whole_with_engines_in_it(file: Path) -> None:
    assert faults(file) == []


def test_a_key_stands_in_none_of_what_is_shown(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "config.toml").write_text(GOOD)
    env = program.env | {"WORK_KEY": "sk-very-secret"}
    assert "sk-very-secret" in env.values()
    for command in (("config", "show"), ("config", "check"), ("doctor",)):
        done = program.run(*command)
        assert "secret" not in done.stdout + done.stderr
    shown = program.run("config", "show", "engine").stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["engine.work", "https://llm.example.org/v1", "config.toml"],
        ["engine.attic", "me@attic", "config.toml"],
        ["engine.box", "box", "run", "ds4chat", "engine", "config.toml"],
    ]
