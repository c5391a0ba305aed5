"""`ds4chat` without a command: the chat screen, the line mode, or one answer, and in which session."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds4chat.errors import SessionNotFoundError, UsageError
from ds4chat.safe_text import one_line

if TYPE_CHECKING:
    from ds4chat.cli_setup import Setup
    from ds4chat.sessions.manager import SessionManager

STDIN = "-"
"""In place of a prompt or of a file."""

DUMB = ("dumb", "unknown")
"""Values of TERM that say the cursor cannot be moved."""


def chat(flags: dict[str, Any]) -> int:
    """The chat screen, the line mode or, with a prompt, one answer."""
    _check_together(flags)
    greeting = "" if flags["plain"] else _dumb_terminal(flags)
    plain = flags["plain"] or bool(greeting)
    prompt = None if plain else _prompt(flags)
    if prompt is not None:
        from ds4chat import script_input

        constraint = script_input.constraint(flags["grammar"], flags["json_schema"])
        prompt = _with_files(flags, prompt)
    if prompt is None and not plain:
        # Nearly all that is made until the screen stands is kept: looking for what is not costs a tenth of the start.
        # The screen has it collected again.
        gc.disable()
    from ds4chat.cli_setup import Setup

    setup = Setup.from_flags(flags)
    session_id = _session(flags, setup)
    manager = setup.manager(flags, session_id)
    if prompt is not None:
        from ds4chat.printing import print_reply

        return print_reply(
            manager,
            prompt,
            session_id=session_id,
            output_format=flags["output_format"] or "text",
            out=sys.stdout,
            err=sys.stderr,
            constraint=constraint,
            allow_tools=flags["allow_tools"],
        )
    if plain:
        return _plain(flags, setup, manager, session_id, greeting)
    if not os.environ.get("NO_COLOR"):
        # Empty counts as unset, which Textual does not know.
        os.environ.pop("NO_COLOR", None)
    from ds4chat.desk import FileDesk
    from ds4chat.key_settings import load_key_settings
    from ds4chat.ui.app import run

    last = run(
        manager,
        session_id=session_id,
        pick=flags["resume"] == "",
        theme=setup.config.chat.theme or None,
        config_dir=setup.paths.config_dir,
        keys=load_key_settings(setup.paths.config_file),
        desk=FileDesk(setup, flags),
        bell=setup.config.chat.bell,
    )
    if last is not None and not flags["no_save"]:
        click.echo(_resume_command(last, flags["data_dir"]))
    return 0


def _check_together(flags: dict[str, Any]) -> None:
    resumes = flags["resume"] is not None
    if resumes and flags["continue_"]:
        raise UsageError("--resume and --continue exclude each other: give one of them.")
    if flags["system"] is not None and (resumes or flags["continue_"]):
        raise UsageError("--system is for a new session: leave it out, or leave out --resume and --continue.")
    if flags["plain"] and (flags["prompt"] is not None or _given_for_print(flags)):
        also = _given_for_print(flags)
        raise UsageError(
            f"--plain is a chat of its own: leave it out, or leave out {' and '.join(['--print', *also])}."
        )
    if flags["grammar"] is not None and flags["json_schema"] is not None:
        raise UsageError("--grammar and --json-schema exclude each other: give one of them.")
    if STDIN in flags["files"] and flags["prompt"] in (None, STDIN):
        raise UsageError("--file - is standard input as a file: give the prompt itself with -p.")
    if flags["allow_tools"] and flags["plain"]:
        raise UsageError("--allow-tool is for --print: in a chat you are asked about each call.")
    if flags["plain"] and flags["resume"] == "":
        raise UsageError(
            "--resume without an ID opens a picker, which --plain has not: give the ID, or type /open."
        )


def _given_for_print(flags: dict[str, Any]) -> list[str]:
    """The options that make sense with --print alone."""
    names = {"files": "--file", "grammar": "--grammar", "json_schema": "--json-schema"}
    return [name for key, name in (names | {"output_format": "--output-format"}).items() if flags[key]]


def _dumb_terminal(flags: dict[str, Any]) -> str:
    """Why the line mode starts although nobody asked for it, "" when the screen can be drawn."""
    kind = os.environ.get("TERM", "")
    wanted = flags["prompt"] is None and not _given_for_print(flags)
    if kind not in DUMB or not wanted or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    return f"This terminal cannot show the chat screen (TERM is {kind}), so the chat goes on line by line."


def _plain(
    flags: dict[str, Any], setup: Setup, manager: SessionManager, session_id: str | None, greeting: str
) -> int:
    from ds4chat import plain
    from ds4chat.desk import FileDesk

    code, last = plain.run(manager, session_id=session_id, desk=FileDesk(setup, flags), greeting=greeting)
    if last is not None and not flags["no_save"]:
        click.echo(_resume_command(last, flags["data_dir"]))
    return code


def _prompt(flags: dict[str, Any]) -> str | None:
    """What to answer on standard output; None for the chat screen, which needs a terminal on both sides."""
    prompt: str | None = flags["prompt"]
    screen = sys.stdin.isatty() and sys.stdout.isatty()
    if prompt is None and screen:
        if given := _given_for_print(flags):
            raise UsageError(f"{given[0]} is for --print: give a prompt with -p.")
        if flags["allow_tools"]:
            raise UsageError("--allow-tool is for --print: in a chat you are asked about each call.")
        return None
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
        if not prompt.strip():
            raise UsageError(
                "There is no terminal and standard input is empty: give a prompt with -p, or pipe one in."
            )
    if prompt is None:
        raise UsageError(
            "The chat screen needs a terminal: give a prompt with -p to have the answer printed."
        )
    if not prompt.strip():
        raise UsageError("The prompt of --print is blank: give it some text, or - to read standard input.")
    if flags["resume"] == "":
        raise UsageError(
            "--resume without an ID opens a picker, which --print has not: give the ID or use --continue."
        )
    return prompt


def _with_files(flags: dict[str, Any], prompt: str) -> str:
    """The prompt with its files; whoever looks on is told what they weigh."""
    if not flags["files"]:
        return prompt
    from ds4chat import script_input

    prompt, weights = script_input.with_files(prompt, flags["files"])
    if sys.stderr.isatty():
        click.echo(f"ds4chat: {one_line(weights)}", err=True)
    return prompt


def _session(flags: dict[str, Any], setup: Setup) -> str | None:
    """The id of the session to go on in; None for a new one or the picker."""
    if not flags["resume"] and not flags["continue_"]:
        return None
    with setup.database() as database:
        if flags["resume"]:
            return database.resolve(flags["resume"])
        latest = database.latest()
    if latest is None:
        raise SessionNotFoundError("There is no session to continue yet: start one with `ds4chat`.")
    return latest


def _resume_command(session_id: str, data_dir: str | None) -> str:
    """What brings the session back, from whatever folder it is typed in."""
    command = f"ds4chat --resume {session_id}"
    if data_dir is not None:
        import shlex

        command += f" --data-dir {shlex.quote(str(Path(data_dir).expanduser().absolute()))}"
    return command
