"""A session as one file that loses nothing: its whole tree as JSON, alone or in a bundle with its checkpoints.

A bundle is a zip archive, stored and not deflated (KV rows do not compress):

    session.json                                 the session, see `session_json`
    kv/<family>/<variant>/<sha1>.kv              checkpoints it stands on, as they lie in the checkpoint folder
    kv/<family>/<variant>/variant.json           what that folder says of itself, when it does

Promises that whatever a file holds, opening it gives a whole session or an `InterchangeError` with one sentence:
nothing is unpacked by name, and no size is believed that the file itself does not have. It must know neither the
database nor what is in a checkpoint: those are names and bytes here.
"""

from __future__ import annotations

import contextlib
import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Literal, NoReturn, cast

import msgspec

from ds4chat.errors import InterchangeError
from ds4chat.sessions.session import Session
from ds4chat.sessions.session_json import MAX_SESSION_BYTES, from_json, to_json
from ds4chat.validation import short

SESSION_ENTRY = "session.json"

MAX_DIRECTORY_BYTES = 20_000_000
"""Of a zip archive's list of entries, which is held in memory: some 150,000 checkpoints."""

MAX_NOTE_BYTES = 64_000
"""Of a `variant.json`."""

BLOCK_BYTES = 1 << 20
"""That are copied at a time."""

NOTE = "variant.json"
"""What a folder of checkpoints says of itself, beside them."""

_FOLDER = r"kv/([A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99})/([0-9a-f]{16})/"
_SPAN_ENTRY = re.compile(_FOLDER + r"([0-9a-f]{40})\.kv")
_NOTE_ENTRY = re.compile(_FOLDER + re.escape(NOTE))

_ENCRYPTED = 0x1 | 0x40

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")

_BAD_ZIP = (zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, EOFError, struct.error)
"""What `zipfile` raises on archives that are damaged or meant to harm; RuntimeError: encrypted, or by an unknown
method."""

Kind = Literal["bundle", "json", "other"]


def kind_of(path: Path) -> Kind:
    """What a file to import holds, by its first bytes; "other" for what cannot be read, too."""
    try:
        if not path.is_file():
            return "other"
        with path.open("rb") as file:
            start = file.read(4096)
    except (OSError, ValueError):
        return "other"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "bundle"
    return "json" if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else "other"


def can_hold(family: str, variant: str) -> bool:
    """Whether a folder of checkpoints has a name that a bundle takes."""
    return re.fullmatch(_FOLDER, f"kv/{family}/{variant}/") is not None


@dataclass(frozen=True, slots=True)
class PackedSpan:
    """A checkpoint in a bundle: where it lay, its name (40 hex digits) and its bytes."""

    family: str
    variant: str
    sha1: str
    size: int

    @property
    def entry(self) -> str:
        """Its name in the archive."""
        return f"kv/{self.family}/{self.variant}/{self.sha1}.kv"


class BundleWriter:
    """A bundle being written to a file that need not be seekable. Close it, or use it as a context manager."""

    def __init__(self, file: BinaryIO, session: Session) -> None:
        """Begin with the session. Raises InterchangeError when it is too large, before anything is written."""
        data = to_json(session)
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._add(SESSION_ENTRY, data)

    def add_note(self, family: str, variant: str, data: bytes) -> None:
        """Add what a folder says of itself; more than a note's bytes are left out."""
        if len(data) <= MAX_NOTE_BYTES:
            self._add(f"kv/{family}/{variant}/{NOTE}", data)

    @contextlib.contextmanager
    def span(self, span: PackedSpan) -> Iterator[BinaryIO]:
        """A file to write the checkpoint's bytes to, `span.size` of them."""
        info = _entry(span.entry)
        info.file_size = span.size
        with self._zip.open(info, "w") as file:
            yield cast(BinaryIO, file)

    def _add(self, name: str, data: bytes) -> None:
        self._zip.writestr(_entry(name), data)

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()


def _entry(name: str) -> zipfile.ZipInfo:
    """A file for its owner alone, always of the same date: equal sessions make equal bundles."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFREG | 0o600) << 16
    return info


class Bundle:
    """A file that holds a session, checked as a whole when it is opened; checkpoints are read one by one.

    Attributes:
        session: with the ids it had.
        spans: the checkpoints it holds; none in a JSON file.
    """

    def __init__(self, path: Path) -> None:
        """Raises InterchangeError."""
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        self._notes: dict[tuple[str, str], zipfile.ZipInfo] = {}
        self.spans: list[PackedSpan] = []
        try:
            if kind_of(path) == "json":
                self.session = from_json(_read_json(path), str(path))
                return
            size = path.stat().st_size
            with path.open("rb") as file:
                _check_directory(file, size, path)
            self._zip = zipfile.ZipFile(path)
            self.session = self._open(self._zip, size)
        except (OSError, *_BAD_ZIP) as error:
            self.close()
            if isinstance(error, OSError) and error.strerror:
                raise InterchangeError(f"{path} cannot be read ({error.strerror}): check the file.") from None
            raise InterchangeError(
                f"{path} is a damaged bundle ({short(str(error))}): copy or export it again."
            ) from None
        except InterchangeError:
            self.close()
            raise

    def _open(self, archive: zipfile.ZipFile, size: int) -> Session:
        """Check every entry, then read the session."""
        session_entry: zipfile.ZipInfo | None = None
        names: set[str] = set()
        packed = 0
        for info in archive.infolist():
            # What zipfile makes of a name (cut at a NUL, say) is not what stands in the file.
            name = info.orig_filename
            if name in names:
                self._refuse(f"holds {short(name)} twice")
            names.add(name)
            mode = stat.S_IFMT(info.external_attr >> 16)
            if mode not in (0, stat.S_IFREG) or info.flag_bits & _ENCRYPTED:
                self._refuse(f"holds {short(name)}, which is no plain file")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                self._refuse(f"holds {short(name)} compressed, so another program packed it")
            packed += info.file_size
            if packed > size or not 0 <= info.header_offset <= size:
                self._refuse("claims more bytes than it has")
            if name == SESSION_ENTRY:
                session_entry = info
            elif match := _SPAN_ENTRY.fullmatch(name):
                self.spans.append(PackedSpan(match[1], match[2], match[3], info.file_size))
            elif (match := _NOTE_ENTRY.fullmatch(name)) and info.file_size <= MAX_NOTE_BYTES:
                self._notes[match[1], match[2]] = info
            else:
                self._refuse(f"holds {short(name)}, which belongs in no bundle")
        if session_entry is None:
            self._refuse(f"holds no {SESSION_ENTRY}")
        if session_entry.file_size > MAX_SESSION_BYTES + 1:
            self._refuse(f"holds a {SESSION_ENTRY} of more than {MAX_SESSION_BYTES // 10**6} MB")
        return from_json(archive.read(session_entry), f"{self.path}: {SESSION_ENTRY}")

    def _refuse(self, fault: str) -> NoReturn:
        raise InterchangeError(f"{self.path} {fault}: import a file that `ds4chat export` wrote.")

    def head(self, span: PackedSpan, size: int) -> bytes:
        """The first bytes of a checkpoint. Raises InterchangeError when it is damaged."""
        with self._read(span) as source:
            return source.read(size)

    def copy(self, span: PackedSpan, out: IO[bytes]) -> None:
        """Write a checkpoint's bytes to `out`. Raises InterchangeError when it is damaged; an `OSError` passes."""
        with self._read(span) as source:
            while block := source.read(BLOCK_BYTES):
                out.write(block)

    @contextlib.contextmanager
    def _read(self, span: PackedSpan) -> Iterator[IO[bytes]]:
        assert self._zip is not None
        try:
            with self._zip.open(span.entry) as source:
                yield source
        except _BAD_ZIP as error:
            raise InterchangeError(f"{self.path}: {span.entry} is damaged ({short(str(error))}).") from None

    def note(self, family: str, variant: str) -> bytes | None:
        """The `variant.json` of a folder, if there is one that is an object in JSON."""
        info = self._notes.get((family, variant))
        if info is None or self._zip is None:
            return None
        try:
            data = self._zip.read(info)
            msgspec.json.decode(data, type=dict[str, object])
        except (*_BAD_ZIP, msgspec.DecodeError):
            return None
        return data

    def close(self) -> None:
        """Close the file; again does nothing."""
        if self._zip is not None:
            self._zip.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_json(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_SESSION_BYTES + 2)
    if len(data) > MAX_SESSION_BYTES + 1:
        raise InterchangeError(
            f"{path} is larger than {MAX_SESSION_BYTES // 10**6} MB: no session that `ds4chat export` wrote is."
        )
    return data.removeprefix(b"\xef\xbb\xbf")


def _check_directory(file: BinaryIO, size: int, path: Path) -> None:
    """Look at the length of the list of entries before `zipfile` takes it into memory.

    A bundle ends with the record that has it, with no comment behind. Raises BadZipFile, InterchangeError.
    """
    tail = _END64.size + _END64_LOCATOR.size + _END.size
    file.seek(max(0, size - tail))
    data = file.read(tail)
    end = data[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\x05\x06") or not end.endswith(b"\0\0"):
        raise zipfile.BadZipFile("its end is missing")
    length = int(_END.unpack(end)[5])
    if len(data) == tail and data.startswith(b"PK\x06\x06") and data[_END64.size :].startswith(b"PK\x06\x07"):
        length = int(_END64.unpack(data[: _END64.size])[8])
    if length > MAX_DIRECTORY_BYTES:
        raise InterchangeError(
            f"{path} lists more entries than a bundle can have: import a file that `ds4chat export` wrote."
        )
