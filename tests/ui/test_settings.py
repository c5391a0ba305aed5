"""The settings panel: values and where they come from, changing and resetting them, for this chat and for all."""

from __future__ import annotations

import pytest
from textual.widgets import Static, TextArea

from ds4chat.errors import UsageError
from ds4chat.sessions.session import Message
from ds4chat.ui.screens.amounts import bar, prefill_rate, recompute_words, size_words, tokens_words
from ds4chat.ui.screens.settings import SettingsScreen
from tests.ui.driving import running
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager
from tests.ui.panels import panels


class TestThisChat:
    async def test_each_value_is_shown_with_where_it_comes_from(self) -> None:
        desk = FakeDesk()
        desk.values["sampling", "top_k"] = "20"
        desk.flags["sampling", "seed"] = ("7", "--seed")
        params = {"temperature": 0.6, "top_p": 0.5, "persona": "Teacher"}
        async with panels(desk, params=params, system="Be brief.") as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("top_k")[2] == "config.toml")
            assert p.cells("seed")[2] == "--seed"
            assert p.cells("temperature") == ("Temperature", "0.6", "persona Teacher")
            assert p.cells("top_p") == ("Top p", "0.5", "this chat")
            assert p.cells("min_p") == ("Min p", "0.05", "default")
            assert p.cells("system") == ("System prompt", "Be brief.", "this chat")
            assert p.cells("ctx")[1] == "8,192 tokens"
            assert p.cells("max_tokens")[1] == "no limit"
            assert p.mark("top_p") == "●" and p.mark("min_p") == " "

    async def test_a_value_is_set_and_reset(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to("temperature")
            await p.press("enter")
            await p.until_top("AskScreen")
            await p.type("0.3")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            assert p.session.params == {"temperature": 0.3}
            assert p.cells("temperature")[1:] == ("0.3", "this chat")
            assert "next reply" in p.words
            await p.press("delete")
            assert p.session.params == {}
            assert p.cells("temperature")[1:] == ("0.8", "default")

    @pytest.mark.parametrize(
        ("key", "typed", "words"),
        [
            ("temperature", "9", "temperature must be a number from 0 to 5, not 9."),
            ("top_k", "1.5", "top_k must be a whole number from 0 to 1000000, not 1.5."),
            ("seed", "[red]x", "seed must be a whole number from 0 to 4294967294, not [red]x."),
            ("ctx", "12", "ctx must be a whole number of tokens from 64 up, not 12."),
            ("min_p", "nan", "min_p must be a number from 0 to 1, not nan."),
        ],
    )
    async def test_a_value_that_cannot_be_is_said_and_what_was_typed_stays(
        self, key: str, typed: str, words: str
    ) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to(key)
            await p.press("enter")
            await p.until_top("AskScreen")
            await p.type(typed)
            await p.press("enter")
            await p.until_words(words)
            assert p.session.params == {}
            await p.press("escape")
            await p.until_top("SettingsScreen")

    async def test_nothing_typed_means_as_in_all_chats(self) -> None:
        async with panels(params={"seed": 5}) as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to("seed")
            await p.press("enter")
            await p.until_top("AskScreen")
            await p.type("")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            assert p.session.params == {}

    async def test_a_changed_system_prompt_says_what_it_costs_before_it_is_saved(self) -> None:
        async with panels(tokens=1234, system="Be brief.") as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to("system")
            await p.press("enter")
            await p.until_top("TextScreen")
            assert p.words == ""
            await p.press("!")
            await p.until_words("1,234 tokens of this chat will be computed again, about 12 s.")
            assert p.session.system == "Be brief."
            await p.press("ctrl+s")
            await p.until_top("SettingsScreen")
            assert p.session.system == "Be brief.!"

    async def test_a_changed_text_is_thrown_away_only_when_asked_twice(self) -> None:
        async with panels(system="Be brief.") as p:
            await p.press("alt+y")
            await p.until_top("TextScreen")
            await p.press("x", "escape")
            await p.until_words("Esc again")
            assert p.top.query_one(TextArea).text == "Be brief.x"
            await p.press("escape")
            await p.until(lambda: p.top is p.chat.screen)
            assert p.session.system == "Be brief."

    async def test_model_and_persona_of_this_chat_are_picked_from_their_lists(self) -> None:
        async with panels(tokens=80) as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to("model")
            await p.press("enter")
            await p.until_top("ModelsScreen")
            await p.go_to("/o/blobs/sha256-aeda25e6")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            await p.until_words("The chat is computed once with the new model.")
            assert p.session.model_path == "/o/blobs/sha256-aeda25e6"
            await p.go_to("persona")
            await p.press("enter")
            await p.until_top("PersonasScreen")
            await p.go_to("Programmer")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("temperature")[1:] == ("0.2", "persona Programmer"))
            assert p.cells("persona")[1:] == ("Programmer", "this chat")

    async def test_what_changes_meanwhile_is_shown(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            p.chat.manager.set_params(p.session.id, {"top_k": 3})
            await p.until(lambda: p.cells("top_k")[1:] == ("3", "this chat"))

    async def test_a_read_only_chat_shows_its_settings_and_keeps_them(self) -> None:
        manager = FakeManager()
        session = manager.make("Elsewhere", ["q", "r"])
        manager.locked.add(session.id)
        async with running(manager, session_id=session.id, desk=FakeDesk()) as chat:
            await chat.pilot.press("alt+s")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            await chat.pilot.press("down", "down", "enter")
            words = chat.app.screen.query_one("#words", Static)
            await chat.until(lambda: "read only" in str(words.render()))
            await chat.pilot.press("delete")
            assert session.system == ""

    async def test_without_a_desk_there_is_this_chat_alone(self) -> None:
        manager = FakeManager()
        session = manager.make("A", ["q", "r"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press("alt+m", "alt+k", "alt+p")
            assert chat.app.screen is chat.screen
            await chat.pilot.press("alt+s")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            parts = chat.app.screen.query_one("#parts", Static)
            assert "All chats" not in str(parts.render())


class TestAllChats:
    async def test_a_value_goes_into_the_configuration_and_out_again(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.press("tab")
            await p.go_to("sampling.top_k")
            await p.until_words("sampling.top_k must be a whole number from 0 to 1000000.")
            await p.press("enter")
            await p.until_top("AskScreen")
            await p.type("-1")
            await p.press("enter")
            await p.until_words("top_k must be")
            await p.type("30")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("sampling.top_k") == ("top_k", "30", "config.toml"))
            assert "next start" in p.words and p.mark("sampling.top_k") == "●"
            await p.press("r")
            await p.until(lambda: p.cells("sampling.top_k") == ("top_k", "not set", "default"))
            assert p.desk.saved == [("sampling", "top_k", "30"), ("sampling", "top_k", None)]

    async def test_true_and_false_change_places_at_once(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.press("right")
            await p.go_to("kv.enabled")
            await p.press("enter")
            await p.until(lambda: p.desk.saved == [("kv", "enabled", "false")])
            await p.press("left")
            assert p.rows.rows[0].key == "model"

    async def test_model_and_persona_are_picked_from_their_lists(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.press("tab")
            await p.go_to("model.path")
            await p.press("enter")
            await p.until_top("ModelsScreen")
            await p.go_to("/o/blobs/sha256-aeda25e6")
            await p.until_words("New chats begin with it.")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("model.path")[1] == "/o/blobs/sha256-aeda25e6")
            await p.go_to("chat.persona")
            await p.press("enter")
            await p.until_top("PersonasScreen")
            await p.go_to("Editor")
            await p.press("enter")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.cells("chat.persona")[1:] == ("Editor", "config.toml"))
            assert p.session.params == {} and p.session.model_path == ""

    async def test_a_long_text_is_written_on_several_lines(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.press("tab")
            await p.go_to("chat.system")
            await p.press("enter")
            await p.until_top("TextScreen")
            await p.press("a", "enter", "b", "ctrl+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: p.desk.saved == [("chat", "system", "a\nb")])

    async def test_a_flag_that_wins_is_named(self) -> None:
        desk = FakeDesk()
        desk.flags["model", "threads"] = ("4", "--threads")
        async with panels(desk) as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.press("tab")
            await p.go_to("model.threads")
            await p.until_words("--threads wins in this run.")

    async def test_what_cannot_be_saved_is_said(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            p.desk.refuse = UsageError("The configuration /c cannot be written (no space): see to it.")
            await p.press("tab")
            await p.go_to("chat.bell")
            await p.press("enter")
            await p.until_words("The configuration /c cannot be written (no space)")


class TestMouseAndSize:
    async def test_the_parts_and_the_keys_in_the_border_can_be_clicked(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: bool(p.top.chat.config))
            await p.chat.pilot.click("#parts", offset=(16, 0))
            await p.until(lambda: p.top.all_chats)
            box = p.top.query_one("#panel")
            y = box.region.bottom - 1
            row = [p.top.get_style_at(x, y).meta.get("@click") for x in range(p.top.size.width)]
            await p.chat.pilot.click(offset=(row.index("screen.dismiss(None)"), y))
            await p.until(lambda: p.top is p.chat.screen)

    async def test_a_click_moves_and_a_second_one_changes(self) -> None:
        async with panels() as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            line = [row.key for row in p.rows.rows].index("top_p")
            await p.chat.pilot.click(p.rows, offset=(5, line))
            assert p.rows.current == "top_p"
            await p.chat.pilot.click(p.rows, offset=(5, line))
            await p.until_top("AskScreen")

    async def test_at_40_by_10_names_values_and_keys_can_be_read(self) -> None:
        async with panels(size=(40, 10), params={"temperature": 0.25}) as p:
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.go_to("temperature")
            assert any("Temperature" in line and "0.25" in line for line in p.shown())
            await p.until(lambda: "Enter changes" in p.keys and "Esc closes" in p.keys)
            await p.press("enter")
            await p.until_top("AskScreen")
            assert p.top.query_one("#panel").region.bottom <= 10


class TestWords:
    def test_sizes_and_lengths(self) -> None:
        assert [size_words(n) for n in (0, 999, 1500, 98_000_000, 2_497_000_000, 32 * 10**9)] == [
            "0 B", "999 B", "2 kB", "98 MB", "2.5 GB", "32 GB",
        ]  # fmt: skip
        assert [tokens_words(n) for n in (512, 1234, 8192, 131072, 45_000)] == [
            "512",
            "1.2k",
            "8k",
            "128k",
            "45k",
        ]

    def test_the_cost_of_a_change(self) -> None:
        reply = Message(2, 1, "assistant", "x", stats={"prefilled_tokens": 200, "prefill_ms": 4000.0})
        assert prefill_rate([Message(1, None, "user", "q"), reply]) == 50
        assert recompute_words(0, 50) == ""
        assert recompute_words(1, 0) == "1 token of this chat will be computed again."
        assert (
            recompute_words(30_000, 50) == "30,000 tokens of this chat will be computed again, about 10 min."
        )

    def test_a_bar_shows_the_least_and_never_overflows(self) -> None:
        assert (bar(0, 4), bar(0.001, 4), bar(0.5, 4), bar(7, 4)) == ("░░░░", "█░░░", "██░░", "████")
