"""What Textual does anew for each app of a test, done once a run, and its waiting by the clock done by the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

QUIET_ROUNDS = 3
ROUND_SECONDS = 0.002

FRAME_SECONDS = 0.02
"""A timer that is due so soon may be that of the next frame, which lays a new screen out: it is waited for."""

FRAMES_SECONDS = 0.05
"""So long at most, as there may be one that is always due soon."""


async def wait_until_quiet(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Wait until the loop had nothing to do for some milliseconds, `max_sleep` seconds at most.

    Textual's own compares the process's CPU time with the clock, in steps of 20 ms: it takes several times as long,
    and on a busy machine a process that has to wait for the processor looks idle to it.
    """
    loop = asyncio.get_running_loop()
    ready: deque[Any] = loop._ready  # type: ignore[attr-defined]
    began = loop.time()
    quiet = 0
    while (passed := loop.time() - began) < max_sleep and (quiet < QUIET_ROUNDS or passed < min_sleep):
        # Threads get the time to come with something new.
        await asyncio.sleep(ROUND_SECONDS)
        quiet += 1
        while ready:
            quiet = 0
            await asyncio.sleep(0)


async def wait_for_idle(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """The same, and the next frame is painted."""
    loop = asyncio.get_running_loop()
    until = loop.time() + FRAMES_SECONDS
    await wait_until_quiet(min_sleep, max_sleep)
    while loop.time() < until and _frame_is_due(loop):
        await wait_until_quiet()


def _frame_is_due(loop: asyncio.AbstractEventLoop) -> bool:
    soon = loop.time() + FRAME_SECONDS
    timers: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    return any(timer.when() < soon and not timer.cancelled() for timer in timers)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """One key after the other, as soon as the one before is taken, and the frame behind the last one."""
    await pilot._app._press_keys(keys)
    await wait_for_idle()
    await pilot._wait_for_screen()


def share_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse each style sheet once for all apps with the same variables: its rules do not change once they are parsed,
    and the widgets of one app share them already.
    """
    parse = Stylesheet._parse_rules
    shared: dict[tuple[object, ...], list[RuleSet]] = {}

    def parse_once(self: Stylesheet, *args: Any, **options: Any) -> list[RuleSet]:
        key = (frozenset(self._variables.items()), args, *options.values())
        rules = shared.get(key)
        if rules is None:
            rules = parse(self, *args, **options)
            if not any(rule.errors for rule in rules):
                shared[key] = rules
        return rules

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_once)


def take(monkeypatch: pytest.MonkeyPatch) -> None:
    share_rules(monkeypatch)
    monkeypatch.setattr(textual.app, "wait_for_idle", wait_until_quiet)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", wait_for_idle)
    monkeypatch.setattr(Pilot, "press", press)
