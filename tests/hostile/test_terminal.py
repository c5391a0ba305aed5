"""One run of the program itself in a terminal, with hostile texts in the session, the paste, the config and a theme."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.hostile import EVERYTHING
from tests.support.program import Program, toml_session
from tests.support.terminal import ENTER, Terminal, alt, ctrl

FORBIDDEN = (
    b"\x1b]52;c;cHduZWQ=", b"\x1b]2;pwned", b"\x1b]0;pwned", b"\x1b]8;;http://evil", b"\x1bP1$r", b"\x1b[c", b"\x1b_x",
    b"\x1bc", b"\xc2\x9b", b"\xc2\x9d", b"\xc2\x85", b"\xe2\x80\xae", b"\xe2\x81\xa6", b"\xe2\x80\xa8", b"\x00",
    b"\x08",
)  # fmt: skip
"""What the texts would do, as the bytes a terminal would get."""


def test_nothing_hostile_reaches_the_terminal(tmp_path: Path, tiny: dict[str, Path]) -> None:
    (tmp_path / "config.toml").write_text(
        '[model]\nthreads = 1\n[sampling]\nmax_tokens = 4\n[chat]\ntheme = "x\\u001b]2;pwned\\u0007"\n'
    )
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "evil.toml").write_text('name = "e"\nprimary = "\\u001b]52;c;cHduZWQ=\\u0007"\n')
    program = Program(tmp_path)
    texts = [
        ("user", f"first {EVERYTHING}"),
        ("assistant", f"answer {EVERYTHING}"),
        ("user", "last"),
        ("assistant", "end"),
    ]
    (tmp_path / "s.toml").write_text(toml_session(f"title {EVERYTHING}"[:190], texts), encoding="utf-8")
    imported = program.run("import", str(tmp_path / "s.toml"))
    assert imported.returncode == 0, imported.stderr
    with Terminal(program, "--model", str(tiny["dense"]), "--resume", imported.stdout.split()[0]) as terminal:
        terminal.until("end")
        terminal.until("Enter sends")
        terminal.type("\x1b[200~paste \x1b]52;c;cHduZWQ=\x07\u202e\x1b[2J\x9b31m tail\x1b[201~")
        terminal.until("tail")
        terminal.type(ENTER)
        terminal.until(r"tokens · ")
        terminal.type(alt("s"))
        terminal.type(ctrl("q"))
        assert terminal.wait_end() == 0
        terminal.assert_clean()
        raw = terminal.raw
    # What the program asks of the terminal itself when it starts is no part of the texts.
    shown = raw[raw.find(b"\x1b[?1049h") :]
    assert [bad for bad in FORBIDDEN if bad in shown] == []
    sessions = json.loads(program.run("ls", "--json").stdout)
    said = json.loads(program.run("show", sessions[0]["id"], "--json").stdout)["messages"]
    assert "\x1b]52;c;cHduZWQ=\x07" in said[0]["text"] and "\u202e" in said[0]["text"]
