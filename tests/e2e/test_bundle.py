"""A chat that moves: as a bundle, and with its folders copied, it goes on elsewhere as if it had stayed.

On a tiny model of random weights: no answer is likely there, so any other float gives other tokens.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message
from tests.support import memos
from tests.support.program import Program

QUESTION = "And of Spain, please?"
OWN_TOKENS = 11
"""Of the question alone."""

SHORT = ("--max-tokens", "12")


@dataclass
class Homes:
    """Three homes with the same chat: where it began, from a bundle, from copied folders; and what came of that."""

    first: Program
    imported: Program
    copied: Program
    session: str
    known: int
    answers: dict[str, dict[str, Any]]

    def reply(self, home: Program) -> Message:
        """The last message there."""
        with Database(home.home / "data" / "sessions.db") as database:
            return database.load_session(self.session).path()[-1]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Path]) -> Homes:
    root = tmp_path_factory.mktemp("homes")
    first, imported, copied = (Program(root / name) for name in ("first", "imported", "copied"))
    model = ("-m", str(tiny["dense"]))
    session = first.ask("What is the capital city of France? Answer in one word.", *SHORT, *model)["session"]
    second = first.ask("And of Italy?", "-r", session, *SHORT)
    (imported.home / "data" / "models").mkdir()
    shutil.copy(tiny["dense"], imported.home / "data" / "models")
    for home in (imported, copied):
        memos.learn(home.home / "data")
    bundle = root / "chat.ds4chat"
    done = first.run("export", session, "--with-checkpoints", str(bundle))
    assert done.returncode == 0, done.stderr
    for file in (first.home / "data").glob("sessions.db*"):
        shutil.copy(file, copied.home / "data")
    shutil.copytree(first.home / "kv", copied.home / "kv")
    done = imported.run("import", str(bundle))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{session}  ")
    answers = {
        name: home.ask(QUESTION, "-r", session, *SHORT)
        for name, home in {"first": first, "imported": imported, "copied": copied}.items()
    }
    known = second["prompt_tokens"] + second["generated_tokens"]
    return Homes(first, imported, copied, session, known, answers)


@pytest.mark.parametrize("name", ["imported", "copied"])
def test_a_chat_that_moved_is_restored_and_only_new_text_is_computed(homes: Homes, name: str) -> None:
    answer = homes.answers[name]
    assert answer["session"] == homes.session
    assert answer["cached_tokens"] >= homes.known - 1
    assert answer["prefilled_tokens"] <= OWN_TOKENS + 16
    assert answer["restore_ms"] > 0


@pytest.mark.parametrize("name", ["imported", "copied"])
def test_a_chat_that_moved_goes_on_as_it_would_have_at_home(homes: Homes, name: str) -> None:
    here, there = homes.reply(homes.first), homes.reply(getattr(homes, name))
    assert len(here.tokens) > 4 and there.tokens == here.tokens
    assert there.text == here.text and there.fingerprint == here.fingerprint
