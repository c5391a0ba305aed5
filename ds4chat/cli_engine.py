"""`ds4chat engine`: this machine's engine for a chat on another one, over whatever pipes standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ds4chat.cli_setup import Setup
    from ds4chat.engine.protocol import Load


@click.command("engine")
@click.pass_obj
def engine(flags: dict[str, Any]) -> None:
    """Answer for a chat elsewhere: speak the engine's protocol on standard input and output.

    Meant to be started by `ds4chat --engine ssh:HOST`. The model and the checkpoints are those of this machine.
    """
    from ds4chat.cli_setup import Setup
    from ds4chat.engine import worker

    setup = Setup.from_flags(flags)
    worker.main(lambda load: own_load(load, setup, flags))


def own_load(load: Load, setup: Setup, flags: dict[str, Any]) -> Load:
    """What is loaded when another machine asks: its wishes, and the paths of this one. Raises Ds4chatError."""
    import msgspec

    from ds4chat.engine.spawn import is_plain

    options = setup.engine_options(flags | {"model": load.model_path or flags["model"], "engine": "local"})
    memo = setup.paths.data_dir / "engine.json"
    own = options.load_command(load.extra_buffers and not is_plain(memo), str(memo.with_name("models.json")))
    kv = msgspec.structs.replace(load.kv, directory=own.kv.directory, budget_mb=own.kv.budget_mb)
    return msgspec.structs.replace(own, n_ctx=load.n_ctx or own.n_ctx, kv=kv)
