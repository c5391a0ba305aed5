"""Personas on the screen: looking, giving one to a chat, writing, changing, deleting, and files that are faulty."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Input, Static, TextArea

from ds4chat.errors import Ds4chatError
from ds4chat.personas import SHIPPED, Persona
from tests.ui.driving import running
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager
from tests.ui.panels import Panels, panels

TEACHER = next(persona for persona in SHIPPED if persona.name == "Teacher")


def preview(p: Panels) -> str:
    return str(p.top.query_one("#system", Static).render())


class TestPersonas:
    async def test_the_one_under_the_cursor_is_shown(self) -> None:
        async with panels(params={"persona": "Teacher"}) as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.until(lambda: p.rows.current == "Teacher")
            assert p.mark("Teacher") == "●" and p.words == "This chat has it."
            await p.until(lambda: TEACHER.system in preview(p) and "temperature=0.6" in preview(p))
            await p.press("up")
            await p.until(lambda: "experienced programmer" in preview(p))

    async def test_giving_one_to_this_chat(self) -> None:
        async with panels(tokens=1234, params={"seed": 3}) as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.go_to("Teacher")
            await p.until_words("1,234 tokens of this chat will be computed again, about 12 s.")
            await p.press("enter")
            await p.until(lambda: p.top is p.chat.screen)
            assert p.session.system == TEACHER.system
            assert p.session.params == {"seed": 3, "temperature": 0.6, "persona": "Teacher"}
            await p.until(lambda: "persona Teacher" in p.chat.status)

    async def test_it_shows_in_the_settings_and_can_be_taken_away_there(self) -> None:
        async with panels(params={"persona": "Teacher", "temperature": 0.6}, system=TEACHER.system) as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("system")[2] == "persona Teacher")
            await p.go_to("persona")
            await p.press("delete")
            await p.until(lambda: p.cells("persona")[1] == "none")
            assert p.session.system == "" and p.session.params == {}

    async def test_a_new_one_begins_with_what_this_chat_has(self) -> None:
        async with panels(params={"temperature": 0.4}, system="Answer in rhyme.") as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.press("n")
            await p.until_top("PersonaForm")
            assert p.top.query_one("#params", Input).value == "temperature=0.4"
            assert p.top.query_one("#text", TextArea).text == "Answer in rhyme."
            await p.press(*"Poet", "ctrl+s")
            await p.until_top("PersonasScreen")
            await p.until(lambda: p.rows.current == "Poet")
            assert p.desk.own["Poet"].system == "Answer in rhyme."
            assert p.desk.own["Poet"].params == {"temperature": 0.4}

    async def test_what_cannot_be_is_said_and_stays_as_it_was_typed(self) -> None:
        async with panels() as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.press("n")
            await p.until_top("PersonaForm")
            await p.press("ctrl+s")
            await p.until_words("name must be a name of 1 to 60 characters")
            p.top.query_one("#name", Input).value = "X"
            for line, words in (
                ("threads=3", 'no parameter "threads": allowed are ctx, temperature'),
                ("top_p=7", "top_p must be a number from 0 to 1, not 7."),
                ("seed", "seed must be a whole number"),
            ):
                p.top.query_one("#params", Input).value = line
                await p.press("ctrl+s")
                await p.until_words(words)
            assert p.desk.own == {} and p.top.query_one("#params", Input).value == "seed"
            await p.press("escape")
            await p.until_words("Esc again")
            await p.press("escape")
            await p.until_top("PersonasScreen")

    async def test_changing_one_and_deleting_it(self) -> None:
        desk = FakeDesk()
        desk.own["Cook"] = Persona("Cook", "You cook.", {}, Path("/p/cook.toml"))
        async with panels(desk) as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.go_to("Cook")
            await p.press("e")
            await p.until_top("PersonaForm")
            await p.press("!", "ctrl+s")
            await p.until_top("PersonasScreen")
            await p.until(lambda: desk.own["Cook"].system == "You cook.!")
            await p.until(lambda: "You cook.!" in preview(p))
            await p.press("d")
            await p.until_top("ConfirmScreen")
            await p.press("n")
            await p.until_top("PersonasScreen")
            await p.press("d")
            await p.until_top("ConfirmScreen")
            await p.press("y")
            await p.until(lambda: desk.own == {})

    async def test_a_shipped_one_is_not_deleted(self) -> None:
        async with panels() as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.go_to("Editor")
            await p.press("d")
            await p.until_words("Editor comes with ds4chat")

    async def test_what_was_written_survives_a_full_disk(self) -> None:
        async with panels() as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.press("n")
            await p.until_top("PersonaForm")
            await p.press(*"Poet", "tab", "tab", *"Rhyme")
            p.desk.refuse = Ds4chatError(
                "The persona Poet cannot be saved (no space): see to it and try again."
            )
            form = p.top
            await p.press("ctrl+s")
            await p.until(lambda: type(p.top).__name__ == "PersonaForm" and p.top is not form)
            await p.chat.pilot.pause()
            assert p.top.query_one("#text", TextArea).text == "Rhyme"
            p.desk.refuse = None
            await p.press("ctrl+s")
            await p.until(lambda: "Poet" in p.desk.own)

    async def test_a_faulty_file_is_told_once(self) -> None:
        desk = FakeDesk()
        desk.faults = ["The persona /p/x.toml has a fault: system must be a string, not of type int."]
        async with panels(desk) as p:
            for expected in (1, 1):
                await p.press("alt+p")
                await p.until_top("PersonasScreen")
                await p.until(lambda: len(p.rows.rows) == 3)
                told = [n.message for n in p.chat.app._notifications if "/p/x.toml" in n.message]
                assert len(told) == expected
                await p.press("escape")

    async def test_a_read_only_chat_gets_none(self) -> None:
        manager = FakeManager()
        session = manager.make("Elsewhere", ["q", "r"])
        manager.locked.add(session.id)
        async with running(manager, session_id=session.id, desk=FakeDesk()) as chat:
            p = Panels(chat, FakeDesk(), session)
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.go_to("Teacher")
            await p.press("enter")
            await p.until_words("read only")
            assert session.params == {}

    async def test_at_40_by_10_list_and_preview_are_both_there(self) -> None:
        async with panels(size=(40, 10)) as p:
            await p.press("alt+p")
            await p.until_top("PersonasScreen")
            await p.go_to("Teacher")
            assert p.rows.size.height >= 2 and p.top.query_one("#preview").size.height >= 2
            assert "Esc closes" in p.keys
            await p.press("e")
            await p.until_top("PersonaForm")
            assert p.top.query_one("#text").size.height >= 2
