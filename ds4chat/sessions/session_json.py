"""A session as JSON that loses nothing: its whole tree, with token ids, states and measures.

Promises that whatever the bytes hold, reading them gives a whole session or an `InterchangeError` with one sentence:
text is valid, ids fit, and a tree of messages is one. It must know neither files nor the database. The layout is
that of `_SessionFile`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ds4chat.errors import InterchangeError
from ds4chat.sessions.events import TurnStats
from ds4chat.sessions.session import (
    IMPORTED,
    Message,
    MessageState,
    Role,
    Session,
    clean_tags,
    clean_text,
    clean_title,
    title_from,
)
from ds4chat.validation import explain, short

FORMAT: Literal["ds4chat-session"] = "ds4chat-session"
VERSION: Literal[1] = 1

MAX_SESSION_BYTES = 64_000_000
"""Of a session as JSON: some nine million token ids. What is larger is neither written nor read."""

MAX_MESSAGES = 100_000

Id = Annotated[int, Meta(ge=1, le=2**53)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Seconds = Annotated[float, Meta(ge=0, le=253_402_300_799)]
Text = Annotated[str, Meta(max_length=1000)]
Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class _MessageFile(msgspec.Struct):
    id: Id
    role: Role
    text: str
    parent: Id | None = None
    state: MessageState = "complete"
    created: Seconds = 0.0
    model: str = ""
    fingerprint: Text = ""
    stats: Annotated[dict[Text, Whole | Number | Text], Meta(max_length=100)] = {}
    tokens: list[TokenId] = []
    hidden: bool = False


class _SessionFile(msgspec.Struct):
    """The JSON object. Keys that are not known are passed over, so that later versions may add some."""

    format: Literal["ds4chat-session"]
    version: Literal[1]
    id: Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
    messages: Annotated[list[_MessageFile], Meta(max_length=MAX_MESSAGES)]
    title: str = ""
    system: str = ""
    model: str = ""
    created: Seconds = 0.0
    updated: Seconds = 0.0
    head: Id | None = None
    window_start: Id | None = None
    cold_done: bool = False
    tokens: Count = 0
    params: Annotated[dict[Text, Whole | Number | Text | bool | None], Meta(max_length=100)] = {}
    summary: str = ""
    pinned: bool = False
    archived: bool = False
    tags: Annotated[list[Text], Meta(max_length=100)] = []
    draft: str = ""


class _Heading(msgspec.Struct):
    format: str = ""
    version: int = 0


_ALLOWED = {
    "$": "the keys id and messages, beside what else describes a session",
    "$.id": "8 hexadecimal digits",
    "$.messages": f"a list of at most {MAX_MESSAGES:,} objects",
    "$.messages[...]": "an object with at least id, role and text",
    "$.messages[...].id": "a whole number from 1 on",
    "$.messages[...].parent": "a whole number from 1 on, or null",
    "$.messages[...].role": '"user", "assistant" or "tool"',
    "$.messages[...].text": "a string",
    "$.messages[...].state": "one of the states a message can be in",
    "$.messages[...].created": "seconds since 1970",
    "$.messages[...].fingerprint": "a short string",
    "$.messages[...].stats": "an object of at most 100 measures",
    "$.messages[...].stats[...]": "a number or a short string",
    "$.messages[...].hidden": "true or false",
    "$.messages[...].tokens": "a list of token ids",
    "$.messages[...].tokens[...]": "a token id from 0 to 2147483647",
    "$.created": "seconds since 1970",
    "$.updated": "seconds since 1970",
    "$.head": "the id of a message",
    "$.window_start": "the id of a message",
    "$.tokens": "a whole number",
    "$.tags": "a list of at most 100 short strings",
    "$.tags[...]": "a short string",
    "$.params": "an object of at most 100 settings",
    "$.params[...]": "a number, a short string, true, false or null",
}


def to_json(session: Session) -> bytes:
    """The whole tree as one JSON object, what `from_json` reads. Raises InterchangeError when it is too large.

    The path of the model stays out: it means nothing elsewhere, and names folders of this machine.
    """
    messages = [
        _MessageFile(
            m.id,
            m.role,
            m.text,
            m.parent_id,
            m.state,
            m.created,
            m.model,
            m.fingerprint,
            m.stats,
            m.tokens,
            m.hidden,
        )
        for m in sorted(session.messages.values(), key=lambda m: m.id)
    ]
    data = msgspec.json.encode(
        _SessionFile(
            FORMAT,
            VERSION,
            session.id,
            messages,
            session.title,
            session.system,
            session.model,
            session.created,
            session.updated,
            session.head_id,
            session.window_start_id,
            session.cold_done,
            session.tokens,
            session.params,
            session.summary,
            session.pinned,
            session.archived,
            session.tags,
            session.draft,
        )
    )
    if len(data) > MAX_SESSION_BYTES or len(messages) > MAX_MESSAGES:
        raise InterchangeError(
            f"Session {session.id} is too large for a JSON file ({len(data):,} bytes, {len(messages):,} messages): "
            "export what is on the screen with --format toml."
        )
    return data + b"\n"


def from_json(data: bytes, name: str) -> Session:
    """The session that JSON bytes hold, with the ids it had; `name` is what errors call them.

    What was in the making when it was written is put in order, as after a crash: replies that streamed are cut,
    messages that waited are complete. Raises InterchangeError.
    """
    try:
        heading = msgspec.json.decode(data, type=_Heading)
        if heading.format != FORMAT:
            raise InterchangeError(
                f"{name} is JSON, but no session: give a file that `ds4chat export` wrote."
            )
        if heading.version > VERSION:
            raise InterchangeError(f"{name} was written by a newer ds4chat: update ds4chat to import it.")
        file = msgspec.json.decode(data, type=_SessionFile)
    except msgspec.ValidationError as error:
        raise InterchangeError(f"{name}: {explain(error, _ALLOWED)}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else short(str(error))
        raise InterchangeError(
            f"{name} is not valid JSON ({reason}): give a file that `ds4chat export` wrote."
        ) from None
    return _session(file, name)


def _session(file: _SessionFile, name: str) -> Session:
    session = Session(
        file.id,
        title=clean_title(file.title),
        system=clean_text(file.system),
        model=clean_text(file.model),
        created=file.created,
        updated=file.updated,
        cold_done=file.cold_done,
        tokens=file.tokens,
        params=file.params,
        summary=clean_text(file.summary),
        pinned=file.pinned,
        archived=file.archived,
        tags=clean_tags(file.tags),
        draft=clean_text(file.draft),
    )
    # A parent is older than its replies, so that ids grow along every path: that leaves no cycle.
    for entry in sorted(file.messages, key=lambda entry: entry.id):
        if entry.parent is not None and entry.parent >= entry.id:
            raise InterchangeError(
                f"{name}: message {entry.id} names message {entry.parent} as its parent, which is not before it: "
                "export the session again."
            )
        if entry.role == "user" and not clean_text(entry.text).strip():
            raise InterchangeError(
                f"{name}: message {entry.id} is blank, but a user's message must hold some text: put some there."
            )
        if entry.parent is None and entry.role != "user":
            raise InterchangeError(
                f"{name}: message {entry.id} begins the session and is no user's: export the session again."
            )
        try:
            session.append(_message(entry, name))
        except ValueError:
            fault = "is there twice" if entry.id in session.messages else "names a parent that is not there"
            raise InterchangeError(f"{name}: message {entry.id} {fault}: export the session again.") from None
    if file.head is not None and file.head not in session.messages:
        raise InterchangeError(
            f"{name}: head names message {file.head}, which is not there: export the session again."
        )
    session.head_id = file.head
    session.window_start_id = file.window_start if file.window_start in session.messages else None
    first = next(iter(session.messages.values()), None)
    session.title = session.title or (title_from(first.text) if first is not None else "")
    return session


def _message(entry: _MessageFile, name: str) -> Message:
    try:
        msgspec.convert(entry.stats, TurnStats)
    except msgspec.ValidationError as error:
        raise InterchangeError(f"{name}: stats of message {entry.id}: {explain(error, {})}.") from None
    settled: MessageState = entry.state
    if entry.role != "assistant":
        settled = "complete"
    elif settled in ("streaming", "queued"):
        settled = "cut"
    return Message(
        entry.id,
        entry.parent,
        entry.role,
        clean_text(entry.text),
        settled,
        entry.tokens,
        clean_text(entry.fingerprint),
        clean_text(entry.model),
        entry.created,
        entry.stats,
        entry.hidden,
    )


def mark_token_ids(session: Session, *, keep: bool) -> None:
    """Let the token ids that a file brings be known as a file's, or drop them.

    They can be those of control tokens, which would act in a prompt and have no text to tell them by. Checkpoints go on
    from the very tokens they hold, so that with them ids are worth keeping; the engine looks at them then.
    """
    for message in session.messages.values():
        if not keep:
            message.tokens = []
        elif message.tokens:
            message.fingerprint = IMPORTED + message.fingerprint.removeprefix(IMPORTED)


def same_messages(one: Session, other: Session) -> bool:
    """Whether two sessions hold the same tree of texts, whatever the ids, titles, states and tokens."""
    return _tree(one) == _tree(other)


def _tree(session: Session) -> list[tuple[object, ...]]:
    messages = sorted(session.messages.values(), key=lambda m: m.id)
    place = {m.id: i for i, m in enumerate(messages)}
    return [(m.role, m.text, None if m.parent_id is None else place[m.parent_id]) for m in messages]
