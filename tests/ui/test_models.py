"""The model picker: what it lists, what it says before and after a choice, and what cannot be chosen."""

from __future__ import annotations

from ds4chat.errors import ModelError
from ds4chat.ui.desk import ModelChoice
from ds4chat.ui.screens.models import ModelsScreen
from tests.ui.driving import running
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager
from tests.ui.panels import panels

SMOL, QWEN, GEMMA, HALF = (model.path for model in FakeDesk().listed)


class TestModels:
    async def test_each_file_is_listed_with_what_it_says_of_itself(self) -> None:
        async with panels(model_path=QWEN) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == 4)
            assert p.cells(QWEN) == ("Qwen3-4B-Instruct-Q4_K_M", "Q4_K_M", "2.5 GB", "256k", "models folder")
            assert (p.mark(QWEN), p.mark(SMOL), p.mark(GEMMA), p.mark(HALF)) == ("●", "○", " ", "✗")
            assert p.rows.current == QWEN
            assert p.words == f"In use in this chat.\n{QWEN}"
            assert any("half-[loaded]" in line for line in p.shown())

    async def test_choosing_another_in_mid_chat_says_what_happens(self) -> None:
        async with panels(model_path=SMOL, tokens=900) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.go_to(GEMMA)
            await p.until_words("With another model the chat is computed once (900 tokens)")
            await p.press("enter")
            await p.until(lambda: p.top is p.chat.screen)
            assert p.session.model_path == GEMMA
            await p.until(lambda: "the chat is computed once with the new model" in p.chat.status)

    async def test_in_an_empty_chat_there_is_nothing_to_compute(self) -> None:
        manager = FakeManager()
        async with running(manager, desk=FakeDesk()) as chat:
            await chat.pilot.press("alt+m")
            await chat.until(lambda: isinstance(chat.app.screen, ModelsScreen))
            await chat.until(lambda: len(chat.app.screen.query_one("#models").rows) == 4)  # type: ignore[attr-defined]
            await chat.pilot.press("end", "up", "enter")
            await chat.until(lambda: chat.app.screen is chat.screen)
            assert manager.sessions[chat.screen.current_id].model_path == GEMMA
            await chat.until(lambda: "next message" in chat.status)

    async def test_a_file_that_cannot_be_used_is_not_chosen(self) -> None:
        async with panels(model_path=SMOL) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.go_to(HALF)
            await p.press("enter")
            await p.until_words(f"{HALF} is not a GGUF file: choose another.")
            await p.press("d")
            await p.until_words("cannot be used")
            assert p.session.model_path == SMOL and p.desk.saved == []

    async def test_a_model_that_is_gone_is_shown_so(self) -> None:
        async with panels(model_path="/m/gone.gguf") as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == 5)
            assert p.rows.current == "/m/gone.gguf" and p.mark("/m/gone.gguf") == "✗"
            assert p.cells("/m/gone.gguf")[2] == "gone"
            await p.until_words("/m/gone.gguf is not there.")

    async def test_a_model_for_all_new_chats(self) -> None:
        async with panels(model_path=SMOL) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.go_to(QWEN)
            await p.press("d")
            await p.until(lambda: p.desk.saved == [("model", "path", QWEN)])
            assert p.session.model_path == SMOL

    async def test_finding_by_a_part_of_the_name(self) -> None:
        async with panels(model_path=SMOL) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == 4)
            await p.press("slash", *"q4_k gem")
            await p.until(lambda: [row.key for row in p.rows.rows] == [GEMMA])
            await p.press("x")
            await p.until(lambda: any("No model has these letters" in line for line in p.shown()))
            await p.press("escape")
            await p.until(lambda: len(p.rows.rows) == 4)
            await p.press("escape")
            await p.until(lambda: p.top is p.chat.screen)

    async def test_when_nothing_is_found_the_way_out_is_said(self) -> None:
        desk = FakeDesk()
        desk.listed = []
        async with panels(desk) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: any("put a GGUF file into the models folder" in line for line in p.shown()))
            await p.press("enter", "d", "down")

    async def test_failures_are_said(self) -> None:
        async with panels() as p:
            p.desk.refuse = ModelError("The models cannot be listed (denied).")
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until_words("The models cannot be listed (denied).")

    async def test_hundreds_of_models_and_wide_names_at_40_by_10(self) -> None:
        desk = FakeDesk()
        desk.listed += [ModelChoice(f"模型-{n}", f"/m/{n}.gguf", 10**9) for n in range(300)]
        async with panels(desk, size=(40, 10)) as p:
            await p.press("alt+m")
            await p.until_top("ModelsScreen")
            await p.until(lambda: len(p.rows.rows) == 304)
            await p.press("end")
            await p.until(lambda: any("模型-299" in line and "1.0 GB" in line for line in p.shown()))
            assert "Esc closes" in p.keys
