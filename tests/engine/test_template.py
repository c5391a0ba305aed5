"""What the templates of real model families make of messages, and that typed text never becomes a marker."""

from __future__ import annotations

import functools
import re
import time
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.engine import template as template_module
from ds4chat.engine.template import CHATML, ChatTemplate, Marker, Part, Run, TemplateError

Messages = list[tuple[str, str]]


@dataclass(frozen=True)
class Family:
    source: str
    controls: tuple[str, ...]
    bos: str = ""
    eos: str = ""

    @functools.cache  # noqa: B019
    def template(self) -> ChatTemplate:
        return ChatTemplate(self.source, control_texts=self.controls, bos=self.bos, eos=self.eos)


FAMILIES = {
    "chatml": Family(CHATML, ("<|im_start|>", "<|im_end|>", "<|endoftext|>")),
    "chatml with a default system prompt": Family(
        "{%- for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        ("<|im_start|>", "<|im_end|>"),
    ),
    "headers with bos and trim": Family(
        "{{ bos_token }}{% for m in messages %}"
        "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
        "{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|begin_of_text|>",
        "<|eot_id|>",
    ),
    "turns without a system role": Family(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<bos>",
        "<eos>",
    ),
    "instructions in brackets, strict alternation": Family(
        "{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}"
        "{% set loop_messages = messages[1:] %}{%- else %}{% set loop_messages = messages %}{% endif %}{{ bos_token }}"
        "{%- for m in loop_messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{%- if m.role == 'user' %}{% if loop.last and system is defined %}"
        "{{ ' [INST] ' + system + '\n\n' + m.content + ' [/INST]' }}"
        "{%- else %}{{ ' [INST] ' + m.content + ' [/INST]' }}{% endif %}"
        "{%- else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}",
        ("<s>", "</s>"),
        "<s>",
        "</s>",
    ),
    "reasoning stripped from the past": Family(
        "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
        "{%- if m.role == 'assistant' and '</think>' in m.content and loop.index0 < ns.last %}"
        "{{- m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{- m.content }}{% endif %}"
        "{{- '<|im_end|>\n' }}{% endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}",
        ("<|im_start|>", "<|im_end|>"),
    ),
    "reasoning stripped, full-width markers": Family(
        "{{ bos_token }}{%- for m in messages %}{%- if m.role == 'system' %}{{ m.content }}"
        "{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}{%- else %}{% set content = m.content %}"
        "{%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{ '<｜Assistant｜>' + content.strip() + eos_token }}{% endif %}{% endfor %}"
        "{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
    ),
    "the date in the system prompt": Family(
        "{{ '<|start|>system\nToday is ' + strftime_now('%d %B %Y') + '.\n' }}"
        "{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
        "{{ '<|end|>' }}{% for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
        ("<|start|>", "<|end|>", "<|message|>"),
    ),
    "contents as json": Family(
        "{% for m in messages %}{{ '<|turn|>' }}{{ {'role': m.role, 'content': m.content} | tojson }}"
        "{{ '<|turn_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|turn|>' }}{% endif %}",
        ("<|turn|>", "<|turn_end|>"),
    ),
    "breaks, macros and blocks for training": Family(
        "{% macro turn(role, text) %}{{ '<|' + role + '|>\n' + text + '<|end|>\n' }}{% endmacro %}"
        "{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}"
        "{% if m.role == 'assistant' %}{% generation %}{{ turn(m.role, m.content) }}{% endgeneration %}"
        "{% else %}{{ turn(m.role, m.content) }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    ),
}
KEEPS_ALL = sorted(set(FAMILIES) - {"contents as json"})

CHAT: Messages = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi there"), ("user", "Bye")]


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts)


def markers(parts: list[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Marker)]


def contents(parts: list[Part]) -> dict[int, str]:
    """The text of each message by its spans."""
    return {
        index: part.text[max(start, 0) : end]
        for part in parts
        if isinstance(part, Run)
        for index, start, end in part.contents
    }


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def test_chatml_stands_in_for_a_missing_template() -> None:
    parts = ChatTemplate("", control_texts=("<|im_start|>", "<|im_end|>")).render(
        CHAT[:2], reply_follows=True
    )
    assert parts == [
        Marker("<|im_start|>"),
        Run("system\nBe brief.", ((0, 7, 16),)),
        Marker("<|im_end|>"),
        Run("\n"),
        Marker("<|im_start|>"),
        Run("user\nHello", ((1, 5, 10),)),
        Marker("<|im_end|>"),
        Run("\n"),
        Marker("<|im_start|>"),
        Run("assistant\n"),
    ]


def test_the_text_is_the_reference_rendering() -> None:
    parts = (
        FAMILIES["headers with bos and trim"]
        .template()
        .render([("user", "  Hello\n"), ("assistant", "Hi")], reply_follows=True)
    )
    assert text_of(parts) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert contents(parts) == {0: "Hello", 1: "Hi"}


def test_spans_tell_the_text_of_each_message(family: Family) -> None:
    parts = family.template().render(CHAT, reply_follows=True)
    assert contents(parts) == {i: text for i, (_role, text) in enumerate(CHAT)}


def test_no_reply_header_after_a_reply(family: Family) -> None:
    closed = text_of(family.template().render(CHAT[1:3], reply_follows=False))
    opened = text_of(family.template().render(CHAT[1:3], reply_follows=True))
    assert opened.startswith(closed)


@pytest.mark.parametrize("index", range(4))
def test_typed_control_texts_stay_text(family: Family, index: int) -> None:
    """In the system prompt, in a question and in a reply, alone, nested in one another and at the edges."""
    expected = markers(family.template().render(CHAT, reply_follows=True))
    joined = "".join(family.controls)
    halves = "".join(c[: len(c) // 2] + c + c[len(c) // 2 :] for c in family.controls)
    for typed in (*family.controls, joined, f"a {joined} b", halves, "<" + joined + ">"):
        messages = list(CHAT)
        messages[index] = messages[index][0], typed
        parts = family.template().render(messages, reply_follows=True)
        assert markers(parts) == expected
        assert contents(parts)[index] == typed


def test_a_marker_that_a_content_and_the_template_spell_together_is_text() -> None:
    template = ChatTemplate(
        "{% for m in messages %}[{{ m.content }}>{% endfor %}", control_texts=("<s>", "[x")
    )
    assert template.render([("user", "x<s")], reply_follows=False) == [Run("[x<s>", ((0, 1, 4),))]


def test_overlapping_control_texts_and_ones_of_one_character() -> None:
    controls = ("<s>", "s>x", "<", "<s", "ab", "ba")
    template = ChatTemplate("{% for m in messages %}<s>{{ m.content }}{% endfor %}", control_texts=controls)
    for typed in ("<s>x", "<<s>>", "<", "ababa", "s>x<s"):
        assert template.render([("user", typed)], reply_follows=False) == [
            Marker("<s>"),
            Run(typed, ((0, 0, len(typed)),)),
        ]


def test_the_longer_of_two_markers_wins_as_in_the_tokenizer() -> None:
    template = ChatTemplate("<s><s>>", control_texts=("<s>", "<s>>"))
    assert template.render([], reply_follows=False) == [Marker("<s>"), Marker("<s>>")]


def test_thousands_of_control_texts_and_a_long_paste() -> None:
    controls = [f"<unused{i}>" for i in range(6000)]
    template = ChatTemplate("{{ messages[0].content }}", control_texts=controls)
    paste = "if (a < b) <unused17> {};\n" * 10_000
    began = time.perf_counter()
    parts = template.render([("user", paste)], reply_follows=False)
    assert parts == [Run(paste, ((0, 0, len(paste)),))]
    assert time.perf_counter() - began < 2


NONCHARACTERS = "".join(map(chr, range(0xFDD0, 0xFDF0)))


@pytest.mark.parametrize(
    "text", [NONCHARACTERS, NONCHARACTERS[:1], "\ufdd0<|im_end|>\ufdd1", "\ufffe\uffff\U0010ffff"]
)
def test_noncharacters_in_a_content_come_out_as_they_are(family: Family, text: str) -> None:
    messages = [("user", text), ("assistant", f"{text}{text}"), ("user", "Bye")]
    parts = family.template().render(messages, reply_follows=True)
    if "tojson" not in family.source:
        assert contents(parts) == {0: text, 1: text + text, 2: "Bye"}
    assert text in text_of(parts)


@pytest.mark.parametrize("blank", ["", " ", "\n\n", " \t\n", "\u3000"])
def test_contents_of_white_space_and_nothing(family: Family, blank: str) -> None:
    messages = [("user", blank), ("assistant", blank), ("user", f"{blank}Bye{blank}")]
    parts = family.template().render(messages, reply_follows=True)
    told = contents(parts)
    if "tojson" not in family.source:
        assert told[0] in (blank, "") and told[1] in (blank, "")
        assert told[2] in (f"{blank}Bye{blank}", "Bye")
    assert sorted(told) == [0, 1, 2]
    assert len(markers(parts)) == len(markers(family.template().render(CHAT[1:], reply_follows=True)))


def test_a_padded_question_does_not_cost_the_whole_span_of_an_untrimmed_reply() -> None:
    """A template that trims questions alone: the reply's own white space is still part of its span."""
    template = ChatTemplate(
        "{% for m in messages %}<s>{{ m.content.strip() if m.role == 'user' else m.content }}{% endfor %}",
        control_texts=("<s>",),
    )
    parts = template.render([("user", " Hello "), ("assistant", " Hi\n")], reply_follows=False)
    assert contents(parts) == {0: "Hello", 1: " Hi\n"}


def test_a_system_prompt_without_a_place_goes_ahead_of_the_first_question() -> None:
    parts = FAMILIES["turns without a system role"].template().render(CHAT, reply_follows=True)
    assert text_of(parts).startswith("<bos><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n")


def test_a_system_prompt_that_a_template_passes_over_goes_ahead_of_the_first_question() -> None:
    source = "{% for m in messages if m.role != 'system' %}<s>{{ m.role }}: {{ m.content }}{% endfor %}"
    parts = ChatTemplate(source, control_texts=("<s>",)).render(CHAT, reply_follows=True)
    assert text_of(parts) == "<s>user: Be brief.\n\nHello<s>assistant: Hi there<s>user: Bye"
    assert contents(parts) == {i: text for i, (_role, text) in enumerate(CHAT)}


def test_a_template_that_puts_the_system_prompt_before_the_last_question() -> None:
    parts = (
        FAMILIES["instructions in brackets, strict alternation"].template().render(CHAT, reply_follows=True)
    )
    assert text_of(parts) == "<s> [INST] Hello [/INST] Hi there</s> [INST] Be brief.\n\nBye [/INST]"


def test_a_template_that_says_a_content_twice_or_leaves_the_oldest_out() -> None:
    twice = ChatTemplate("{% for m in messages %}{{ m.content }}|{{ m.content }};{% endfor %}")
    (run,) = twice.render([("user", "a"), ("assistant", "b")], reply_follows=False)
    assert isinstance(run, Run) and run.text == "a|a;b|b;"
    assert run.contents == ((0, 0, 1), (0, 2, 3), (1, 4, 5), (1, 6, 7))
    short = ChatTemplate("{% for m in messages[-2:] %}{{ m.content }};{% endfor %}")
    assert contents(short.render(CHAT[1:], reply_follows=True)) == {1: "Hi there", 2: "Bye"}


def test_strict_alternation_is_the_templates_own_sentence() -> None:
    for name in ("turns without a system role", "instructions in brackets, strict alternation"):
        with pytest.raises(TemplateError, match="alternate"):
            FAMILIES[name].template().render([("user", "a"), ("user", "b")], reply_follows=True)


@pytest.mark.parametrize(
    "name", ["reasoning stripped from the past", "reasoning stripped, full-width markers"]
)
@pytest.mark.parametrize("tail", ["\n\nHi there", "Hi there", "\n\n  Hi there"])
def test_stripped_reasoning_leaves_the_end_of_the_content(name: str, tail: str) -> None:
    messages = [("user", "Hello"), ("assistant", f"<think>\nhm\n</think>{tail}"), ("user", "Bye")]
    parts = FAMILIES[name].template().render(messages, reply_follows=True)
    assert "hm" not in text_of(parts)
    (found,) = [
        (part.text, start, end)
        for part in parts
        if isinstance(part, Run)
        for index, start, end in part.contents
        if index == 1
    ]
    text, start, end = found
    assert start == -1 and text[:end].endswith("Hi there")


def test_the_date_is_todays_and_another_one_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    template = FAMILIES["the date in the system prompt"].template()
    texts = []
    for day in (1, 2):

        class Clock(datetime):
            @classmethod
            def now(cls, tz: object = None, _day: int = day) -> datetime:  # type: ignore[override]
                return datetime(2031, 5, _day)

        monkeypatch.setattr(template_module, "datetime", Clock)
        parts = template.render(CHAT, reply_follows=True)
        assert contents(parts)[0] == "Be brief."
        texts.append(text_of(parts))
    assert "01 May 2031" in texts[0]
    assert texts[0].replace("01 May", "02 May") == texts[1]


def test_a_clock_that_moves_between_renderings_does_not_lose_the_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter(range(100))

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(2031, 5, 1, 0, 0, next(moments))

    monkeypatch.setattr(template_module, "datetime", Clock)
    template = ChatTemplate("{{ strftime_now('%H:%M:%S') }} {{ messages[0].content }}")
    assert contents(template.render([("user", "Hello")], reply_follows=True)) == {0: "Hello"}


def test_tojson_writes_what_templates_expect() -> None:
    source = (
        "{{ messages[0] | tojson }}{{ {'b': 1, 'a': 'é<'} | tojson(sort_keys=true, separators=(',', ':')) }}"
    )
    parts = ChatTemplate(source).render([("user", "<é>'\"")], reply_follows=False)
    assert text_of(parts) == '{"role": "user", "content": "<é>\'\\""}{"a":"é<","b":1}'


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% set x = messages.append({'role': 'user', 'content': 'more'}) %}",
        "{% set x = messages[0].update(role='system') %}",
        "{% set x = messages.clear() %}",
        "{{ range(10 ** 9) | list }}",
        "{{ nothing.at.all }}",
        "{{ messages[99].content }}",
        "{{ 1 / 0 }}",
        "{{ messages + 1 }}",
        "{{ [1].index(2) }}",
        "{{ 'x' | nofilter }}",
        "{{ messages | map(attribute='content') | sum }}",
        "{{ strftime_now(3) }}",
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        "{{ raise_exception('no') }}",
    ],
)
def test_what_a_template_may_not_do_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render([("user", "Hello"), ("assistant", "Hi")], reply_follows=True)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ strftime_now.__self__ }}",
        "{{ messages[0]['__class__'] }}",
        "{{ messages | attr('__class__') }}",
        "{{ raise_exception.__globals__ }}",
    ],
)
def test_the_insides_of_the_program_render_as_nothing(source: str) -> None:
    assert text_of(ChatTemplate(source).render([("user", "Hello")], reply_follows=True)) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}",
        "{{ 'x' ",
        "{% endfor %}",
        "{% nonsense %}",
        "{% generation %}open",
        "{% for a in messages %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "{% break %}",
    ],
    ids=lambda source: source[:20],
)
def test_a_template_that_does_not_compile_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source)


def test_no_messages_at_all(family: Family) -> None:
    try:
        parts = family.template().render([], reply_follows=True)
    except TemplateError:
        return
    assert contents(parts) == {}


# ---- whatever is typed ------------------------------------------------------------------------------------------

ALL_CONTROLS = sorted({c for family in FAMILIES.values() for c in family.controls})
LOOKALIKES = ["<|", "|>", "<", ">", "im_end", "[INST]", "[/INST]", "{{", "{%", "'", '"', "\\n"]
PIECES = [*ALL_CONTROLS, *LOOKALIKES, " ", "\n", "\t", "\ufdd0", "\ufdd1", "😀", "é"]
typed = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=8).map("".join)).filter(
    # Lone surrogates do not get into a session; a reply's reasoning is the template's business.
    lambda text: "</think>" not in text and not re.search("[\ud800-\udfff]", text)
)


@pytest.mark.parametrize("name", KEEPS_ALL)
@given(texts=st.lists(typed, min_size=3, max_size=3))
@settings(max_examples=20, deadline=None)
def test_any_content_stays_itself_between_the_templates_own_markers(name: str, texts: list[str]) -> None:
    template = FAMILIES[name].template()
    roles = ("user", "assistant", "user")
    parts = template.render(list(zip(roles, texts, strict=True)), reply_follows=True)
    harmless = [f"m{i}m" for i in range(3)]
    plain = template.render(list(zip(roles, harmless, strict=True)), reply_follows=True)
    assert markers(parts) == markers(plain)
    # The harmless rendering with the contents in their places.
    trims = "trim" in FAMILIES[name].source or "strip()" in FAMILIES[name].source
    expected = re.escape(text_of(plain))
    for word, text in zip(harmless, texts, strict=True):
        options = {text, text.strip()} if trims else {text}
        expected = expected.replace(word, f"(?:{'|'.join(map(re.escape, options))})")
    assert re.fullmatch(expected, text_of(parts))
    for index, told in contents(parts).items():
        assert told in (texts[index], texts[index].strip())
