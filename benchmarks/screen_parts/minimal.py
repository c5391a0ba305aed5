"""The least a chat screen could be in Textual: a Markdown widget and a TextArea.

With `stream` as argument it shows the scripted reply by Textual's own MarkdownStream, as fast as tokens would come.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Markdown, TextArea


def note(marks: str) -> None:
    """For the driver: when each mark was there to be shown."""
    Path(os.environ["SCREEN_LOG"]).write_text(marks)


class MinimalApp(App[None]):
    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Markdown("hello")
        yield TextArea()

    def on_mount(self) -> None:
        self.query_one(TextArea).styles.height = 5
        self.query_one(TextArea).focus()
        if "stream" in sys.argv:
            self.run_worker(self.stream())

    async def stream(self) -> None:
        from text import MARK, reply, tokens

        speed = float(os.environ.get("SCREEN_SPEED", "100"))
        box, view = self.query_one(Markdown), self.query_one(VerticalScroll)
        view.anchor()
        stream, text, marked = Markdown.get_stream(box), "", 0
        left: list[str] = []
        began = time.monotonic()
        for number, piece in enumerate(tokens(reply())):
            await asyncio.sleep(max(0.0, began + number / speed - time.monotonic()))
            text += piece
            found = MARK.findall(text[-12:].encode())
            if found and int(found[-1]) > marked:
                marked = int(found[-1])
                left.append(f"{marked} {time.monotonic():.6f}\n")
            await stream.write(piece)
        # Before the last words are shown, which is when the file is read.
        note("".join(left))
        await stream.stop()


MinimalApp().run()
