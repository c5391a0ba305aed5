"""What was typed in a session that never had a message."""

from __future__ import annotations

import stat
from pathlib import Path

from ds4chat.sessions.shelf import Shelf


def shelf(tmp_path: Path, *, save: bool = True) -> Shelf:
    return Shelf(tmp_path, save=save, on_failure=lambda sentence: None)


def test_it_is_there_in_the_next_process_and_gone_when_it_was_sent(tmp_path: Path) -> None:
    first = shelf(tmp_path)
    session = first.new("")
    first.save_draft(session.id, "unsent\nwords ü")
    first.close()
    assert stat.S_IMODE((tmp_path / "draft.txt").stat().st_mode) == 0o600
    second = shelf(tmp_path)
    again = second.new("")
    assert again.draft == "unsent\nwords ü"
    second.save_draft(again.id, "")
    assert not (tmp_path / "draft.txt").exists()
    assert second.new("").draft == ""
    second.close()


def test_incognito_and_unsaved_chats_leave_none(tmp_path: Path) -> None:
    kept = shelf(tmp_path)
    kept.save_draft(kept.new("", incognito=True).id, "secret")
    kept.close()
    unsaved = shelf(tmp_path, save=False)
    unsaved.save_draft(unsaved.new("").id, "secret")
    unsaved.close()
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
