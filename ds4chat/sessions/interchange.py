"""Sessions as files: our TOML format, read and written, and Markdown and JSON, written.

A TOML session holds one conversation, not its tree: the path to the head is written, without the turns that
were deleted, and a read session is one path. All but the messages may be left out.

    title = "Baking bread"
    system = "You are a patient baker."
    model = "SmolLM2-135M-Instruct"
    created = 2025-03-01T08:30:00Z           # a time zone is needed; microseconds are kept
    pinned = true
    archived = false
    tags = ["kitchen", "winter"]
    summary = "The loaf is flat."            # of the first messages, which the model does not get any more
    summarized = 2                           # how many these are

    [params]                                 # settings of this session alone
    temperature = 0.2

    [[messages]]
    role = "user"                            # or "assistant", "tool"; the first message is the user's
    text = "Why does my loaf not rise?"
    created = 2025-03-01T08:30:05Z           # may be left out

Nothing here touches the database. Whatever is wrong with a file is an `InterchangeError` with one sentence.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tomli_w
from msgspec import Meta

from ds4chat.errors import InterchangeError
from ds4chat.files import read_limited
from ds4chat.sessions.session import (
    Message,
    Session,
    called,
    clean_tags,
    clean_text,
    clean_title,
    title_from,
)
from ds4chat.toml_text import parse_toml
from ds4chat.validation import explain, short

MAX_FILE_BYTES = 16_000_000
"""Of a file to import. The parser takes some seconds for so much; no conversation a model can hold is as
long."""

MAX_MESSAGES = 20_000
"""Of a file to import: a message every minute for two weeks."""

LAST_SECOND = 253_402_300_799.0
"""Of the calendar, since 1970: a float rounds the microseconds behind it up to a year that there is not."""

MAX_TITLE = 200
"""Characters of a title in a file: it is one line of a list."""

Name = Annotated[str, Meta(max_length=1000)]
Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]

_KEYS = "title, system, model, created, pinned, archived, tags, summary, summarized, params"


class _MessageFile(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "tool"]
    text: str
    created: datetime | None = None
    tool: Name = ""
    call: Name = ""
    outcome: Name = ""


class _SessionFile(msgspec.Struct, forbid_unknown_fields=True):
    messages: Annotated[list[_MessageFile], Meta(min_length=1, max_length=MAX_MESSAGES)]
    title: Annotated[str, Meta(max_length=MAX_TITLE)] = ""
    system: str = ""
    model: Name = ""
    created: datetime | None = None
    pinned: bool = False
    archived: bool = False
    tags: Annotated[list[Name], Meta(max_length=100)] = []
    summary: str = ""
    summarized: Annotated[int, Meta(ge=0, le=MAX_MESSAGES)] = 0
    params: Annotated[dict[Name, Whole | Number | Name | bool], Meta(max_length=100)] = {}


_ALLOWED = {
    "$": f"{_KEYS}, and at least one [[messages]] table",
    "$.messages": f"1 to {MAX_MESSAGES:,} tables [[messages]] with the keys role, text and created",
    "$.messages[...]": "role, text and, if known, created; of a tool's also tool, call and outcome",
    "$.messages[...].tool": "a string of at most 1,000 characters",
    "$.messages[...].call": "a string of at most 1,000 characters",
    "$.messages[...].outcome": "a string of at most 1,000 characters",
    "$.messages[...].role": '"user", "assistant" or "tool" (the system prompt is the key system)',
    "$.messages[...].text": "a string",
    "$.messages[...].created": "a date and time with a time zone",
    "$.title": f"a string of at most {MAX_TITLE} characters",
    "$.system": "a string",
    "$.model": "a string of at most 1,000 characters",
    "$.created": "a date and time with a time zone",
    "$.pinned": "true or false",
    "$.archived": "true or false",
    "$.tags": "a list of at most 100 strings",
    "$.tags[...]": "a string of at most 1,000 characters",
    "$.summary": "a string",
    "$.summarized": "the number of messages that the summary stands for",
    "$.params": "a table of at most 100 settings",
    "$.params[...]": "a number, a short string, true or false",
}


def import_file(path: Path) -> Session:
    """Read a TOML session. Its `id` is empty and its messages count from 1 until the database stores it.

    Raises:
        InterchangeError: the file cannot be read, or is not a session in TOML.
    """
    return from_toml(_read(path), str(path))


def from_toml(source: str, name: str) -> Session:
    """The session that TOML text holds; `name` is what errors call the text. Raises InterchangeError."""
    if not source.strip():
        raise InterchangeError(f"{name} is empty: a session file needs at least one [[messages]] table.")
    try:
        data = parse_toml(source)
    except ValueError as error:
        raise InterchangeError(
            f"{name} is not a TOML file ({short(str(error))}): a session is TOML with [[messages]] tables."
        ) from None
    try:
        file = msgspec.convert(data, _SessionFile)
    except msgspec.ValidationError as error:
        raise InterchangeError(f"{name}: {explain(error, _ALLOWED)}.") from None
    session = Session(
        "", title=clean_title(file.title), system=clean_text(file.system), model=clean_text(file.model)
    )
    session.created = _seconds(file.created, "created", name)
    for i, entry in enumerate(file.messages):
        text = clean_text(entry.text)
        if entry.role == "user" and not text.strip():
            raise InterchangeError(
                f"{name}: messages[{i}].text is blank, but a user's message must hold some text."
            )
        if i == 0 and entry.role != "user":
            raise InterchangeError(
                f'{name}: messages[0].role is "{entry.role}", but a session begins with the "user".'
            )
        created = _seconds(entry.created, f"messages[{i}].created", name)
        stats: dict[str, float | int | str] = {}
        if entry.role == "tool":
            about = (("tool", entry.tool), ("call", entry.call), ("outcome", entry.outcome))
            stats = {key: clean_title(value) for key, value in about if value}
        session.append(Message(i + 1, i or None, entry.role, text, created=created, stats=stats))
    if file.summarized >= len(file.messages):
        raise InterchangeError(
            f"{name}: summarized is {file.summarized}, but of the {len(file.messages)} messages at least the last must "
            "stay beside the summary."
        )
    if file.summarized:
        session.window_start_id = file.summarized + 1
    session.summary = clean_text(file.summary)
    session.pinned, session.archived = file.pinned, file.archived
    session.tags = clean_tags(file.tags)
    session.params = {clean_text(key): _param(value) for key, value in file.params.items()}
    session.title = session.title or title_from(file.messages[0].text)
    session.updated = max(session.created, *(m.created for m in session.messages.values()))
    return session


def to_toml(session: Session) -> str:
    """The path to the head as TOML. Raises ValueError for a session without a message."""
    path = session.path()
    if not path:
        raise ValueError(f"session {session.id} has no messages")
    data: dict[str, Any] = {}
    for key, value in (("title", session.title), ("system", session.system), ("model", session.model)):
        if value:
            data[key] = value
    if session.created:
        data["created"] = _datetime(session.created)
    for key in ("pinned", "archived", "tags", "summary"):
        if value := getattr(session, key):
            data[key] = value
    # At least the last one is read as beside the summary, also where all that reaches the model was deleted.
    before = min(len(path) - len(session.window()), len(path) - 1)
    if session.summary and before:
        data["summarized"] = before
    if params := {key: value for key, value in session.params.items() if value is not None}:
        data["params"] = params
    parts = [tomli_w.dumps(data, multiline_strings=True)]
    for message in path:
        entry: dict[str, Any] = {"role": message.role, "text": message.text}
        if message.role == "tool":
            entry |= {
                key: str(message.stats[key]) for key in ("tool", "call", "outcome") if key in message.stats
            }
        if message.created:
            entry["created"] = _datetime(message.created)
        # Written one by one, because the library writes short tables of an array on one line.
        parts.append("[[messages]]\n" + tomli_w.dumps(entry, multiline_strings=True))
    return "\n".join(part for part in parts if part)


def to_markdown(session: Session) -> str:
    """The path to the head as Markdown: a heading for each message, its text below as it is."""
    parts = [f"# {session.title or session.id}"]
    if session.system:
        parts.append(f"## System\n\n{session.system.strip()}")
    for message in session.path():
        heading = {"user": "User", "tool": "Tool"}.get(message.role, "Assistant")
        mark = "" if message.state == "complete" else f" ({message.state})"
        if tool := called(message):
            mark = f" ({tool})"
        parts.append(f"## {heading}{mark}\n\n{message.text.strip()}".rstrip())
    return "\n\n".join(parts) + "\n"


def to_dict(session: Session) -> dict[str, Any]:
    """The path to the head as JSON values; times are seconds since the epoch.

    Keys: id, title, system, model, created, updated, tokens, pinned, archived, tags, summary, params, and messages with
    id, role, text, state, created, model and stats.
    """
    named = ("id", "title", "system", "model", "created", "updated", "tokens")
    keys = (*named, "pinned", "archived", "tags", "summary", "params")
    message_keys = ("id", "role", "text", "state", "created", "model", "stats")
    data: dict[str, Any] = {key: getattr(session, key) for key in keys}
    data["messages"] = [{key: getattr(m, key) for key in message_keys} for m in session.path()]
    return data


def to_json(session: Session) -> str:
    """`to_dict` as a JSON object."""
    return json.dumps(to_dict(session), indent=2, ensure_ascii=False) + "\n"


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise InterchangeError(f"{path} is a folder: name the session files in it.")
        if path.exists() and not path.is_file():
            raise InterchangeError(f"{path} is not a regular file: save the session as a file first.")
        data = read_limited(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InterchangeError(
            f"{clean_title(str(path))} cannot be read ({reason}): check its name."
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise InterchangeError(
            f"{path} is larger than {MAX_FILE_BYTES // 1_000_000} MB: split it into several sessions."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InterchangeError(
            f"{path} is not UTF-8 text (byte {error.start} does not fit): save it as UTF-8 and try again."
        ) from None


def _param(value: float | int | str | bool) -> float | int | str | bool:
    return clean_text(value) if isinstance(value, str) else value


def _seconds(value: datetime | None, key: str, name: str) -> float:
    if value is None:
        return 0.0
    if value.tzinfo is None:
        raise InterchangeError(f"{name}: {key} has no time zone: write it like 2025-03-01T08:30:00Z.")
    try:
        return min(max(0.0, value.astimezone(UTC).timestamp()), LAST_SECOND)
    except OverflowError:
        raise InterchangeError(
            f"{name}: {key} is beyond the calendar: write it like 2025-03-01T08:30:00Z."
        ) from None


def _datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(seconds, LAST_SECOND), UTC)
