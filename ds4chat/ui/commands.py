"""Slash commands: the table that the chat screen and the line mode share, and how a line is read.

Pure: knows neither a widget nor the manager, and imports nothing that takes time. What a command does is found by its
binding (`binding`, the id of a key of the chat screen) or, with an argument, by its name in `actions/commanding.py` and
`plain_commands.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ds4chat.ui.suggestions import Suggestion

_SLASH = re.compile(r"/([A-Za-z][\w-]*)(?:[ \t\n]+(.*))?\Z", re.DOTALL)
_TYPING = re.compile(r"/([\w-]*)\Z")
_TYPING_ARGUMENT = re.compile(r"/([A-Za-z][\w-]*) +(\S.*|)\Z")

NEAR = 3
"""Commands that the sentence about an unknown one names."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        argument: what may follow the name, in brackets when it may be left out; "" for nothing.
        binding: id of the key on the chat screen that does it without an argument, "" when there is none.
        screen, plain: whether the chat screen and the line mode have it.
    """

    name: str
    summary: str
    argument: str = ""
    binding: str = ""
    aliases: tuple[str, ...] = ()
    screen: bool = True
    plain: bool = True

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")

    @property
    def usage(self) -> str:
        """ "/set NAME VALUE"."""
        return f"/{self.name} {self.argument}".rstrip()


COMMANDS: tuple[Command, ...] = (
    Command("help", "What can be typed and pressed.", binding="chat.help", aliases=("commands",)),
    Command("new", "Start a new chat.", binding="chat.new"),
    Command("open", "Open a chat by its title or id.", "[TITLE]", "chat.switch", ("switch", "resume")),
    Command("list", "List the chats.", screen=False, aliases=("ls", "chats")),
    Command("search", "Find words in all chats.", "[WORDS]", "chat.search", ("find",)),
    Command("rename", "Give this chat another title.", "[TITLE]", "chat.rename", ("title",)),
    Command("pin", "Keep this chat at the top of the list, or no longer.", "", "chat.pin"),
    Command("archive", "Put this chat into the archive, or take it out.", "", "chat.archive"),
    Command(
        "tag", "Give this chat tags; without any: choose or show them.", "[TAG...]", "chat.tags", ("tags",)
    ),
    Command("delete", "Delete this chat.", "", "chat.delete", ("rm",)),
    Command("undo", "Take back the last delete.", "", "chat.undo"),
    Command("fork", "Go on in a copy of this chat.", "", "chat.fork"),
    Command(
        "show", "Print this chat, or its message N, with the numbers of its messages.", "[N]", screen=False
    ),
    Command("edit", "Write an earlier message of yours anew, in a branch.", "[N]"),
    Command(
        "regenerate", "Have the last reply written again, in a branch.", "", "chat.regenerate", ("retry",)
    ),
    Command("branch", "Go to branch N of the last message that has branches.", "N"),
    Command("drop", "Delete the turn of message N; without N, the last one.", "[N]"),
    Command("continue", "Go on with a reply that was cut off.", "", "chat.continue"),
    Command("stop", "Stop the reply.", "", "chat.stop", plain=False),
    Command("copy", "Copy the last reply.", "", "chat.copy"),
    Command("quote", "Quote the last reply in what you write.", plain=False),
    Command(
        "tools", "List the tools the model may call; on and off switch them for this chat.", "[on or off]"
    ),
    Command("compact", "Have the older part of this chat summarised.", "[HOW]", "chat.compact"),
    Command("uncompact", "Take the summary back: the older part reaches the model again, as far as it fits."),
    Command(
        "system", "Give this chat another system prompt; without a text: show it.", "[TEXT]", "chat.system"
    ),
    Command(
        "set", "Set a parameter of this chat, as in /set temperature 0.5.", "[NAME VALUE]", "chat.settings"
    ),
    Command("settings", "All settings.", "", "chat.settings", plain=False),
    Command("model", "Choose the model of this chat.", "[NAME]", "chat.models", ("models",)),
    Command("persona", "Choose a persona for this chat.", "[NAME]", "chat.personas", ("personas",)),
    Command("checkpoints", "What the chats take on disk.", "", "chat.checkpoints", plain=False),
    Command("theme", "Choose a theme.", "[NAME]", "chat.themes", ("themes",), plain=False),
    Command("incognito", "Start a chat that leaves nothing behind.", "", "chat.incognito"),
    Command("editor", "Write in your own editor ($VISUAL or $EDITOR).", "", "chat.editor"),
    Command("attach", "Put a text file into the message.", "PATH", aliases=("file",), plain=False),
    Command("sidebar", "Show or hide the list of chats.", "", "chat.sidebar", plain=False),
    Command("quit", "Save and leave.", "", "app.quit", ("exit", "q")),
)

PARAMETERS: dict[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repeat_penalty": float,
    "seed": int,
    "max_tokens": int,
    "ctx": int,
}
"""What `/set` can set, and the kind of number it takes."""


@dataclass(frozen=True)
class Slash:
    """A line that is a command."""

    name: str
    argument: str = ""


def read(text: str) -> Slash | str:
    """A line as it was typed: a command, or the text to send.

    "/name ..." is a command. "//text" and " /text" are the text "/text"; "/usr/bin/env" is a path and stays as it is.
    """
    bare = text.lstrip()
    if bare != text and bare.startswith("/"):
        return bare
    if re.match(r"//\w", text):
        return text[1:]
    match = _SLASH.match(text.rstrip())
    return Slash(match[1].lower(), (match[2] or "").strip()) if match else text


def find(name: str, commands: Iterable[Command] = COMMANDS) -> Command | None:
    """The command of a name or an alias; an unambiguous beginning of a name will do."""
    known = list(commands)
    for command in known:
        if name == command.name or name in command.aliases:
            return command
    begun = [command for command in known if len(name) > 1 and command.name.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def unknown(name: str, commands: Iterable[Command] = COMMANDS) -> str:
    """The sentence about a command that is not there."""
    import difflib

    names = {word: command.name for command in commands for word in (command.name, *command.aliases)}
    begun = [n for word, n in names.items() if word.startswith(name[:2])]
    near = [names[word] for word in difflib.get_close_matches(name, names, NEAR, 0.55)]
    listed = list(dict.fromkeys([*near, *begun]))[:NEAR]
    hint = (
        f"did you mean {' or '.join(f'/{n}' for n in listed)}?" if listed else "/help lists those there are."
    )
    return f"There is no command /{name}: {hint} //{name} sends it as text."


def rank(typed: str, word: str) -> int | None:
    """How well letters fit a word, smaller is better; None when they are not in it in that order."""
    typed, word = typed.lower(), word.lower()
    if word.startswith(typed):
        return 0
    at = word.find(typed)
    if at >= 0:
        return 1 if not word[at - 1].isalnum() else 2
    letters = iter(word)
    return 3 if all(letter in letters for letter in typed) else None


def complete(
    line: str, column: int, commands: Sequence[Command], choices: Callable[[str], Sequence[str]]
) -> list[Suggestion]:
    """What may be meant by the first line of the box, with the cursor at `column`.

    Args:
        choices: by the name of a command, what may follow it.
    """
    if (match := _TYPING.match(line)) and column == len(line):
        return _names(match[1], commands)
    match = _TYPING_ARGUMENT.match(line)
    command = find(match[1], commands) if match else None
    if match is None or command is None or column != len(line):
        return []
    typed = match[2]
    found = [(rank(typed, word), word) for word in choices(command.name)]
    fitting = sorted((r, n, word) for n, (r, word) in enumerate(found) if r is not None and word != typed)
    more = command.name == "set"
    return [
        Suggestion(word, "", match.start(2), column, word + (" " if more else ""), run=not more)
        for _, _, word in fitting
    ]


def _names(typed: str, commands: Sequence[Command]) -> list[Suggestion]:
    found = []
    for order, command in enumerate(commands):
        # An alias counts a little less than a name.
        words = [(command.name, 0), *((alias, 1) for alias in command.aliases)]
        ranks = [r + later for word, later in words if (r := rank(typed, word)) is not None]
        if ranks:
            found.append((min(ranks), order, command))
    return [
        Suggestion(
            command.usage,
            command.summary,
            0,
            len(typed) + 1,
            f"/{command.name}" + (" " if command.argument else ""),
            run=not command.needs_argument,
        )
        for _, _, command in sorted(found, key=lambda item: item[:2])
    ]
