"""The slash commands of the line mode: a method `do_NAME` for each one of the table that has `plain`."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from ds4chat.errors import UsageError
from ds4chat.sessions.session import Session, clean_title, is_unfinished, speaker
from ds4chat.ui.command_arguments import (
    branch_of,
    message_of,
    on_or_off,
    one_of,
    session_of,
    setting,
    tags_of,
)
from ds4chat.ui.commands import COMMANDS, PARAMETERS, Slash, find, unknown
from ds4chat.ui.wording import age, tools_line

if TYPE_CHECKING:
    from ds4chat.sessions.manager import SessionInfo, SessionManager
    from ds4chat.ui.desk import Desk
    from ds4chat.ui.screens.chat_settings import ChatSettings

LISTED = 30
"""Chats and search results that are printed at once: each is read out."""

HELP = (
    "Type a message and press Enter. A line that ends in \\ goes on in the next one. @path puts a text file in.",
    "Ctrl+C stops a reply, twice it quits, as the end of the input (Ctrl+D) does. //text sends a slash.",
)


class PlainCommands(ABC):
    """What the commands do with the manager; printing and waiting are the chat's."""

    session: Session

    def __init__(self, manager: SessionManager, desk: Desk | None) -> None:
        self.manager, self.desk = manager, desk
        self.leaving = False
        self._listed: list[str] = []
        """Ids by the numbers printed last."""
        self._undo: list[tuple[str, Callable[[], None]]] = []

    @abstractmethod
    def line(self, text: str, end: str = "\n") -> None: ...

    @abstractmethod
    async def ask(self, prompt: str) -> str | None: ...

    @abstractmethod
    async def wait(self, *, quiet: bool = False) -> None: ...

    @abstractmethod
    async def send(self, text: str) -> None: ...

    @property
    @abstractmethod
    def speaker(self) -> str: ...

    async def run_command(self, slash: Slash) -> None:
        """Run a command. Raises Ds4chatError with the reason why it cannot be."""
        commands = [command for command in COMMANDS if command.plain]
        command = find(slash.name, commands)
        if command is None:
            raise UsageError(unknown(slash.name, commands))
        if slash.argument and not command.argument:
            raise UsageError(
                f"/{command.name} takes nothing behind it. //{slash.name} sends the line as text."
            )
        if command.needs_argument and not slash.argument:
            raise UsageError(f"/{command.name} needs {command.argument}: {command.summary}")
        done = getattr(self, f"do_{command.name}")(slash.argument)
        if inspect.isawaitable(done):
            await done

    def describe(self) -> None:
        """Say which chat this is."""
        session = self.session
        path = self.session.path()
        if not path:
            incognito = self.manager.is_incognito(session.id)
            self.line("A new chat that leaves nothing behind." if incognito else "A new chat.")
            return
        count = len(path)
        self.line(
            f"{session.title or 'Untitled'}: {count} message{'s' if count != 1 else ''}, /show prints them."
        )
        if is_unfinished(path):
            self.line("The last reply was cut off, or there is none yet: /continue goes on.")

    # -- sessions

    def do_help(self, _: str) -> None:
        for text in HELP:
            self.line(text)
        for command in COMMANDS:
            if command.plain:
                self.line(f"{command.usage}: {command.summary}")

    def do_new(self, _: str) -> None:
        self._go(self.manager.new_session())

    def do_incognito(self, _: str) -> None:
        self._go(self.manager.new_session(incognito=True))

    def _go(self, session: Session) -> None:
        old, self.session = self.session, session
        if old.id != session.id and old.head_id is not None:
            self.manager.leave_session(old.id)
        self.describe()

    def do_list(self, _: str) -> None:
        infos = self.manager.list_sessions(LISTED)
        self._listed = [info.id for info in infos]
        now = time.time()
        for number, info in enumerate(infos, 1):
            marks = [
                word for word, on in (("pinned", info.pinned), ("this one", info.id == self.session.id)) if on
            ]
            marks += [f"#{tag}" for tag in info.tags]
            words = [f"{info.messages} messages", age(max(now - info.updated, 0)), *marks, info.id]
            self.line(f"{number}. {info.title or 'Untitled'} ({', '.join(words)})")
        more = self.manager.count_sessions() - len(infos)
        if more > 0:
            self.line(f"and {more} more; /open finds them by title.")
        else:
            self.line("/open N opens one." if infos else "There are no chats yet.")

    def do_open(self, words: str) -> None:
        if not words:
            self.do_list("")
            return
        if words.isdigit() and 1 <= int(words) <= len(self._listed):
            session_id = self._listed[int(words) - 1]
        else:
            session_id = session_of(words, self._all())
        self._go(self.manager.open_session(session_id))

    def _all(self) -> list[SessionInfo]:
        return [*self.manager.list_sessions(), *self.manager.list_sessions(archived=True)]

    async def do_search(self, words: str) -> None:
        words = words or await self.ask("Search for: ") or ""
        hits = self.manager.search(words, LISTED) if words.strip() else []
        self._listed = [hit.session_id for hit in hits]
        for number, hit in enumerate(hits, 1):
            who = {"user": "You", "tool": "Tool"}.get(hit.role, "Reply")
            self.line(f"{number}. {hit.title or 'Untitled'}, {who}: {' '.join(hit.line.split())}")
        self.line("/open N opens one." if hits else "Nothing was found.")

    async def do_rename(self, title: str) -> None:
        title = title or await self.ask("Title: ") or ""
        if title.strip():
            self.manager.rename_session(self.session.id, title)
            self.line(f"This chat is now called {clean_title(title)}.")

    def _info(self) -> SessionInfo:
        for info in self._all():
            if info.id == self.session.id:
                return info
        raise UsageError("This chat is not saved yet: it is with its first message.")

    def do_pin(self, _: str) -> None:
        pinned = not self._info().pinned
        self.manager.pin_session(self.session.id, pinned)
        self.line("Pinned." if pinned else "No longer pinned.")

    def do_archive(self, _: str) -> None:
        archived = not self._info().archived
        self.manager.archive_session(self.session.id, archived)
        self.line("In the archive." if archived else "Out of the archive.")

    def do_tag(self, words: str) -> None:
        if words:
            self.manager.tag_session(self.session.id, tags_of(words))
        tags = self._info().tags
        self.line("Tags: " + " ".join(f"#{tag}" for tag in tags) if tags else "This chat has no tags.")

    def do_delete(self, _: str) -> None:
        session = self.session
        if session.head_id is None:
            raise UsageError("There is nothing in this chat to delete.")
        self.manager.delete_session(session.id)
        self._undo.append(("The chat", lambda: self._bring_back(session.id)))
        self.line(f"Deleted: {session.title or 'Untitled'} (/undo brings it back)")
        self.session = self.manager.new_session()
        self.describe()

    def _bring_back(self, session_id: str) -> None:
        self.manager.undelete_session(session_id)
        self._go(self.manager.open_session(session_id))

    def do_undo(self, _: str) -> None:
        if not self._undo:
            raise UsageError("There is no delete to take back.")
        what, undo = self._undo.pop()
        undo()
        self.line(f"{what} is back.")

    def do_fork(self, _: str) -> None:
        self._go(self.manager.fork_session(self.session.id))
        self.line("This is a copy.")

    def do_quit(self, _: str) -> None:
        self.leaving = True

    # -- messages

    def do_show(self, number: str) -> None:
        path = self.session.path()
        chosen = [message_of(self.session, number)] if number else path
        for message in chosen:
            who = speaker(message)
            siblings = self.session.siblings(message.id)
            at = [sibling.id for sibling in siblings].index(message.id) + 1
            branch = f" (branch {at} of {len(siblings)})" if len(siblings) > 1 else ""
            self.line(f"{path.index(message) + 1}. {who}{branch}: {message.text}")
        if not chosen:
            self.line("There is no message in this chat yet.")

    async def do_edit(self, argument: str) -> None:
        number, _, text = argument.partition(" ")
        if number and not number.isdigit():
            number, text = "", argument
        message = message_of(self.session, number, "user")
        if not text.strip():
            self.line(f"It says: {message.text}")
            text = await self.ask("Instead: ") or ""
        if not text.strip():
            self.line("Left as it is.")
            return
        self.manager.edit_message(self.session.id, message.id, text)
        await self.wait()

    async def do_regenerate(self, _: str) -> None:
        self.manager.regenerate(self.session.id, message_of(self.session, "", "assistant").id)
        await self.wait()

    def do_branch(self, argument: str) -> None:
        message = branch_of(self.session, argument)
        self.manager.choose_branch(self.session.id, message.id)
        self.do_show(str([m.id for m in self.session.path()].index(message.id) + 1))

    def do_drop(self, number: str) -> None:
        session_id = self.session.id
        ids = self.manager.delete_turn(session_id, message_of(self.session, number).id)
        self._undo.append(("The turn", lambda: self.manager.restore_turn(session_id, ids)))
        self.line("Deleted. /undo brings it back.")

    async def do_continue(self, _: str) -> None:
        self.manager.continue_reply(self.session.id)
        await self.wait()

    async def do_copy(self, _: str) -> None:
        message = message_of(self.session, "", "assistant")
        try:
            import pyperclip

            await asyncio.to_thread(pyperclip.copy, message.text)
        except Exception:
            raise UsageError(
                "There is no clipboard that can be reached from here: /show prints the reply."
            ) from None
        self.line("Copied.")

    async def do_editor(self, _: str) -> None:
        from ds4chat.ui import editor

        edited = await editor.edit(editor.find_editor(os.environ), "")
        if edited.problem:
            self.line(edited.problem)
        elif edited.text.strip():
            self.line(f"You: {edited.text}")
            await self.send(edited.text)
        else:
            self.line("Nothing was written, nothing is sent.")

    # -- settings

    async def do_compact(self, how: str) -> None:
        self.manager.compact(self.session.id, how)
        self.line("(summarising the older part)")
        await self.wait(quiet=True)
        if self.session.summary:
            self.line(f"Summary of what came before: {self.session.summary}")

    def do_uncompact(self, _: str) -> None:
        self.manager.undo_compact(self.session.id)
        self.line("The summary is taken back.")

    def do_system(self, text: str) -> None:
        if text:
            self.manager.set_system(self.session.id, text)
            self.line("The system prompt is changed: what was said is computed anew with the next message.")
        else:
            self.line(f"System prompt: {self.session.system or 'none'}")

    def do_set(self, argument: str) -> None:
        if argument:
            self.manager.set_params(self.session.id, setting(argument, self.session.params))
        changed = argument.lower().replace("=", " ").replace("-", "_").split()[:1]
        for name, value in self.manager.effective(self.session.id).items():
            if name in changed or (not changed and name in PARAMETERS):
                self.line(f"{name}: {'default' if value is None or value == '' else value}")

    async def do_tools(self, word: str) -> None:
        on = on_or_off(word)
        if on is not None:
            self.manager.set_tools(self.session.id, on)
        for tool in await self.manager.tools():
            self.line(f"{tool.name} ({tool.where}): {tool.description}")
        self.line(tools_line(self.manager.has_tools_on(self.session.id)))

    async def do_model(self, name: str) -> None:
        models = [m for m in await asyncio.to_thread(self._desk().models) if not m.fault]
        if not name:
            for choice in models:
                self.line(choice.name)
            self.line(f"In use: {self.speaker}. /model NAME chooses another for this chat.")
            return
        model = one_of(name, [(m.name, m) for m in models], "model")
        self._settings().set_model(model.path)
        self.line(f"This chat goes on with {model.name}.")

    async def do_persona(self, name: str) -> None:
        personas = await asyncio.to_thread(self._desk().personas)
        if not name:
            for each in personas:
                self.line(each.name)
            self.line("/persona NAME chooses one for this chat.")
            return
        persona = one_of(name, [(p.name, p) for p in personas], "persona")
        chat = self._settings()
        chat.personas = personas
        chat.give_persona(persona)
        self.line(f"This chat has the persona {persona.name}.")

    def _settings(self) -> ChatSettings:
        from ds4chat.ui.screens.chat_settings import ChatSettings

        return ChatSettings(self.manager, self.session)

    def _desk(self) -> Desk:
        if self.desk is None:
            raise UsageError("There are neither models nor personas to choose from here.")
        return self.desk
