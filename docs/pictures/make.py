"""Draw the pictures in docs/pictures from the program itself: `python docs/pictures/make.py [NAME...]`.

The real screen over a real session database in a temporary folder, filled with the sample sessions. Only the engine
is not started, and no checkpoints are on disk: what would be told of them is written down here, so that the pictures
are the same each time and need no model.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from ds4chat.cli import cli
from ds4chat.cli_setup import Setup
from ds4chat.desk import FileDesk
from ds4chat.engine.protocol import Sampling
from ds4chat.paths import shipped
from ds4chat.sessions import events as ev
from ds4chat.sessions.database import Database
from ds4chat.sessions.interchange import import_file
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.sessions.session import SessionInfo
from ds4chat.ui.app import ChatApp
from ds4chat.ui.desk import CheckpointReport, CheckpointRow
from ds4chat.ui.themes import theme_directories

FOLDER = Path(__file__).parent
SIZE = (120, 36)

MODEL, N_CTX = "SmolLM2-135M-Instruct.Q4_1", 8192
SHOWN = "code-review"
RESTORED_TOKENS, RESTORED_MS = 934, 20.0
"""As measured with the starter model."""
AGES = {"code-review": 180, "lighthouse": 5400, "lisbon-trip": 93_600, "bread": 6 * 86_400}
"""Seconds since each sample session was used last."""
TOKENS = {"code-review": 934, "lighthouse": 6751, "lisbon-trip": 1498, "bread": 1203}
"""In the context of each, and on disk; the last is not on disk any more."""
BYTES_A_TOKEN = 23_040
TOKENS_A_SECOND_BACK = 150_000
"""Of the starter model: KV rows of f16, and how fast they come back."""
PINNED = "lighthouse"

FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class StagedManager(SessionManager):
    """A session manager whose engine is always ready and computes nothing."""

    @property
    def engine(self) -> ev.EngineStatus:
        return ev.EngineStatus("ready", MODEL, 1.0, N_CTX)

    async def start_engine(self) -> None:
        self._emit(ev.EngineChanged(self.engine))

    def restore_ms(self, info: SessionInfo) -> float | None:
        return None if info.tokens == TOKENS["bread"] else 1000 * info.tokens / TOKENS_A_SECOND_BACK

    live = ""

    @property
    def live_session(self) -> str:
        return self.live

    def show_restored(self, session_id: str) -> None:
        """What the engine says when it brought a session back from disk."""
        self.live = session_id
        self._emit(ev.ContextRestored(session_id, RESTORED_TOKENS, RESTORED_MS))
        self._emit(ev.ContextUsed(session_id, RESTORED_TOKENS, N_CTX))


class StagedDesk(FileDesk):
    """The desk of the program, with the checkpoints that the sample sessions would have."""

    def __init__(self, setup: Setup, flags: dict[str, Any], ids: dict[str, str]) -> None:
        super().__init__(setup, flags)
        self._ids = ids

    def checkpoints(self) -> CheckpointReport:
        rows = []
        with self._setup.database() as database:
            for name, age in AGES.items():
                tokens = TOKENS[name] if name != "bread" else 0
                title = database.load_session(self._ids[name]).title
                row = CheckpointRow(
                    self._ids[name],
                    title,
                    tokens,
                    tokens * BYTES_A_TOKEN,
                    time.time() - age,
                    name == PINNED,
                    "",
                    tokens,
                )
                rows += [row] if tokens else []
        rows.sort(key=lambda row: -row.bytes)
        return CheckpointReport(rows, sum(row.bytes for row in rows), 2_000_000_000, "~/.cache/ds4chat/kv")


def fill(data_dir: Path) -> dict[str, str]:
    """Put the sample sessions into a database; their ids by name."""
    ids: dict[str, str] = {}
    with Database(data_dir / "sessions.db") as database:
        for name, age in AGES.items():
            session = import_file(shipped("sample_sessions") / f"{name}.toml")
            session.updated = time.time() - age
            session.model = MODEL
            session.tokens = TOKENS[name]
            for message in session.messages.values():
                message.created = session.updated
                if message.role == "assistant":
                    message.model = "sample session"
            database.create_session(session)
            ids[name] = session.id
    return ids


Step = Callable[[Pilot[str], ChatApp], Awaitable[None]]


def keys(*names: str, typed: str = "") -> Step:
    """Press keys, then type, then wait until it stands on the screen."""

    async def step(pilot: Pilot[str], app: ChatApp) -> None:
        await pilot.press(*names)
        await settle(pilot)
        await pilot.press(*("space" if letter == " " else letter for letter in typed))
        await settle(pilot)

    return step


async def settle(pilot: Pilot[str]) -> None:
    """Panels read files in threads, and the transcript paints its Markdown some frames after it was mounted."""
    for _ in range(50):
        await pilot.pause(0.02)


async def write_question(pilot: Pilot[str], app: ChatApp) -> None:
    app.chat.prompt.put("What would a test for the Retry-After rule look like?")


PICTURES: dict[str, tuple[str, Step]] = {
    "chat": ("harbor", write_question),
    "switcher": ("harbor", keys("ctrl+o")),
    "search": ("paper", keys("ctrl+f", typed="lamp")),
    "settings": ("harbor", keys("alt+s")),
    "checkpoints": ("paper", keys("alt+k")),
    "help": ("harbor", keys("f1")),
}
"""Each picture: a theme, and how to come there from the chat."""


async def draw(data_dir: Path, theme: str, step: Step) -> str:
    """The screen as SVG."""
    ids = fill(data_dir)
    session_id = ids[SHOWN]
    os.environ["DS4CHAT_CONFIG"] = str(data_dir / "config.toml")
    flags: dict[str, Any] = {str(option.name): None for option in cli.params}
    flags |= {"data_dir": str(data_dir), "kv_dir": str(data_dir / "kv")}
    desk = StagedDesk(Setup.from_flags(flags), flags, ids)
    manager = StagedManager(data_dir, EngineOptions(Path(f"{MODEL}.gguf")), Sampling())
    app = ChatApp(
        manager, session_id=session_id, theme=theme, theme_directories=theme_directories(data_dir), desk=desk
    )
    async with app.run_test(size=SIZE) as pilot:
        while app.chat.current_id != session_id:
            await pilot.pause(0.01)
        manager.show_restored(session_id)
        app.chat.prompt.cursor_blink = False
        await settle(pilot)
        await step(pilot, app)
        await settle(pilot)
        svg = app.export_screenshot(title="ds4chat")
    await manager.aclose()
    return svg


def offline(svg: str) -> str:
    """The picture without the web fonts that Textual's names, so that showing it fetches nothing."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}\s*", "", svg)
    svg = re.sub(r"font-family:[^;]*Fira Code[^;]*;", f"font-family: {FONTS};", svg)
    # An id made from the picture's text would change all over for each changed letter.
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        theme, step = PICTURES[name]
        with tempfile.TemporaryDirectory() as folder:
            svg = offline(asyncio.run(draw(Path(folder), theme, step)))
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
