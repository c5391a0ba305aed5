"""Markdown of a reply, one top-level block at a time: where blocks end, and their painted lines.

Only the last block of a growing text can still change; `take_finished` parts it off, so that everything
before it is rendered once. Raw HTML is not Markdown here: what looks like a tag is text and is painted as it
stands. Imported on the first reply that is painted, since Rich's Markdown and Pygments are slow to import.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    ImageItem,
    Markdown,
    MarkdownContext,
    TableElement,
)
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from ds4chat.ui.markdown_parts import CODE, CODE_START, mark_links
from ds4chat.ui.palette import Palette
from ds4chat.ui.syntax import code_theme
from ds4chat.ui.text import TAB_SIZE, clip

_OPTIONS = {"html": False, "breaks": True}
_parser = MarkdownIt("commonmark", _OPTIONS).enable(["table", "strikethrough"])
_block_parser = MarkdownIt("commonmark", _OPTIONS).enable("table").disable("inline")


LIST_PIECE = 24
"""Items of a growing list after which its finished ones are painted for good."""


@dataclass(slots=True)
class Block:
    """A finished piece of a reply. `joined`: what follows is the same list, without a gap.

    `strips` are its painted lines, None before the first painting.
    """

    source: str
    joined: bool = False
    strips: list[Strip] | None = None


def _top_lines(tokens: list[Token], level: int = 0) -> list[int]:
    """First lines of the blocks of a level."""
    return [t.map[0] for t in tokens if t.level == level and t.nesting >= 0 and t.map]


def take_finished(source: str) -> tuple[list[Block], str]:
    """Part a growing text into blocks that are final, whatever follows, and the live rest.

    Final are all top-level blocks but the last and, in a list that grows long, all items but the last.
    """
    tokens = _block_parser.parse(source)
    starts = _top_lines(tokens)
    if not starts:
        return [], source
    lines = _keep_lines(source)
    edges = [0, *starts[1:]]
    blocks = [Block("".join(lines[a:b])) for a, b in pairwise(edges)]
    last = next(i for i in reversed(range(len(tokens))) if tokens[i].level == 0 and tokens[i].nesting >= 0)
    if tokens[last].type in ("bullet_list_open", "ordered_list_open"):
        items = _top_lines(tokens[last:], 1)
        if len(items) > LIST_PIECE:
            blocks.append(Block("".join(lines[edges[-1] : items[-1]]), joined=True))
            edges.append(items[-1])
    return blocks, "".join(lines[edges[-1] :])


def _keep_lines(source: str) -> list[str]:
    # str.splitlines also breaks at characters that Markdown does not take for line ends.
    lines = source.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def open_fence(source: str) -> str | None:
    """The info string when the text is one fenced block from its first line on, else None."""
    tokens = _block_parser.parse(source)
    if len(tokens) == 1 and tokens[0].type == "fence":
        return tokens[0].info
    return None


class _Heading(Heading):
    LEVEL_ALIGN = {f"h{n}": "left" for n in range(1, 7)}


class _Code(CodeBlock):
    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _Code:
        assert isinstance(markdown, _ChatMarkdown)
        info = (token.info or "").strip().partition(" ")[0]
        return cls(info, markdown.palette)

    def __init__(self, language: str, palette: Palette) -> None:
        super().__init__(language or "text", palette.syntax)
        self.language = language
        self.palette = palette

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from code_segments(console, options, str(self.text).rstrip("\n"), self.language, self.palette)


def code_segments(
    console: Console,
    options: ConsoleOptions,
    code: str,
    language: str,
    palette: Palette,
    *,
    label: bool = True,
) -> Iterator[Segment]:
    """A block of code on its own background, under a line that names the language."""
    width = options.max_width
    background = palette.code.bgcolor
    if label:
        name = clip(" " + (language or "text"), width)
        room = width - cell_len(name)
        hint = f"{'copy ':>{room}}" if room > 6 else " " * room
        yield Segment(name + hint, palette.code_label + CODE_START)
        yield Segment.line()
    assert background is not None
    syntax = Syntax(
        code,
        language or "text",
        theme=code_theme(palette.syntax, palette.tokens, ansi=palette.ansi),
        word_wrap=True,
        padding=(0, 1),
        tab_size=TAB_SIZE,
        background_color="default" if palette.ansi else background.get_truecolor().hex,
    )
    yield from Segment.apply_style(console.render(syntax, options), post_style=CODE)


class _Rule(HorizontalRule):
    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr", characters="─")


class _Quote(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bar = Segment("│ ", self.style)
        for line in console.render_lines(
            self.elements, options.update(width=max(options.max_width - 2, 1)), style=self.style
        ):
            yield bar
            yield from line
            yield Segment.line()


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            style="markdown.table.border",
            show_edge=False,
            padding=(0, 1),
        )
        if self.header is not None and self.header.row is not None:
            for cell in self.header.row.cells:
                heading = cell.content.copy()
                heading.stylize("markdown.table.header")
                table.add_column(heading, justify="left" if cell.justify == "default" else cell.justify)
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*[cell.content for cell in row.cells])
        yield table


class _Image(ImageItem):
    def on_enter(self, context: MarkdownContext) -> None:
        super().on_enter(context)
        self.text = Text("[image: ")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(self.text, " ", (self.destination, "markdown.link_url"), "] ", end="")


class _ChatMarkdown(Markdown):
    inlines = {*Markdown.inlines, "link"}
    elements = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
        "blockquote_open": _Quote,
        "table_open": _Table,
        "image": _Image,
    }

    def __init__(self, source: str, palette: Palette) -> None:
        # Not through Rich's own constructor, which would build and run a parser of its own each time.
        self.palette = palette
        self.markup = source
        self.parsed = _parser.parse(source)
        self.code_theme = self.inline_code_theme = palette.syntax
        self.justify = None
        self.style = "none"
        self.hyperlinks = True
        self.inline_code_lexer = None
        for token in self.parsed:
            mark_links(token)
            for child in token.children or ():
                # A model that breaks a line means it: poems, addresses, steps.
                if child.type == "softbreak":
                    child.type = "hardbreak"


@lru_cache(maxsize=4)
def _console(styles: tuple[tuple[str, Style], ...]) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        theme=Theme(dict(styles)),
    )


def _strips(lines: list[list[Segment]], base: Style) -> list[Strip]:
    return [Strip(Segment.apply_style(line, base)) for line in lines]


def render_block(source: str, palette: Palette, width: int) -> list[Strip]:
    """The painted lines of one block, each at most `width` cells."""
    console = _console(tuple(palette.markdown.items()))
    options = console.options.update(width=max(width, 4), height=None)
    lines = console.render_lines(_ChatMarkdown(source, palette), options, pad=False)
    filled = [i for i, line in enumerate(lines) if any(segment.text for segment in line)]
    return _strips(lines[filled[0] : filled[-1] + 1], palette.base) if filled else []


def render_code(code: str, language: str, palette: Palette, width: int, *, label: bool) -> list[Strip]:
    """The painted lines of a piece of a code block; `label` where the block starts."""
    console = _console(tuple(palette.markdown.items()))
    options = console.options.update(width=max(width, 4), height=None)
    segments = list(code_segments(console, options, code, language, palette, label=label))
    return _strips(list(Segment.split_lines(segments)), palette.base)
