"""`@path` in a message: what counts as a file, what is refused, and what the model gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.errors import UsageError
from ds4chat.ui.attachments import LIMIT_BYTES, collapse, complete, describe, expand, mention_of, mentions
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("# Notes\n\n```\ncode\n```\n" + "word " * 620)
    (tmp_path / "my file.txt").write_text("spaced")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.py").write_text("x = 1\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "big.txt").write_bytes(b"a" * (LIMIT_BYTES + 1))
    (tmp_path / "property").write_text("named like a decorator")
    return tmp_path


class TestWhatCountsAsAFile:
    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("look at @notes.md.", ["notes.md"]),
            ('(@notes.md, and @"my file.txt")', ["notes.md", "my file.txt"]),
            ("@sub/deep.py: why?", ["sub/deep.py"]),
            ("write to me@notes.md or a/@notes.md", []),
            ("@nothing @dataclass @sub2/x", []),
            ("```python\n@property\ndef x(self): ...\n```", []),
            ("@property outside", ["property"]),
            ("\\@notes.md", []),
            ("@ alone, @@notes.md, @\x00notes.md", []),
        ],
    )
    def test_names_of_what_is_there(self, folder: Path, text: str, names: list[str]) -> None:
        assert [m.name for m in mentions(text)] == names

    @given(st.text(alphabet='@"\\ `\na/.~*', max_size=60))
    def test_no_text_breaks_it(self, text: str) -> None:
        for mention in mentions(text):
            assert text[mention.start] == "@"
        describe(text)

    def test_an_absolute_path_and_a_home(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(folder))
        assert [m.path for m in mentions(f"@~/notes.md @{folder}/notes.md")] == [folder / "notes.md"] * 2


class TestWhatTheModelGets:
    def test_the_text_in_a_fence_that_holds_it_with_its_name(self, folder: Path) -> None:
        sent = expand("Sum up @notes.md, please.")
        assert sent.startswith("Sum up @notes.md, please.\n\nnotes.md:\n````md\n# Notes\n")
        assert sent.endswith("word \n````")
        assert collapse(sent) == "Sum up @notes.md, please."
        assert expand(sent) == sent, "not twice"

    def test_two_files_and_an_escaped_name(self, folder: Path) -> None:
        typed = '@sub/deep.py and @"my file.txt" and \\@notes.md and \\@other'
        sent = expand(typed)
        assert "\n\nsub/deep.py:\n```py\nx = 1\n```\n\nmy file.txt:\n```txt\nspaced\n```" in sent
        assert " and @notes.md and \\@other" in sent
        assert collapse(sent) == typed.replace("\\@notes", "@notes")

    @given(st.text(alphabet="a`\n:@. ", max_size=80))
    def test_collapse_leaves_other_text_alone(self, text: str) -> None:
        assert collapse(text) == text or text.startswith(collapse(text))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("picture.png", "binary"),
            ("latin.txt", "binary"),
            ("sub", "folder"),
            ("big.txt", "over 1 MB"),
            ("pipe", "not a file"),
        ],
    )
    def test_what_cannot_be_put_in_is_refused(self, folder: Path, name: str, reason: str) -> None:
        os.mkfifo(folder / "pipe")
        with pytest.raises(UsageError, match=reason) as caught:
            expand(f"see @{name}")
        assert name in str(caught.value) and "\\@" in str(caught.value)

    def test_one_that_may_not_be_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(UsageError, match="Permission denied"):
            expand("see @notes.md")


class TestBesideThePrompt:
    def test_size_and_tokens(self, folder: Path) -> None:
        assert describe("see @notes.md") == "notes.md 3.1 KB, about 780 tokens"
        assert describe("@big.txt @sub") == "big.txt 1.0 MB, too long · sub is a folder"
        assert describe("@picture.png") == "picture.png is a binary file"
        assert describe("me@notes.md") == ""

    def test_completion(self, folder: Path) -> None:
        line = "see @no"
        assert [s.insert for s in complete(line, len(line))] == ["@notes.md "]
        assert next(s.insert for s in complete("@s", 2)) == "@sub/"
        assert [s.insert for s in complete("@sub/", 5)] == ["@sub/deep.py "]
        assert [s.insert for s in complete('@"my', 4)] == ['@"my file.txt" ']
        assert complete("me@no", 5) == [] and complete("@none/x", 7) == []

    def test_a_path_is_quoted_where_it_must_be(self) -> None:
        assert mention_of("a b") == '@"a b"' and mention_of("a/b.c") == "@a/b.c"

    async def test_the_size_is_shown_and_the_file_sent(self, manager: FakeManager, folder: Path) -> None:
        async with running(manager) as chat:
            await chat.pilot.press(*"see @no")
            await chat.until(lambda: [s.label for s in chat.prompt.suggestions] == ["notes.md"])
            await chat.until(lambda: chat.screen.suggestion_list.display)
            await chat.pilot.press("tab")
            assert chat.prompt.text == "see @notes.md "
            await chat.until(lambda: "3.1 KB, about 780 tokens" in str(chat.prompt.border_subtitle))
            await chat.pilot.press("enter")
            await chat.until(lambda: len(manager.queue) == 1)
            (message,) = manager.sessions[chat.screen.current_id].path()
            assert "notes.md:\n````md\n# Notes" in message.text
            await chat.until(lambda: not chat.prompt.border_subtitle)
            await chat.pilot.press("up")
            assert chat.prompt.text == "see @notes.md"

    async def test_a_refused_file_leaves_the_text_in_the_box(
        self, manager: FakeManager, folder: Path
    ) -> None:
        async with running(manager) as chat:
            chat.prompt.put("see @picture.png here")
            await chat.pilot.press("enter")
            await chat.until(lambda: any("binary" in n.message for n in chat.app._notifications))
            assert chat.prompt.text == "see @picture.png here"
            assert manager.queue == []

    async def test_mail_addresses_and_markup_are_text(self, manager: FakeManager, folder: Path) -> None:
        (folder / "[bold]x").write_text("y")
        async with running(manager) as chat:
            chat.prompt.put("mail me@notes.md about @[bold]x")
            await chat.until(lambda: "\\[bold]x" in str(chat.prompt.border_subtitle))
            await chat.pilot.press("enter")
            await chat.until(lambda: len(manager.queue) == 1)
