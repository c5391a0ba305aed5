"""Text that would do something to a terminal, and what tells whether it did."""

from __future__ import annotations

import re

ACTS: dict[str, str] = {
    "colour": "\x1b[31mred\x1b[0m",
    "cursor": "\x1b[2J\x1b[1;1Hgone\x1b[5A",
    "title": "\x1b]2;pwned\x07\x1b]0;pwned\x1b\\",
    "link": "\x1b]8;;http://evil.example/\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cHduZWQ=\x07",
    "device": "\x1bP1$r0q\x1b\\\x1b[c\x1b[6n\x1b_x\x1b\\\x1b^y\x1b\\",
    "modes": "\x1b[?1049l\x1b[?25l\x1bc\x0e\x0f",
    "c1": "\x9b31mred\x9d2;pwned\x9c\x90q\x9c\x85\x8d",
    "overwrite": "safe\rEVIL\x08\x08\x08\x08evil\x7f",
    "bells": "\x07\x05\x0b\x0c",
    "directions": "\u202egpj.exe\u202c \u2066a\u2069",
    "separators": "one\u2028two\u2029three",
    "combining": "z" + "\u0301\u0316\u0360" * 200 + " algo",
    "zero width": "ze\u200bro\u200d\u2060\ufeff width",
    "tabs": "a\tb\t\tc",
    "markup": "[bold red]x[/] [/] [@click=app.quit]quit[/] {{7*7}} <script>",
}
"""By what it tries; NUL and lone surrogates are not in it, which are taken out on entry."""

EVERYTHING = " ".join(ACTS.values())

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OWN_STYLE = re.compile(r"\x1b\[(?:0|1|1;4)?m")


def acting(text: str) -> list[str]:
    """What in the text a terminal would obey, but for the bold and underlined of our own."""
    return _UNSAFE.findall(_OWN_STYLE.sub("", text))
