"""Pictures of the screen, compared with those that were looked at and found good.

They are made with one version of Textual on one Python, and compared with those alone: elsewhere an SVG differs for
reasons that are none of ours. `pytest tests/ui/test_snapshots.py --snapshot-update` makes them again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from ds4chat.ui.app import ChatApp
from tests.ui.driving import THEMES
from tests.ui.fake_desk import FakeDesk
from tests.ui.fake_manager import FakeManager

PINNED = {"textual": "8.2.8", "rich": "15.0.0", "pygments": "2.21.0"}
PYTHON = (3, 11)

NOON = 1_796_040_000.0
"""The time in all pictures: ages and days follow from it."""

REPLY = """# Sorting

A *stable* sort keeps equal elements **in order**:

```python
def by_age(people: list[Person]) -> list[Person]:
    return sorted(people, key=lambda p: p.age)  # stable
```

| method | stable | cost |
|---|---|---|
| merge | yes | n log n |
| heap | no | n log n |

- `sorted` is stable, see [the docs](https://docs.python.org/3/howto/sorting.html)
- 排序 and مرحبا and 🙂 stay whole
"""

Step = Callable[[Pilot[str], ChatApp], Awaitable[None]]
Compare = Callable[..., bool]

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != PYTHON or any(version(name) != wanted for name, wanted in PINNED.items()),
    reason=f"pictures are of Python {PYTHON} with {PINNED}",
)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOON)


def filled() -> FakeManager:
    manager = FakeManager()
    manager.make("How do I sort a list?", ["How do I sort a list of people by age, and is it stable?", REPLY])
    ages = {"A tide table": 3_600, "Fold [b]the[/b] dough": 90_000, "Lisbon in three days": 5 * 86_400}
    for title, age in ages.items():
        manager.make(title, ["When is high water?", "At six."] * 2, updated=NOON - age)
    return manager


def shown(
    snap_compare: Compare,
    *steps: Step,
    size: tuple[int, int] = (80, 24),
    theme: str = "harbor",
    manager: FakeManager | None = None,
) -> bool:
    """Whether the screen, after the steps, looks as it did."""
    manager = manager or filled()
    app = ChatApp(
        manager,  # type: ignore[arg-type]
        session_id=next(iter(manager.sessions)),
        theme=theme,
        theme_directories=[THEMES],
        desk=FakeDesk(),  # type: ignore[arg-type]
    )

    async def prepare(pilot: Pilot[str]) -> None:
        await settle(pilot, lambda: app.chat.current_id != "" and app.chat.transcript.is_mounted)
        app.chat.prompt.cursor_blink = False
        await pilot.pause(0.2)
        for step in steps:
            await step(pilot, app)
            for field in app.screen.query(Input):
                field.cursor_blink = False
            await pilot.pause(0.2)

    return snap_compare(app, terminal_size=size, run_before=prepare)


async def settle(pilot: Pilot[str], condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came to hold")


def press(*keys: str) -> Step:
    async def step(pilot: Pilot[str], app: ChatApp) -> None:
        await pilot.press(*keys)

    return step


def write(text: str) -> Step:
    async def step(pilot: Pilot[str], app: ChatApp) -> None:
        await pilot.press(*("space" if c == " " else "slash" if c == "/" else c for c in text))

    return step


def opened(name: str) -> Step:
    async def step(pilot: Pilot[str], app: ChatApp) -> None:
        await settle(pilot, lambda: type(app.screen).__name__ == name)

    return step


@pytest.mark.parametrize("theme", ["harbor", "paper"])
@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_a_chat(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    assert shown(snap_compare, press("ctrl+home"), size=size, theme=theme)


def test_a_chat_in_a_very_small_window(snap_compare: Compare) -> None:
    assert shown(snap_compare, size=(40, 10))


def test_a_chosen_message_with_branches(snap_compare: Compare) -> None:
    manager = filled()
    session = next(iter(manager.sessions.values()))
    manager.regenerate(session.id, session.path()[-1].id)
    manager.begin()
    manager.stream("Use `sorted`: it is stable.")
    manager.finish()
    assert shown(snap_compare, press("tab"), manager=manager)


def test_folded_reasoning(snap_compare: Compare) -> None:
    manager = FakeManager()
    manager.make("Two and two", ["What is two and two?", "<think>Two and two are\nfour.</think>Four."])
    assert shown(snap_compare, manager=manager)


def test_the_commands(snap_compare: Compare) -> None:
    assert shown(snap_compare, write("/s"))


def test_the_switcher(snap_compare: Compare) -> None:
    assert shown(snap_compare, press("ctrl+o"), opened("SwitcherScreen"), write("tid"))


def test_the_search(snap_compare: Compare) -> None:
    async def found(pilot: Pilot[str], app: ChatApp) -> None:
        await settle(pilot, lambda: "6 in 3" in str(app.screen.query_one("#search-state", Static).render()))
        await pilot.pause(0.8)

    assert shown(snap_compare, press("ctrl+f"), opened("SearchScreen"), write("high"), found)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("alt+s", "SettingsScreen"),
        ("alt+m", "ModelsScreen"),
        ("alt+p", "PersonasScreen"),
        ("alt+k", "CheckpointsScreen"),
        ("alt+l", "ThemesScreen"),
        ("f1", "HelpScreen"),
    ],
)
def test_a_panel(snap_compare: Compare, key: str, name: str) -> None:
    async def filled_in(pilot: Pilot[str], app: ChatApp) -> None:
        await pilot.pause(0.4)

    assert shown(snap_compare, press(key), opened(name), filled_in)
