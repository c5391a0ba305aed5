"""Writes docs/keys.md: every action, its id, its keys, where it works and where its key is pressed in a test.

.venv/bin/python docs/keys.py            write it
.venv/bin/python docs/keys.py --missing  print the actions that no test presses
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ds4chat.ui.keymap import PRESETS, Action, dump
from ds4chat.ui.keys import keys_of
from ds4chat.ui.screens.help import key_names

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "keys.md"

NEAR = {
    "ask": ("settings", "panels", "checkpoints"),
    "text": ("settings", "panels", "prompts"),
    "checkpoints": ("checkpoints", "panels", "lists"),
    "models": ("models", "panels", "lists"),
    "persona": ("personas", "panels"),
    "personas": ("personas", "panels"),
    "settings": ("settings", "panels"),
    "rows": ("lists", "panels", "models", "settings", "personas", "checkpoints"),
    "tool": ("tools",),
    "confirm": ("chat", "sessions", "panels"),
    "help": ("help",),
    "themes": ("themes",),
    "search": ("search", "lists"),
    "tags": ("tags", "sessions", "switcher"),
    "rename": ("chat", "sessions", "switcher"),
    "switcher": ("switcher", "sessions", "chat", "lists"),
    "message": ("message", "choosing", "branches", "links", "reasoning", "clipboard", "compact"),
    "prompt": ("prompt", "writing", "chat"),
    "list": ("list", "sessions", "switcher", "keymap", "chat"),
}
"""Words in the names of the test files that press the keys of a place, by the first part of an id."""

HEAD = """\
# Keys

Every action of the screen. What `docs/keys.py` finds in the program is written here; do not edit this page.

An action gets other keys by its id in the table `[keys]` of config.toml, several with commas between them, none with
an empty string:

```toml
[keys]
preset = "vim"               # or leave it out
"chat.new" = "f10,ctrl+n"
"chat.delete" = ""
```

A key is a character (`g`, `G`, `/`) or a name (`f10`, `pageup`, `enter`, `space`), with `ctrl+`, `alt+` or `shift+`
before it. Some combinations never reach a program in a terminal, such as `ctrl+i`, which is Tab: they are refused, with
the reason. `F1` shows the keys as they are set.

With the preset `vim`, `Esc` leaves an empty prompt box and chooses a message; there, over the transcript and in lists
the keys in the column *vim* work, and letters are never text. `i` goes back to the box, which stays an ordinary one.

On a Mac, let Option be a real Alt key (Terminal: *Use Option as Meta key*; iTerm2: *Option sends Esc+*), or give the
actions on `Alt` other keys.
"""


def sources() -> dict[str, str]:
    """The tests of the screen, by their path."""
    files = sorted([*(ROOT / "tests" / "ui").glob("test_*.py"), *(ROOT / "tests" / "e2e").glob("test_*.py")])
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def tested_in(action: Action, tests: dict[str, str]) -> str:
    """The test file that presses one of the action's keys or names its id, "" for none."""
    start = action.id.partition(".")[0]
    vim = PRESETS["vim"].get(action.id, "")
    keys = [*keys_of(action.id, action.keys, {}), *(keys_of(action.id, vim, {}) if not action.keys else [])]
    keys += keys_of(action.id, vim, {}) if action.id == "chat.normal" else []
    quoted = [re.compile(rf"""["']{re.escape(key)}["']""") for key in keys]
    bare = action.action.partition("(")[0]
    named = re.compile(rf"""["']{re.escape(action.id)}["']|action_{re.escape(bare)}\\b""")
    near = NEAR.get(start)
    hits = [path for path, text in tests.items() if any(key.search(text) for key in quoted)]
    if near is not None:
        hits = [path for path in hits if any(word in Path(path).stem for word in near)]
    # The files about the keys themselves last: others say what the action does.
    hits.sort(key=lambda path: "keymap" in path)
    return next(iter([*hits, *(path for path, text in tests.items() if named.search(text))]), "")


def rows(tests: dict[str, str]) -> list[tuple[Action, str]]:
    """The actions with the file that presses their key; of the numbers the first stands for all."""
    return [(a, tested_in(a, tests)) for a in dump() if not re.search(r"number[2-9]$", a.id)]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    place = ""
    for action, test in rows(sources()):
        if action.place != place:
            place = action.place
            parts.append(
                f"\n## {place}\n\n| Id | Keys | vim | What it does | Pressed in |\n|---|---|---|---|---|\n"
            )
        keys = key_names(keys_of(action.id, action.keys, {}))
        id, about = action.id, action.about
        if id.endswith("number1"):
            keys, id = f"{keys} to 9", f"{id} to {id[:-1]}9"
            about = "Open the chat with that number in the list."
        vim = PRESETS["vim"].get(action.id, "")
        vim = key_names(keys_of(action.id, vim, {})) if vim else ""
        link = f"[{Path(test).name}](../{test})" if test else "nowhere"
        cells = (f"`{id}`", keys, vim, about, link)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    if "--missing" in sys.argv:
        for action, test in rows(sources()):
            if not test:
                print(action.id, action.keys, sep="\t")
    else:
        PAGE.write_text(page(), encoding="utf-8")
