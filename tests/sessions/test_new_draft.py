"""What was typed in a session that never had a message."""

from __future__ import annotations

import stat
from pathlib import Path

from ds4chat.sessions.session import Message
from ds4chat.sessions.shelf import Shelf


def shelf(tmp_path: Path, *, save: bool = True) -> Shelf:
    return Shelf(tmp_path, save=save, on_failure=lambda sentence: None)


def test_it_is_there_in_the_next_process_and_gone_when_the_box_is_empty(tmp_path: Path) -> None:
    first = shelf(tmp_path)
    first.save_draft(first.new("").id, "unsent\nwords ü")
    first.close()
    assert stat.S_IMODE((tmp_path / "draft.txt").stat().st_mode) == 0o600
    second = shelf(tmp_path)
    assert second.kept_draft() == "unsent\nwords ü"
    again = second.new("")
    again.draft = second.kept_draft()
    second.save_draft(again.id, "")
    assert not (tmp_path / "draft.txt").exists()
    assert second.kept_draft() == ""
    second.close()


def test_a_question_asked_elsewhere_neither_takes_it_nor_ends_it(tmp_path: Path) -> None:
    screen, printing = shelf(tmp_path), shelf(tmp_path)
    screen.save_draft(screen.new("").id, "unsent")
    asked = printing.new("")
    printing.append(asked, Message(0, None, "user", "another question"))
    assert printing.db.load_session(asked.id).draft == ""
    assert screen.kept_draft() == "unsent"
    screen.close()
    printing.close()


def test_incognito_and_unsaved_chats_leave_none(tmp_path: Path) -> None:
    kept = shelf(tmp_path)
    kept.save_draft(kept.new("", incognito=True).id, "secret")
    kept.close()
    unsaved = shelf(tmp_path, save=False)
    unsaved.save_draft(unsaved.new("").id, "secret")
    unsaved.close()
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
