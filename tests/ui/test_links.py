"""Links in messages: found, shown with where they lead, opened by key and mouse, and only if they may be."""

from __future__ import annotations

import pytest

from ds4chat.ui import links as links_module
from ds4chat.ui.actions import messages as actions
from ds4chat.ui.links import find_urls, may_open, open_link
from ds4chat.ui.markdown_parts import links
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager

REPLY = (
    "See [the book](https://example.org/book), https://example.org/a_(b)_c, <mailto:me@example.org>, "
    "[this](javascript:alert), [a file](file:///etc/passwd), [here](relative.md) and `https://in.code`.\n"
)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def take(url: str) -> bool:
        found.append(url)
        return True

    monkeypatch.setattr(actions, "open_link", take)
    return found


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("(see https://a.org/x).", ["https://a.org/x"]),
        ("https://a.org/x_(y), http://b.org!", ["https://a.org/x_(y)", "http://b.org"]),
        ("mailto:me@a.org; ftp://no.org javascript:no", ["mailto:me@a.org"]),
        ("https:// http://", []),
        ("日本https://a.org/日本。", ["https://a.org/日本"]),
        ("https://a.org/\x1b]8;;x", ["https://a.org/"]),
    ],
)
def test_addresses_are_found_in_text(text: str, urls: list[str]) -> None:
    assert [url for _, _, url in find_urls(text)] == urls
    assert all(text[start:end] == url for start, end, url in find_urls(text))


def test_only_what_may_be_opened_is_a_link() -> None:
    assert links(REPLY) == [
        "https://example.org/book",
        "https://example.org/a_(b)_c",
        "mailto:me@example.org",
    ]
    assert not may_open("file:///etc/passwd") and not may_open("javascript:alert(1)") and not may_open("-x")
    assert not open_link("file:///etc/passwd")


def test_a_browser_that_would_draw_on_this_terminal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("/usr/bin/w3m"))
    assert not links_module.open_link("https://example.org")

    def none() -> None:
        raise webbrowser.Error("no browser")

    monkeypatch.setattr(webbrowser, "get", none)
    assert not links_module.open_link("https://example.org")


async def test_a_key_opens_one_after_the_other(manager: FakeManager, opened: list[str]) -> None:
    session = manager.make("t", ["look at https://first.org/x please", REPLY])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("tab", "o", "o")
        await chat.until(lambda: len(opened) == 2)
        assert opened == ["https://example.org/book", "https://example.org/a_(b)_c"]
        await chat.until(lambda: "opened https://example.org/book" in chat.toasts)
        await chat.pilot.press("up", "o")
        await chat.until(lambda: opened[2:] == ["https://first.org/x"])


async def test_no_link_is_said(manager: FakeManager, opened: list[str]) -> None:
    session = manager.make("t", ["a", "b"])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("tab", "o")
        await chat.until(lambda: "no link in this message" in chat.status)
        assert opened == []


async def test_painted_links_lead_where_they_say(manager: FakeManager) -> None:
    session = manager.make("t", ["at https://first.org/" + "x" * 60 + " here", REPLY])
    async with running(manager, session_id=session.id, size=(60, 40)) as chat:
        await chat.until_shown(
            "the book", "(https://example.org/book)", "(file:///etc/passwd)", "(relative.md)"
        )
        shown: dict[str, str] = {}
        for y in range(chat.transcript.size.height):
            for segment in chat.transcript.render_line(y):
                if segment.style is not None and segment.style.link:
                    shown[segment.style.link] = shown.get(segment.style.link, "") + segment.text
        assert set(shown) == {
            "https://first.org/" + "x" * 60,
            "https://example.org/book",
            "https://example.org/a_(b)_c",
            "mailto:me@example.org",
        }
        # Broken over two lines it still is one address.
        assert shown["https://first.org/" + "x" * 60] == "https://first.org/" + "x" * 60
        assert shown["https://example.org/book"].replace(" ", "") == "thebook(https://example.org/book)"


async def test_a_click_opens_a_link(manager: FakeManager, opened: list[str]) -> None:
    session = manager.make("t", ["q", REPLY])
    async with running(manager, session_id=session.id) as chat:
        await chat.until_shown("the book")
        row = chat.row_of("the book")
        await chat.pilot.click(chat.transcript, offset=(chat.lines()[row].index("book"), row))
        await chat.until(lambda: opened == ["https://example.org/book"])
        await chat.pilot.click(chat.transcript, offset=(chat.lines()[row].index("See"), row))
        await chat.pilot.pause()
        assert len(opened) == 1
