"""The list of the panels: moving, headings, columns, and that nothing in a cell is read as markup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult

from ds4chat.ui.widgets.row_list import Column, ListRow, RowList

COLUMNS = (Column(), Column(5, right=True), Column(8, need=40))


class ListApp(App[None]):
    def __init__(self, rows: list[ListRow]) -> None:
        super().__init__()
        self.listed, self.messages = rows, list[tuple[str, str]]()

    def compose(self) -> ComposeResult:
        yield RowList(COLUMNS, empty="Nothing")

    def on_mount(self) -> None:
        self.query_one(RowList).set_rows(self.listed)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        self.messages.append(("listed" if message.listed else "moved", message.key))

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self.messages.append(("chosen", message.key))


def row(key: str) -> ListRow:
    return ListRow(key, (f"row {key}", "1", "note"))


def heading(text: str) -> ListRow:
    return ListRow("", (text, "", ""), heading=True)


@asynccontextmanager
async def listing(
    rows: list[ListRow], size: tuple[int, int] = (50, 6)
) -> AsyncIterator[tuple[ListApp, RowList]]:
    app = ListApp(rows)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.pilot = pilot  # type: ignore[attr-defined]
        yield app, app.query_one(RowList)


def lines(listed: RowList) -> list[str]:
    return [listed.render_line(y).text.rstrip() for y in range(listed.size.height)]


class TestRowList:
    async def test_headings_are_passed_over_in_both_directions_and_stay_in_view(self) -> None:
        rows = [heading("One"), row("a"), heading("Two"), heading("Three"), row("b"), row("c")]
        async with listing(rows, (50, 3)) as (app, listed):
            assert listed.current == "a"
            await app.pilot.press("down")  # type: ignore[attr-defined]
            assert listed.current == "b" and lines(listed)[-1].startswith("▸ row b")
            await app.pilot.press("down", "down", "up", "up", "up")  # type: ignore[attr-defined]
            assert listed.current == "a" and lines(listed)[0] == "One"
            await app.pilot.press("end")  # type: ignore[attr-defined]
            assert listed.current == "c"
            await app.pilot.press("pageup", "pageup", "pagedown", "home")  # type: ignore[attr-defined]
            assert listed.current == "a"

    async def test_every_row_has_the_width_of_the_list_and_wide_letters_count_twice(self) -> None:
        rows = [
            ListRow("w", ("寿司" * 40, "12345678", "x" * 30)),
            ListRow("m", ("[b]a[/b]\x1b[31m\u202e", "1", "")),
        ]
        for width in (10, 39, 40, 100):
            async with listing(rows, (width, 4)) as (_, listed):
                assert {listed.render_line(y).cell_length for y in range(4)} == {width}
                if width >= 40:
                    assert "[b]a[/b]␛[31m<U+202E>" in lines(listed)[1]
                shown = "x" in lines(listed)[0]
                assert shown == (width >= 40)

    async def test_the_cursor_stays_on_its_row_when_others_are_set(self) -> None:
        async with listing([row(key) for key in "abcd"]) as (app, listed):
            await app.pilot.press("down", "down")  # type: ignore[attr-defined]
            listed.set_rows([row(key) for key in "xabcd"])
            assert listed.current == "c"
            listed.set_rows([row(key) for key in "xy"])
            assert listed.current == "y"
            listed.set_rows([])
            assert listed.current == "" and lines(listed)[0] == "  Nothing"
            await app.pilot.press("enter", "down", "pagedown", "end")  # type: ignore[attr-defined]
            listed.set_rows([heading("Only")])
            await app.pilot.press("enter", "down", "end")  # type: ignore[attr-defined]
            await app.pilot.pause()  # type: ignore[attr-defined]
            assert app.messages == [
                ("listed", "a"),
                ("moved", "b"),
                ("moved", "c"),
                ("listed", "y"),
                ("listed", ""),
            ]

    async def test_choosing_by_key_and_by_mouse(self) -> None:
        async with listing([heading("One"), row("a"), row("b")]) as (app, listed):
            await app.pilot.press("enter")  # type: ignore[attr-defined]
            await app.pilot.click(listed, offset=(3, 0))  # type: ignore[attr-defined]
            await app.pilot.click(listed, offset=(3, 2))  # type: ignore[attr-defined]
            await app.pilot.click(listed, offset=(3, 2))  # type: ignore[attr-defined]
            await app.pilot.click(listed, offset=(3, 5))  # type: ignore[attr-defined]
            assert app.messages == [("listed", "a"), ("chosen", "a"), ("moved", "b"), ("chosen", "b")]
