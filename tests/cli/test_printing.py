"""`-p`: one answer on standard output."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import typing
from pathlib import Path
from typing import Any

import pytest

from ds4chat.engine.protocol import StopReason
from ds4chat.errors import Ds4chatError, EngineError, UsageError
from ds4chat.printing import CUT_OFF, STOP_SIGNALS, dump_json, print_reply, visible
from ds4chat.sessions.events import (
    EngineChanged,
    EngineNotice,
    EngineStatus,
    TextStreamed,
    TurnEnded,
    TurnStarted,
    TurnStats,
    WindowMoved,
)
from tests.cli.conftest import FakeManager, Line, answer

RESULT = {
    "session": "0000aaaa",
    "message": 2,
    "model": "Smol",
    "text": "Hello",
    "stop_reason": "stop",
    "prompt_tokens": 30,
    "cached_tokens": 20,
    "prefilled_tokens": 10,
    "generated_tokens": 2,
    "restore_ms": 1.235,
    "prefill_ms": 20.0,
    "generate_ms": 300.5,
}


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_text_is_the_answer_and_a_newline(line: Line) -> None:
    result = line("-p", "say hello")
    assert (result.code, result.out, result.err) == (0, "Hello\n", "")
    (manager,) = FakeManager.made
    assert manager.sent == [("0000aaaa", "say hello")]
    assert manager.closed


@pytest.mark.parametrize(("texts", "out"), [(("a\n",), "a\n"), ((), ""), (("", "\n\n"), "\n\n")])
def test_no_newline_is_added_to_one(
    line: Line, monkeypatch: pytest.MonkeyPatch, texts: Any, out: str
) -> None:
    monkeypatch.setattr(FakeManager, "script", answer(*texts))
    assert line("-p", "x").out == out


def test_json_is_one_object_with_the_documented_keys_in_order(line: Line) -> None:
    result = line("-p", "x", "--output-format", "json")
    assert result.code == 0 and result.out.count("\n") == 1
    assert json.loads(result.out) == RESULT
    assert list(json.loads(result.out)) == list(RESULT)


def test_stream_json_is_one_object_a_line(line: Line) -> None:
    result = line("-p", "x", "--output-format", "stream-json")
    assert [json.loads(row) for row in result.out.splitlines()] == [
        {"type": "session", "session": "0000aaaa"},
        {"type": "restored", "tokens": 20, "ms": 1.235},
        {"type": "prefill", "done": 10, "total": 10},
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
        {"type": "done", **RESULT},
    ]


def documented(part: str, until: str) -> dict[str, set[str]]:
    """The tables of a part of the docs: what stands first in a row, and the names in its second cell."""
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = page.split(part)[1].split(until)[0].splitlines()
    cells = [row.split("|")[1:-1] for row in rows if row.startswith("| `")]
    return {
        name: set(re.findall(r"`(\w+)`", cell[1]))
        for cell in cells
        for name in re.findall(r"`([\w-]+)`", cell[0])
    }


def test_events_and_keys_are_those_of_the_docs(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of event with exactly the keys that stand there, and none besides."""
    keys = set(documented("**`json`**", "**`stream-json`**"))
    assert keys == set(RESULT)
    listed = documented("**`stream-json`**", "```") | {"done": keys}
    seen: dict[str, set[str]] = {}
    for script in (
        [WindowMoved("0000aaaa", 5, 3), *answer("mine")],
        [*answer("half")[:-1], TurnEnded("0000aaaa", 1, 2, "cut", error="Gone.")],
    ):
        monkeypatch.setattr(FakeManager, "script", script)
        result = line("-p", "x", "--output-format", "stream-json")
        events = [json.loads(row) for row in result.out.splitlines()]
        assert events[0]["type"] == "session" and events[-1]["type"] in ("done", "error")
        seen |= {event["type"]: event.keys() - {"type"} for event in events}
    # Those of tools: tests/cli/test_tools.py.
    for name in ("type", "tool_call", "tool_result"):
        del listed[name]
    assert seen == listed


def test_reasons_to_stop_are_those_of_the_docs() -> None:
    reasons = documented("**`json`**", "**`stream-json`**")["stop_reason"]
    assert set(typing.get_args(StopReason)) <= reasons


def test_exit_codes_are_those_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ]+) \|", page.split("## Exit codes")[1].split("## ")[0], re.MULTILINE)
    codes = {int(code) for row in rows for code in row.split(",")}
    signals = {128 + number for number in STOP_SIGNALS}
    assert codes == {0, Ds4chatError.exit_code, UsageError.exit_code, CUT_OFF, *signals}


def test_text_is_on_standard_output_before_the_turn_ends() -> None:
    out = io.StringIO()
    seen: list[str] = []
    FakeManager.script = [*answer("Hel")[:-1], lambda: seen.append(out.getvalue()), answer()[-1]]
    manager: Any = FakeManager(None, None, None)  # type: ignore[arg-type]
    assert print_reply(manager, "x", session_id=None, output_format="text", out=out, err=io.StringIO()) == 0
    assert seen == ["Hel"]


def test_the_prompt_comes_from_standard_input(line: Line) -> None:
    assert line("-p", "-", stdin="from a pipe\n").code == 0
    assert line(stdin="without -p\n").out == "Hello\n"
    assert line("--output-format", "json", stdin=b"bad \xff utf-8").code == 0
    sent = [manager.sent[0][1] for manager in FakeManager.made]
    assert sent == ["from a pipe\n", "without -p\n", "bad \ufffd utf-8"]


def test_a_prompt_goes_into_the_session_that_is_named(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.session("Rome", "a", id_="00000001")
    monkeypatch.setattr(FakeManager, "script", answer("yes", session="00000001"))
    for arguments in (["-r", "Rome"], ["-c"]):
        result = line("-p", "x", *arguments, "--output-format", "json")
        assert json.loads(result.out)["session"] == "00000001"
        assert FakeManager.made[-1].sent == [("00000001", "x")]


def test_a_locked_session_is_a_failure(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    line.session("Rome", "a", id_="00000001")
    monkeypatch.setattr(FakeManager, "locked", True)
    result = line("-p", "x", "-c")
    assert (result.code, result.out) == (1, "")
    assert result.err == "ds4chat: Session 00000001 is open in another ds4chat: close it there.\n"
    assert FakeManager.made[0].closed


def test_other_sessions_and_notices_stay_off_standard_output(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        TextStreamed("ffffffff", 9, "not mine"),
        EngineNotice("Storing is off: the disk is full."),
    ]
    monkeypatch.setattr(FakeManager, "script", [*others, *answer("mine")])
    result = line("-p", "x")
    assert result.out == "mine\n"
    assert result.err == "ds4chat: Storing is off: the disk is full.\n"


def test_a_window_that_moved_is_a_line_of_the_event_stream(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeManager, "script", [WindowMoved("0000aaaa", 5, 3), *answer("mine")])
    result = line("-p", "x", "--output-format", "stream-json")
    assert '{"type": "window", "turns": 3}' in result.out.splitlines()


def test_a_turn_that_fails_is_a_sentence_behind_what_came(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        *answer("half")[:-1],
        TurnEnded("0000aaaa", 1, 2, "cut", error="The engine was killed: try again."),
    ]
    monkeypatch.setattr(FakeManager, "script", script)
    result = line("-p", "x")
    assert (result.code, result.out, result.err) == (
        1,
        "half\n",
        "ds4chat: The engine was killed: try again.\n",
    )
    assert FakeManager.made[0].closed
    result = line("-p", "x", "--output-format", "json")
    assert (result.code, result.out) == (1, "")
    result = line("-p", "x", "--output-format", "stream-json")
    assert json.loads(result.out.splitlines()[-1]) == {
        "type": "error",
        "message": "The engine was killed: try again.",
    }


def test_an_engine_that_fails_without_ending_the_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ds4chat.printing.FAILURE_GRACE_SECONDS", 0.0)
    failed = EngineStatus("failed", message="The model does not fit: choose a smaller one.")
    monkeypatch.setattr(FakeManager, "script", [EngineChanged(failed)])
    manager: Any = FakeManager(None, None, None, engine=failed)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="does not fit"):
        print_reply(manager, "x", session_id=None, output_format="text", out=io.StringIO(), err=io.StringIO())
    assert manager.closed


def test_ctrl_c_stops_the_reply_and_keeps_what_came(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeManager, "script", [*answer("half")[:-1], interrupt])
    result = line("-p", "x")
    assert (result.code, result.out, result.err) == (130, "half\n", "")
    assert FakeManager.stopped == ["0000aaaa"]
    result = line("-p", "x", "--output-format", "json")
    assert result.code == 130
    assert (json.loads(result.out)["text"], json.loads(result.out)["stop_reason"]) == ("half", "cancelled")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_stop_the_reply_too(
    line: Line, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    script = [*answer("half")[:-1], lambda: os.kill(os.getpid(), number)]
    monkeypatch.setattr(FakeManager, "script", script)
    result = line("-p", "x")
    assert (result.code, result.out) == (code, "half\n")
    assert FakeManager.made[0].closed


def test_a_signal_in_a_burst_of_callbacks_is_heard(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe that wakes the event loop has no room for the signal's number then."""

    def burst() -> None:
        for _ in range(10_000):
            asyncio.get_running_loop().call_soon_threadsafe(int)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(FakeManager, "script", [*answer("half")[:-1], burst])
    result = line("-p", "x")
    assert (result.code, result.out) == (143, "half\n")


def test_hang_ups_that_come_together_leave_time_to_save(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's window that is closed hangs up, and so does the shell in it."""

    async def aclose(self: FakeManager) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        self.closed = True

    def hang_up() -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(FakeManager, "aclose", aclose)
    monkeypatch.setattr(FakeManager, "script", [*answer("half")[:-1], hang_up])
    result = line("-p", "x")
    assert (result.code, result.out) == (129, "half\n")
    assert FakeManager.made[0].closed


def test_ctrl_c_twice_does_not_wait(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: FakeManager, session_id: str) -> bool:
        FakeManager.stopped.append(session_id)
        return True  # and the turn never ends

    monkeypatch.setattr(FakeManager, "stop", stop)
    monkeypatch.setattr(FakeManager, "script", [*answer("half")[:-1], interrupt, interrupt])
    result = line("-p", "x")
    assert (result.code, result.out) == (130, "half")
    assert FakeManager.made[0].closed


def test_ctrl_c_while_the_engine_is_closed_is_no_traceback(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def aclose(self: FakeManager) -> None:
        interrupt()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(FakeManager, "aclose", aclose)
    monkeypatch.setattr(FakeManager, "stop", lambda self, session_id: False)
    result = line("-p", "x")
    assert (result.code, result.out, result.err) == (130, "Hello\n", "")


def test_ctrl_c_with_nothing_to_stop_leaves_at_once(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeManager, "stop", lambda self, session_id: False)
    monkeypatch.setattr(FakeManager, "script", [interrupt])
    assert line("-p", "x").code == 130


def test_a_reader_that_goes_away_stops_the_reply() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    FakeManager.script, FakeManager.stopped = answer("a", "b")[:-1], []
    manager: Any = FakeManager(None, None, None)  # type: ignore[arg-type]
    with pytest.raises(BrokenPipeError):
        print_reply(manager, "x", session_id=None, output_format="text", out=Closed(), err=io.StringIO())
    assert FakeManager.stopped == ["0000aaaa"]
    assert manager.closed


def test_a_stopped_turn_without_measures_still_has_a_reason(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [TurnStarted("0000aaaa", 1, 2), TurnEnded("0000aaaa", 1, None, "stopped", TurnStats())]
    monkeypatch.setattr(FakeManager, "script", script)
    result = json.loads(line("-p", "x", "--output-format", "json").out)
    assert (result["stop_reason"], result["message"], result["text"]) == ("cancelled", 2, "")


HOSTILE = "\x1b[31m[bold]\x07\x9b31m\x7f\ttab\n\u2028"


def test_on_a_terminal_control_characters_do_nothing(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeManager, "script", answer(HOSTILE))
    shown = line("-p", "x", terminal=True).out
    assert shown == "␛[31m[bold]␇\\x9b31m␡\ttab\n\n\n"
    assert line("-p", "x").out == HOSTILE + "\n"
    assert json.loads(line("-p", "x", "--output-format", "json").out)["text"] == HOSTILE
    assert visible("plain\n") == "plain\n"


def test_json_for_an_output_that_is_not_utf8_is_ascii() -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert dump_json("日本", narrow) == '"\\u65e5\\u672c"'
    assert dump_json("日本", io.TextIOWrapper(io.BytesIO(), encoding="UTF-8")) == '"日本"'
