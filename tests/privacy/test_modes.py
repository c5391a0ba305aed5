"""Whatever the umask, nobody else can read what the program writes, and nothing of it reaches a network."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.program import Program
from tests.support.terminal import Terminal, ctrl

NO_NETWORK = """
import os, sys
def hook(event, args):
    if not event.startswith("socket."):
        return
    # asyncio wakes its loop through a pair of sockets without an address.
    if event == "socket.__new__" and args[1] == 1 or event in ("socket.bind", "socket.connect") and args[0].family == 1:
        return
    if event in ("socket.gethostname", "socket.sethostname"):
        return
    with open(os.environ["NETWORK_LOG"], "a") as log:
        log.write(f"{os.getpid()} {event} {args!r}\\n")
    raise PermissionError(f"no network: {event}")
sys.addaudithook(hook)
with open(os.environ["NETWORK_LOG"] + ".seen", "a") as seen:
    seen.write(" ".join(sys.orig_argv) + "\\n")
"""


class Watched(Program):
    """The program under a umask that closes nothing, its processes forbidden to reach a network."""

    @property
    def env(self) -> dict[str, str]:
        site = self.home / "site"
        if not site.exists():
            site.mkdir()
            (site / "sitecustomize.py").write_text(NO_NETWORK)
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        return super().env | {"PYTHONPATH": os.pathsep.join(paths), "NETWORK_LOG": str(self.network_log)}

    @property
    def network_log(self) -> Path:
        return self.home / "site" / "network"

    @property
    def started(self) -> list[str]:
        """The command lines of all processes."""
        return self.network_log.with_name("network.seen").read_text().splitlines()


@pytest.fixture
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_after_real_use_all_files_are_the_owners_and_no_socket_was_opened(
    tmp_path: Path, tiny: dict[str, Path], open_umask: object
) -> None:
    program = Watched(tmp_path / "home", bare=True)
    for folder in (tmp_path / "home", tmp_path / "home" / "data"):
        folder.chmod(0o755)
    model = ("-m", str(tiny["dense"]), "--max-tokens", "4")
    answer = program.ask("word " * 300, *model)
    assert program.run("show", "nobody").returncode == 2
    with Terminal(program, *model, "-r", answer["session"]) as terminal:
        terminal.until("Write a message")
        terminal.send_message("and on the screen?")
        terminal.until(r"(?s)and on the screen\?.*Write a message")
        terminal.type("typed and not sent")
        terminal.until("typed and not sent")
        terminal.type(ctrl("n"))
        terminal.until("Enter    send a message")
        terminal.type("a draft of a new chat")
        terminal.until("a draft of a new chat")
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
    for args in (
        ("export", answer["session"], "-o", str(tmp_path / "home" / "chat.toml")),
        ("export", answer["session"], "--with-checkpoints", str(tmp_path / "home" / "chat.zip")),
        ("import", str(tmp_path / "home" / "chat.zip")),
        ("cache", "pin", answer["session"]),
        ("themes", "new", "mine"),
    ):
        done = program.run(*args)
        assert done.returncode == 0, done.stderr
    of_the_test = {program.home / "data", program.home / "site", *(program.home / "site").rglob("*")}
    written = [path for path in program.home.rglob("*") if path not in of_the_test]
    names = {path.name for path in written}
    assert {
        "sessions.db",
        "draft.txt",
        "ds4chat.log",
        "engine.log",
        "chat.toml",
        "chat.zip",
        "mine.toml",
    } <= names
    assert any(path.suffix == ".kv" for path in written)
    assert {
        str(p.relative_to(tmp_path)): oct(p.stat().st_mode & 0o077)
        for p in written
        if p.stat().st_mode & 0o077
    } == {}
    assert not program.network_log.exists(), program.network_log.read_text()
    assert sum("ds4chat.engine.worker" in line for line in program.started) == 2, (
        "the engines were watched too"
    )


def test_the_hook_would_see_a_connection(tmp_path: Path) -> None:
    program = Watched(tmp_path)
    code = "import socket; socket.getaddrinfo('localhost', 80)"
    done = subprocess.run(
        [program.command()[0], "-c", code], env=program.env, capture_output=True, text=True, check=False
    )
    assert "no network: socket.getaddrinfo" in done.stderr
    assert "socket.getaddrinfo" in program.network_log.read_text()


def test_logs_that_others_could_read_are_closed_to_them(tmp_path: Path) -> None:
    program = Program(tmp_path)
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "ds4chat.log"
    log.touch(0o644)
    log.chmod(0o644)
    program.run("ls")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_program_of_the_users_own_gets_the_users_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ds4chat import files

    monkeypatch.setattr(files, "_users_umask", -1)
    before = os.umask(0o022)
    try:
        files.keep_private()
        (tmp_path / "ours").touch()
        subprocess.run(["touch", str(tmp_path / "theirs")], umask=files.users_umask(), check=True)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("ours", "theirs")]
    assert modes == [0o600, 0o644]
