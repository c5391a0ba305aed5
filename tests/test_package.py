"""What people install: the built wheel and sdist, and that README and docs say what the program does."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import tarfile
import tomllib
import typing
import zipfile
from pathlib import Path

import click
import pytest
from textual.binding import Binding

from ds4chat import __version__, cli
from ds4chat.ui.app import ChatApp
from ds4chat.ui.keys import keys_of
from ds4chat.ui.screens.bindings import CHAT_BINDINGS
from ds4chat.ui.screens.help import key_name
from ds4chat.ui.widgets.prompt_box import PromptBox

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]

SHIPPED = [
    f"{kind}/{file.name}"
    for kind in ("themes", "sample_sessions")
    for file in sorted((ROOT / kind).glob("*.toml"))
]
STYLES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "ds4chat").rglob("*.tcss"))
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "ds4chat").rglob("*.py"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built without a network."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel_names(built: Path) -> list[str]:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        return wheel.namelist()


@pytest.fixture(scope="module")
def sdist_names(built: Path) -> list[str]:
    """Without the folder all of it lies in."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        return [name.partition("/")[2] for name in sdist.getnames()]


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


def run_unpacked(unpacked: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python on the unpacked wheel, from another folder."""
    home.mkdir(exist_ok=True)
    folders = {f"DS4CHAT_{name}_DIR": str(home / name.lower()) for name in ("DATA", "KV", "LOG")}
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | folders | {"DS4CHAT_CONFIG": str(home / "config.toml"), "PYTHONPATH": str(unpacked)},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---- wheel and sdist


def test_the_wheel_holds_the_program_and_what_comes_with_it(wheel_names: list[str]) -> None:
    wanted = {*MODULES, *STYLES, *(f"ds4chat/shipped/{name}" for name in SHIPPED)}
    assert len(SHIPPED) >= 8 and len(STYLES) >= 5
    assert wanted - set(wheel_names) == set()


def test_the_wheel_holds_nothing_else(wheel_names: list[str]) -> None:
    top = {name.partition("/")[0] for name in wheel_names}
    assert top == {"ds4chat", f"ds4chat-{__version__}.dist-info"}
    endings = {Path(name).suffix for name in wheel_names if name.startswith("ds4chat/")}
    assert endings <= {".py", ".tcss", ".toml"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_the_sdist_holds_all_sources(sdist_names: list[str]) -> None:
    others = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/test_package.py"]
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES]
    assert {*MODULES, *STYLES, *SHIPPED, *others, *pages, "docs/pictures/chat.svg"} - set(
        sdist_names
    ) == set()
    assert [name for name in sdist_names if "__pycache__" in name or name.startswith(".venv")] == []


def test_the_unpacked_wheel_finds_themes_and_sample_sessions(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import ds4chat\nfrom ds4chat.paths import shipped\nprint(ds4chat.__file__)\n"
        "for kind in ('themes', 'sample_sessions'):\n"
        "    print(*(f'{kind}/{p.name}' for p in sorted(shipped(kind).glob('*.toml'))), sep='\\n')"
    )
    done = run_unpacked(unpacked, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    where, *files = done.stdout.split()
    assert Path(where).is_relative_to(unpacked)
    assert files == SHIPPED


def test_the_unpacked_wheel_runs_its_commands(unpacked: Path, tmp_path: Path) -> None:
    version = run_unpacked(unpacked, tmp_path, "-m", "ds4chat", "--version")
    assert version.stdout == f"ds4chat {__version__}\n", version.stderr
    sample = unpacked / "ds4chat" / "shipped" / "sample_sessions" / "bread.toml"
    imported = run_unpacked(unpacked, tmp_path, "-m", "ds4chat", "import", str(sample))
    assert imported.returncode == 0, imported.stderr
    assert "loaf" in run_unpacked(unpacked, tmp_path, "-m", "ds4chat", "ls").stdout


def test_the_version_is_the_same_everywhere(built: Path) -> None:
    assert PROJECT["project"]["version"] == __version__
    assert {path.name for path in built.iterdir()} == {
        f"ds4chat-{__version__}-py3-none-any.whl",
        f"ds4chat-{__version__}.tar.gz",
    }
    starter = PROJECT["project"]["optional-dependencies"]["starter"]
    assert f"STARTER := {starter[0]}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert starter[0] in README


def test_shipped_files_name_no_machine(unpacked: Path) -> None:
    home = re.compile(r"/(?:home|Users|root|work)/\w|[A-Z]:\\\\?Users")
    hosts = {socket.gethostname()} - {"", "localhost"}
    faults = []
    sources = [p for p in unpacked.rglob("*") if p.suffix in (".py", ".tcss", ".toml")]
    for path in [
        *sources,
        *PAGES,
        ROOT / "docs" / "pictures" / "chat.svg",
        ROOT / "Makefile",
        ROOT / "CHANGELOG.md",
    ]:
        text = path.read_text(encoding="utf-8")
        if (
            home.search(text)
            or str(ROOT) in text
            or any(re.search(rf"\b{re.escape(h)}\b", text) for h in hosts)
        ):
            faults.append(path.name)
    assert faults == []


# ---- README and docs


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """By name, those too that are imported when they are called."""
    context = click.Context(group)
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return {name: command for name, command in found if command is not None}


def options() -> list[str]:
    """Every name of every option, of the program and of its commands."""
    root = cli.cli
    assert isinstance(root, click.Group)
    groups = [root, *(c for c in commands_of(root).values() if isinstance(c, click.Group))]
    commands = [root, *(command for group in groups for command in commands_of(group).values())]
    return sorted(
        {
            name
            for command in commands
            for p in command.params
            if isinstance(p, click.Option)
            for name in p.opts
        }
    )


@pytest.mark.parametrize("option", options())
def test_every_option_is_in_the_docs(option: str) -> None:
    assert re.search(rf"`[^`\n]*(?<![\w-]){re.escape(option)}(?![\w-])", COMMAND_LINE), option


def test_the_docs_name_no_option_or_command_that_is_not_there() -> None:
    scripts = {
        "--kills",
        "--index",
        "--steps",
        "--minutes",
        "--tiny",
        "--budget",
        "--restores",
        "--rounds",
        "--only",
        "--files",
        "--count",
        "--model",
        "--ctx",
        "--json",
    }
    known = {*options(), "--help", "-h", *scripts}
    foreign = {"--slot-save-path", "--force-reinstall", "--no-cache-dir", "--no-binary", "--no-deps"}
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        assert named - known - foreign == set(), page.name
    root = cli.cli
    assert isinstance(root, click.Group)
    for name in commands_of(root):
        assert re.search(rf"^\| `{name}[ `]", COMMAND_LINE, re.MULTILINE), name
        assert f"ds4chat {name} " in README


def test_the_docs_list_every_key_of_the_configuration() -> None:
    from ds4chat.config import Config

    part = COMMAND_LINE.split("## config.toml")[1]
    rows = re.findall(r"^\| (?:`\[(\w+)\]`)? *\| `(\w+)` \|", part, re.MULTILINE)
    sections: dict[str, list[str]] = {}
    at = ""
    for section, key in rows:
        at = section or at
        sections.setdefault(at, []).append(key)
    default = Config()
    assert sections == {s: list(getattr(default, s).__struct_fields__) for s in Config.__struct_fields__}


def test_the_example_configuration_can_be_read(tmp_path: Path) -> None:
    from ds4chat.config import load_config

    example = re.findall(r"```toml\n(.*?)```", COMMAND_LINE.split("## config.toml")[1], re.DOTALL)[-1]
    (tmp_path / "config.toml").write_text(example, encoding="utf-8")
    assert load_config(tmp_path / "config.toml").kv.space_mb == 20_000


def test_the_example_session_can_be_read() -> None:
    from ds4chat.sessions.interchange import from_toml

    example = next(
        e for e in re.findall(r"```toml\n(.*?)```", COMMAND_LINE, re.DOTALL) if "[[messages]]" in e
    )
    assert len(from_toml(example, "example").messages) == 2


def test_the_event_table_of_stream_json_is_what_is_printed() -> None:
    source = (ROOT / "ds4chat" / "printing.py").read_text(encoding="utf-8")
    printed = set(re.findall(r'"type": "(\w+)"', source))
    part = COMMAND_LINE.split("**`stream-json`**")[1].split("```")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) - {"type"}
    assert listed == printed


def test_the_docs_list_every_command_and_event_of_the_pipe() -> None:
    from ds4chat.engine import protocol

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.split("## The pipe")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    kinds = (*typing.get_args(protocol.Command), *typing.get_args(protocol.Event))
    assert listed == {kind.__struct_config__.tag for kind in kinds}


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


# ---- keys


def table_keys() -> list[str]:
    """The keys in README's table, a range like `Alt+1` to `Alt+9` written out."""
    keys = []
    for line in README.split("## Keys")[1].split("## ")[0].splitlines():
        cell = line.split("|")[1] if line.count("|") >= 3 else ""
        for first, last in re.findall(r"`([^`]+)`(?: to `([^`]+)`)?", cell):
            stem, digit = (first[:-1], first[-1]) if last else ("", "")
            keys += [f"{stem}{n}" for n in range(int(digit), int(last[-1]) + 1)] if last else [first]
    return keys


def bound_keys() -> dict[str, list[str]]:
    """By binding id, its keys as people write them."""
    bindings = itertools.chain(CHAT_BINDINGS, PromptBox.BINDINGS, ChatApp.BINDINGS)
    return {
        b.id or "": [key_name(k) for k in keys_of(b.id, b.key, {})]
        for b in bindings
        if isinstance(b, Binding)
    }


@pytest.mark.parametrize("name", bound_keys())
def test_every_binding_is_in_the_table_of_keys(name: str) -> None:
    assert set(bound_keys()[name]) <= set(table_keys()), name


def test_the_table_of_keys_has_no_others() -> None:
    bound = set(itertools.chain(*bound_keys().values()))
    assert set(table_keys()) - bound == set()


# ---- the picture


def test_the_picture_fetches_nothing() -> None:
    svg = (ROOT / "docs" / "pictures" / "chat.svg").read_text(encoding="utf-8")
    assert "@font-face" not in svg and "url(http" not in svg
    assert not re.search(r'(?:href|src)\s*=\s*"https?:', svg)
