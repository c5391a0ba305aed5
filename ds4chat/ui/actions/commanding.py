"""Slash commands on the chat screen: they run the screen's own actions, so that keys, palette and commands are one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from textual.binding import Binding

from ds4chat.errors import UsageError
from ds4chat.ui import attachments
from ds4chat.ui.commands import COMMANDS, PARAMETERS, Command, Slash, complete, find, unknown
from ds4chat.ui.screens.viewing import ViewingScreen
from ds4chat.ui.suggestions import Suggestion

if TYPE_CHECKING:
    from ds4chat.ui.desk import Desk
    from ds4chat.ui.screens.chat_settings import ChatSettings

NOT_COMMANDS = ("chat.pageup", "chat.pagedown", "chat.up", "chat.down", "chat.list", "chat.number")
"""Keys that make no sense as a command."""

CHOICES = 200
"""Chats that are offered behind /open; the others can be typed."""


class CommandActions(ViewingScreen):
    """The part of the chat screen that runs commands."""

    # -- which there are

    def slash_commands(self) -> list[Command]:
        """The table, and whatever else the screen has keys for."""
        known = [command for command in COMMANDS if command.screen]
        taken = {word for c in known for word in (c.name, *c.aliases)} | {
            c.binding.partition(".")[2] for c in known
        }
        for name, binding in self._bindings_by_id().items():
            word = name.partition(".")[2]
            if name.startswith("chat.") and not name.startswith(NOT_COMMANDS) and word not in taken:
                known.append(Command(word, binding.tooltip or binding.description, binding=name))
        return known

    def _bindings_by_id(self) -> dict[str, Binding]:
        found: dict[str, Binding] = {}
        for binding in (*self.app.BINDINGS, *self.BINDINGS, *self.transcript.BINDINGS):
            if isinstance(binding, Binding) and binding.id:
                found[binding.id] = binding
        return found

    def suggest(self, line: str, row: int, column: int) -> list[Suggestion]:
        """What may be meant by the cursor's line in the prompt box."""
        if row == 0 and line.startswith("/"):
            return complete(line, column, self.slash_commands(), self._choices)
        return attachments.complete(line, column) if "@" in line else []

    def _choices(self, name: str) -> Sequence[str]:
        match name:
            case "theme":
                return sorted(self.app.available_themes)
            case "set":
                return list(PARAMETERS)
            case "open":
                return [info.title for info in self.manager.list_sessions(limit=CHOICES) if info.title]
            case "tag":
                return list(self.manager.all_tags())
            case "persona":
                desk = getattr(self.app, "desk", None)
                return [persona.name for persona in desk.personas()] if desk is not None else []
        return []

    # -- running one

    async def run_slash(self, slash: Slash, session_id: str) -> None:
        """Run a command as it was typed. Raises Ds4chatError with the reason why it cannot be."""
        commands = self.slash_commands()
        command = find(slash.name, commands)
        if command is None:
            raise UsageError(unknown(slash.name, commands))
        if slash.argument and not command.argument:
            raise UsageError(
                f"/{command.name} takes nothing behind it. //{slash.name} sends the line as text."
            )
        if command.needs_argument and not slash.argument:
            raise UsageError(f"/{command.name} needs {command.argument}: {command.summary}")
        method = getattr(self, f"_do_{command.name}", None)
        if method is not None and (slash.argument or not command.binding):
            done = method(slash.argument, session_id)
            if asyncio.iscoroutine(done):
                await done
            self._refresh_state()
            return
        binding = self._bindings_by_id().get(command.binding)
        if binding is None or slash.argument:
            raise UsageError(f"/{command.name} cannot be used here.")
        await self._run_binding(command, binding)

    async def _run_binding(self, command: Command, binding: Binding) -> None:
        action = binding.action.removeprefix("screen.")
        if command.binding.startswith("app."):
            await self.app.run_action(f"app.{action}")
            return
        name, _, rest = action.partition("(")
        parameters: tuple[object, ...] = ()
        if rest:
            import ast

            parameters = tuple(ast.literal_eval(f"({rest.rstrip(')')},)"))
        if self.check_action(name, parameters) is not True:
            raise UsageError(f"/{command.name} can do nothing here and now: {command.summary}")
        await self.run_action(action)

    # -- with an argument

    def _do_open(self, words: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import session_of

        infos = [*self.manager.list_sessions(), *self.manager.list_sessions(archived=True)]
        self.open(session_of(words, infos))

    def _do_rename(self, title: str, session_id: str) -> None:
        self.manager.rename_session(session_id, title)

    def _do_tag(self, words: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import tags_of

        self.manager.tag_session(session_id, tags_of(words))

    def _do_system(self, text: str, session_id: str) -> None:
        self._settings(session_id).set_system(text)
        self.say("another system prompt: the chat is computed anew with the next message")

    def _do_set(self, argument: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import setting

        session = self.manager.open_session(session_id)
        self.manager.set_params(session_id, setting(argument, session.params))
        self.say(f"set for this chat: {' '.join(argument.split())}")

    async def _do_model(self, name: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import one_of

        models = await asyncio.to_thread(self._desk().models)
        model = one_of(name, [(model.name, model) for model in models if not model.fault], "model")
        self._settings(session_id).set_model(model.path)
        self.say(f"this chat goes on with {model.name}")

    async def _do_persona(self, name: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import one_of

        chat = self._settings(session_id)
        chat.personas = await asyncio.to_thread(self._desk().personas)
        persona = one_of(name, [(p.name, p) for p in chat.personas], "persona")
        chat.give_persona(persona)
        self.say(f"this chat has the persona {persona.name}")

    def _settings(self, session_id: str) -> ChatSettings:
        from ds4chat.ui.screens.chat_settings import ChatSettings

        return ChatSettings(self.manager, self.manager.open_session(session_id))

    def _desk(self) -> Desk:
        desk = getattr(self.app, "desk", None)
        if desk is None:
            raise UsageError("There are neither models nor personas to choose from here.")
        return cast("Desk", desk)

    def _do_theme(self, name: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import one_of

        theme = one_of(name, [(theme, theme) for theme in self.app.available_themes], "theme")
        self.app.theme = theme
        keep = self._other("_keep_theme")
        self.run_worker(lambda: keep(theme), thread=True, group="theme", exit_on_error=False)

    def _do_search(self, words: str, session_id: str) -> None:
        self._other("action_search")(words)

    async def _do_tools(self, word: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import on_or_off
        from ds4chat.ui.wording import tools_line

        on = on_or_off(word)
        if on is not None:
            self.manager.set_tools(session_id, on)
        listed = ", ".join(f"{tool.name} ({tool.where})" for tool in await self.manager.tools())
        text = f"{tools_line(self.manager.has_tools_on(session_id))} There are: {listed or 'none'}."
        note = self._views.note(session_id, text, "information")
        if session_id == self.current_id:
            self.transcript.add_note(note)

    def _do_compact(self, how: str, session_id: str) -> None:
        if how.strip().lower() == "undo":
            self.manager.undo_compact(session_id)
        else:
            self.manager.compact(session_id, how)

    def _do_uncompact(self, _: str, session_id: str) -> None:
        self.manager.undo_compact(session_id)

    def _do_edit(self, number: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import message_of

        self._other("begin_edit")(message_of(self.manager.open_session(session_id), number, "user").id)

    def _do_quote(self, _: str, session_id: str) -> None:
        from ds4chat.sessions.reasoning import visible_answer
        from ds4chat.ui.command_arguments import message_of

        said = visible_answer(message_of(self.manager.open_session(session_id), "", "assistant").text)
        self.prompt.put("\n".join(f"> {line}".rstrip() for line in said.split("\n")) + "\n\n")

    def _do_branch(self, argument: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import branch_of

        self.manager.choose_branch(session_id, branch_of(self.manager.open_session(session_id), argument).id)

    def _do_drop(self, argument: str, session_id: str) -> None:
        from ds4chat.ui.command_arguments import message_of

        self._other("drop_turn")(message_of(self.manager.open_session(session_id), argument).id)

    def _do_attach(self, path: str, session_id: str) -> None:
        found = attachments.mentions(attachments.mention_of(path))
        if not found:
            raise UsageError(f"There is no file {path}.")
        attachments.read(found[0])
        self.prompt.put(attachments.mention_of(path) + " ")

    def _other(self, name: str) -> Callable[..., object]:
        """A method of another part of the chat screen."""
        method: Callable[..., object] = getattr(self, name)
        return method
