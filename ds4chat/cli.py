"""The command line: options, commands, exit codes. What a command does is imported when it runs.

Whatever goes wrong becomes one sentence on standard error, "ds4chat: ...", and an exit code: 2 for bad usage,
1 for a failure, 130 for Ctrl+C. Never a traceback: that goes to the log.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ds4chat import __version__, news
from ds4chat.cli_late import LateGroup, complete_late
from ds4chat.errors import Ds4chatError, SessionLockedError, SessionNotFoundError, UsageError
from ds4chat.files import keep_private
from ds4chat.log_file import LogFile
from ds4chat.safe_text import one_line
from ds4chat.streams import check_free_files, nobody_reads, open_missing_streams

if TYPE_CHECKING:
    from ds4chat.paths import Paths

Command = TypeVar("Command", bound=Callable[..., Any])

log = logging.getLogger(__name__)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_chat_options = _options(
    click.option(
        "-r",
        "--resume",
        metavar="[ID]",
        is_flag=False,
        flag_value="",
        default=None,
        help="Go on in that session (an id, the start of one, or a title), or pick one.",
        shell_complete=complete_late("complete_sessions"),
    ),
    click.option("-c", "--continue", "continue_", is_flag=True, help="Go on in the latest session."),
    click.option(
        "-m",
        "--model",
        metavar="PATH|NAME",
        help="GGUF file, or a name that `models` lists.",
        shell_complete=complete_late("complete_models"),
    ),
    click.option(
        "--engine",
        metavar="NAME|URL|ssh:HOST",
        help="Answer by an engine elsewhere: one of config.toml, a server, or ds4chat on another machine.",
        shell_complete=complete_late("complete_engines"),
    ),
    click.option("-s", "--system", metavar="TEXT", help="System prompt of a new session."),
    click.option("-p", "--print", "prompt", metavar="PROMPT|-", help="Answer on standard output and exit."),
    click.option(
        "-f",
        "--file",
        "files",
        metavar="FILE|-",
        multiple=True,
        help="Of --print: put a text file in front of the prompt; may be repeated.",
        shell_complete=complete_late("complete_files"),
    ),
    click.option(
        "--grammar",
        metavar="FILE|TEXT",
        help="Of --print: GBNF that the answer follows.",
        shell_complete=complete_late("complete_files"),
    ),
    click.option(
        "--json-schema",
        metavar="FILE|JSON",
        help="Of --print: the answer is JSON that fits it.",
        shell_complete=complete_late("complete_files"),
    ),
    click.option(
        "--output-format",
        type=click.Choice(["text", "json", "stream-json"]),
        default=None,
        help="Of --print; text by default.",
    ),
    click.option("--tools", is_flag=True, help="Let the model call tools, each when you allow it."),
    click.option(
        "--allow-tool",
        "allow_tools",
        metavar="NAME",
        multiple=True,
        help="Of --print: run this tool unasked.",
    ),
    click.option("--no-save", is_flag=True, help="Keep the conversation in memory alone."),
    click.option(
        "--plain", is_flag=True, help="Chat line by line: no screen, no colour, no cursor movement."
    ),
)

_model_options = _options(
    click.option("--ctx", type=int, metavar="N", help="Context length in tokens."),
    click.option(
        "--threads",
        type=int,
        metavar="N",
        help="Threads; all cores for prompts and one less to generate by default.",
    ),
    click.option("--gpu-layers", type=int, metavar="N", help="Layers on the GPU; all that fit by default."),
    click.option("--kv-type", metavar="TYPE", help="Of the KV cache: f16, q8_0, ..."),
)

_sampling_options = _options(
    click.option("--temperature", type=float, metavar="F", help="0 always takes the likeliest token."),
    click.option("--top-p", type=float, metavar="F", help="Sample from the likeliest that add up to F."),
    click.option("--top-k", type=int, metavar="N", help="Sample from the N likeliest."),
    click.option("--min-p", type=float, metavar="F", help="Drop those below F times the likeliest."),
    click.option("--repeat-penalty", type=float, metavar="F", help="1 means none."),
    click.option("--seed", type=int, metavar="N", help="Makes sampling repeatable."),
    click.option("--max-tokens", type=int, metavar="N", help="At which a reply ends."),
)

_data_dir = click.option("--data-dir", metavar="DIR", help="Where sessions are kept.")
_kv_dir = click.option(
    "--kv-disk-dir", "--kv-dir", "kv_dir", metavar="DIR", help="Where checkpoints are kept."
)
_kv_space = click.option(
    "--kv-disk-space-mb",
    "--kv-budget",
    "space_mb",
    type=int,
    metavar="MB",
    help="Of all checkpoints; 0: no limit.",
)
_no_kv = click.option("--no-kv", is_flag=True, help="Neither store nor restore checkpoints.")

_kv_options = _options(
    _kv_dir,
    _kv_space,
    _no_kv,
    click.option(
        "--kv-cache-min-tokens",
        "min_tokens",
        type=int,
        metavar="N",
        help="Shortest first prompt that is stored.",
    ),
    click.option(
        "--kv-cache-cold-max-tokens",
        "cold_max_tokens",
        type=int,
        metavar="N",
        help="How far a first prompt counts as one.",
    ),
    click.option(
        "--kv-cache-continued-interval-tokens",
        "continued_interval_tokens",
        type=int,
        metavar="N",
        help="Distance of checkpoints.",
    ),
    click.option(
        "--kv-cache-boundary-trim-tokens",
        "boundary_trim_tokens",
        type=int,
        metavar="N",
        help="Kept off the end of a first prompt.",
    ),
    click.option(
        "--kv-cache-boundary-align-tokens",
        "boundary_align_tokens",
        type=int,
        metavar="N",
        help="What lengths are multiples of.",
    ),
    click.option(
        "--kv-cache-accept-different-quant",
        "accept_different_quant",
        is_flag=True,
        default=None,
        help="Also use other quantizations' checkpoints.",
    ),
    click.option("--kv-options", metavar="JSON", help="The same and hit_half_life_seconds, as one object."),
)


@click.group(
    cls=LateGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@_options(_chat_options, _model_options, _sampling_options, _data_dir, _kv_options)
@click.version_option(__version__, prog_name="ds4chat", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **flags: Any) -> int:
    """Chat with a local model. Conversations are kept, and reopen at the speed of reading a file."""
    ctx.obj = flags
    if ctx.invoked_subcommand is not None:
        return 0
    from ds4chat import cli_chat

    return cli_chat.chat(flags)


@cli.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--archived", is_flag=True, help="List those that were put away instead.")
@_data_dir
@click.pass_obj
def list_command(flags: dict[str, Any], as_json: bool, archived: bool, data_dir: str | None) -> None:
    """List the sessions, pinned ones first, then last used first."""
    from ds4chat import cli_sessions

    cli_sessions.list_sessions(_paths(flags, data_dir), as_json=as_json, archived=archived)


@cli.command("show")
@click.argument("session", metavar="ID", shell_complete=complete_late("complete_sessions"))
@click.option("--json", "form", flag_value="json", help="Print a JSON object.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@click.option("--toml", "form", flag_value="toml", help="Print TOML, which `import` reads.")
@_data_dir
@click.pass_obj
def show_command(flags: dict[str, Any], session: str, form: str | None, data_dir: str | None) -> None:
    """Print a session."""
    from ds4chat import cli_sessions

    cli_sessions.show(_paths(flags, data_dir), session, form or "text")


@cli.command("rename")
@click.argument("session", metavar="ID", shell_complete=complete_late("complete_sessions"))
@click.argument("title")
@_data_dir
@click.pass_obj
def rename_command(flags: dict[str, Any], session: str, title: str, data_dir: str | None) -> None:
    """Give a session another title."""
    from ds4chat import cli_sessions

    cli_sessions.rename(_paths(flags, data_dir), session, title)


@cli.command("rm")
@click.argument(
    "sessions", metavar="ID...", nargs=-1, required=True, shell_complete=complete_late("complete_sessions")
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_data_dir
@_kv_dir
@click.pass_obj
def remove_command(
    flags: dict[str, Any], sessions: tuple[str, ...], yes: bool, data_dir: str | None, kv_dir: str | None
) -> None:
    """Delete sessions and the checkpoints that no other session stands on."""
    from ds4chat import cli_sessions

    cli_sessions.remove(_paths(flags, data_dir, kv_dir), sessions, yes=yes)


@cli.command("export")
@click.argument("sessions", metavar="ID...", nargs=-1, shell_complete=complete_late("complete_sessions"))
@click.option(
    "--with-checkpoints",
    "checkpoints",
    metavar="[FILE]",
    is_flag=False,
    flag_value="",
    default=None,
    help="Make a bundle that holds the session's checkpoints too.",
)
@click.option("-o", "--output", metavar="FILE|FOLDER|-", help="Standard output by default.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["toml", "json", "jsonl", "markdown", "html", "bundle"]),
    help="By default a bundle with checkpoints, else by the file's ending, else toml.",
)
@click.option(
    "--theme",
    metavar="NAME",
    help="Whose colours a page in HTML has.",
    shell_complete=complete_late("complete_themes"),
)
@_data_dir
@_kv_dir
@click.pass_obj
def export_command(
    flags: dict[str, Any],
    sessions: tuple[str, ...],
    checkpoints: str | None,
    output: str | None,
    form: Any,
    theme: str | None,
    data_dir: str | None,
    kv_dir: str | None,
) -> None:
    """Write sessions to files, which `import` reads on another machine, or to pages for a browser."""
    if not sessions:  # an option with a value that may be left out takes the ID behind it for one
        sessions, checkpoints = (checkpoints,) if checkpoints else (), "" if checkpoints else checkpoints
    if not sessions:
        raise UsageError("export needs the ID of a session: `ds4chat ls` lists them.")
    if checkpoints and output:
        raise UsageError("--with-checkpoints and -o both name a file: give one of them.")
    from ds4chat import cli_export

    paths, target = _paths(flags, data_dir, kv_dir), output or checkpoints or "-"
    with_checkpoints = checkpoints is not None
    cli_export.export(
        paths, sessions, target, form, with_checkpoints=with_checkpoints, theme=theme, tell=complain
    )


@cli.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_data_dir
@_kv_dir
@_kv_space
@_no_kv
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each chat.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of what came in and what did not.")
@click.pass_obj
def import_command(
    flags: dict[str, Any], /, files: tuple[str, ...], verbose: bool, as_json: bool, **own: Any
) -> int:
    """Read chats from files: what `export` wrote, and those of ChatGPT, Claude, Open WebUI, oterm, elia, llm, JSON and
    Markdown. What a file is, its content tells."""
    from ds4chat import cli_import
    from ds4chat.cli_setup import Setup

    given = {name: value for name, value in own.items() if value is not None and value is not False}
    setup = Setup.from_flags(flags | given)
    reports = cli_import.import_files(setup, files, complain, verbose=verbose, as_json=as_json)
    return UsageError.exit_code if any(report.has_faults for report in reports) else 0


@cli.command("bench")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--tokens", metavar="N,...", default="512,2048,6000", show_default=True, help="Lengths to measure."
)
@click.option(
    "--only",
    type=click.Choice(["lengths", "generation", "growth"]),
    multiple=True,
    help="Measure this part alone; may be repeated.",
)
@click.option("--plot", metavar="FILE", help="Also draw it, as .svg or .png.")
@click.option(
    "-m",
    "--model",
    metavar="PATH|NAME",
    help="As of the chat.",
    shell_complete=complete_late("complete_models"),
)
@_model_options
@_data_dir
@_kv_dir
@click.pass_obj
def bench_command(
    flags: dict[str, Any], /, as_json: bool, tokens: str, only: Any, plot: str | None, **own: Any
) -> None:
    """Measure what checkpoints cost and save on this machine with this model."""
    from ds4chat import cli_bench

    given = {name: value for name, value in own.items() if value is not None}
    chosen = {**flags, **given, "no_kv": False, "no_save": False}
    cli_bench.bench(chosen, tokens, parts=only, as_json=as_json, plot=plot)


def _paths(flags: dict[str, Any], data_dir: str | None, kv_dir: str | None = None) -> Paths:
    from ds4chat.cli_setup import resolve_paths

    return resolve_paths(data_dir or flags["data_dir"], kv_dir or flags["kv_dir"])


# ---- the way out
# -------------------------------------------------------------------------------------------------


def main() -> None:
    """The program `ds4chat`."""
    keep_private()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    news.take()
    try:
        return _run(arguments)
    finally:
        for sentence in news.take():
            with contextlib.suppress(OSError):
                complain(sentence)


def _run(arguments: Sequence[str]) -> int:
    try:
        _start_log()
        check_free_files()
        code = cli.main(args=list(arguments), prog_name="ds4chat", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        # A group without a command: its whole help, not squeezed into a sentence.
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        complain(f"{error.format_message().rstrip('.')}; see `ds4chat --help`.")
        return error.exit_code
    except Ds4chatError as error:
        # A sentence about a session has its title, which is the user's own words.
        about_session = isinstance(error, SessionNotFoundError | SessionLockedError)
        log.info("%s", type(error).__name__ if about_session else error, exc_info=error.__cause__)
        if not news.is_last_printed(str(error)):
            complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        return nobody_reads()
    except OSError as error:
        log.exception("reading or writing failed")
        what = error.filename or "standard output"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            complain("Too many files are open: close other programs, or raise the limit with `ulimit -n`.")
        else:
            complain(
                f"{what} could not be read or written ({error.strerror}): see that it is there and has room."
            )
        return nobody_reads()
    except SystemExit as error:  # how click reports a broken pipe
        return nobody_reads() if error.code == 1 else int(error.code or 0)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        log.exception("unexpected")
        where = _log_path()
        told = f"{where} has the details" if where is not None else "no log could be written"
        complain(f"An unexpected error ended this ({type(error).__name__}): {told}.")
        return 1


def complain(sentence: str) -> None:
    """A sentence on standard error, on one line and without anything a terminal acts on."""
    click.echo(f"ds4chat: {one_line(sentence)}", err=True)


def _log_path() -> Path | None:
    paths = (h.path for h in logging.getLogger().handlers if isinstance(h, LogFile))
    return next((path for path in paths if path.exists()), None)


def _start_log() -> None:
    """Send all log lines to a file; to nowhere when there can be none, and never to the terminal."""
    root = logging.getLogger()
    if root.handlers:
        return
    root.setLevel(logging.INFO)
    # Until there is a handler, too.
    logging.raiseExceptions, logging.lastResort = False, None
    from ds4chat import paths

    handler: logging.Handler
    try:
        path = paths.resolve().app_log
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = LogFile(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
        if path.exists() and path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except (OSError, UsageError):
        handler = logging.NullHandler()
    root.addHandler(handler)
