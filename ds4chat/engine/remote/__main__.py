"""`python -m ds4chat.engine.remote`: the adapter's main, with the same manners as the engine child's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading

import msgspec

from ds4chat.engine.place import SETTINGS_VARIABLE
from ds4chat.engine.protocol import Event, Load, LoadFailed, Quit, decode_command, encode
from ds4chat.engine.remote.adapter import Adapter
from ds4chat.engine.remote.server import About, Server, ServerError

log = logging.getLogger(__name__)


class _Output:
    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb")

    def emit(self, event: Event) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._file.write(encode(event))
            self._file.flush()


def _read_commands(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[object]) -> None:
    """Commands from standard input, then None at its end."""
    try:
        for line in sys.stdin.buffer:
            try:
                command = decode_command(line)
            except msgspec.DecodeError as error:
                log.error("not a command: %s", error)
                continue
            loop.call_soon_threadsafe(queue.put_nowait, command)
            if isinstance(command, Quit):
                return
        loop.call_soon_threadsafe(queue.put_nowait, None)
    except RuntimeError:
        return  # the loop has ended first


async def _run(output: _Output) -> None:
    queue: asyncio.Queue[object] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, queue.put_nowait, None)
    threading.Thread(target=_read_commands, args=(loop, queue), daemon=True).start()
    try:
        server = Server(msgspec.json.decode(os.environ[SETTINGS_VARIABLE], type=About))
    except (KeyError, msgspec.DecodeError):
        await _refuse(queue, output, "The engine was started without an address: use --engine.")
        return
    except ServerError as error:
        await _refuse(queue, output, str(error))
        return
    adapter = Adapter(server, output.emit)
    work = asyncio.create_task(adapter.run())
    while (command := await queue.get()) is not None and not isinstance(command, Quit):
        adapter.put(command)  # type: ignore[arg-type]
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await adapter.close()
    await server.aclose()


async def _refuse(queue: asyncio.Queue[object], output: _Output, sentence: str) -> None:
    """Answer to what is asked, and wait for the end."""
    while (command := await queue.get()) is not None and not isinstance(command, Quit):
        if isinstance(command, Load):
            output.emit(LoadFailed(sentence))


def main() -> None:
    """Run until told to stop."""
    output = _Output(os.dup(1))
    os.dup2(2, 1)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Its lines have addresses in them that may hold more than an address.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run(output))
    logging.shutdown()
    # The thread that reads may wait in its read for ever.
    os._exit(0)


if __name__ == "__main__":
    main()
