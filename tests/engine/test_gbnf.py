"""Grammars: what is refused before llama.cpp sees it, and that llama.cpp and our reader say the same of the rest."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat import gbnf
from ds4chat.engine.constraint import Grammar, GrammarError
from ds4chat.engine.llama import Model
from tests.support.grammar_texts import draw

GOOD = {
    "one": 'root ::= "yes" | "no"',
    "empty text": 'root ::= ""',
    "lines": 'root ::= "a"\n\n  # a comment\nb ::= "c" # another\r\n',
    "over lines": 'root ::= (\n  "a" |\n  [b-d] # why\n) "e" |\n "f"',
    "repeats": 'root ::= "a"* [b]+ .? ("c" | "d"){2} "e"{1,} "f"{0,3}',
    "escapes": r'root ::= "\x41\u00e9\U0001F600\t\r\n\\\"" [\[\]\-\\^"]',
    "sets": "root ::= [a-z0-9_] [-a] [a-] [^\\n] [^a-z] [日-本é]",
    "names": "root ::= a-1\na-1 ::= B2\nB2 ::= [x]",
    "numbers as names": 'root ::= 1\n1 ::= "x"',
    "right recursion": 'root ::= "a" root | ""',
    "defined twice": 'root ::= "a"\nroot ::= "b"',
    "optional in a repeat": 'root ::= ("a"?)*',
    "just few enough": 'root ::= ("a" ("b" | ("c" | "d"))){666}',
    "arithmetic": 'root ::= (expr "=" term "\\n")+\nexpr ::= term ([-+*/] term)*\n'
    'term ::= [0-9]+ | "(" expr ")"',
    "long": "root ::= a\n"
    + "\n".join(f'a{i} ::= "x" a{i + 1}' for i in range(900))
    + '\na900 ::= ""\na ::= a0',
}

BAD = {
    "": "no rule",
    "  # only a comment": "no rule",
    'x ::= "a"': "root",
    "root": "::= is expected",
    'my_rule ::= "a"': "letters, digits and -",
    'root ::= "a': "closing quote",
    "root ::= [a": "closing ]",
    'root ::= ("a"': r"closing \)",
    'root ::= "a")': r"\) cannot stand",
    'root ::= "a"\n | "b"': "line 2: a rule is expected",
    "root ::= missing": "no rule missing",
    "root ::= a\na ::= [x]\n\nb ::= gone": "line 4: there is no rule gone",
    r'root ::= "\q"': r"\\q is not known",
    r'root ::= "\u12"': "not known",
    r"root ::= [\d]": "not known",
    "root ::= []": "no character",
    "root ::= [^]": "no character",
    "root ::= [z-a]": "wrong way round",
    "root ::= *": "nothing that",
    'root ::= ""*': "nothing that",
    'root ::= "a"{2000}': "1,999 times",
    'root ::= "a"{1,99999999999999999999999}': "1,999 times",
    'root ::= "a"{3,1}': "wrong way round",
    'root ::= "a"{x}': "number of times",
    'root ::= ("" | "a")*': "root repeats without end what may be empty",
    'root ::= "x" ws+\nws ::= [ ] |': "root repeats without end what may be empty",
    'root ::= ("a" ("b" | ("c" | "d"))){667}': "more than 1,999 parts",
    'root ::= "a"{50}{50}': "more than 1,999 parts",
    "root ::= <think>": "by name",
    "root ::= !<[5]>": "by name",
    'root ::= "a\0b"': "NUL",
    r'root ::= "\x00"': "no character",
    r'root ::= "\UFFFFFFFF"': "no character",
    'root ::= "\ud800"': "UTF-8",
}

HOSTILE = {
    "left recursion": 'root ::= root "a" | "b"',
    "left recursion in a circle": 'root ::= a\na ::= b "x"\nb ::= a | "y"',
    "left recursion behind what may be empty": 'root ::= b root "y" | "x"\nb ::= c\nc ::= ""',
    "left recursion behind a repeat": 'root ::= [a]* root "y" | "x"',
    "left recursion in a group": 'root ::= (("a"? root) "y")+ | "x"',
    "deep groups": "root ::= " + "(" * 90_000 + "[a]" + ")" * 90_000,
    "a long row of rules": "\n".join(f"r{i} ::= r{i + 1}" for i in range(9000))
    + "\nr9000 ::= [a]\nroot ::= r0",
    "rules in many ways": "\n".join(f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(60))
    + "\nr60 ::= [a]\nroot ::= r0",
    "large repeats": "root ::= " + ('"' + "a" * 500 + '"{0,1900} ') * 3,
    "too long": "root ::= " + "[a] " * 60_000,
    "a large number": 'root ::= "a"{' + "9" * 5000 + "}",
    "all open": 'root ::= "a" (' * 5000,
}


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Iterator[Model]:
    model = Model.load(tiny["dense"], extra_buffers=False)
    yield model
    model.close()


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_good_one_is_taken_by_both(model: Model, text: str) -> None:
    assert "root" in gbnf.parse(text)
    Grammar(model, text).close()


@pytest.mark.parametrize(("text", "why"), BAD.items(), ids=range(len(BAD)))
def test_a_bad_one_is_refused_with_the_reason(model: Model, text: str, why: str) -> None:
    with pytest.raises(gbnf.GrammarError, match=why):
        gbnf.parse(text)
    with pytest.raises(GrammarError, match="^The grammar cannot be used: .*" + why):
        Grammar(model, text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_one_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(gbnf.GrammarError) as refused:
        gbnf.parse(text)
    assert time.process_time() - began < 5
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_what_only_llama_cpp_refuses_is_a_sentence_too(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of it may have other limits."""
    monkeypatch.setattr(gbnf, "parse", lambda text: {})
    for text in ('root ::= ("" | "a")*', 'root ::= ("a" ("b" | ("c" | "d"))){667}', "root", " "):
        with pytest.raises(GrammarError, match="the engine does not take it"):
            Grammar(model, text)


@pytest.mark.parametrize("name", ["one", "over lines", "repeats", "escapes", "sets", "arithmetic"])
def test_both_read_the_same_language(model: Model, name: str) -> None:
    """Texts made from what our reader understood are texts that llama.cpp lets through, to the end."""
    end = next(t for t in range(model.n_vocab) if model.is_eog(t))
    choice = random.Random(7)
    for _ in range(10):
        text = draw(gbnf.parse(GOOD[name]), choice)
        grammar = Grammar(model, GOOD[name])
        try:
            grammar.follow(model.tokenize(text.encode(), markers=False))
            assert grammar.allows(end), text
        finally:
            grammar.close()


@given(text=st.text(st.sampled_from('root:=|"ab[]-^(){},0123*+?. \n\\xuU#<!'), max_size=60))
def test_no_text_is_read_wrong(model: Model, text: str) -> None:
    """Whatever it is, it is refused in words, or llama.cpp takes it."""
    for source in (text, f"root ::= {text}"):
        try:
            gbnf.parse(source)
        except gbnf.GrammarError:
            continue
        Grammar(model, source).close()


@given(text=st.text(max_size=30))
def test_a_literal_stands_for_its_text(text: str) -> None:
    if gbnf.is_text(text) and "\0" not in text:
        ((node,),) = gbnf.parse(f"root ::= {gbnf.literal(text)}")["root"].alternatives
        assert node == gbnf.Literal(text)
