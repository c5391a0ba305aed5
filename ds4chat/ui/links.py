"""Addresses in texts: found, checked, opened with the system's browser. Must not know widgets."""

from __future__ import annotations

import re
from pathlib import PurePath

from ds4chat.files import users_umask

SCHEMES = ("http://", "https://", "mailto:")
"""What may be opened; anything else a model writes as an address stays text."""

IN_THE_TERMINAL = frozenset({"w3m", "lynx", "links", "elinks", "www-browser", "browsh", "carbonyl"})
"""Browsers that would draw over the chat."""

_URL = re.compile(r"(?:https?://|mailto:)[^\s<>\"'`\x00-\x1f\x7f-\x9f]+", re.IGNORECASE)
_AFTER = ".,;:!?*_~'\"…。、，）"
_PAIRS = {")": "(", "]": "[", "}": "{"}


def find_urls(text: str) -> list[tuple[int, int, str]]:
    """Start, end and text of each address that stands openly in the text, without the full stop or the bracket
    after it."""
    found: list[tuple[int, int, str]] = []
    for match in _URL.finditer(text):
        url = match.group()
        while url:
            last = url[-1]
            if last in _AFTER or (last in _PAIRS and url.count(last) > url.count(_PAIRS[last])):
                url = url[:-1]
            else:
                break
        if may_open(url) and not url.lower().endswith(("://", "mailto:")):
            found.append((match.start(), match.start() + len(url), url))
    return found


def may_open(url: str) -> bool:
    """Whether the address is of a kind that is opened at all."""
    return url.lower().startswith(SCHEMES)


def open_link(url: str) -> bool:
    """Open the address with the system's browser; whether there was one. Blocks: called in a thread."""
    if not may_open(url):
        return False
    import subprocess
    import webbrowser

    try:
        browser = webbrowser.get()
        if not isinstance(browser, webbrowser.GenericBrowser):
            return browser.open(url)
        if PurePath(browser.name).name in IN_THE_TERMINAL:
            return False
        # Not by its own `open`: what the program says would be written over the screen.
        quiet = subprocess.DEVNULL
        command = [browser.name, *(argument.replace("%s", url) for argument in browser.args)]
        subprocess.Popen(
            command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, umask=users_umask()
        )
    except (webbrowser.Error, OSError):
        return False
    return True
