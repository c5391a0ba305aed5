"""Commands that are imported when they are called: the start of the chat screen does not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = ("cache", "completion", "config", "doctor", "engine", "models", "search", "themes")
"""Each is an attribute of the module `ds4chat.cli_<name>` with its own name."""


class LateGroup(click.Group):
    """A group with the commands of `COMMANDS` beside those it was given."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            command: click.Command = getattr(import_module(f"ds4chat.cli_{cmd_name}"), cmd_name)
            self.add_command(command)
        return super().get_command(ctx, cmd_name)


def complete_late(name: str) -> Callable[..., list[CompletionItem[str]]]:
    """A function of `ds4chat.cli_completion`, imported when a shell asks."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        function: Any = getattr(import_module("ds4chat.cli_completion"), name)
        found: list[CompletionItem[str]] = function(ctx, param, incomplete)
        return found

    return complete
