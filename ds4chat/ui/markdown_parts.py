"""The links and the code blocks of a Markdown text, for what is done with them beside painting.

Imported with the first reply that is painted, or when a key asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.style import Style
from textual.strip import Strip

from ds4chat.ui.links import find_urls, may_open

CODE = Style(meta={"code": True})
"""Marks the painted lines of a block of code."""

CODE_START = Style(meta={"code": True, "act": "code"})
"""Marks the line it starts with."""

_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Code:
    """A block of code. `first` and `last` are its lines in the source, the fences included."""

    text: str
    language: str
    first: int
    last: int


def code_blocks(source: str, *, indented: bool = True) -> list[Code]:
    """The blocks of code in their order, one that is still open too."""
    kinds = ("fence", "code_block") if indented else ("fence",)
    blocks = []
    for token in _parser.parse(source):
        if token.type in kinds and token.map:
            language = token.info.strip().partition(" ")[0]
            blocks.append(Code(token.content.rstrip("\n"), language, token.map[0], token.map[1] - 1))
    return blocks


def links(source: str) -> list[str]:
    """Addresses that can be opened, in their order, each once."""
    found: list[str] = []
    for token in _parser.parse(source):
        mark_links(token)
        for child in token.children or ():
            href = str(child.attrs.get("href", "")) if child.type == "link_open" else ""
            if may_open(href) and href not in found:
                found.append(href)
    return found


def mark_links(block: Token) -> None:
    """Rewrite the inline tokens of a block: addresses that stand openly become links, and a link shows where it leads.

    Only what may be opened stays a link: the rest keeps its text and its address.
    """
    children = block.children
    if not children or not any(
        c.type == "link_open" or (c.type == "text" and ":" in c.content) for c in children
    ):
        return
    marked: list[Token] = []
    opened: Token | None = None
    shown = ""
    for child in children:
        if child.type == "link_open":
            opened, shown = child, ""
            marked += [child, Token("link_text_open", "link", 1)]
            child.meta["href"] = child.attrs.get("href", "")
            if not may_open(str(child.meta["href"])):
                child.attrs["href"] = ""
        elif child.type == "link_close" and opened is not None:
            href = str(opened.meta["href"])
            marked.append(Token("link_text_close", "link", -1))
            if href not in (shown, f"mailto:{shown}"):
                marked.append(_text(f" ({href})"))
            marked.append(child)
            opened = None
        elif child.type == "text" and opened is None:
            marked += _linked(child)
        else:
            shown += child.content
            marked.append(child)
    block.children = marked


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _linked(token: Token) -> list[Token]:
    """A piece of text as text and links."""
    urls = find_urls(token.content)
    if not urls:
        return [token]
    tokens: list[Token] = []
    at = 0
    for start, end, url in urls:
        if start > at:
            tokens.append(_text(token.content[at:start]))
        tokens += [
            Token("link_open", "a", 1, attrs={"href": url}),
            Token("link_text_open", "link", 1),
            _text(url),
            Token("link_text_close", "link", -1),
            Token("link_close", "a", -1),
        ]
        at = end
    if at < len(token.content):
        tokens.append(_text(token.content[at:]))
    return tokens


def painted_code(strips: list[Strip]) -> list[tuple[int, int]]:
    """First and last line of each block of code among painted lines."""
    spans: list[tuple[int, int]] = []
    for index, strip in enumerate(strips):
        metas = [segment.style.meta for segment in strip if segment.style is not None]
        if any(meta.get("act") == "code" for meta in metas):
            spans.append((index, index))
        elif spans and spans[-1][1] == index - 1 and any("code" in meta for meta in metas):
            spans[-1] = (spans[-1][0], index)
    return spans
