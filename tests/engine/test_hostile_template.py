"""Chat templates that loop for ever, make giant output or reach for files: each is given up within its limits."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ds4chat.engine import sandbox
from ds4chat.engine.protocol import Done, Event, Failed, Notice
from ds4chat.engine.template import (
    CHATML,
    ChatTemplate,
    TemplateError,
    TemplateLimitError,
    _GenerationBlock,
    _raise_exception,
    _tojson,
)
from ds4chat.sessions.events import EngineNotice
from tests.engine.test_template import CHAT, FAMILIES, text_of
from tests.support.engine_room import EngineRoom, system, user
from tests.support.program import Program
from tests.support.scripted_engine import scripted_room

DOUBLE = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ ns.x }}"
)

TIME = "ran for more than 0.3 seconds and was stopped"
TEN_BILLION = "asks for a text or a list of 10,000,000,000"
WIDTH = "asks for a width above 10,000"
COUNT = "asks for a width or a count above 10,000"
OUTPUT = "asks for more than 4,000,032 characters of output"
UNSAFE = "reaches for what no template may have (access to attribute '__class__' of 'str' object is unsafe.)"
FILE = "reaches for another file ('/etc/passwd')"

HOSTILE = {
    "an endless loop": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        TIME,
    ),
    "a loop that builds lists": (
        "{% for a in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
        TIME,
    ),
    "lorem ipsum": ("{{ lipsum(n=10 ** 9) }}", "asks for filler text"),
    "endless output": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ messages * 9 }}{% endfor %}{% endfor %}",
        OUTPUT,
    ),
    "a text times": ("{{ 'a' * 10 ** 10 }}", TEN_BILLION),
    "a list times": ("{{ ([0] * 10 ** 10) | length }}", TEN_BILLION),
    "times a list": ("{{ (10 ** 10 * [0]) | length }}", TEN_BILLION),
    "a power": ("{{ 10 ** 10000000000 }}", "asks for a number of 40,000,000,000 bits"),
    "squares": (DOUBLE % ("3", "ns.x * ns.x"), "asks for a number of 25,970 bits"),
    "doubled by ~": (DOUBLE % ("'ab'", "ns.x ~ ns.x"), OUTPUT),
    "doubled by +": (DOUBLE % ("'ab'", "ns.x + ns.x"), "asks for a text or a list of 4,194,304"),
    "a doubled list": (DOUBLE % ("[0]", "ns.x + ns.x"), "asks for a text or a list of 4,194,304"),
    "doubled by join": (DOUBLE % ("'ab'", "[ns.x, ns.x] | join"), "asks for a text or a list of 4,194,304"),
    "doubled by str.join": (
        DOUBLE % ("'ab'", "''.join([ns.x, ns.x])"),
        "asks for a text or a list of 4,194,304",
    ),
    "doubled by replace": (
        DOUBLE % ("'aa'", "ns.x.replace('a', 'aa')"),
        "asks for a text or a list of 6,291,456",
    ),
    "doubled by the filter": (
        DOUBLE % ("'aa'", "ns.x | replace('a', 'aa')"),
        "asks for a text or a list of 6,291,456",
    ),
    "printf width": ("{{ '%1000000000d' % 1 }}", WIDTH),
    "printf width, asked for": ("{{ '%*d' % (10 ** 9, 1) }}", WIDTH),
    "the filter format": ("{{ '%1000000000d' | format(1) }}", WIDTH),
    "str.format": ("{{ '{:1000000000}'.format(1) }}", WIDTH),
    "str.format, asked for": ("{{ '{:{}}'.format(1, 10 ** 9) }}", WIDTH),
    "center": ("{{ 'a'.center(10 ** 10) }}", TEN_BILLION),
    "zfill": ("{{ 'a'.zfill(10 ** 10) }}", TEN_BILLION),
    "expandtabs": ("{{ '\t'.expandtabs(10 ** 10) }}", TEN_BILLION),
    "to_bytes": ("{{ (1).to_bytes(10 ** 10, 'big') }}", TEN_BILLION),
    "the filter center": ("{{ 'a' | center(9999999999) }}", COUNT),
    "indent": ("{{ 'a' | indent(10000000000) }}", TEN_BILLION),
    "batch": ("{{ [1] | batch(10 ** 9, 0) | list | length }}", COUNT),
    "round": ("{{ 1.5 | round(10 ** 9, 'ceil') }}", COUNT),
    "translate": (
        "{{ ('a' * 3000000).translate({97: 'x' * 3000000}) }}",
        "asks for a text or a list of 9,000,000,000,000",
    ),
    "attributes": ("{{ ''.__class__.__mro__ }}", UNSAFE),
    "attributes by subscript": ("{{ ''['__class__'].__base__.__subclasses__() }}", UNSAFE),
    "include": ("{% include '/etc/passwd' %}", FILE),
    "import": ("{% import '/etc/passwd' as x %}", FILE),
    "extends": ("{% extends '/etc/passwd' %}", FILE),
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        TIME,
    ),
    "a loop that calls itself": (
        "{% for a in [1, 2, 3] recursive %}{{ loop([1, 2, 3]) if loop.depth < 40 }}{% endfor %}",
        TIME,
    ),
    "recursion": (
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "calls itself without an end",
    ),
}

needs_rlimit = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux limits this memory"
)


def given_up(source: str) -> tuple[str, ChatTemplate | None]:
    """Why a template was given up, and the template when it was only then."""
    template = None
    with pytest.raises(TemplateLimitError) as caught:
        template = ChatTemplate(source, control_texts=("<|im_start|>", "<|im_end|>"))
        template.render([("user", "hi")], reply_follows=True)
    return str(caught.value), template


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_given_up_and_chatml_stands_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, reason = HOSTILE[name]
    if reason == TIME:
        monkeypatch.setattr(sandbox, "SECONDS", 0.3)
    began = time.perf_counter()
    said, template = given_up(source)
    assert said == reason
    assert time.perf_counter() - began < 3
    if template is not None:
        chatml = ChatTemplate(CHATML, control_texts=("<|im_start|>", "<|im_end|>"))
        assert template.render(CHAT, reply_follows=True) == chatml.render(CHAT, reply_follows=True)
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


@needs_rlimit
@pytest.mark.parametrize(
    "source",
    [
        DOUBLE % ("'ab'", "'%s%s' % (ns.x, ns.x)"),
        DOUBLE % ("'ab'", "'{0}{0}'.format(ns.x)"),
        "{{ [[1]] | tojson(indent=10 ** 9) }}",
    ],
)
def test_what_no_rule_counts_ends_at_the_limit_of_memory(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MEMORY_MB", 64)
    monkeypatch.setattr(sandbox, "SECONDS", 20)
    assert given_up(source)[0] == "asked for more than 64 MB of memory"


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_an_honest_template_is_rendered_as_jinja_renders_it(name: str) -> None:
    family = FAMILIES[name]
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationBlock],
        keep_trailing_newline=True,
    )
    plain.filters["tojson"] = _tojson
    plain.globals["raise_exception"] = _raise_exception
    chat = [*CHAT[1:3], ("user", "Ünïcode, 日本語 and 100% {braces}\n" * 50)]
    messages = [{"role": role, "content": text} for role, text in chat]
    expected = plain.from_string(family.source).render(
        messages=messages,
        add_generation_prompt=True,
        bos_token=family.bos,
        eos_token=family.eos,
        tools=None,
        documents=None,
        strftime_now=time.strftime,
    )
    assert text_of(family.template().render(chat, reply_follows=True)) == expected


def test_formats_and_sums_that_are_no_harm_are_left_alone() -> None:
    source = (
        "{{ '%-8s|%5.2f|%d%%' % ('ab', 1.5, 7) }}{{ '{:>6}|{!r}|{x:03d}'.format('a', 'b', x=5) }}"
        "{{ ('=' * 20) ~ 2 ** 10 ~ 3 * 4 ~ ([1] * 3) }}{{ ('a,b' | replace(',', ';')).center(9) }}"
        "{{ ['x', 1] | join('-') }}{{ 'a\nb' | indent(2) }}{{ 12345678.format is undefined }}{{ 10 % 4 }}{{ 1.5 * 2 }}"
    )
    plain = ImmutableSandboxedEnvironment().from_string(source).render()
    assert text_of(ChatTemplate(source).render([], reply_follows=False)) == plain


def test_a_long_chat_may_be_long() -> None:
    text = "word " * 400_000
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}")
    assert len(text_of(template.render([("user", text)] * 3, reply_follows=True))) == 6 * len(text)


def test_a_refusal_of_a_million_characters_is_cut() -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate("{{ raise_exception('no ' * 1000000) }}").render([("user", "x")], reply_follows=True)
    assert len(str(caught.value)) == 300


def test_a_loop_inside_of_c_ends_the_process_by_a_signal_of_its_own() -> None:
    """Two lists that contain themselves twice, forty times over: comparing them never comes back to Python."""
    code = (
        "from ds4chat.engine import sandbox\n"
        "from ds4chat.engine.template import ChatTemplate\n"
        "sandbox.SECONDS, sandbox.HARD_SECONDS = 0.1, 0.4\n"
        "ChatTemplate('{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}'\n"
        "'{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}').render([('user', 'x')], reply_follows=True)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -signal.SIGVTALRM


async def test_the_sentence_of_such_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with scripted_room(monkeypatch, tmp_path) as (room, script):
        script.hold = True
        session = room.manager.new_session()
        room.manager.send(session.id, "Tell me.")
        await room.until(object, lambda _: bool(session.path()[1:]))
        script.clients[-1].die(-signal.SIGVTALRM)
        notice = await room.until(EngineNotice)
        assert notice.message == (
            "The chat template of scripted could not be stopped, so the engine was: choose another model with --model "
            "(in a chat: /model); what was shown is kept."
        )


# ---- in a model's file ------------------------------------------------------------------------------------------


def with_template(model: Path, path: Path, source: str) -> Path:
    """A copy of a tiny model with another template, in the place of the first: a comment fills it up."""
    data = model.read_bytes()
    key = data.index(b"tokenizer.chat_template") + len(b"tokenizer.chat_template") + 4
    length = int.from_bytes(data[key : key + 8], "little")
    filled = source + "{#" + "-" * (length - len(source.encode()) - 4) + "#}"
    assert len(filled.encode()) == length
    path.write_bytes(data[: key + 8] + filled.encode() + data[key + 8 + length :])
    return path


def test_the_program_says_it_and_answers(tiny: dict[str, Path], tmp_path: Path) -> None:
    model = with_template(tiny["dense"], tmp_path / "evil.gguf", "{% include '/etc/passwd' %}")
    done = Program(tmp_path / "home").run(
        "-p", "Hello?", "-m", str(model), "--max-tokens", "4", "--ctx", "256"
    )
    assert done.returncode == 0
    assert done.stderr == (
        "ds4chat: The chat template of evil reaches for another file ('/etc/passwd'): ds4chat's own (ChatML) stands "
        "in for it. Where its replies make no sense, choose another model with --model (in a chat: /model).\n"
    )
    assert done.stdout.strip()


def test_one_that_does_not_compile_is_told_too(tiny: dict[str, Path], tmp_path: Path) -> None:
    model = with_template(tiny["dense"], tmp_path / "broken.gguf", "{% for m in messages %}{{ m.content }}")
    room = EngineRoom(model, None, n_ctx=256)
    said: list[Event] = []
    emit = room.engine._say

    def say(event: Event) -> None:
        said.append(event)
        emit(event)

    room.engine._say = say
    with room:
        assert room.chat([user("Hello?")], max_tokens=4).done is not None
    (notice,) = [event for event in said if isinstance(event, Notice)]
    assert notice.message.startswith(
        "The chat template of broken cannot be read (Unexpected end of template."
    )
    assert notice.message.endswith("choose another model with --model (in a chat: /model).")


def test_one_that_turns_hostile_in_a_chat_costs_that_turn_alone(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    source = "{{ 'a' * 10 ** 10 if messages | length > 2 else 'Hi' }}"
    with EngineRoom(with_template(tiny["dense"], tmp_path / "sly.gguf", source), None, n_ctx=512) as room:
        first = room.chat([system("x"), user("Hello?")], max_tokens=4)
        assert isinstance(first.events[-1], Done)
        chat = [system("x"), user("Hello?"), first.message, user("And now?")]
        refused = room.chat(chat, max_tokens=4).events[-1]
        assert isinstance(refused, Failed)
        assert refused.message == (
            "The chat template of sly asks for a text or a list of 10,000,000,000: from now on ds4chat's own (ChatML) "
            "stands in for it. Send again, or choose another model with --model (in a chat: /model)."
        )
        assert isinstance(room.chat(chat, max_tokens=4).events[-1], Done)
