"""Signals for an event loop, heard however full its pipe is.

`loop.add_signal_handler` alone learns of a signal from a byte in the pipe that also wakes the loop. A burst of
callbacks from other threads fills that pipe, and the signal is lost. Here the interpreter's own handler passes it
on, and the pipe is only there to wake a loop that sleeps while another thread of the process was given the signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Mapping
from types import FrameType


def catch(handlers: Mapping[signal.Signals, Callable[[], object]]) -> None:
    """Call a function on the running event loop for each signal of its number.

    Signals of one number that come faster than the interpreter runs are one, as they are for the kernel. Outside of
    the main thread, and where a signal cannot be caught, nothing is done.
    """
    loop = asyncio.get_running_loop()
    for number, act in handlers.items():
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, _woken)
            signal.signal(number, _passing_on(loop, act))
            signal.siginterrupt(number, False)
    with contextlib.suppress(ValueError):
        # A full pipe wakes the loop as well: no warning in the midst of the screen.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)


def let_go(numbers: Iterable[signal.Signals]) -> None:
    """Give signals that were caught their default meaning again."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)


def _woken() -> None:
    """What is to be done is among the loop's callbacks already."""


def _passing_on(
    loop: asyncio.AbstractEventLoop, act: Callable[[], object]
) -> Callable[[int, FrameType | None], None]:
    def pass_on(_number: int, _frame: FrameType | None) -> None:
        # A closed loop has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(act)

    return pass_on
