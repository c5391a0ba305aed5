"""Draw docs/pictures/chat.svg from the program itself: `python docs/pictures/make.py`.

The real screen over a real session database in a temporary folder, filled with the sample sessions. Only the engine
is not started: its events are written down here, so that the picture is the same each time and needs no model.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from ds4chat.engine.protocol import Sampling
from ds4chat.paths import shipped
from ds4chat.sessions import events as ev
from ds4chat.sessions.database import Database
from ds4chat.sessions.interchange import import_file
from ds4chat.sessions.manager import EngineOptions, SessionManager
from ds4chat.ui.app import ChatApp
from ds4chat.ui.themes import theme_directories

PICTURE = Path(__file__).with_name("chat.svg")
SIZE = (120, 36)

MODEL, N_CTX = "SmolLM2-135M-Instruct.Q4_1", 8192
SHOWN = "code-review"
RESTORED_TOKENS, RESTORED_MS = 934, 20.0
"""As measured with the starter model."""
AGES = {"code-review": 180, "lighthouse": 5400, "lisbon-trip": 93_600, "bread": 6 * 86_400}
"""Seconds since each sample session was used last."""

FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class StagedManager(SessionManager):
    """A session manager whose engine is always ready and computes nothing."""

    @property
    def engine(self) -> ev.EngineStatus:
        return ev.EngineStatus("ready", MODEL, 1.0, N_CTX)

    async def start_engine(self) -> None:
        self._emit(ev.EngineChanged(self.engine))

    def show_restored(self, session_id: str) -> None:
        """What the engine says when it brought a session back from disk."""
        self._emit(ev.ContextRestored(session_id, RESTORED_TOKENS, RESTORED_MS))
        self._emit(ev.ContextUsed(session_id, RESTORED_TOKENS, N_CTX))


def fill(data_dir: Path) -> str:
    """Put the sample sessions into a database; the id of the one to show."""
    ids: dict[str, str] = {}
    with Database(data_dir / "sessions.db") as database:
        for name, age in AGES.items():
            session = import_file(shipped("sample_sessions") / f"{name}.toml")
            session.updated = time.time() - age
            session.model = MODEL
            for message in session.messages.values():
                if message.role == "assistant":
                    message.model = "sample session"
            database.create_session(session)
            ids[name] = session.id
    return ids[SHOWN]


async def draw(data_dir: Path) -> str:
    """The screen as SVG."""
    session_id = fill(data_dir)
    manager = StagedManager(data_dir, EngineOptions(Path(f"{MODEL}.gguf")), Sampling())
    app = ChatApp(manager, session_id=session_id, theme_directories=theme_directories(data_dir))
    async with app.run_test(size=SIZE) as pilot:
        while app.chat.current_id != session_id:
            await pilot.pause(0.01)
        manager.show_restored(session_id)
        app.chat.prompt.put("What would a test for the Retry-After rule look like?")
        # The transcript paints its Markdown some frames after it was mounted.
        for _ in range(20):
            await pilot.pause(0.02)
        app.chat.prompt.cursor_blink = False
        await pilot.pause()
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
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(offline(asyncio.run(draw(Path(folder)))), encoding="utf-8")


if __name__ == "__main__":
    main()
