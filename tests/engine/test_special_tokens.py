"""Text that spells a special token is never one, on the starter model's own tokenizer and its own kind of template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ds4chat.engine.llama import Model
from ds4chat.engine.prompt import PromptBuilder
from ds4chat.engine.protocol import ChatMessage
from ds4chat.engine.template import CHATML, ChatTemplate
from tests.engine.test_template import FAMILIES

TURN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ CONTENT }}{{ '<|im_end|>\n' }}{% endfor %}"
)
END = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


def with_content(expression: str) -> str:
    """A ChatML template that does something to the contents."""
    return TURN.replace("CONTENT", expression) + END


TEMPLATES = {
    "as it is": CHATML,
    "trimmed": with_content("m.content | trim"),
    "stripped of characters": with_content("m.content.strip('x \n')"),
    "lower case": with_content("m.content | lower"),
    "upper case": with_content("m.content | upper"),
    "title case": with_content("m.content | title"),
    "letters taken out": with_content("m.content | replace('X', '') | replace('\n', '')"),
    "escaped": with_content("m.content | e"),
    "as json": with_content("m.content | tojson"),
    "cut in two and put together": with_content(
        "m.content.split('<think>')[0] ~ m.content.split('</think>')[-1]"
    ),
    "lines joined": with_content("m.content.split('\n') | join('')"),
    "every letter": with_content("m.content | list | join"),
    "twice": with_content("m.content ~ m.content"),
    "with a header in the content": with_content("'<|' ~ m.content ~ '|>'"),
}

PIECES = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "start|>", "end|>", "<|", "|>", "<", "|", ">", "im_start",
    "im_end", "<|IM_END|>", "<|Im_Start|>", "<|im_Xend|>", "<|im_\nend|>", "<<|im_end|>", "<|im_<|im_end|>end|>",
    "<think>", "</think>", "<|im_<think>x</think>end|>", "system\n", "X", " ", "\n", "a", "\ufdd0",
    "&lt;|im_end|&gt;", "\\u003c|im_end|>",
)  # fmt: skip

SPLICED = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@pytest.fixture(scope="module")
def model(starter: Path) -> Iterator[Model]:
    loaded = Model.load(starter, extra_buffers=False)
    yield loaded
    loaded.close()


def builder(model: Model, source: str) -> PromptBuilder:
    return PromptBuilder(model, ChatTemplate(source, control_texts=model.control_texts))


def controls(model: Model, tokens: list[int]) -> list[int]:
    return [token for token in tokens if model.is_control(token)]


def chat(system: str, question: str, reply: str, last: str) -> list[ChatMessage]:
    """Replies without ids: imported, edited, or of other weights."""
    texts = (("system", system), ("user", question), ("assistant", reply), ("user", last))
    return [ChatMessage(role, text) for role, text in texts]


def test_the_splices_can_spell_what_they_are_to_spell(model: Model) -> None:
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= model.control_texts
    assert controls(model, model.tokenize(b"<|im_end|>", markers=True)), (
        "the tokenizer would read it as the token"
    )


@pytest.mark.parametrize("name", TEMPLATES)
@given(system=SPLICED, question=SPLICED, reply=SPLICED, last=SPLICED)
@example("<|im_end|>", "<|IM_END|>", "<|im_<think>x</think>end|>", "<|im_\nXend|>")
@example("a</think>b", "x<|im_end|>", "im_end", "<|im_<|im_end|>end|>")
def test_only_the_templates_own_markers_are_markers(
    model: Model, name: str, system: str, question: str, reply: str, last: str
) -> None:
    made = builder(model, TEMPLATES[name])
    expected = controls(model, made.build(chat("a", "a", "a", "a")).tokens)
    assert len(expected) == 9
    assert controls(model, made.build(chat(system, question, reply, last)).tokens) == expected


@given(typed=SPLICED)
def test_what_was_typed_arrives_letter_by_letter(model: Model, typed: str) -> None:
    prompt = builder(model, CHATML).build([ChatMessage("user", typed)])
    texts = [b"<c>" if model.is_control(token) else model.piece(token) for token in prompt.tokens]
    assert b"".join(texts) == f"<c>user\n{typed}<c>\n<c>assistant\n".encode()


@given(reply=SPLICED)
def test_a_reply_that_is_gone_on_with_from_its_text_has_no_markers(model: Model, reply: str) -> None:
    made = builder(model, CHATML)
    asked = made.build([ChatMessage("user", "a")]).tokens
    going_on = made.build(
        [ChatMessage("user", "a"), ChatMessage("assistant", reply)], continue_reply=True
    ).tokens
    assert going_on[: len(asked)] == asked
    assert controls(model, going_on[len(asked) :]) == []


@pytest.mark.parametrize("name", sorted(FAMILIES))
@given(question=SPLICED, reply=SPLICED)
def test_families_of_templates_on_pieces_of_their_own_markers(name: str, question: str, reply: str) -> None:
    """No tokenizer: the markers that the template puts are counted."""
    family = FAMILIES[name]
    own = "".join(family.controls)
    halves = [own[: len(own) // 2], own[len(own) // 2 :]]
    question, reply = question.replace("X", own), reply.replace("X", halves[0]).replace("a", halves[1])

    def markers(asked: str, said: str) -> list[str]:
        chat = [("user", asked), ("assistant", said), ("user", asked)]
        parts = family.template().render(chat, reply_follows=True)
        return [part.text for part in parts if type(part).__name__ == "Marker"]

    assert markers(question, reply) == markers("a", "a")


def test_a_template_that_looks_into_contents_still_finds_what_it_looks_for(model: Model) -> None:
    """There contents stay as they are but for the texts of whole markers, so that the template does what it does."""
    source = with_content("m.content.split('</think>')[-1] if '</think>' in m.content else m.content")
    made = builder(model, source)
    thought = made.build([ChatMessage("assistant", "<think>hm</think>Yes<|im_end|>")]).tokens
    assert b"hm" not in b"".join(map(model.piece, thought))
    assert b"".join(map(model.piece, thought)).endswith(b"Yes<|im_end|>\n")
    assert len(controls(model, thought)) == 2


def test_ids_that_the_model_sampled_are_kept_as_they_are(model: Model) -> None:
    """A model may say a control token: that is what it said, and no text."""
    (marker,) = controls(model, model.tokenize(b"<|im_start|>", markers=True))
    ids = [*model.tokenize(b"Yes", markers=False), marker, *model.tokenize(b" no", markers=False)]
    prompt = builder(model, CHATML).build(
        [
            ChatMessage("user", "a"),
            ChatMessage("assistant", "Yes no", ids),
            ChatMessage("user", "<|im_start|>"),
        ]
    )
    assert controls(model, prompt.tokens).count(marker) == 5
