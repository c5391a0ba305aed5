"""Copying by all ways there are, and saying which worked."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.ui import clipboard
from ds4chat.ui.clipboard import copy, is_remote, osc52
from tests.ui.driving import running
from tests.ui.fake_manager import FakeManager


@given(st.text())
def test_the_sequence_carries_the_text(text: str) -> None:
    sequence = osc52(text, {})
    assert sequence.startswith("\x1b]52;c;") and sequence.endswith("\x07")
    assert base64.b64decode(sequence[7:-1]) == text.encode("utf-8", "replace")


def test_tmux_passes_it_on_and_takes_it_itself() -> None:
    plain = osc52("text", {})
    sequence = osc52("text", {"TMUX": "/tmp/tmux-0/default,1,0"})
    assert sequence == plain + "\x1bPtmux;\x1b" + plain + "\x1b\\"


@given(st.text(min_size=1, max_size=2000))
def test_screen_passes_it_on_in_pieces(text: str) -> None:
    sequence = osc52(text, {"STY": "1.pts"})
    pieces = sequence.removeprefix("\x1bP").removesuffix("\x1b\\").split("\x1b\\\x1bP")
    assert "".join(pieces) == osc52(text, {})
    assert all(len(piece) < 700 for piece in pieces)


async def test_what_worked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    assert await copy("x" * 1214, sent.append, {}) == "sent 1,214 characters to the terminal (OSC 52)"
    assert (
        await copy("x", sent.append, {"TMUX": "1"})
        == "sent 1 character to the terminal through tmux (OSC 52)"
    )
    assert "no clipboard" in await copy("x", None, {})
    monkeypatch.setattr(clipboard, "system_copy", lambda text: True)
    assert await copy("x" * 214, sent.append, {}) == "copied 214 characters with the system clipboard"
    # The machine's clipboard is not that of the person who is connected to it.
    remote = {"SSH_CONNECTION": "1 2 3 4"}
    assert (
        is_remote(remote)
        and await copy("x", sent.append, remote) == "sent 1 character to the terminal (OSC 52)"
    )
    assert len(sent) == 4


async def test_a_clipboard_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    gate = threading.Event()
    monkeypatch.setattr(clipboard, "system_copy", lambda text: gate.wait(5))
    monkeypatch.setattr(clipboard, "SYSTEM_SECONDS", 0.01)
    assert "OSC 52" in await copy("x", lambda sequence: None, {})
    gate.set()


def test_no_clipboard_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    import pyperclip

    def fail(text: str) -> None:
        raise pyperclip.PyperclipException("none")

    monkeypatch.setattr(pyperclip, "copy", fail)
    assert not clipboard.system_copy("x")


async def test_the_screen_tells_it(manager: FakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    def take(text: str) -> bool:
        copied.append(text)
        return True

    monkeypatch.setattr(clipboard, "system_copy", take)
    session = manager.make("t", ["question", "the answer"])
    async with running(manager, session_id=session.id) as chat:
        await chat.pilot.press("alt+c")
        await chat.until(lambda: chat.toasts == ["copied 10 characters with the system clipboard"])
        assert copied == ["the answer"]
