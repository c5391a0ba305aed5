"""Text made safe for a terminal: pure, imports nothing of the program.

What a user pastes, a model writes or a file is called may hold escape sequences, other control characters or
direction overrides. Written raw they would move the cursor, retitle the terminal or turn a line around; here they
become visible instead.
"""

from __future__ import annotations

import re

_ABOVE = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_ABOVE}]")
_UNSAFE_IN_JSON = re.compile(f"[{_ABOVE}]")


def _picture(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        return f"\\x{code:02x}"
    if code in (0x2028, 0x2029):
        return "\n"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"<U+{code:04X}>"


def visible(text: str) -> str:
    """The text with control characters and direction overrides shown as what they are (`\x1b` as `␛`).

    Tabs and newlines stay, line and paragraph separators become newlines. Works character by character, so a
    stream may be cut anywhere.
    """
    return _UNSAFE.sub(_picture, text)


def one_line(text: str) -> str:
    """The text on one line, safe to paint, for titles, notices and errors."""
    return " ".join(visible(text).split())


def escaped_json(text: str) -> str:
    """JSON that means the same, with nothing in it that a terminal acts on."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
