"""The same chat through this machine's engine, a real llama.cpp server, and a command that pipes the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Program
from tests.support.terminal import ESCAPE, Terminal, ctrl

LONG = "Write a long story about a whale and a lighthouse keeper, in many sentences."
QUESTIONS = ("Name a colour.", "Name another one.")
STREAMS = r"◆ SmolLM2.*\n[^\w\n]+(?!reading|restor|writing)\w+ \w+ \w+"

# Stands in for ssh: runs on this machine what it would run on the other, over another home.
SSH = """\
#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
echo "$1" >> "{far}/hosts"; shift
export DS4CHAT_DATA_DIR="{far}/data" DS4CHAT_KV_DIR="{far}/kv"
export DS4CHAT_CONFIG="{far}/config.toml" DS4CHAT_LOG_DIR="{far}/log"
PATH="{bin}:$PATH" exec "$@"
"""


class LlamaServer:
    """The server of llama-cpp-python on a port of its own, which can be killed and started again."""

    def __init__(self, model: Path, log: Path) -> None:
        self._model, self._log = model, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [
            "--model",
            str(self._model),
            "--port",
            str(self.port),
            "--host",
            "127.0.0.1",
            "--n_ctx",
            "1024",
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "llama_cpp.server", *words], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/v1/models", timeout=5):
                return
            assert self.process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    server = LlamaServer(starter, tmp_path_factory.mktemp("server") / "log")
    server.start()
    yield server
    server.kill()


class Reaching(Program):
    """The program with a stand-in for ssh on its path, which leads to `far`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        (home / "config.toml").write_text("[sampling]\ntemperature = 0.0\n")
        self.far = home / "far"
        (self.far / "data").mkdir(parents=True)
        with contextlib.suppress(OSError):
            (self.far / "data" / "engine.json").write_text((home / "data" / "engine.json").read_text())
        ssh = home / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(SSH.format(far=self.far, bin=Path(sys.executable).parent))
        ssh.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        env = super().env
        return env | {"PATH": f"{self.home / 'bin'}:{env['PATH']}"}

    def messages(self) -> list[dict[str, Any]]:
        (session,) = json.loads(self.run("ls", "--json").stdout)
        return list(json.loads(self.run("show", session["id"], "--json").stdout)["messages"])


@pytest.fixture
def program(tmp_path: Path) -> Reaching:
    return Reaching(tmp_path)


@pytest.mark.parametrize("engine", ["local", "server", "ssh:me@far.example"])
def test_the_same_chat_through_each_engine(program: Reaching, server: LlamaServer, engine: str) -> None:
    given = ("--engine", server.url if engine == "server" else engine, "--max-tokens", "8")
    asked = [program.ask(QUESTIONS[0], *given)]
    asked += [program.ask(question, "-c", *given) for question in QUESTIONS[1:]]
    messages = program.messages()
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert [message["text"] for message in messages[::2]] == list(QUESTIONS)
    assert [message["text"] for message in messages[1::2]] == [answer["text"] for answer in asked]
    for answer, message in zip(asked, messages[1::2], strict=True):
        assert message["text"].strip() and message["model"] == answer["model"] == "SmolLM2-135M-Instruct.Q4_1"
        assert answer["stop_reason"] in ("stop", "length") and message["state"] in ("complete", "length")
        assert answer["prompt_tokens"] == answer["cached_tokens"] + answer["prefilled_tokens"] > 0
        assert 0 < answer["generated_tokens"] <= 8
    if engine == "server":
        assert program.kv_files == []
    else:
        # A process each, so what was computed came from the disk of whoever computes.
        assert all(answer["cached_tokens"] > answer["prefilled_tokens"] for answer in asked[1:])
        assert bool(program.kv_files) is (engine == "local")
        assert bool(list(program.far.rglob("*.kv"))) is (engine != "local")
    if engine.startswith("ssh"):
        assert (program.far / "hosts").read_text() == "me@far.example\n" * 2


def test_a_server_killed_in_the_middle_of_a_reply_and_stopping(program: Reaching, starter: Path) -> None:
    server = LlamaServer(starter, program.home / "server.log")
    server.start()
    try:
        with Terminal(program, "--engine", server.url) as terminal:
            terminal.until("Enter sends")
            terminal.until(rf"SmolLM2.* at 127\.0\.0\.1:{server.port}")
            terminal.send_message(LONG)
            terminal.until(STREAMS)
            terminal.type(ESCAPE)
            terminal.until("stopped")
            terminal.send_message("Tell it again, longer.")
            terminal.until(r"Tell it again(.|\n)*" + STREAMS)
            shown = re.findall(r"\w+ \w+ \w+", terminal.text.rpartition("◆ SmolLM2")[2])[0]
            server.kill()
            terminal.until("broke off")
            terminal.until("cut off")
            terminal.send_message("Are you there?")
            terminal.until("There is no connection")
            server.start()
            terminal.send_message("And now?")
            terminal.until(r"And now(.|\n)*◆ SmolLM2(.|\n)*\d+ tokens · \d+ tok/s|And now(.|\n)*" + STREAMS)
            terminal.type(ESCAPE)
            terminal.type(ctrl("q"))
            assert terminal.wait_end() == 0
            terminal.assert_clean()
    finally:
        server.kill()
    messages = program.messages()
    said = [(m["text"], m["state"]) for m in messages if m["role"] == "user"]
    assert [text for text, _ in said] == [LONG, "Tell it again, longer.", "Are you there?", "And now?"]
    replies = [m for m in messages if m["role"] == "assistant" and m["text"]]
    assert [reply["state"] for reply in replies[:2]] == ["stopped", "cut"]
    assert shown in replies[1]["text"] and len(replies) == 3


def test_a_line_that_breaks_is_made_again(program: Reaching) -> None:
    with Terminal(program, "--engine", "ssh:far.example") as terminal:
        terminal.until("Enter sends")
        terminal.send_message(LONG)
        terminal.until(STREAMS)
        far = int(subprocess.check_output(["pgrep", "-P", str(terminal.process.pid)]).split()[0])
        os.killpg(far, signal.SIGKILL)
        terminal.until("The connection to the engine far.example ended")
        terminal.until("cut off")
        terminal.send_message("Name a colour.")
        terminal.until(r"Name a colour(.|\n)*◆ SmolLM2(.|\n)*\d+ tokens · \d+ tok/s")
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
        terminal.assert_clean()
    assert [(m["role"], m["state"]) for m in program.messages()] == [
        ("user", "complete"),
        ("assistant", "cut"),
        ("user", "complete"),
        ("assistant", "complete"),
    ]


def test_what_cannot_be_reached_is_a_sentence(program: Reaching) -> None:
    (program.home / "bin" / "ssh").write_text("#!/bin/sh\necho 'no route' >&2\nexit 255\n")
    done = program.run("-p", "x", "--engine", "ssh:nowhere")
    assert done.returncode == 1
    assert done.stderr == (
        "ds4chat: The engine nowhere could not be started (ssh ended with code 255): see that `ssh nowhere` works "
        "without a password and that ds4chat is installed there (its log is "
        f"{program.home / 'log' / 'engine.log'}).\n"
    )
    done = program.run("-p", "x", "--engine", "elsewhere")
    assert (done.returncode, done.stderr) == (
        2,
        'ds4chat: There is no engine "elsewhere": give one of local, an address (http://...), or ssh:HOST.\n',
    )
