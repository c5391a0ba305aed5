"""`export`, and `import` of what it wrote: the join of a session and the checkpoints it stands on.

Export only reads, so a session may be open elsewhere meanwhile. Import checks a file as a whole before anything is
written; then the session comes in, in one transaction, and its checkpoints after it: they are no more than time
saved, so whatever is wrong with one of them is told and costs nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import click

from ds4chat import cli_bundle
from ds4chat.cli_sessions import document
from ds4chat.cli_setup import Setup
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.paths import Paths, absolute, starter_model
from ds4chat.printing import visible
from ds4chat.sessions.bundle import Bundle, BundleWriter
from ds4chat.sessions.database import Database, Span
from ds4chat.sessions.session import Session
from ds4chat.sessions.session_json import mark_token_ids, same_messages, to_json

Tell = Callable[[str], None]

Form = Literal["toml", "json", "jsonl", "markdown", "html", "bundle"]

_ENDINGS: dict[str, Form] = {
    ".toml": "toml",
    ".json": "json",
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".zip": "bundle",
}

_ENDING = {form: ending for ending, form in reversed(_ENDINGS.items())}

NAME_WIDTH = 60
"""Characters of a title in the name of a file."""

PROGRESS_AFTER = 0.5
"""Seconds of work after which it shows how far it is."""

MB = 10**6


# ---- export ----------------------------------------------------------------------------------------------------------


def export(
    paths: Paths,
    names: Sequence[str],
    target: str,
    form: Form | None,
    *,
    with_checkpoints: bool,
    theme: str | None = None,
    tell: Tell,
) -> None:
    """Write sessions to the file `target`, "-" for standard output, or each to a file of its own in a folder.

    Args:
        form: None takes "bundle" for checkpoints, else what the target's ending says, else "toml".
        theme: of a page; None for the one that is configured.
        tell: takes a sentence for the user.

    Raises:
        SessionNotFoundError, DatabaseError, UsageError, and Ds4chatError when the file cannot be written.
    """
    if form is None:
        form = "bundle" if with_checkpoints else _ENDINGS.get(Path(target).suffix.lower(), "toml")
    if with_checkpoints and form != "bundle":
        raise UsageError(f"--with-checkpoints makes a bundle: leave it out, or leave out --format {form}.")
    to_terminal = target == "-" and sys.stdout.isatty()
    if to_terminal and form == "bundle":
        raise UsageError("A bundle is nothing for a terminal: give a file with -o, or redirect the output.")
    folder = _folder(target, several=len(names) > 1)
    if len(names) > 1 and folder is None and form != "jsonl":
        raise UsageError(
            "Several sessions need a folder (-o FOLDER/), or --format jsonl, which has them all in one file."
        )
    write = _Writer(paths, form, theme)
    with Database(paths.database) as database:
        ids = list(dict.fromkeys(map(database.resolve, names)))
        if folder is None and form != "bundle":
            # Whole before the file is begun; of several, one after the other.
            first = write.text(database.load_session(ids[0]))
            rest = (write.text(database.load_session(id_)) for id_ in ids[1:])
            if to_terminal:
                for data in (first, *rest):
                    # Not by click, which takes escape sequences out of what it writes.
                    sys.stdout.write(visible(data.decode()))
                return
            with _output(target) as out:
                out.write(first)
                out.writelines(rest)
            return
        for id_ in ids:
            session = database.load_session(id_)
            standing = database.spans_of(id_) if with_checkpoints else []
            file = target if folder is None else str(_own_file(folder, session, form))
            if form == "bundle":
                _pack(paths, session, standing if with_checkpoints else None, file, tell)
            else:
                data = write.text(session)
                with _output(file) as out:
                    out.write(data)
    if folder is not None and form != "bundle":
        tell(f"{_count(len(ids), 'session')} written to {target}.")


class _Writer:
    """Sessions as text in one format."""

    def __init__(self, paths: Paths, form: Form, theme: str | None) -> None:
        self._paths, self._form, self._theme = paths, form, theme
        self._colors: tuple[Any, Any] | None = None

    def text(self, session: Session) -> bytes:
        """Raises UsageError for one that cannot be written so."""
        match self._form:
            case "json":
                return to_json(session)
            case "jsonl":
                from ds4chat.sessions.exporting.jsonl import to_jsonl

                return to_jsonl(session)
            case "html":
                return self._page(session)
        return document(session, self._form).encode()

    def _page(self, session: Session) -> bytes:
        # The screen's colours are slow to import.
        from ds4chat.config import load_config
        from ds4chat.html_theme import page_colors
        from ds4chat.sessions.exporting.html import to_html

        if self._colors is None:
            name = self._theme or load_config(self._paths.config_file).chat.theme
            self._colors = page_colors(self._paths.config_dir, name, given=self._theme is not None)
        return to_html(session, *self._colors).encode()


def _folder(target: str, *, several: bool) -> Path | None:
    """The folder that the target names, made if need be; None for a file."""
    if target == "-" or not (target.endswith("/") or (several and absolute(target).is_dir())):
        return None
    folder = absolute(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Ds4chatError(
            f"{target} cannot be made ({error.strerror or error}): give another folder."
        ) from error
    return folder


def _own_file(folder: Path, session: Session, form: Form) -> Path:
    """A file for a session in a folder, by id and title."""
    words = re.sub(r"[^\w.-]+", "-", session.title[:NAME_WIDTH]).strip("-.")
    return folder / (f"{session.id}-{words}".strip("-") + _ENDING[form])


def _pack(paths: Paths, session: Session, spans: Sequence[Span] | None, target: str, tell: Tell) -> None:
    """A bundle, with checkpoints when there is a list of them."""
    with_checkpoints, standing = spans is not None, spans or []
    folders = cli_bundle.on_disk(paths.kv_dir, {bytes.fromhex(span.sha1) for span in standing})
    size = sum(span.size for spans in folders for span in spans)
    with (
        _output(target) as out,
        BundleWriter(out, session) as bundle,
        Progress("Packing checkpoints", size) as progress,
    ):
        packed = cli_bundle.pack(bundle, folders, progress.advance)
    what = _count(len(session.messages), "message")
    if with_checkpoints:
        what += f", {_count(packed.spans, 'checkpoint')} ({packed.bytes / MB:,.1f} MB)"
    where = "standard output" if target == "-" else target
    tell(f"Session {session.id} is in {where}: {what}.")
    if packed.damaged:
        tell(f"{_count(packed.damaged, 'checkpoint')} of it could not be read whole and stayed out.")


@contextlib.contextmanager
def _output(target: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that takes its name when it is whole, readable for its owner alone."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        # A link stays one, and what is no file (a pipe, /dev/null) is written to.
        path = absolute(target).resolve()
        if path.is_dir():
            raise UsageError(f"{target} is a folder: give the name of a file in it.")
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        temp = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
        fd = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temp.replace(path)
        finally:
            temp.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Ds4chatError(
            f"{target} cannot be written ({reason}): make room there, or give another file."
        ) from error


# ---- import ----------------------------------------------------------------------------------------------------------


def import_bundle(database: Database, setup: Setup, path: Path, tell: Tell) -> Session:
    """Take in a bundle or a JSON session; the session as it is in the database now.

    Its own id is kept where that is free. A conversation that is here does not come in again, but checkpoints of it
    that are not here (any more) do. Raises InterchangeError before anything is written, and DatabaseError.
    """
    with Bundle(path) as bundle:
        known = _known(database, bundle.session)
        if known is not None:
            tell(f'{path} is here as session {known.id} "{known.title}" and was not imported again.')
        takes_checkpoints = bool(bundle.spans) and setup.config.kv.enabled
        if known is None:
            mark_token_ids(bundle.session, keep=takes_checkpoints)
        session = known or _create(database, bundle.session, setup, tell)
        if takes_checkpoints:
            size = sum(span.size for span in bundle.spans)
            with Progress("Importing checkpoints", size) as progress:
                kv_dir, budget_mb = setup.paths.kv_dir, setup.config.kv.space_mb
                unpacked = cli_bundle.unpack(bundle, kv_dir, budget_mb, progress.advance)
            database.record_spans(session.id, unpacked.spans)
            _tell_left_out(unpacked, path, kv_dir, tell)
    return session


def _known(database: Database, session: Session) -> Session | None:
    """The session that is here with the same messages, under its own id or one it was given when it came in.

    An import keeps when a session was made: that tells which to look at.
    """
    for info in database.list_sessions(archived=None):
        if info.id == session.id or info.created == session.created:
            known = database.load_session(info.id)
            if same_messages(known, session):
                return known
    return None


def _create(database: Database, session: Session, setup: Setup, tell: Tell) -> Session:
    if database.has(session.id):
        session.id = ""
    session.model_path = _find_model(session.model, database, setup)
    database.create_session(session)
    if session.model and not session.model_path:
        tell(
            f"The model of session {session.id}, {session.model}, was not found: put it into "
            f"{setup.paths.models_dir}, or give its file with --model."
        )
    return session


def _find_model(name: str, database: Database, setup: Setup) -> str:
    """The file of the model that goes by this name, among those known here; "" for none. A path that the bundle
    brought along would mean another machine's files."""
    candidates: list[Path] = []
    with contextlib.suppress(OSError):
        candidates += sorted(setup.paths.models_dir.iterdir())
    if setup.config.model.path:
        candidates.append(absolute(setup.config.model.path, setup.paths.config_dir))
    starter = starter_model()
    candidates += [starter] if starter is not None else []
    candidates += map(Path, database.model_paths(name))
    return next((str(p) for p in candidates if p.name in (name, f"{name}.gguf") and p.is_file()), "")


def _tell_left_out(unpacked: cli_bundle.Unpacked, path: Path, kv_dir: Path, tell: Tell) -> None:
    """Say which checkpoints did not come in, and why."""
    if unpacked.beyond_budget:
        tell(
            f"{_count(unpacked.beyond_budget, 'checkpoint')} of {path} would exceed the space for checkpoints and "
            "stayed out: give more with --kv-disk-space-mb and import it again."
        )
    if unpacked.unusable:
        tell(
            f"{_count(unpacked.unusable, 'checkpoint')} of {path} cannot be used (ds4chat.log says why) and stayed "
            "out: what they held is computed again."
        )
    if unpacked.failure:
        tell(
            f"Checkpoints of {path} could not be written to {kv_dir} ({unpacked.failure}): make room there, or give "
            "another folder with --kv-disk-dir, and import it again."
        )


# ---- what is shown ---------------------------------------------------------------------------------------------------


class Progress:
    """A bar on standard error, from half a second on."""

    def __init__(self, label: str, total: int = 0) -> None:
        self._label, self._total, self._done = label, total, 0
        self._began = time.monotonic()
        self._bar: Any = None

    def begin(self, total: int) -> None:
        """So much there is to do, where it was not known before."""
        self._total = total

    def advance(self, nbytes: int) -> None:
        """So many more bytes are done."""
        self._done += nbytes
        if self._bar is not None:
            self._bar.update(nbytes)
        elif time.monotonic() - self._began > PROGRESS_AFTER:
            self._bar = click.progressbar(length=self._total, label=self._label, file=sys.stderr)
            self._bar.__enter__()
            self._bar.update(self._done)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
