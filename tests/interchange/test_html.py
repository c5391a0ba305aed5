"""The page of a session: what is on it, and that nothing in it runs or is loaded."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.html_theme import page_colors
from ds4chat.sessions.exporting import code
from ds4chat.sessions.exporting.html import COLOR_NAMES, Colors, to_html
from ds4chat.sessions.importing import openai
from ds4chat.sessions.session import Message, Session
from tests.cli.conftest import Line
from tests.interchange.reading_room import told

PLAIN = Colors(dict.fromkeys(COLOR_NAMES, "#102030"))

VOID = {"meta", "br", "hr", "img", "input", "link"}
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "article", "details", "summary", "small",
    "time", "h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "code", "span", "a", "em", "strong", "s", "ul", "ol", "li",
    "blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr", "br",
}  # fmt: skip


ATTRIBUTES = {
    "lang", "charset", "name", "content", "http-equiv", "class", "dir", "href", "rel", "datetime", "start", "style",
}  # fmt: skip


class Page(HTMLParser):
    """Reads a page and fails on what may not be on one."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []
        self.classes: set[str] = set()
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            assert name in ATTRIBUTES, name
            if name == "style":
                assert value in {"text-align:left", "text-align:right", "text-align:center"}
            if name == "href":
                assert value is not None and value.startswith(("http://", "https://", "mailto:"))
                self.links.append(value)
            if name == "class" and value is not None:
                self.classes |= set(value.split())

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    def said(self) -> str:
        return "".join(self.text)


def chat(*texts: str, title: str = "Rome") -> Session:
    session = Session("00000001", title=title, system="Be brief.", model="tiny", created=1.7e9)
    for i, text in enumerate(texts):
        session.append(Message(i + 1, i or None, "assistant" if i % 2 else "user", text, created=1.7e9 + i))
    return session


def page(*texts: str, title: str = "Rome") -> Page:
    return Page(to_html(chat(*texts, title=title), PLAIN, PLAIN))


def test_what_was_said_is_there() -> None:
    found = page(
        "**Where** is it?", "| a | b |\n|---|---|\n| 1 | 2 |\n\n- ~~old~~ new", title="<Rome> & more"
    )
    for text in ("<Rome> & more", "Be brief.", "tiny", "2 messages", "Where", "old", "2023-11-14 22:13 UTC"):
        assert text in found.said()


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</article></main><style>*{display:none}</style>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>)",
        "[x](vbscript:x) <javascript:alert(1)>",
        "![x](javascript:alert(1))",
        "[x]: http://e.org 'a\" onload=\"b'\n\n[x]",
        '```x" onload="alert(1)\n</code><script>\n```',
        "```html\n<script>alert('&lt;')</script>\n```",
        "`<b>`\n\n    <i>indented</i>",
        "\x1b[31m\x00\x08 \u202e backwards",
    ],
)
def test_nothing_that_was_said_acts(text: str) -> None:
    found = page(text, f"<think>\n{text}\n</think>\n\n{text}", title=text)
    assert found.links in ([], ["http://e.org"] * 3)


def test_html_is_shown_as_it_was_typed() -> None:
    assert "<b>bold</b> and <script>" in page("<b>bold</b> and <script>").said()


def test_pictures_are_links_and_nothing_is_loaded() -> None:
    found = page("![a cat](https://e.org/cat.png?a=1&b=2) and [mail](mailto:a@e.org)")
    assert found.links == ["https://e.org/cat.png?a=1&b=2", "mailto:a@e.org"]
    assert "[picture: a cat]" in found.said()
    assert "default-src 'none'" in to_html(chat("x"), PLAIN, PLAIN)


@given(st.lists(st.text(alphabet="<>&\"'`#*_[]()!|~-\n \\ax1:/", max_size=60), min_size=1, max_size=2))
@settings(max_examples=40, deadline=None)
def test_a_page_is_well_formed_whatever_was_said(texts: list[str]) -> None:
    page(*texts)


def test_code_has_colours_and_all_of_its_text() -> None:
    source = 'def f(x):\n    # why\n    return "<a>" + 1\n'
    found = page(f"```python\n{source}```\n\n```nosuchlanguage\n<x>\n```")
    assert {"keyword", "function", "comment", "string", "number"} <= found.classes
    assert source.rstrip("\n") in found.said() and "<x>" in found.said()


@pytest.mark.parametrize("language", ["python", "rust", "html", "json", "bash", "", "nope"])
def test_code_loses_no_character(language: str) -> None:
    source = "\n\n  <a href='x'>&amp;\t\n# é 日\n\n"
    assert "".join(Page(f"<pre>{code.to_html(source, language)}</pre>").text) == source


def test_thoughts_are_folded_and_branches_are_noted() -> None:
    session = chat("Where?", "<think>\nNear the sea.\n</think>\n\nHere.")
    session.append(Message(3, 1, "assistant", "There.", "stopped", created=1.7e9))
    session.head_id = 2
    found = Page(to_html(session, PLAIN, PLAIN)).said()
    assert "Thoughts" in found and "Near the sea." in found and "<think>" not in found
    assert "version 1 of 2; the others are not in this file" in found and "There." not in found
    assert "1 on other branches, which are not in this file" in found
    session.head_id = 3
    assert "stopped" in Page(to_html(session, PLAIN, PLAIN)).said()


def test_a_colour_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="heading is no colour"):
        Colors({**PLAIN.values, "heading": "red;} body{x"}).css()


def test_the_colours_are_those_of_the_theme(line: Line) -> None:
    light, dark = page_colors(line.folder, "dusk", given=True)
    default_light, default_dark = page_colors(line.folder, "paper", given=True)
    assert light == default_light and dark != default_dark
    assert page_colors(line.folder, "terminal", given=False) == (default_light, default_dark)
    result = line("export", "x", "--format", "html", "--theme", "nosuch")
    line.session("x", "hi", id_="000000aa")
    result = line("export", "x", "--format", "html", "--theme", "nosuch")
    assert result.code == 2 and 'There is no theme "nosuch"' in result.err
    assert "colours of a terminal" in line("export", "x", "--format", "html", "--theme", "terminal").err


def test_the_command_writes_pages_and_lines(line: Line) -> None:
    for i, title in enumerate(("../Rome: a/b", "Oslo")):
        line.session(title, f"question {i}", f"answer {i}", id_=f"000000a{i}")
    path = line.folder / "rome.html"
    assert line("export", "000000a0", "-o", str(path)).code == 0
    assert "answer 0" in Page(path.read_text()).said()
    folder = line.folder / "out"
    result = line("export", "000000a0", "Oslo", "--format", "html", "-o", f"{folder}/")
    assert (result.code, result.err) == (0, f"ds4chat: 2 sessions written to {folder}/.\n")
    assert sorted(file.name for file in folder.iterdir()) == ["000000a0-Rome-a-b.html", "000000a1-Oslo.html"]
    lines = line("export", "000000a0", "Oslo", "--format", "jsonl").out.splitlines()
    assert [told(openai.read(one.encode()).session())[1][1] for one in lines] == ["answer 0", "answer 1"]
    refused = line("export", "000000a0", "Oslo")
    assert refused.code == 2 and "Several sessions need a folder" in refused.err


def test_a_page_has_no_path_of_this_machine(line: Line, tmp_path: Path) -> None:
    line.session("x", "hi", id_="000000aa", model_path=str(tmp_path / "secret.gguf"))
    assert str(tmp_path) not in line("export", "x", "--format", "html").out
