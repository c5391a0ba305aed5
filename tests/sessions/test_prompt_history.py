"""What the prompt box can take up again: kept in the database, over all sessions."""

from __future__ import annotations

from pathlib import Path

from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session


def store(database: Database, *texts: str) -> Session:
    session = Session("", title="t")
    for n, text in enumerate(texts):
        session.append(Message(n + 1, n or None, "assistant" if n % 2 else "user", text))
    database.create_session(session)
    return session


def test_over_all_sessions_newest_first_and_each_once(tmp_path: Path) -> None:
    with Database(tmp_path / "s.db") as database:
        store(database, "first", "reply", "second", "reply")
        store(database, "third", "reply", "first", "reply")
        assert database.prompt_history(10) == ["first", "third", "second"]
        assert database.prompt_history(2) == ["first", "third"]
    with Database(tmp_path / "s.db") as database:
        assert database.prompt_history(10) == ["first", "third", "second"]


def test_neither_hidden_messages_nor_the_trash(tmp_path: Path) -> None:
    with Database(tmp_path / "s.db") as database:
        kept = store(database, "kept", "reply", "hidden", "reply")
        gone = store(database, "gone", "reply")
        database.trash(gone.id)
        database.set_hidden([m.id for m in kept.path()[2:]], True)
        assert database.prompt_history(10) == ["kept"]
        database.untrash(gone.id)
        assert database.prompt_history(10) == ["gone", "kept"]
