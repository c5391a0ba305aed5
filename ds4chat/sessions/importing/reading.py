"""The chats in a file of another program, one after the other.

Promises: memory for one of them; one that cannot be read is told and the others come all the same. Must not know the
database.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from ds4chat.errors import InterchangeError
from ds4chat.files import read_limited
from ds4chat.sessions.importing import chatgpt, claude, markdown, open_webui, openai
from ds4chat.sessions.importing.chats import ForeignChat, text_of
from ds4chat.sessions.importing.databases import DAMAGED, NAMES, ForeignDatabase
from ds4chat.sessions.importing.decoding import decode
from ds4chat.sessions.importing.detect import FileKind, chat_entries
from ds4chat.sessions.importing.splitter import MAX_VALUE, Read, Value, values
from ds4chat.validation import short

MAX_FAULTS = 1000
"""Of one file, after which the rest is not read."""

MAX_TEXT_FILE = 16_000_000

TIGHTEST = 200
"""How much smaller a zip can make text that somebody wrote, generously."""

LABELS = {
    chatgpt.SOURCE: "ChatGPT export",
    claude.SOURCE: "Claude export",
    openai.SOURCE: "chats in JSON",
    open_webui.SOURCE: "Open WebUI export",
    markdown.SOURCE: "Markdown",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A chat, or why there is none.

    Attributes:
        where: in the file, as "chat 3"; "" when it is all of it.
        fault: a clause, "" when `chat` is there.
        done: how far the file is read, of `Progress` total.
        title: of a chat that has a fault, when it can be told.
    """

    where: str
    chat: ForeignChat | None
    fault: str = ""
    title: str = ""


class Told(Protocol):
    """Is told how much there is to read, and how much of it was read since."""

    def begin(self, total: int) -> None:
        """So many steps there are in all."""

    def advance(self, steps: int) -> None:
        """So many more are done."""


class _Peek(msgspec.Struct):
    """What tells the objects of JSON files apart."""

    mapping: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    chat_messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    chat: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    history: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    conversations: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    role: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    from_: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="from", default=msgspec.UNSET)


class _Titles(msgspec.Struct):
    title: object = None
    name: object = None


def chats(path: Path, kind: FileKind, told: Told) -> Iterator[Found]:
    """The chats of a file that is no session of ours. Raises InterchangeError when it cannot be read at all, with a
    clause."""
    try:
        match kind:
            case "database":
                yield from _from_database(path, told)
            case "markdown":
                yield _from_markdown(path)
            case "export zip":
                yield from _from_zip(path, told)
            case _:
                told.begin(path.stat().st_size)
                with path.open("rb") as file:
                    read = _counting(file.read, told)
                    yield from _from_values(_lines(read) if kind == "json lines" else values(read))
    except OSError as error:
        raise InterchangeError(f"it cannot be read ({error.strerror or error})") from None


def label(kind: FileKind, source: str) -> str:
    """What a file is, for the report."""
    if kind == "database":
        return next((name for program, name in NAMES.items() if program == source), "database")
    return LABELS.get(source, "chats")


# ---- kinds of files ----


def _from_database(path: Path, told: Told) -> Iterator[Found]:
    with ForeignDatabase(path) as database:
        told.begin(database.count)
        try:
            for number, read in enumerate(database.chats(), start=1):
                yield _from_row(f"chat {number}", read)
                told.advance(1)
        except DAMAGED as error:
            raise InterchangeError(f"it is a damaged SQLite database ({short(str(error))})") from None


def _from_row(where: str, read: Callable[[], ForeignChat]) -> Found:
    try:
        return Found(where, read())
    except InterchangeError as error:
        return Found(where, None, str(error))
    except DAMAGED as error:
        return Found(where, None, f"its rows are damaged ({short(str(error))})")


def _from_markdown(path: Path) -> Found:
    data = read_limited(path, MAX_TEXT_FILE)
    if len(data) > MAX_TEXT_FILE:
        raise InterchangeError(f"it is larger than {MAX_TEXT_FILE // 10**6} MB: split it")
    try:
        return Found("", markdown.read(data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise InterchangeError(f"it is not UTF-8 text (byte {error.start} does not fit)") from None


def _from_zip(path: Path, told: Told) -> Iterator[Found]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [archive.getinfo(name) for name in chat_entries(path)]
            told.begin(sum(entry.file_size for entry in entries))
            for entry in entries:
                if entry.file_size > TIGHTEST * entry.compress_size + MAX_VALUE:
                    raise InterchangeError(
                        f"{entry.filename} in it claims to be far larger than it is packed"
                    )
                with archive.open(entry) as file:
                    yield from _from_values(values(_counting(_unpacking(file.read), told)))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise InterchangeError(f"it is a damaged zip file ({short(str(error))})") from None


def _unpacking(read: Read) -> Read:
    def unpacked(number: int) -> bytes:
        try:
            return read(number)
        except Exception as error:
            # Each way of packing has errors of its own for bytes that are not what was packed.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise zipfile.BadZipFile(str(error)) from None

    return unpacked


def _counting(read: Read, told: Told) -> Read:
    def counted(number: int) -> bytes:
        data = read(number)
        told.advance(len(data))
        return data

    return counted


def _lines(read: Read) -> Iterator[Value]:
    """Each line that is not blank, as a top-level value of its own."""
    left = bytearray()
    number = dropped = 0
    ended = False
    while not ended:
        block = read(1 << 18)
        ended = not block
        begin, at = 0, len(left)
        left += block
        while (end := left.find(b"\n", at)) >= 0 or (ended and begin < len(left)):
            end = len(left) if end < 0 else end
            line = bytes(memoryview(left)[begin:end])
            number += 1
            if dropped:
                yield Value(
                    0, number, False, fault=f"it is larger than {MAX_VALUE // 10**6:,} MB", line=number
                )
            elif line.strip():
                yield Value(0, number, False, line, line=number)
            dropped = 0
            begin = at = end + 1
        del left[:begin]
        if len(left) > MAX_VALUE:
            dropped += len(left)
            left.clear()


# ---- values ----


def _from_values(found: Iterator[Value]) -> Iterator[Found]:
    """A chat from each value, and one from the messages that stand beside each other."""
    loose: list[bytes] = []
    size = faults = number = 0
    group = -1
    for value in found:
        if loose and (value.group != group and value.inside):
            yield from _read(_where(number), partial(openai.read_messages, loose))
            loose, size = [], 0
        group = value.group
        reader: Callable[[], ForeignChat] | None = None
        fault = value.fault
        if not fault:
            try:
                what = _reader(value.data)
                if what is None:
                    loose.append(value.data)
                    size += len(value.data)
                    number += len(loose) == 1
                    if size > MAX_VALUE:
                        raise InterchangeError(f"it is larger than {MAX_VALUE // 10**6:,} MB")
                    continue
                reader = what
            except InterchangeError as error:
                fault = str(error)
                if size > MAX_VALUE:
                    loose, size = [], 0
        number += 1
        where = f"line {value.line}" if value.line else _where(number)
        if reader is not None:
            results = list(_read(where, reader, value.data))
        else:
            results = [Found(where, None, fault, _title(value.data))]
        yield from results
        faults += bool(results[0].fault)
        if faults >= MAX_FAULTS:
            yield Found("", None, f"more than {MAX_FAULTS:,} values in it are no chats: the rest is not read")
            break
    if loose:
        yield from _read("" if number == 1 else _where(number), partial(openai.read_messages, loose))


def _where(number: int) -> str:
    return f"chat {number}"


def _read(where: str, reader: Callable[[], ForeignChat], data: bytes = b"") -> Iterator[Found]:
    try:
        yield Found(where, reader())
    except InterchangeError as error:
        yield Found(where, None, str(error), _title(data))


def _reader(data: bytes) -> Callable[[], ForeignChat] | None:
    """What reads the value; None for a message that is one of a chat. Raises InterchangeError for what is neither."""
    first = data.lstrip()[:1]
    if first == b"[":
        return partial(openai.read_list, data)
    if first != b"{":
        raise InterchangeError("it is no chat")
    peek = decode(data, _Peek)
    for value, read in (
        (peek.mapping, chatgpt.read),
        (peek.chat_messages, claude.read),
        (peek.chat, open_webui.read),
        (peek.history, open_webui.read_inner),
        (peek.messages, openai.read),
        (peek.conversations, openai.read),
    ):
        if value is not msgspec.UNSET:
            return partial(read, data)
    if peek.role is not msgspec.UNSET or peek.from_ is not msgspec.UNSET:
        return None
    raise InterchangeError("it is no chat in a form that is known")


def _title(data: bytes) -> str:
    """What a chat that cannot be read is called, as far as that can be told."""
    with contextlib.suppress(InterchangeError):
        titles = decode(data, _Titles)
        return short(text_of(titles.title) or text_of(titles.name), 80)
    return ""
