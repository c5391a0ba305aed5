"""A session as one HTML file to read: nothing in it runs, and nothing is loaded from anywhere.

What was said is Markdown; HTML in it is shown as it was typed. Pictures become links, and links lead to the web and to
mail alone. Colours are a theme's, one for light and one for dark screens.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ds4chat.safe_text import visible
from ds4chat.sessions.exporting import code
from ds4chat.sessions.reasoning import split
from ds4chat.sessions.session import Message, Session, speaker

COLOR_NAMES = (
    "background", "surface", "foreground", "muted", "user", "reply", "heading", "link", "quote", "rule",
    "code", "code-background", *code.KINDS,
)  # fmt: skip
"""What a page needs colours for."""

_COLOR = re.compile(r"#[0-9a-fA-F]{6}")

_WEB = ("http://", "https://", "mailto:")

_MARKS = {"stopped": "stopped", "cut": "cut off", "length": "cut at its longest", "failed": "failed"}


@dataclass(frozen=True)
class Colors:
    """One theme's colours, by the names in `COLOR_NAMES`, each as "#rrggbb"."""

    values: Mapping[str, str]

    def css(self) -> str:
        """As CSS variables."""
        for name in COLOR_NAMES:
            if not _COLOR.fullmatch(self.values[name]):
                raise ValueError(f"{name} is no colour: {self.values[name]!r}")
        return " ".join(f"--{name}: {self.values[name]};" for name in COLOR_NAMES)


def to_html(session: Session, light: Colors, dark: Colors) -> str:
    """The path to the head as a page, with a note where other branches begin."""
    path = session.path()
    title = _text(session.title or session.id)
    body = [f"<header>\n<h1>{title}</h1>\n<p>{_about(session, path)}</p>\n</header>"]
    if session.system:
        body.append(_folded("System prompt", session.system))
    if session.summary and len(session.window()) < len(path):
        body.append(_folded("Summary of the first messages", session.summary))
    body += [_article(session, message) for message in path]
    return _PAGE.format(title=title, light=light.css(), dark=dark.css(), css=_CSS, body="\n".join(body))


def _about(session: Session, path: list[Message]) -> str:
    parts = [_text(session.model)] if session.model else []
    if session.created:
        parts.append(_time(session.created))
    parts.append(f"{len(path):,} message{'s' * (len(path) != 1)}")
    on_path = {message.id for message in session.lineage()}
    others = sum(not message.hidden and message.id not in on_path for message in session.messages.values())
    if others:
        parts.append(f"{others:,} on other branches, which are not in this file")
    return " · ".join(parts)


def _article(session: Session, message: Message) -> str:
    is_user = message.role == "user"
    who = _text(speaker(message, reply=session.model or "Assistant"))
    notes = [_time(message.created)] if message.created else []
    if mark := _MARKS.get(message.state):
        notes.append(mark)
    siblings = session.siblings(message.id)
    if len(siblings) > 1:
        place = 1 + next(i for i, sibling in enumerate(siblings) if sibling.id == message.id)
        notes.append(f"version {place} of {len(siblings)}; the others are not in this file")
    note = f" <small>{' · '.join(notes)}</small>" if notes else ""
    parts = [f'<h2 class="who">{who}{note}</h2>']
    if message.role == "tool":
        parts.append(f"<details><summary>Result</summary>\n<pre>{_text(message.text)}</pre></details>")
    elif is_user:
        parts.append(_markdown(message.text))
    else:
        for part in split(message.text, whole=True):
            text = part.text.strip("\n")
            if part.kind == "answer":
                parts.append(_markdown(text))
            elif text.strip():
                parts.append(f"<details><summary>Thoughts</summary>\n{_markdown(text)}</details>")
    role = "user" if is_user else "assistant"
    return f'<article class="{role}" dir="auto">\n' + "\n".join(parts) + "\n</article>"


def _folded(summary: str, text: str) -> str:
    return f'<details class="note"><summary>{summary}</summary>\n{_markdown(text)}</details>'


def _time(seconds: float) -> str:
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return ""
    return f'<time datetime="{when:%Y-%m-%dT%H:%M:%SZ}">{when:%Y-%m-%d %H:%M} UTC</time>'


def _text(text: str) -> str:
    return html.escape(visible(text))


def _markdown(text: str) -> str:
    text = visible(text)
    try:
        return str(_renderer().render(text))
    except RecursionError:
        return f"<pre>{html.escape(text)}</pre>"


@lru_cache(maxsize=1)
def _renderer() -> Any:
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    renderer.add_render_rule("fence", _fence)
    renderer.add_render_rule("code_block", _fence)
    renderer.add_render_rule("image", _image)
    renderer.add_render_rule("link_open", _link_open)
    return renderer


def _fence(_: Any, tokens: Any, index: int, *__: Any) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    label = f'<span class="language">{html.escape(language)}</span>' if language else ""
    inside = code.to_html(token.content.removesuffix("\n"), language)
    return f'<pre dir="ltr">{label}<code>{inside}</code></pre>\n'


def _image(_: Any, tokens: Any, index: int, *__: Any) -> str:
    """A link: a picture would be loaded from the web."""
    token = tokens[index]
    source = str(token.attrs.get("src", ""))
    name = f"[picture: {html.escape(token.content or source)}]"
    return f"{_anchor(source)}{name}</a>"


def _link_open(_: Any, tokens: Any, index: int, *__: Any) -> str:
    return _anchor(str(tokens[index].attrs.get("href", "")))


def _anchor(address: str) -> str:
    """The beginning of a link; one that leads nowhere, for an address of another kind."""
    if not address.lower().startswith(_WEB):
        return "<a>"
    return f'<a href="{html.escape(address)}" rel="noopener noreferrer nofollow">'


_PAGE = """<!DOCTYPE html>
<html lang="">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{css}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_CSS = """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--background); color: var(--foreground);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
header { border-bottom: 1px solid var(--rule); margin-bottom: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0; color: var(--heading); overflow-wrap: anywhere; }
header p, small, summary, .language { color: var(--muted); font-size: 0.85rem; font-weight: normal; }
article, .note { margin: 0 0 1.25rem; padding: 0.25rem 1rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
article.user { background: var(--surface); border-left: 3px solid var(--user); border-radius: 0 6px 6px 0; }
article :is(h1, h2, h3, h4, h5, h6) { color: var(--heading); font-size: 1.1rem; }
article h2.who { font-size: 0.95rem; margin: 0.5rem 0 0; color: var(--reply); }
article.user h2.who { color: var(--user); }
pre { position: relative; overflow-x: auto; padding: 0.75rem 1rem; border-radius: 6px; line-height: 1.45;
  background: var(--code-background); font-size: 0.875rem; }
pre .language { float: right; margin-left: 1rem; }
code { font-family: ui-monospace, "Cascadia Code", Menlo, Consolas, monospace; }
:not(pre) > code { color: var(--code); background: var(--code-background); padding: 0.1em 0.3em; border-radius: 4px; }
a { color: var(--link); }
blockquote { margin: 1rem 0; padding-left: 1rem; border-left: 3px solid var(--rule); color: var(--quote); }
hr { border: 0; border-top: 1px solid var(--rule); }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--rule); padding: 0.3rem 0.6rem; }
details { margin: 0.75rem 0; } details > summary { cursor: pointer; }
.comment { color: var(--comment); font-style: italic; } .keyword { color: var(--keyword); }
.string { color: var(--string); } .number { color: var(--number); } .function { color: var(--function); }
.type { color: var(--type); } .builtin { color: var(--builtin); } .operator { color: var(--operator); }
.error { color: var(--error); }
@media print { body { background: none; } pre { white-space: pre-wrap; } }"""
