"""Code with colours in HTML: spans of a few kinds, whose colours a theme has."""

from __future__ import annotations

import html

MAX_CODE = 200_000
"""Characters of a block that is coloured: some lexers take long for more."""

KINDS = {
    "comment": ("Comment",),
    "keyword": ("Keyword", "Name.Tag", "Operator.Word"),
    "string": ("Literal.String",),
    "number": ("Literal",),
    "function": ("Name.Function", "Name.Decorator"),
    "type": ("Name.Class", "Name.Exception", "Name.Namespace", "Keyword.Type"),
    "builtin": ("Name.Builtin", "Name.Constant", "Keyword.Constant"),
    "operator": ("Operator", "Punctuation"),
    "error": ("Error", "Generic.Error", "Generic.Deleted"),
}
"""Names of Pygments' tokens by kind; a token is of the kind of its nearest relative. All others are plain."""

_KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def to_html(code: str, language: str) -> str:
    """The inside of a block of code, escaped; coloured when the language is known."""
    if not language or len(code) > MAX_CODE:
        return html.escape(code, quote=False)
    # Slow to import, and not needed without code.
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return html.escape(code, quote=False)
    parts: list[str] = []
    for token, text in lexer.get_tokens(code):
        kind = _kind(str(token).removeprefix("Token."))
        escaped = html.escape(text, quote=False)
        parts.append(f'<span class="{kind}">{escaped}</span>' if kind and text.strip() else escaped)
    return "".join(parts)


def _kind(name: str) -> str:
    while name:
        if kind := _KIND_OF.get(name):
            return kind
        name = name.rpartition(".")[0]
    return ""
