"""A text on its way to an editor and back."""

from __future__ import annotations

import pytest

from ds4chat.ui.editor import put_away, take_back


@pytest.mark.parametrize("text", ["", "one line", "two\nlines", "ended\n", "\n"])
def test_a_file_has_its_last_line_ended_and_the_text_comes_back_as_it_was(text: str) -> None:
    path = put_away(text)
    written = path.read_text()
    assert written == text or (written == text + "\n" and not text.endswith("\n"))
    assert written == "" or written.endswith("\n")
    assert take_back(path, text, 0).text == text
    assert not path.exists()
