"""`import`: what each file is, its chats into the database, and a report of what came in and what did not.

Every chat is one transaction, so that a stop at any moment leaves whole chats, and the next import takes the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ds4chat.cli_export import Progress, import_bundle
from ds4chat.cli_setup import Setup
from ds4chat.errors import InterchangeError
from ds4chat.printing import dump_json, shown
from ds4chat.sessions import interchange
from ds4chat.sessions.database import Database
from ds4chat.sessions.importing import reading
from ds4chat.sessions.importing.detect import FileKind, file_kind
from ds4chat.sessions.importing.report import FileReport, fault_of
from ds4chat.sessions.importing.taking import Lock, Taken, take, take_session
from ds4chat.sessions.locks import lock_session

Complain = Callable[[str], None]


def import_files(
    setup: Setup, files: Sequence[str], complain: Complain, *, verbose: bool = False, as_json: bool = False
) -> list[FileReport]:
    """Read chats from files into the database and print what became of them.

    A file of one chat prints its id and title, one of several a line about all of them; `verbose` adds a line for each
    chat. What cannot be read is told by `complain`, and the rest comes in all the same. Raises DatabaseError.
    """
    reports: list[FileReport] = []
    with setup.database() as database:
        for file in files:
            report = FileReport(Path(file), detailed=verbose or as_json)
            reports.append(report)
            try:
                _Import(database, setup, report, complain).run()
            except InterchangeError as error:
                report.fault = str(error)
            except KeyboardInterrupt:
                report.stopped = True
                _tell(report, complain, quiet=as_json)
                raise
            _tell(report, complain, quiet=as_json)
    if as_json:
        click.echo(dump_json([report.to_dict() for report in reports], sys.stdout, indent=2))
    return reports


class _Import:
    """One file on its way in."""

    def __init__(self, database: Database, setup: Setup, report: FileReport, complain: Complain) -> None:
        self._database, self._setup, self._report, self._complain = database, setup, report, complain

    def run(self) -> None:
        """Take in what the file holds. Raises InterchangeError, with a sentence."""
        path = self._report.path
        kind = file_kind(path)
        if kind == "session":
            self._take_session(path)
        elif kind == "bundle":
            here = {info.id for info in self._database.list_sessions(archived=None)}
            session = import_bundle(self._database, self._setup, path, self._complain)
            known = session.id in here
            messages = 0 if known else len(session.messages)
            self._report.kind = "ds4chat session"
            self._report.add(
                "", Taken("known" if known else "imported", session.id, session.title, messages, told=True)
            )
        else:
            self._take_foreign(path, kind)

    def _take_session(self, path: Path) -> None:
        session = interchange.import_file(path)
        self._report.kind = "ds4chat session"
        self._report.add("", take_session(self._database, session, "toml", "", self._lock))

    def _take_foreign(self, path: Path, kind: FileKind) -> None:
        report = self._report
        try:
            with Progress(f"Importing {path.name}") as progress:
                for found in reading.chats(path, kind, progress):
                    if found.chat is None:
                        report.add(found.where, Taken("failed", title=found.title, reason=found.fault))
                        continue
                    report.kind = report.kind or reading.label(kind, found.chat.source)
                    report.add(found.where, take(self._database, found.chat, self._lock))
        except InterchangeError as error:
            raise InterchangeError(f"{path}: {error}.") from None
        if not report.total:
            raise InterchangeError(f"{path} holds no chats.")

    @property
    def _lock(self) -> Lock:
        return lambda session_id, title: lock_session(self._setup.paths.data_dir, session_id, title)


def _tell(report: FileReport, complain: Complain, *, quiet: bool) -> None:
    """Say what became of a file; `quiet`: only what went wrong."""
    if report.fault:
        complain(report.fault)
        if not report.total:
            return
    if not quiet:
        only = report.only
        if only is not None and only.outcome in ("imported", "updated", "known") and not report.detailed:
            click.echo(shown(f"{only.session_id}  {only.title}"))
            _tell_about(report, only, complain)
        else:
            click.echo(shown(report.line()))
    if report.detailed and not quiet:
        for line in report.details():
            click.echo(shown(line))
        return
    failed = [(where, taken) for where, taken in report.chats if taken.outcome == "failed"]
    for where, taken in failed:
        complain(fault_of(report.path, where, taken))
    if report.outcomes["failed"] > len(failed):
        more = report.outcomes["failed"] - len(failed)
        complain(f"{report.path}: {more:,} more could not be read, which `import -v` lists.")


def _tell_about(report: FileReport, taken: Taken, complain: Complain) -> None:
    """What the id and title of a file's only chat do not say."""
    if taken.outcome == "known" and taken.told:
        return
    if taken.outcome == "known":
        complain(
            f'{report.path} is here as session {taken.session_id} "{taken.title}" and was not imported again.'
        )
    elif report.left_out or taken.outcome == "updated":
        complain(report.line())
