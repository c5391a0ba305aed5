"""A session that another process writes in, looked at."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ds4chat.errors import SessionNotFoundError
from ds4chat.sessions.session import Message
from ds4chat.sessions.shelf import Shelf


def shelf(path: Path) -> Shelf:
    return Shelf(path, save=True, on_failure=lambda text: None)


def test_a_read_only_session_follows_the_one_who_writes(tmp_path: Path) -> None:
    writer, reader = shelf(tmp_path), shelf(tmp_path)
    session = writer.new("")
    writer.append(session, Message(0, None, "user", "hello", created=time.time()))
    seen = reader.open_read_only(session.id)
    reader.refresh_read_only(session.id)
    assert not reader.refresh_read_only(session.id)
    writer.append(session, Message(0, session.head_id, "assistant", "a reply", created=time.time()))
    writer.rename(session.id, "Renamed")
    assert reader.refresh_read_only(session.id)
    assert [m.text for m in seen.path()] == ["hello", "a reply"]
    assert seen.title == "Renamed"
    assert not reader.refresh_read_only(session.id)
    writer.db.delete(session.id)
    with pytest.raises(SessionNotFoundError):
        reader.refresh_read_only(session.id)
    writer.close()
    reader.close()


def test_a_session_of_ones_own_is_not_read_again(tmp_path: Path) -> None:
    mine = shelf(tmp_path)
    session = mine.new("")
    assert not mine.refresh_read_only(session.id)
    mine.close()
