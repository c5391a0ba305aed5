"""The keys in a panel's border: those that work now, as they are set, and no more than there is room for."""

from __future__ import annotations

from rich.cells import cell_len

from tests.ui.panels import panels


class TestPanelKeys:
    async def test_keys_that_were_changed_are_shown_and_work(self) -> None:
        async with panels(params={"top_k": 3}) as p:
            p.chat.app.set_keymap({"settings.reset": "x", "rows.down": "s", "settings.close": "q"})
            await p.press("alt+s")
            await p.until_top("SettingsScreen")
            await p.until(lambda: "x resets" in p.top.query_one("#panel").border_subtitle)
            while p.rows.current != "top_k":
                await p.press("s")
            await p.press("x")
            assert p.session.params == {}
            await p.press("q")
            await p.until(lambda: p.top is p.chat.screen)

    async def test_at_every_width_the_way_out_is_there_and_nothing_is_cut(self) -> None:
        for width in (36, 50, 70, 120):
            async with panels(size=(width, 16)) as p:
                await p.press("alt+k")
                await p.until_top("CheckpointsScreen")
                await p.until(lambda: "Esc closes" in p.keys)
                box = p.top.query_one("#panel")
                line = "".join(
                    segment.text for segment in p.top._compositor.render_strips()[box.region.bottom - 1]
                )
                assert "Esc closes" in line and "…" not in line and cell_len(line) == width

    async def test_every_key_in_the_border_can_be_clicked(self) -> None:
        async with panels() as p:
            await p.press("alt+k")
            await p.until_top("CheckpointsScreen")
            await p.until(lambda: "b budget" in p.keys and len(p.rows.rows) == 3)
            y = p.top.query_one("#panel").region.bottom - 1
            found = [p.top.get_style_at(x, y).meta.get("@click") for x in range(p.top.size.width)]
            await p.chat.pilot.click(offset=(found.index("screen.budget"), y))
            await p.until_top("AskScreen")
