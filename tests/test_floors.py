"""An import only goes down: what a fresh process has loaded, and the contracts of import-linter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ENGINE = ("llama_cpp", "ds4chat.engine.llama", "ds4chat.engine.turn", "ds4chat.engine.worker")
SCREEN = ("textual", "ds4chat.ui")
TEMPLATES = ("jinja2", "ds4chat.engine.template")
STORE = ("ds4chat.checkpoints",)
DATABASE = ("sqlite3", "ds4chat.sessions.database")

IMPORTS = [
    ("ds4chat.cli", (*ENGINE, *SCREEN, *TEMPLATES, *STORE, *DATABASE)),
    ("ds4chat.cli_setup", (*ENGINE, *SCREEN, *TEMPLATES, *STORE)),
    ("ds4chat.cli_sessions", (*ENGINE, *SCREEN, *TEMPLATES, *STORE)),
    ("ds4chat.cli_bench", (*ENGINE, *SCREEN, *TEMPLATES, *STORE, "ds4chat.engine.bench")),
    ("ds4chat.printing", (*ENGINE, *SCREEN, *TEMPLATES, *STORE)),
    ("ds4chat.sessions.manager", (*ENGINE, *SCREEN, *TEMPLATES, *STORE)),
    ("ds4chat.ui.app", (*ENGINE, *TEMPLATES, *STORE, *DATABASE)),
    ("ds4chat.ui.screens.chat", (*ENGINE, *TEMPLATES, *STORE, *DATABASE)),
    ("ds4chat.engine.client", (*ENGINE, *SCREEN, *TEMPLATES, *STORE, *DATABASE)),
    # llama_cpp itself loads sqlite3, so it is our own modules that tell.
    ("ds4chat.engine.worker", (*SCREEN, "ds4chat.cli", "ds4chat.config", "ds4chat.sessions")),
    ("ds4chat.engine.bench", (*SCREEN, "ds4chat.cli", "ds4chat.config", "ds4chat.sessions")),
    ("ds4chat.engine.template", ("llama_cpp", "ds4chat.engine.llama", *SCREEN, *DATABASE, *STORE)),
    ("ds4chat.engine.prompt", ("llama_cpp", "ds4chat.engine.llama", *SCREEN, *DATABASE, *STORE)),
    (
        "ds4chat.checkpoints.store",
        (*ENGINE, *SCREEN, *TEMPLATES, *DATABASE, "ds4chat.engine", "ds4chat.sessions"),
    ),
    (
        "ds4chat.checkpoints.writer",
        (*ENGINE, *SCREEN, *TEMPLATES, *DATABASE, "ds4chat.engine", "ds4chat.sessions"),
    ),
]


def loaded_after(code: str, home: Path, *arguments: str) -> set[str]:
    """Names in `sys.modules` of a new process after it ran `code`."""
    report = (
        "import atexit, sys\natexit.register(lambda: print('\\n' + ' '.join(sys.modules), file=sys.stderr))\n"
    )
    folders = {f"DS4CHAT_{name}_DIR": str(home / name.lower()) for name in ("DATA", "KV", "LOG")}
    done = subprocess.run(
        [sys.executable, "-c", report + code, *arguments],
        env=os.environ | folders | {"DS4CHAT_CONFIG": str(home / "config.toml")},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def found(modules: set[str], unwanted: tuple[str, ...]) -> list[str]:
    """Those loaded that are unwanted or lie below an unwanted package."""
    return sorted(m for m in modules if any(m == u or m.startswith(f"{u}.") for u in unwanted))


@pytest.mark.parametrize(("module", "unwanted"), IMPORTS, ids=[module for module, _ in IMPORTS])
def test_a_module_loads_nothing_from_above_or_beside(
    module: str, unwanted: tuple[str, ...], tmp_path: Path
) -> None:
    loaded = loaded_after(f"import {module}", tmp_path)
    assert module in loaded
    assert found(loaded, unwanted) == []


@pytest.mark.parametrize("line", ["--version", "--help", "ls", "ls --json"])
def test_commands_that_chat_with_nobody_load_neither_screen_nor_engine(line: str, tmp_path: Path) -> None:
    code = "import sys\nfrom ds4chat.cli import run\nassert run(sys.argv[1:]) == 0"
    loaded = loaded_after(code, tmp_path, *line.split())
    assert found(loaded, (*ENGINE, *SCREEN, *TEMPLATES, *STORE)) == []


def test_only_one_module_imports_llama_cpp() -> None:
    package = ROOT / "ds4chat"
    importers = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if any(
            line.split()[:2] in (["import", "llama_cpp"], ["from", "llama_cpp"]) for line in lines_of(path)
        )
    ]
    assert importers == ["engine/llama.py"]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_contracts_in_pyproject_are_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout
