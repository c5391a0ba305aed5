"""What of a reply is reasoning, in whole texts and in texts that grow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds4chat.sessions.reasoning import CHANNELS, TAGS, Part, split, visible_answer


def reasoning(text: str, closed: bool = True) -> Part:
    return Part("reasoning", text, closed)


def answer(text: str) -> Part:
    return Part("answer", text, True)


@pytest.mark.parametrize(("opening", "closing"), TAGS.items())
@pytest.mark.parametrize("change", [str, str.upper])
def test_each_kind_of_tag(opening: str, closing: str, change: type[str]) -> None:
    text = f"{change(opening)}\nhm\n{change(closing)}\n\nIt is so."
    assert split(text) == [reasoning("\nhm\n"), answer("\n\nIt is so.")]
    assert visible_answer(text) == "It is so."


CASES = {
    "": [],
    " \n": [],
    "Hello": [answer("Hello")],
    "\n\nHello": [answer("\n\nHello")],
    "<think>hm": [reasoning("hm", False)],
    "\n <think>": [reasoning("", False)],
    "<think></think>": [reasoning("")],
    "<think>a</think> \n": [reasoning("a")],
    "<think>a</think>\n<think>b</think>\nc": [reasoning("a"), reasoning("b"), answer("\nc")],
    "<think>a</think>\n<thought>b": [reasoning("a"), reasoning("b", False)],
    "<think>a <think> b</think>c": [reasoning("a <think> b"), answer("c")],
    "<think>a</thinking>b": [reasoning("a</thinking>b", False)],
    "<think>a</think>The tag <think> opens": [reasoning("a"), answer("The tag <think> opens")],
    "The tag <think> opens": [answer("The tag <think> opens")],
    "`<think>` opens": [answer("`<think>` opens")],
    "```\n<think>\n```": [answer("```\n<think>\n```")],
    "a</think>b": [answer("a</think>b")],
    "<thinker>": [answer("<thinker>")],
    "<table>": [answer("<table>")],
    "[THINK]a[/THINK]b": [reasoning("a"), answer("b")],
    "[INST]": [answer("[INST]")],
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>": [
        reasoning("a"),
        answer("b"),
    ],
    "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>commentary to=x<|message|>b<|end|>c": [
        reasoning("a"),
        reasoning("b"),
        answer("c"),
    ],
    "<|channel|>final<|message|>b": [answer("b")],
    "<|channel|>music<|message|>b": [answer("<|channel|>music<|message|>b")],
    "<|im_start|>": [answer("<|im_start|>")],
}


@pytest.mark.parametrize("text", CASES)
def test_where_a_tag_is_a_tag(text: str) -> None:
    assert split(text) == CASES[text]
    assert split(text, whole=True) == CASES[text]


@pytest.mark.parametrize(
    ("text", "held", "whole"),
    [
        ("<", [reasoning("", False)], [answer("<")]),
        ("\n<Think", [reasoning("", False)], [answer("\n<Think")]),
        ("[T", [reasoning("", False)], [answer("[T")]),
        ("<|channel|>ana", [reasoning("", False)], [answer("<|channel|>ana")]),
        ("<|channel|>analysis to=x<|mes", [reasoning("", False)], [answer("<|channel|>analysis to=x<|mes")]),
        ("<think>a</thi", [reasoning("a", False)], [reasoning("a</thi", False)]),
        ("<think>a</think>\n<", [reasoning("a"), reasoning("", False)], [reasoning("a"), answer("\n<")]),
        ("<|channel|>final<|message|>b<|ret", [answer("b")], [answer("b<|ret")]),
    ],
)
def test_half_a_tag_is_held_back_until_the_text_is_whole(
    text: str, held: list[Part], whole: list[Part]
) -> None:
    assert split(text) == held
    assert split(text, whole=True) == whole
    assert visible_answer(text) == "".join(p.text for p in held if p.kind == "answer")


snippets = st.sampled_from(
    [
        *TAGS,
        *TAGS.values(),
        *(f"<|channel|>{name}<|message|>" for name in CHANNELS),
        "<|end|>",
        "<|start|>assistant",
        "<|return|>",
        "\n",
        " ",
        "word ",
        "<",
        "</",
        "[",
        "`<think>`",
        "日本",
    ]
)
replies = st.lists(snippets | st.text("<>/[]|think \n", max_size=4), max_size=12).map("".join)


@given(replies, st.data())
def test_a_text_that_grows_changes_only_the_end_of_its_last_part(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    final = split(text)
    for end in cuts:
        parts = split(text[:end])
        if not parts:
            continue
        *settled, last = parts
        assert settled == final[: len(settled)]
        if last == reasoning("", False) and len(final) <= len(settled):
            continue  # what was held back is white space and half a tag of the whole text, too
        now = final[len(settled)]
        assert now.text.startswith(last.text)
        assert now.kind == last.kind or last == reasoning("", False)


@given(replies, st.data())
def test_what_is_shown_as_answer_is_never_taken_back(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(text)))
    assert visible_answer(text).startswith(visible_answer(text[:end]))


_BETWEEN = (
    "(?:"
    + "|".join(re.escape(tag) for tag in (*TAGS, *TAGS.values(), "<|end|>", "<|return|>"))
    + r"|(?:<\|start\|>assistant)?<\|channel\|>\w+[^<]{0,100}<\|message\|>|\s)*"
)


@given(replies)
def test_nothing_but_tags_and_white_space_is_left_out(text: str) -> None:
    parts = split(text, whole=True)
    pattern = _BETWEEN + "".join(re.escape(part.text) + _BETWEEN for part in parts)
    assert re.fullmatch(pattern, text, re.IGNORECASE)


@given(st.text())
def test_a_text_without_a_tag_at_its_start_is_answer(text: str) -> None:
    assert visible_answer("Well, " + text) == "Well, " + text
