"""An engine child that answers at once and at a steady pace, with a clock: `engine.py` in place of the real worker.

Each mark that has left it is written to the file `SCREEN_LOG` with the system's monotonic time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from text import MARK, reply, tokens

from ds4chat.engine.protocol import (
    Cancel,
    Done,
    Generate,
    Load,
    Loaded,
    Prepare,
    Prepared,
    Quit,
    Started,
    Token,
    decode_command,
    encode,
)

TOKENS_PER_SECOND = float(os.environ.get("SCREEN_SPEED", "100"))


class Script:
    """Says the same to everything."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._log = Path(os.environ["SCREEN_LOG"]).open("w", buffering=1)  # noqa: SIM115 - as long as the process
        self._stop = threading.Event()

    def say(self, event: object) -> None:
        self._out.write(encode(event))  # type: ignore[arg-type]

    def run(self) -> None:
        for line in sys.stdin.buffer:
            match decode_command(line):
                case Load(model_path=path):
                    self.say(Loaded("scripted", path, "none", 65536, 65536, "dense", "00" * 16, 0))
                case Prepare(session=session, turn=turn):
                    self.say(Prepared(session, turn, 0, 0))
                case Generate(session=session, turn=turn, messages=messages):
                    self._stop.clear()
                    threading.Thread(
                        target=self._answer, args=(session, turn, len(messages)), daemon=True
                    ).start()
                case Cancel():
                    self._stop.set()
                case Quit():
                    return

    def _answer(self, session: str, turn: int, messages: int) -> None:
        self.say(Started(session, turn, 20, 0, 20))
        pieces = tokens(reply())
        began, text, marked = time.monotonic(), "", 0
        for number, piece in enumerate(pieces):
            pause = began + number / TOKENS_PER_SECOND - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if self._stop.is_set():
                break
            self.say(Token(session, turn, piece, [number % 100 + 1]))
            text += piece
            found = MARK.findall(text[-12:].encode())
            if found and int(found[-1]) > marked:
                marked = int(found[-1])
                self._log.write(f"{marked} {time.monotonic():.6f}\n")
        self._log.write(f"end {time.monotonic():.6f}\n")
        stop = "cancelled" if self._stop.is_set() else "stop"
        count = len(pieces)
        self.say(Done(session, turn, stop, 20, 0, 20, count, 0, 1, 1, 20 + count, [10] * (messages + 1)))


if __name__ == "__main__":
    Script().run()
    os._exit(0)
