"""`-f`, `--grammar` and `--json-schema`: what reaches the engine, and what is refused before anything is touched."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ds4chat import gbnf
from ds4chat.attached_files import LIMIT_BYTES
from ds4chat.sessions.events import TextStreamed, TurnEnded, TurnStats
from ds4chat.sessions.session import title_from
from tests.cli.conftest import FakeManager, Line, answer

YES = 'root ::= "yes" | "no"'
SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def sent(line: Line, *arguments: str, stdin: str | bytes = "") -> str:
    result = line(*arguments, stdin=stdin)
    assert (result.code, result.err) == (0, "")
    ((_, text),) = FakeManager.made[-1].sent
    return text


def refused(line: Line, *arguments: str, stdin: str | bytes = "", code: int = 2) -> str:
    result = line(*arguments, stdin=stdin)
    assert (result.code, result.out, FakeManager.made) == (code, "", [])
    assert result.err.startswith("ds4chat: ") and result.err.count("\n") == 1
    return result.err


class TestFiles:
    def test_they_stand_in_front_of_the_prompt_in_their_order(self, line: Line, folder: Path) -> None:
        (folder / "a.py").write_text("x = 1\n")
        (folder / "b c.md").write_text("```\ncode\n```")
        assert sent(line, "-f", "a.py", "--file", "b c.md", "-f", "a.py", "-p", "Compare.") == (
            "a.py:\n```py\nx = 1\n```\n\nb c.md:\n````md\n```\ncode\n```\n````\n\nCompare."
        )

    def test_they_look_as_those_of_the_chat_screen(self, line: Line, folder: Path) -> None:
        from ds4chat.ui.attachments import expand

        (folder / "notes.txt").write_text("no newline")
        assert sent(line, "-f", "notes.txt", "-p", "x").removesuffix("\n\nx") == (
            expand("@notes.txt").removeprefix("@notes.txt\n\n")
        )

    def test_standard_input_is_a_file_too_and_may_be_a_pipe(self, line: Line, folder: Path) -> None:
        assert sent(line, "-f", "-", "-p", "Why?", stdin="+ é\n") == "stdin:\n```\n+ é\n```\n\nWhy?"
        (folder / "x").write_text("1")
        assert sent(line, "-f", "x", stdin="the question") == "x:\n```\n1\n```\n\nthe question"
        assert sent(line, "-f", "x", "-p", "-", stdin="the same") == "x:\n```\n1\n```\n\nthe same"

    def test_standard_input_is_left_alone_beside_a_prompt(self, line: Line) -> None:
        assert sent(line, "-p", "Only this.", stdin="not this") == "Only this."

    def test_named_pipes_are_waited_for(self, line: Line, folder: Path) -> None:
        os.mkfifo(folder / "pipe")
        writer = threading.Thread(target=(folder / "pipe").write_text, args=("from a pipe",))
        writer.start()
        assert sent(line, "-f", "pipe", "-p", "x") == "pipe:\n```\nfrom a pipe\n```\n\nx"
        writer.join()

    def test_home(self, line: Line, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(folder))
        (folder / "x").write_text("1")
        assert sent(line, "-f", "~/x", "-p", "y").startswith("~/x:\n")

    def test_what_cannot_be_put_in_is_a_sentence(self, line: Line, folder: Path) -> None:
        (folder / "binary").write_bytes(b"\x00\x01")
        (folder / "latin").write_bytes(b"caf\xe9")
        (folder / "long").write_bytes(b"x" * (LIMIT_BYTES + 1))
        (folder / "sub").mkdir()
        for name, words in {
            "binary": "binary is a binary file: only UTF-8 text can be put in.",
            "latin": "latin is a binary file",
            "long": "long is over 1 MB, too long for a message.",
            "sub": "sub is a folder: name a file in it.",
            "gone": "gone cannot be read (No such file or directory).",
            "/dev/zero": "/dev/zero is over 1 MB",
            "a" * 300: "cannot be read",
        }.items():
            assert words in refused(line, "-p", "x", "-f", name)
        assert "Standard input is a binary file" in refused(line, "-p", "x", "-f", "-", stdin=b"\xff")
        assert "Standard input is over 1 MB" in refused(
            line, "-p", "x", "-f", "-", stdin=b"x" * (LIMIT_BYTES + 9)
        )

    def test_the_weight_is_told_on_a_terminal(
        self, line: Line, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "x.md").write_text("1" * 3100)
        monkeypatch.setattr("ds4chat.cli_chat.sys.stderr.isatty", lambda: True, raising=False)
        result = line("-p", "y", "-f", "x.md")
        assert result.err == "ds4chat: x.md 3.1 KB, about 780 tokens\n"

    def test_the_title_is_the_question(self) -> None:
        text = "a b.py:\n```py\nx = 1\n```\n\nc:\n`````\n````\n`````\n\nWhat is it?"
        assert title_from(text) == "What is it?"
        assert title_from("a:\n```\n```\n\nWhat?") == "What?"
        for whole in ("a:\n```\nx\n```", "Why this:\n```\nx\n```\n", "a:\n```\nnever closed"):
            assert title_from(whole) == whole.splitlines()[0]

    def test_they_need_a_prompt(self, line: Line, folder: Path) -> None:
        (folder / "x").write_text("1")
        result = line("-f", "x", terminal=True)
        assert (result.code, result.err) == (2, "ds4chat: --file is for --print: give a prompt with -p.\n")
        assert line.ui_calls == []
        for prompt in ((), ("-p", "-")):
            assert "--file - is standard input as a file" in refused(line, "-f", "-", *prompt, stdin="x")
        assert "empty" in refused(line, "-f", "x", stdin="")


class TestConstraints:
    def test_a_grammar_as_text_or_file(self, line: Line, folder: Path) -> None:
        (folder / "yes.gbnf").write_text(YES)
        for source in (YES, "yes.gbnf"):
            sent(line, "-p", "x", "--grammar", source)
            assert FakeManager.made[-1].grammars == [YES]
        sent(line, "-p", "x")
        assert FakeManager.made[-1].grammars == [""]

    def test_a_schema_as_text_or_file_is_a_grammar(self, line: Line, folder: Path) -> None:
        (folder / "age.json").write_text(SCHEMA)
        for source in (SCHEMA, f"\n {SCHEMA}", "age.json"):
            sent(line, "-p", "x", "--json-schema", source)
            (grammar,) = FakeManager.made[-1].grammars
            assert '"\\"age\\""' in grammar and "root" in gbnf.parse(grammar)

    def test_what_it_is_not_held_to_is_said(self, line: Line) -> None:
        result = line("-p", "x", "--json-schema", '{"properties": {"a": {"type": "number", "minimum": 3}}}')
        assert (result.code, result.out) == (0, "Hello\n")
        assert (
            result.err == "ds4chat: The answer is not held to all of the schema: check it for minimum at a.\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--grammar", "root ::= root"), "The grammar of --grammar cannot be used: the rule root begins"),
            (("--grammar", "bad.gbnf"), "The grammar bad.gbnf cannot be used: line 2: "),
            (("--grammar", "empty"), "The grammar empty cannot be used: it has no rule"),
            (("--grammar", "gone.gbnf"), "gone.gbnf cannot be read"),
            (
                ("--grammar", "."),
                ". is a folder: name a file in it. Give the path of a file with a GBNF grammar",
            ),
            (("--grammar", ""), "Nothing is named"),
            (("--json-schema", "{"), "The schema of --json-schema cannot be used: it is not JSON"),
            (("--json-schema", '{"type": "x"}'), "type must be one of object"),
            (("--json-schema", '{"$ref": "#"}'), "begins with itself"),
            (("--json-schema", "empty"), "The schema empty cannot be used: it is not JSON"),
            (("--json-schema", "[]"), "[] cannot be read"),
            (("--json-schema", '{"$ref": "https://example.com/"}'), "only name a part of the schema"),
            (("--json-schema", "{}", "--grammar", YES), "exclude each other"),
        ],
    )
    def test_what_cannot_be_used_is_refused_at_once(
        self, line: Line, folder: Path, arguments: tuple[str, ...], words: str
    ) -> None:
        (folder / "bad.gbnf").write_text('root ::= "a"\n  | "b"\n')
        (folder / "empty").write_text("")
        assert words in refused(line, "-p", "x", *arguments)

    def test_they_are_for_print(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        for option, value in (("--grammar", YES), ("--json-schema", "{}"), ("--output-format", "json")):
            result = line(option, value, terminal=True)
            assert (result.code, result.err) == (
                2,
                f"ds4chat: {option} is for --print: give a prompt with -p.\n",
            )
            monkeypatch.setenv("TERM", "dumb")
            assert line(option, value, terminal=True).code == 2
            plain = line("--plain", option, value, terminal=True)
            assert plain.code == 2 and option in plain.err and "--plain" in plain.err
        assert line.ui_calls == []

    @pytest.mark.parametrize(("reason", "way_out"), [("length", "--max-tokens"), ("context", "--ctx")])
    @pytest.mark.parametrize("form", ["text", "json", "stream-json"])
    def test_an_answer_that_was_cut_off_is_exit_code_3(
        self, line: Line, monkeypatch: pytest.MonkeyPatch, reason: str, way_out: str, form: str
    ) -> None:
        end = TurnEnded("0000aaaa", 1, 2, "length", TurnStats(reason))  # type: ignore[arg-type]
        script = [*answer()[:-1], TextStreamed("0000aaaa", 2, '{"age'), end]
        monkeypatch.setattr(FakeManager, "script", script)
        result = line("-p", "x", "--json-schema", SCHEMA, "--output-format", form)
        assert result.code == 3 and '{"age' in result.out.replace("\\", "")
        assert "cut off before it was all that the schema asks for" in result.err and way_out in result.err
        assert line("-p", "x", "--output-format", form).code == 0, "a free answer is one all the same"

    def test_a_stop_counts_more_than_a_cut(self, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
        import signal

        script = [*answer("{")[:-1], lambda: os.kill(os.getpid(), signal.SIGINT)]
        monkeypatch.setattr(FakeManager, "script", script)
        result = line("-p", "x", "--json-schema", SCHEMA)
        assert (result.code, result.out, result.err) == (130, "{\n", "")
