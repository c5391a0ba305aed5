"""Files to import: sessions as TOML and JSON, and bundles, through the command `import`."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
import sqlite3
import struct
import tomllib
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.fuzz_parts.checkpoints import example_files
from benchmarks.fuzz_parts.mutate import json_bytes, mutate_bytes, mutate_tree, scalar, string, toml_bytes
from benchmarks.fuzz_parts.target import Outcome, Target, UncaughtError, check_sentence, check_shown
from ds4chat import cli, cli_import, cli_sessions
from ds4chat.cli_setup import Setup
from ds4chat.config import Config
from ds4chat.errors import Ds4chatError
from ds4chat.paths import Paths
from ds4chat.printing import visible
from ds4chat.sessions import interchange, session_json
from ds4chat.sessions.database import Database
from ds4chat.sessions.importing.report import FileReport
from ds4chat.sessions.session import Message, Session

NAMES = (
    "session.toml", "session.json", "session.zip", "\x1b[31mred.toml", "\u202etxt.toml", "a\nb.json", "x" * 200, "-",
    "日本",
)  # fmt: skip
"""Of the file to import: they stand in the sentences."""

MAX_INPUT = 4_000_000
"""Bytes: a parser may take longer than an input may for the 16 MB that a file may have."""


def example_session() -> Session:
    """A session with two branches, settings and measures."""
    session = Session(
        "0a1b2c3d", title="Baking bread", system="Be patient.", model="Tiny", created=1.7e9, updated=1.7e9
    )
    stats: dict[str, float | int | str] = {"stop_reason": "stop", "prompt_tokens": 30, "prefill_ms": 12.5}
    for message in (
        Message(1, None, "user", "Why does my loaf\nnot rise? é日", created=1.7e9),
        Message(2, 1, "assistant", "Too cold.", "complete", [1, 2], "ab" * 16, "Tiny", 1.7e9, stats),
        Message(3, 1, "assistant", "Old yeast.", "cut", [3], "ab" * 16, "Tiny", 1.7e9 + 5),
        Message(4, 3, "user", "What now?", created=1.7e9 + 9),
        Message(5, 4, "assistant", "Wait.", "length", [5], "ab" * 16, "Tiny", 1.7e9 + 11, hidden=True),
    ):
        session.append(message)
    session.params, session.tags = {"temperature": 0.2, "ctx": 2048}, ["kitchen", "winter"]
    session.pinned, session.summary, session.window_start_id = True, "The loaf is flat.", 3
    return session


class _Terminal(io.StringIO):
    """What is printed as for somebody to read."""

    def isatty(self) -> bool:
        return True


class Import(Target):
    """Through `cli_import.import_files` into a database that must not change for what is refused."""

    shown_one_in = 1
    """Of the inputs that came in, in the tables and transcripts that people see: they take the longest."""

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        home = self.folder
        for name in ("data/models", "kv", "log", "in"):
            (home / name).mkdir(parents=True, exist_ok=True)
        paths = Paths(home / "data", home / "kv", home / "log", home / "config.toml")
        self.setup = Setup(paths, Config())
        self.inbox = home / "in"
        self._begin()
        self.examples()

    def _begin(self) -> None:
        """A database with two sessions."""
        for path in self.setup.paths.data_dir.glob("sessions.db*"):
            path.unlink()
        with Database(self.setup.paths.database) as database:
            database.create_session(example_session())
            database.create_session(Session("", title="Another", created=5.0))
        self.clean = self._state()

    def examples(self) -> None:
        """Make what inputs are made from."""

    def feed(self, data: bytes) -> Outcome:
        # The name stands in the first line, so that an input is one piece of bytes.
        name, _, content = data.partition(b"\0name\0")
        path = self.inbox / name.decode("utf-8", "surrogateescape")
        self.lay_down(path, content)
        shown = io.StringIO()
        try:
            report = self._read(path, shown)
            came = report.outcomes["imported"] + report.outcomes["updated"]
            if not came and report.failed and self._state() != self.clean:
                raise UncaughtError("a refused file changed the database")
            if came and zlib.crc32(content) % 4 == 0:
                again = self._read(path, shown)
                if again.outcomes["imported"] or again.messages:
                    raise UncaughtError("a file that was imported comes in again")
            if came or not report.failed:
                with contextlib.redirect_stdout(shown):
                    self._use(zlib.crc32(content) // 4 % self.shown_one_in == 0)
        except BaseException:
            # What it left would be blamed on those that come after it.
            self._begin()
            raise
        finally:
            for left in self.inbox.iterdir():
                left.unlink()
        return "accepted" if came or not report.failed else "refused"

    def lay_down(self, path: Path, content: bytes) -> None:
        """Put the file where it is imported from."""
        path.write_bytes(content)

    def _read(self, path: Path, shown: io.StringIO) -> FileReport:
        """Import a file; what it says must be fit to be shown."""
        said, told = io.StringIO(), _Terminal()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(told):
            try:
                report = cli_import.import_files(self.setup, [str(path)], cli.complain, verbose=True)[0]
            except Ds4chatError as error:
                cli.complain(str(error))
                report = FileReport(path, fault=str(error))
        # A file that takes its time shows how far it is.
        sentences = [s for s in said.getvalue().splitlines() if not s.startswith("Importing ")]
        for sentence in sentences:
            check_sentence(sentence)
        check_shown(told.getvalue())
        shown.write(told.getvalue())
        if report.failed and not sentences and not told.getvalue():
            raise UncaughtError("refused without a word")
        return report

    def _state(self) -> str:
        """A checksum of all rows; the search index follows from them."""
        state = hashlib.sha1(usedforsecurity=False)
        with contextlib.closing(sqlite3.connect(self.setup.paths.database)) as db:
            for table in ("sessions", "messages", "spans"):
                for row in db.execute(f"SELECT * FROM {table} ORDER BY 1, 2"):
                    state.update(repr(row).encode("utf-8", "surrogatepass"))
        return state.hexdigest()

    def _use(self, show: bool) -> None:
        """Read what came in as all that show it do, then take it away again."""
        for as_json in (False, True) if show else ():
            cli_sessions.list_sessions(self.setup.paths, as_json=as_json)
        with Database(self.setup.paths.database) as database:
            for info in database.list_sessions(archived=None):
                session = database.load_session(info.id)
                if not show:
                    continue
                for document in (session_json.to_json(session).decode(), interchange.to_markdown(session)):
                    visible(document)
                path = session.path()
                # A reply whose question was deleted has no place in TOML, which says so when it is read.
                if path and path[0].role == "user":
                    again = interchange.from_toml(interchange.to_toml(session), "again")
                    if [m.text for m in again.path()] != [m.text for m in session.path()]:
                        raise UncaughtError("TOML that was written reads as another conversation")
                if len(info.title) > 100_000:
                    raise UncaughtError("a title of over 100,000 characters")
                session.window()
                if session.head_id is not None:
                    session.siblings(session.head_id)
                cli_sessions._transcript(session)
            database.search("loaf rise", 10)
            known = {"0a1b2c3d"} | {
                i.id for i in database.list_sessions(archived=None) if i.title == "Another"
            }
            gone = [i.id for i in database.list_sessions(archived=None) if i.id not in known]
            database.delete_all(gone)
        self.clean = self._state()

    def named(self, draw: random.Random, content: bytes, ending: str) -> bytes:
        name = draw.choice(NAMES) if draw.random() < 0.2 else f"session{ending}"
        return name.encode("utf-8", "surrogateescape") + b"\0name\0" + content[:MAX_INPUT]


class TomlImport(Import):
    """Sessions in TOML."""

    name = "import toml"

    def examples(self) -> None:
        text = interchange.to_toml(example_session())
        self.texts = [text.encode(), *(p.read_bytes() for p in sorted(_samples().glob("*.toml")))]
        self.trees: list[Any] = [tomllib.loads(text)]
        self.trees.append({"messages": [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Ho"}]})

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 4:
            text = draw.choice(self.texts)
            return self.named(draw, mutate_bytes(draw, text[:4000], self.texts), ".toml")
        if kind < 9:
            return self.named(draw, toml_bytes(draw, mutate_tree(draw, draw.choice(self.trees))), ".toml")
        return self.named(draw, toml_bytes(draw, _random_session(draw)), ".toml")


def _samples() -> Path:
    return Path(__file__).parents[2] / "sample_sessions"


def _random_session(draw: random.Random) -> dict[str, Any]:
    """With keys that there are, and values of any kind."""
    keys = (
        "title",
        "system",
        "model",
        "created",
        "pinned",
        "archived",
        "tags",
        "summary",
        "summarized",
        "params",
    )
    tree: dict[str, Any] = {key: scalar(draw) for key in draw.sample(keys, draw.randrange(4))}
    roles = ("user", "assistant", "user", "system")
    tree["messages"] = [
        {"role": draw.choice(roles), "text": string(draw)}
        | ({"created": scalar(draw)} if draw.random() < 0.2 else {})
        for _ in range(draw.choice((0, 1, 2, 3, 30)))
    ]
    if draw.random() < 0.3:
        tree["params"] = {
            draw.choice(("temperature", "ctx", "seed", string(draw))): scalar(draw) for _ in range(3)
        }
    return tree


class JsonImport(Import):
    """Sessions in JSON, whole trees."""

    name = "import json"

    def examples(self) -> None:
        self.text = session_json.to_json(example_session())
        self.tree = json.loads(self.text)

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 3:
            content = mutate_bytes(draw, self.text)
        elif kind < 8:
            content = json_bytes(draw, mutate_tree(draw, self.tree))
        else:
            content = json_bytes(draw, self._shuffled(draw))
        return self.named(draw, content, ".json")

    def _shuffled(self, draw: random.Random) -> Any:
        """The tree of messages hung up in another way: cycles, forests, ids twice."""
        tree = mutate_tree(draw, self.tree) if draw.random() < 0.3 else json.loads(self.text)
        if not isinstance(tree, dict) or not isinstance(tree.get("messages"), list):
            return tree
        # A long text two thousand times is more than an input can be.
        count = draw.choice((1, 3, 8, 2000)) if len(repr(tree)) < 20_000 else 3
        messages = [m for m in tree["messages"] if isinstance(m, dict)] or [
            {"role": "user", "text": "x", "id": 1}
        ]
        limit = draw.choice((count, 2**53, 10))
        made = []
        for i in range(count):
            message = dict(draw.choice(messages))
            message["id"] = i + 1 if draw.random() < 0.95 else draw.randrange(1, limit + 2)
            message["parent"] = i or None if draw.random() < 0.9 else draw.randrange(1, limit + 2)
            made.append(message)
        draw.shuffle(made)
        tree["messages"], tree["head"] = made, draw.choice((count, None, 1, limit + 1))
        tree["window_start"] = draw.choice((None, 1, count, 99, -1))
        return tree


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """An archive with a name twice is written without a warning: that is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate name", UserWarning)
        yield


def zip_of(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these."""
    file = io.BytesIO()
    with quietly(), zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def change_records(draw: random.Random, data: bytes) -> bytes:
    """Fields of the archive's own records."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 4))):
        mark = draw.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))
        places = [i for i in range(len(data)) if data.startswith(mark, i)]
        if places:
            at = draw.choice(places) + draw.randrange(4, 46)
            value = draw.choice((0, 1, 8, 12, 99, 0xFFFF, draw.randrange(2**16)))
            struct.pack_into("<H", changed, min(at, len(changed) - 2), value)
    return bytes(changed)


class BundleImport(Import):
    """Bundles: zip archives with a session and checkpoints."""

    name = "import bundle"

    def examples(self) -> None:
        self.text = session_json.to_json(example_session())
        self.tree = json.loads(self.text)
        self.family, self.variant, self.files = example_files(self.folder / "made")
        self.whole = zip_of([("session.json", self.text), *self._entries()])

    def _entries(self) -> list[tuple[str, bytes]]:
        return [(f"kv/{self.family}/{self.variant}/{name}", content) for name, content in self.files.items()]

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 4:
            content = mutate_bytes(draw, self.whole)
        elif kind == 4:
            content = change_records(draw, self.whole)
        else:
            content = self._built(draw)
        return self.named(draw, content, ".zip")

    def _built(self, draw: random.Random) -> bytes:
        """Entries of any name, twice, compressed, links, more than there is room for."""
        session = json_bytes(draw, mutate_tree(draw, self.tree)) if draw.random() < 0.3 else self.text
        entries = [("session.json", session), *self._entries()]
        folder = f"kv/{self.family}/{self.variant}"
        name, content = draw.choice(entries)
        names = (
            "../../outside/x", "/tmp/outside", f"{folder}/../../x.kv", f"{folder}/{'ab' * 20}.kv",
            f"{folder}/variant.json", f"kv/../{self.variant}/{'ab' * 20}.kv", "session.json", name, string(draw),
            f"kv/.hidden/{self.variant}/{'ab' * 20}.kv", f"kv/{'f' * 100}/{'0' * 16}/{'ab' * 20}.kv", name + "\0.txt",
            "SESSION.JSON", "kv\\x\\y", "a/" * 200,
        )  # fmt: skip
        for _ in range(draw.choice((0, 1, 1, 3))):
            data = draw.choice(
                (content, b"", b"{}", b'{"model": "\\u001b[31m"}', draw.randbytes(300), bytes(10**5))
            )
            entries.insert(draw.randrange(len(entries) + 1), (draw.choice(names), data))
        if draw.random() < 0.5:
            at = draw.randrange(len(entries))
            entries[at] = (entries[at][0], mutate_bytes(draw, entries[at][1]))
        if draw.random() < 0.2:
            draw.shuffle(entries)
        method = draw.choice((zipfile.ZIP_STORED,) * 6 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
        file = io.BytesIO()
        with quietly(), zipfile.ZipFile(file, "w", method) as archive:
            for entry, data in entries:
                info = zipfile.ZipInfo(entry.encode("utf-8", "replace")[:60_000].decode("utf-8", "ignore"))
                if draw.random() < 0.05:
                    info.create_system, info.external_attr = (
                        3,
                        draw.choice((0o120777, 0o010600, 0o040755)) << 16,
                    )
                if draw.random() < 0.02:
                    info.extra = draw.randbytes(draw.choice((4, 20)))
                archive.writestr(info, data, method)
            if draw.random() < 0.05:
                archive.comment = b"x" * draw.choice((1, 500, 65_535))
        made = file.getvalue()
        if draw.random() < 0.1:
            made = change_records(draw, made)
        return draw.choice((b"", b"", b"", b"", b"#!/bin/sh\n", b"PK\x03\x04")) + made
