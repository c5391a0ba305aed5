"""`ds4chat engine`: this machine's engine for a chat on another one, over whatever pipes standard input and output."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ds4chat.cli_setup import Setup
    from ds4chat.engine.protocol import Load


@click.command("engine")
@click.pass_obj
def engine(flags: dict[str, Any]) -> int:
    """Answer for a chat elsewhere: speak the engine's protocol on standard input and output.

    Meant to be started by `ds4chat --engine ssh:HOST`. The model and the checkpoints are those of this machine.
    """
    from ds4chat.cli_setup import Setup
    from ds4chat.engine.spawn import child_environment, remember_plain

    setup = Setup.from_flags(flags)
    os.environ.update(child_environment())
    child = os.fork()
    if child == 0:
        from ds4chat.engine import worker

        worker.main(lambda load: own_load(load, setup, flags))
    # The engine proper may end by a signal, which ssh would not tell: it is told as a shell does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGILL:
        remember_plain(_memo(setup))
    sys.stdout.flush()
    return code if code >= 0 else 128 - code


def _memo(setup: Setup) -> Path:
    return setup.paths.data_dir / "engine.json"


def own_load(load: Load, setup: Setup, flags: dict[str, Any]) -> Load:
    """What is loaded when another machine asks: its wishes, and the paths of this one. Raises Ds4chatError."""
    import msgspec

    from ds4chat.engine.spawn import is_plain

    options = setup.engine_options(flags | {"model": load.model_path or flags["model"]})
    memo = _memo(setup)
    own = options.load_command(load.extra_buffers and not is_plain(memo), str(memo.with_name("models.json")))
    kv = msgspec.structs.replace(load.kv, directory=own.kv.directory, budget_mb=own.kv.budget_mb)
    return msgspec.structs.replace(own, n_ctx=load.n_ctx or own.n_ctx, kv=kv)
