"""Replies that follow a grammar, on the tiny models and on the starter model."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from ds4chat.engine import constraint
from ds4chat.engine.constraint import Grammar, GrammarError
from ds4chat.engine.llama import Model
from ds4chat.engine.protocol import ChatMessage, Prefill, Sampling
from ds4chat.json_schema import to_gbnf
from tests.support.engine_room import EngineRoom, Reply, user
from tests.support.tiny_models import write_tiny_model

YES = 'root ::= "yes" | "no"'
WORDS = 'root ::= ([a-z]{3} " "){6} "end"'
HELLO = [user("Hello")]
HOT = Sampling(temperature=1.5, seed=11, repeat_penalty=1.3)

AMBIGUOUS = 'root ::= "a" root "b" | "a" root "c" | "a" root "d"'
"""With each "a" there are three times as many ways."""

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
}


@pytest.fixture
def room(tiny_model: Path) -> Iterator[EngineRoom]:
    with EngineRoom(tiny_model, None) as room:
        yield room


@pytest.fixture
def dense(tiny: dict[str, Path]) -> Iterator[EngineRoom]:
    with EngineRoom(tiny["dense"], None) as room:
        yield room


def stopped(reply: Reply) -> str:
    assert reply.done is not None, reply.failure
    return reply.done.stop_reason


def test_the_reply_is_one_of_what_the_grammar_allows_and_ends_by_itself(room: EngineRoom) -> None:
    for seed in range(4):
        reply = room.chat(HELLO, grammar=YES, sampling=Sampling(temperature=2.0, seed=seed))
        assert reply.text in ("yes", "no") and stopped(reply) == "stop"
    reply = room.chat(HELLO, grammar=WORDS)
    assert re.fullmatch("([a-z]{3} ){6}end", reply.text)
    free = room.chat(HELLO, max_tokens=8)
    assert stopped(free) == "length", "the next reply is free again"


def test_a_seed_gives_the_same_reply_and_another_another(room: EngineRoom) -> None:
    first, second = (room.chat(HELLO, grammar=WORDS, sampling=HOT) for _ in range(2))
    assert first.text == second.text and first.tokens == second.tokens
    other = room.chat(HELLO, grammar=WORDS, sampling=Sampling(temperature=1.5, seed=12))
    assert other.text != first.text and re.fullmatch("([a-z]{3} ){6}end", other.text)


def test_a_grammar_that_refuses_nothing_changes_nothing(room: EngineRoom) -> None:
    """What was drawn stands, so the random numbers are those of a free reply."""
    for sampling in (Sampling(temperature=0.0), HOT):
        free = room.chat(HELLO, max_tokens=20, sampling=sampling)
        held = room.chat(HELLO, max_tokens=20, sampling=sampling, grammar="root ::= .*")
        assert held.tokens == free.tokens and held.text == free.text


def test_a_reply_that_was_stopped_goes_on_in_the_grammar(room: EngineRoom) -> None:
    """From ids, and from the text alone, where the ids are other ones."""
    whole = room.chat(HELLO, grammar=WORDS)
    for cut in range(1, len(whole.tokens)):
        first = room.chat(HELLO, grammar=WORDS, max_tokens=cut)
        assert stopped(first) == "length"
        rest = room.chat([*HELLO, first.message], grammar=WORDS, continue_reply=True)
        assert first.text + rest.text == whole.text and stopped(rest) == "stop"
    by_text = room.chat([*HELLO, ChatMessage("assistant", "abc de")], grammar=WORDS, continue_reply=True)
    assert re.fullmatch("([a-z]{3} ){6}end", "abc de" + by_text.text)


def test_one_that_was_cancelled_goes_on_too(dense: EngineRoom) -> None:
    first = dense.chat(HELLO, grammar=WORDS, stop_after=3)
    assert stopped(first) == "cancelled"
    rest = dense.chat([*HELLO, first.message], grammar=WORDS, continue_reply=True)
    assert re.fullmatch("([a-z]{3} ){6}end", first.text + rest.text)


def test_what_is_written_and_does_not_fit_is_refused(dense: EngineRoom) -> None:
    free = dense.chat(HELLO, max_tokens=5)
    reply = dense.chat([*HELLO, free.message], grammar='root ::= "0"{40}', continue_reply=True)
    assert reply.failure == "What is written of this answer does not fit the grammar: ask anew."


def test_a_reply_at_its_limit_is_whole_when_nothing_is_missing(dense: EngineRoom) -> None:
    whole = dense.chat(HELLO, grammar=YES)
    n = len(whole.tokens)
    assert stopped(dense.chat(HELLO, grammar=YES, max_tokens=n)) == "stop"
    assert stopped(dense.chat(HELLO, grammar=WORDS, max_tokens=n)) == "length"
    assert stopped(dense.chat(HELLO, grammar='root ::= "y"+', max_tokens=3)) == "length", "more might come"


def test_an_empty_reply(dense: EngineRoom) -> None:
    reply = dense.chat(HELLO, grammar='root ::= ""')
    assert (reply.text, reply.tokens, stopped(reply)) == ("", [], "stop")


def test_characters_of_several_tokens(tmp_path: Path, starter: Path) -> None:
    model = write_tiny_model("dense", tmp_path / "bytes.gguf", starter, any_bytes=True)
    with EngineRoom(model, None) as room:
        reply = room.chat(HELLO, grammar="root ::= [ぁ-ん]{3} [😀-😏]", max_tokens=60)
        assert re.fullmatch("[ぁ-ん]{3}[😀-😏]", reply.text) and stopped(reply) == "stop"
        first = room.chat(HELLO, grammar="root ::= [😀-😏]{2}", max_tokens=2)
        rest = room.chat([*HELLO, first.message], grammar="root ::= [😀-😏]{2}", continue_reply=True)
        assert re.fullmatch("[😀-😏]{2}", first.text + rest.text)


def test_bytes_of_no_character_are_never_written(tmp_path: Path, starter: Path) -> None:
    model = write_tiny_model("dense", tmp_path / "bytes.gguf", starter, any_bytes=True)
    with EngineRoom(model, None) as room:
        assert room.engine._turns is not None
        piece = room.engine._turns._model.piece
        for seed in range(3):
            sampling = Sampling(temperature=2.0, seed=seed)
            reply = room.chat(HELLO, grammar="root ::= [^a-z]{40}", max_tokens=160, sampling=sampling)
            raw = b"".join(map(piece, reply.tokens))
            assert len(raw) > 40 and not re.search(rb"[\xc0\xc1\xf5-\xff]", raw)


def test_a_marker_in_a_grammar_is_its_text(dense: EngineRoom) -> None:
    reply = dense.chat(HELLO, grammar='root ::= "<|im_start|>" "x" "<|im_end|>"', max_tokens=60)
    assert reply.text == "<|im_start|>x<|im_end|>" and stopped(reply) == "stop"
    assert len(reply.tokens) > 6


@pytest.mark.parametrize("grammar", ["", "root", "root ::= root", 'root ::= ("" | "a")*'])
def test_a_grammar_that_is_none_is_refused_before_anything_is_computed(
    dense: EngineRoom, grammar: str
) -> None:
    reply = dense.chat(HELLO, grammar=grammar or " ")
    assert reply.failure.startswith("The grammar cannot be used: ")
    assert not any(isinstance(event, Prefill) for event in reply.events)
    assert stopped(dense.chat(HELLO, grammar=YES)) == "stop", "and the engine goes on"


def test_a_grammar_with_no_way_on_is_a_sentence(dense: EngineRoom) -> None:
    assert dense.engine._turns is not None
    model = dense.engine._turns._model
    model.never_written = frozenset(t for t in range(model.n_vocab) if b"q" in model.piece(t))
    reply = dense.chat(HELLO, grammar='root ::= "abc" "q"')
    assert reply.text == "abc"
    assert reply.failure.startswith("The grammar allows nothing here that the model has a token for")
    assert stopped(dense.chat([*HELLO, reply.message, user("And?")], grammar=YES)) == "stop"


def test_ways_that_multiply_are_stopped(dense: EngineRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraint, "SECONDS", 0.05)
    reply = dense.chat(HELLO, grammar=AMBIGUOUS, max_tokens=500)
    assert set(reply.text) <= {"a"}
    assert reply.failure.startswith("The grammar can read this answer in too many ways")
    assert stopped(dense.chat(HELLO, grammar=YES)) == "stop"


def test_what_does_not_return_ends_the_process(tiny: dict[str, Path]) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from ds4chat.engine import constraint\nfrom ds4chat.engine.llama import Model\n"
        "constraint.HARD_SECONDS = 0.2\n"
        "model = Model.load(Path(sys.argv[1]), extra_buffers=False)\n"
        "grammar = constraint.Grammar(model, sys.argv[2])\n"
        "print('ready', flush=True)\n"
        "grammar.follow(model.tokenize(b'a' * 60, markers=False))\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny["dense"]), AMBIGUOUS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ready\n" and done.returncode == -signal.SIGPROF, time.monotonic() - began


def test_grammars_are_freed_and_stand_side_by_side(tiny: dict[str, Path]) -> None:
    model = Model.load(tiny["dense"], extra_buffers=False)
    one, two = Grammar(model, YES), Grammar(model, WORDS)
    yes, abc = (model.tokenize(text, markers=False) for text in (b"yes", b"abc"))
    one.follow(yes)
    two.follow(abc)
    assert one.is_at_end() and not two.is_at_end()
    one.close()
    with pytest.raises(GrammarError, match="does not fit"):
        two.follow(yes)
    two.close()
    model.close()


def test_the_starter_model_writes_json_that_fits(starter: Path) -> None:
    grammar, not_kept = to_gbnf(json.dumps(SCHEMA))
    assert not_kept == []
    question = user(
        "Anna Schmidt is 34 years old and likes sailing and chess. Give name, age and tags as JSON."
    )
    with EngineRoom(starter, None, n_ctx=512) as room:
        for sampling in (Sampling(temperature=0.0), Sampling(seed=5)):
            reply = room.chat([question], grammar=grammar, max_tokens=160, sampling=sampling)
            assert stopped(reply) == "stop"
            value = json.loads(reply.text)
            jsonschema.validate(value, SCHEMA)
        assert value["name"].startswith("Anna") and value["age"] == 34
