"""Turns through a server: what is asked of it, what comes back, and every way in which it can fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    ContextFull,
    Done,
    Event,
    Failed,
    Forget,
    Generate,
    Load,
    Loaded,
    LoadFailed,
    Notice,
    Prepare,
    Prepared,
    Pulse,
    Restored,
    Sampling,
    Started,
    Token,
)
from ds4chat.engine.remote import adapter as adapting
from ds4chat.engine.remote.adapter import Adapter
from ds4chat.engine.remote.server import About, Server, ServerError
from tests.remote.scripted_server import DONE, Answer, Scripted, piece, refuses, says, serving

Kind = TypeVar("Kind", bound=Event)
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Name a colour."))
PROPS = {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 1}


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as script:
        yield script


class Chat:
    """A parent: sends commands, keeps events."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter, self.events = adapter, list[Event]()
        self.changed = asyncio.Event()
        self.turn = 0

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, *kinds: type[Kind]) -> Kind:
        """The next event of these kinds, with what came before taken away."""
        async with asyncio.timeout(30):
            while True:
                for event in self.events:
                    if isinstance(event, kinds):
                        return event
                self.changed.clear()
                await self.changed.wait()

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.of(Token))

    def send(self, *messages: ChatMessage, session: str = "s1", **more: Any) -> int:
        self.turn += 1
        self.events.clear()
        self.adapter.put(Generate(session, self.turn, list(messages or ASK), **more))
        return self.turn

    async def ask(
        self, *messages: ChatMessage, session: str = "s1", **more: Any
    ) -> Done | Failed | ContextFull:
        self.send(*messages, session=session, **more)
        return await self.until(Done, Failed, ContextFull)


@asynccontextmanager
async def chatting(script: Scripted, load: Load | None = None, **about: Any) -> AsyncIterator[Chat]:
    """An adapter that has connected, when the server lets it."""
    server = Server(About(name="far", url=about.pop("url", script.url), **about))
    chat = Chat(Adapter(server, lambda event: chat.hear(event)))
    work = asyncio.create_task(chat.adapter.run())
    chat.adapter.put(load or Load("engine:far"))
    try:
        await chat.until(Loaded, LoadFailed)
        yield chat
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await chat.adapter.close()
        await server.aclose()


async def test_a_reply_is_streamed_with_the_servers_numbers(server: Scripted) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 12}}
    server.replies = [says("Blue", ", of", " course.", usage=usage)]
    sampling = Sampling(temperature=0.0, top_k=10, min_p=0.0, seed=7, repeat_penalty=1.2)
    async with chatting(server) as chat:
        loaded = chat.of(Loaded)[0]
        assert (loaded.name, loaded.path, loaded.n_ctx) == ("little", "engine:far", 8192)
        done = await chat.ask(sampling=sampling, max_tokens=50)
    assert isinstance(done, Done) and chat.text == "Blue, of course."
    assert (done.prompt_tokens, done.cached_tokens, done.prefilled_tokens, done.generated_tokens) == (
        20,
        12,
        8,
        3,
    )
    assert (done.stop_reason, done.live_tokens, sum(done.message_tokens)) == ("stop", 23, 23)
    assert len(done.message_tokens) == 3 and all(event.tokens == [] for event in chat.of(Token))
    assert server.bodies == [
        {
            "model": "little",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Name a colour."},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "top_p": 0.95,
            "seed": 7,
            "max_tokens": 50,
            "top_k": 10,
            "repeat_penalty": 1.2,
            "repetition_penalty": 1.2,
        }
    ]


async def test_without_numbers_they_are_estimated(server: Scripted) -> None:
    server.replies = [says("One", " two")]
    async with chatting(server) as chat:
        done = await chat.ask()
    assert isinstance(done, Done) and done.generated_tokens == 2
    assert 8 < done.prompt_tokens < 40 and done.live_tokens == done.prompt_tokens + 2 == sum(
        done.message_tokens
    )
    (started,) = chat.of(Started)
    assert started.prompt_tokens == started.cached_tokens + started.prefilled_tokens


async def test_characters_and_lines_cut_anywhere_come_whole(server: Scripted) -> None:
    whole = b"".join(part for part in says("Zürich 🌊", " 東京").parts if isinstance(part, bytes))
    whole = b": a comment\r\nevent: message\r\n" + whole.replace(b"\n", b"\r\n")
    # ensure_ascii off, so that there are characters of several bytes to cut.
    whole = whole.replace(b"Z\\u00fcrich \\ud83c\\udf0a", "Zürich 🌊".encode())
    server.replies = [Answer([whole[i : i + 1] for i in range(len(whole))])]
    async with chatting(server) as chat:
        assert isinstance(await chat.ask(), Done)
    assert chat.text == "Zürich 🌊 東京"


async def test_reasoning_beside_the_answer_is_told_apart_and_not_sent_back(server: Scripted) -> None:
    def thinks(text: str) -> bytes:
        return (
            b"data: " + json.dumps({"choices": [{"delta": {"reasoning_content": text}}]}).encode() + b"\n\n"
        )

    server.replies = [Answer([thinks("Hm, "), thinks("sky."), piece("Blue."), piece("", "stop"), DONE])]
    async with chatting(server) as chat:
        assert isinstance(await chat.ask(), Done)
        said = chat.text
        assert said == "<think>\nHm, sky.\n</think>\n\nBlue."
        await chat.ask(*ASK, ChatMessage("assistant", said), ChatMessage("user", "Another."))
    assert server.bodies[-1]["messages"][2] == {"role": "assistant", "content": "Blue."}


@pytest.mark.parametrize(
    ("finish", "stop"), [("stop", "stop"), ("length", "length"), ("content_filter", "stop")]
)
async def test_why_a_reply_ended(server: Scripted, finish: str, stop: str) -> None:
    server.replies = [says("x", finish=finish)]
    async with chatting(server) as chat:
        done = await chat.ask()
    assert isinstance(done, Done) and done.stop_reason == stop


async def test_stop_closes_the_connection_and_keeps_what_came(server: Scripted) -> None:
    gone = threading.Event()

    def until_gone() -> Iterator[Any]:
        yield piece("Once upon a time")
        for _ in range(3000):
            yield lambda: gone.wait(0.01)
            yield piece(" and on")

    server.replies = [Answer(list(until_gone()), whole=False), says("Again.")]
    async with chatting(server) as chat:
        turn = chat.send()
        await chat.until(Token)
        chat.adapter.put(Cancel("s1", turn))
        done = await chat.until(Done)
        gone.set()
        assert done.stop_reason == "cancelled" and chat.text.startswith("Once upon a time")
        assert len(done.message_tokens) == 3
        assert isinstance(await chat.ask(), Done) and chat.text == "Again."


async def test_a_turn_that_is_stopped_before_it_begins_never_asks(server: Scripted) -> None:
    server.replies = [says("x")]
    async with chatting(server) as chat:
        chat.adapter.put(Cancel("s1", 1))
        done = await chat.ask()
        assert isinstance(done, Done) and done.stop_reason == "cancelled" and server.bodies == []
        chat.adapter.put(Prepare("s1", 9, list(ASK)))
        assert (await chat.until(Prepared)).turn == 9


FAULTS: list[tuple[str, Answer, str]] = [
    (
        "drops",
        Answer([piece("Half a")], whole=False),
        "The connection to far broke off: try again.",
    ),
    (
        "ends early",
        Answer([piece("Half a")]),
        "far broke off in the middle of the reply: go on with it, or send again.",
    ),
    (
        "no JSON",
        Answer([piece("Half a"), b"data: {nonsense\n\n"]),
        "far sent a line that is not JSON: send again.",
    ),
    (
        "an error in the stream",
        Answer([piece("Half a"), b'data: {"error": {"message": "out of \\u001b[31mmemory"}}\n\n']),
        "far sent an error: out of memory: send again.",
    ),
    (
        "a page",
        Answer([b"<html>"], kind="text/html"),
        "far answers with text/html where a streamed reply was asked for: its url must be that of an "
        "OpenAI-compatible server.",
    ),
    ("401", refuses(401, "bad key"), "far refuses the key (bad key): see to its key."),
    (
        "404",
        refuses(404, "no model little"),
        "far does not know what was asked for (no model little): see to its url and its model.",
    ),
    ("500", refuses(500, "it broke"), "far failed with 500 (it broke): send again, or look into its log."),
    (
        "500 without words",
        Answer([b"<h1>oops"], 500, "text/html"),
        "far failed with 500: send again, or look into its log.",
    ),
    (
        "redirect",
        Answer([], 302, headers={"Location": "http://elsewhere.invalid/"}),
        "far sends us on to another address: set the url to the one that answers.",
    ),
    (
        "429 for long",
        refuses(429, "slow down", Retry_After="3600"),
        "far asks to wait 3,600 s before the next request: send again then.",
    ),
    ("another code", refuses(418, "teapot"), "far refuses the request with 418 (teapot)."),
    (
        "a line without end",
        Answer([b"data: " + b"x" * (5 * 2**20)]),
        "far sent a line without end: send again.",
    ),
]


@pytest.mark.parametrize(
    ("answer", "sentence"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
async def test_faults_end_in_a_sentence_and_the_next_message_goes_through(
    server: Scripted, answer: Answer, sentence: str
) -> None:
    server.replies = [answer, says("All well.")]
    async with chatting(server) as chat:
        failed = await chat.ask()
        assert isinstance(failed, Failed) and failed.message == sentence
        if b"Half" in b"".join(part for part in answer.parts if isinstance(part, bytes)):
            assert chat.text == "Half a", "what came was told"
        assert isinstance(await chat.ask(), Done) and chat.text == "All well."


async def test_a_busy_server_is_asked_again(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    server.replies = [refuses(429, Retry_After="0"), refuses(503, Retry_After="0"), says("Now.")]
    async with chatting(server) as chat:
        assert isinstance(await chat.ask(), Done) and chat.text == "Now."
        server.replies = [refuses(429, "busy", Retry_After="0")]
        failed = await chat.ask()
        assert isinstance(failed, Failed)
        assert failed.message == "far has too many requests (busy): wait a while and send again."
    assert len(server.bodies) == 3 + 1 + adapting.RETRIES


async def test_a_server_that_refuses_other_parameters_gets_the_standard_ones(server: Scripted) -> None:
    server.replies = [refuses(400, "unknown field top_k"), says("Well."), says("Well.")]
    async with chatting(server) as chat:
        assert isinstance(await chat.ask(), Done) and chat.text == "Well."
        assert [notice.message for notice in chat.of(Notice)] == [
            "far seems to refuse top_k, min_p: asked again without."
        ]
        await chat.ask()
        assert chat.of(Notice) == []
    assert [("top_k" in body, "stream_options" in body) for body in server.bodies] == [
        (True, True),
        (False, False),
        (False, False),
    ]


async def test_a_prompt_beyond_the_context_lets_turns_fall_out(server: Scripted) -> None:
    server.replies = [refuses(400, "This model's maximum context length is 300 tokens"), says("Fits.")]
    async with chatting(server, n_ctx=300) as chat:
        full = await chat.ask(ChatMessage("user", "word " * 300))
        assert isinstance(full, ContextFull) and full.n_ctx == 300 and server.bodies == []
        full = await chat.ask()
        assert isinstance(full, ContextFull) and full.prompt_tokens == 300
        failed = await chat.ask(force=True)
        assert isinstance(failed, Done)


@pytest.mark.parametrize("owner", ["vllm", "sglang"])
async def test_a_reply_is_gone_on_with_where_the_server_can(server: Scripted, owner: str) -> None:
    server.models = [{"id": "org/big-model", "owned_by": owner, "max_model_len": 4096}]
    server.replies = [says(" and red.")]
    async with chatting(server) as chat:
        assert (chat.of(Loaded)[0].name, chat.of(Loaded)[0].n_ctx) == ("big-model", 4096)
        done = await chat.ask(*ASK, ChatMessage("assistant", "Blue"), continue_reply=True)
    assert isinstance(done, Done) and len(done.message_tokens) == 3
    body = server.bodies[0]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


async def test_a_server_that_cannot_go_on_is_not_asked_to(server: Scripted) -> None:
    async with chatting(server) as chat:
        failed = await chat.ask(*ASK, ChatMessage("assistant", "Blue"), continue_reply=True)
    assert isinstance(failed, Failed) and server.bodies == []
    assert failed.message == (
        "far cannot go on with a reply that was cut off: have it answer anew, or ask it to go on."
    )


async def test_a_grammar_goes_to_servers_that_take_one(server: Scripted) -> None:
    server.replies = [says("yes")]
    async with chatting(server) as chat:
        failed = await chat.ask(grammar='root ::= "yes"')
        assert isinstance(failed, Failed) and not failed.passing and server.bodies == []
        assert failed.message == (
            "far takes no grammar for its replies: use --engine local, or a server that is llama-server, "
            "vLLM or SGLang."
        )
    server.models = [{"id": "big", "owned_by": "vllm"}]
    async with chatting(server) as chat:
        assert isinstance(await chat.ask(grammar='root ::= "yes"'), Done)
    assert server.bodies[0]["structured_outputs"] == {"grammar": 'root ::= "yes"'}


async def test_llama_server_keeps_a_slot_for_each_session(server: Scripted) -> None:
    timings = {"prompt_n": 4, "cache_n": 96, "predicted_n": 1}
    server.paths["/props"] = Answer([json.dumps(PROPS).encode()], kind="application/json")
    for action, answer in (("save", {"n_saved": 9}), ("restore", {"n_restored": 90})):
        server.paths[f"/slots/0?action={action}"] = Answer(
            [json.dumps(answer).encode()], kind="application/json"
        )
    server.replies = [Answer([piece("Hi"), piece("", "stop", timings=timings), DONE])]
    async with chatting(server) as chat:
        assert chat.of(Loaded)[0].n_ctx == 2048
        done = await chat.ask(session="aaaa0001")
        assert isinstance(done, Done) and (done.cached_tokens, done.prefilled_tokens) == (96, 4)
        assert [event.tokens for event in chat.of(Restored)] == [90]
        await chat.ask(session="aaaa0001")
        assert chat.of(Restored) == [], "it is in the slot"
        await chat.ask(session="bbbb0002")
        await chat.ask(session="cccc0003", store=False)
        chat.adapter.put(Forget("bbbb0002"))
        await chat.ask(session="aaaa0001")
    slots = [
        (path.partition("=")[2], body["filename"])
        for _, path, body, _ in server.asked
        if path.startswith("/slots")
    ]
    assert slots == [
        ("restore", "ds4chat-aaaa0001.bin"),
        ("save", "ds4chat-aaaa0001.bin"),
        ("restore", "ds4chat-bbbb0002.bin"),
        ("save", "ds4chat-bbbb0002.bin"),
        ("restore", "ds4chat-aaaa0001.bin"),
        ("save", "ds4chat-aaaa0001.bin"),
    ]
    assert all(body["id_slot"] == 0 and body["cache_prompt"] for body in server.bodies)


async def test_a_llama_server_without_a_folder_for_slots_is_asked_once(server: Scripted) -> None:
    server.paths["/props"] = Answer([json.dumps(PROPS).encode()], kind="application/json")
    server.paths["/slots/0?action=restore"] = refuses(501, "start it with --slot-save-path")
    server.replies = [says("Hi")]
    async with chatting(server) as chat:
        for session in ("a", "b", "c"):
            assert isinstance(await chat.ask(session=session), Done)
    assert sum(path.startswith("/slots") for _, path, _, _ in server.asked) == 1


async def test_signs_of_life_while_a_server_reads_a_long_prompt(
    server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "PULSE_SECONDS", 0.02)
    go_on = threading.Event()
    server.replies = [Answer([lambda: go_on.wait(30), piece("At last."), piece("", "stop"), DONE])]
    async with chatting(server) as chat:
        chat.send()
        await chat.until(Pulse)
        go_on.set()
        assert isinstance(await chat.until(Done, Failed), Done)


class TestConnecting:
    async def sentence(self, script: Scripted, **about: Any) -> str:
        async with chatting(script, **about) as chat:
            (failed,) = chat.of(LoadFailed)
            return failed.message

    async def test_nobody_there(self, server: Scripted) -> None:
        said = await self.sentence(server, url="http://127.0.0.1:9")
        assert said.startswith("There is no connection to http://127.0.0.1:9 (")
        assert said.endswith("start the server there, or correct its url.")

    async def test_no_such_model(self, server: Scripted) -> None:
        server.models = [{"id": "one"}, {"id": "two"}]
        said = await self.sentence(server, model="three")
        assert said == 'far has no model "three": choose one of one, two with --model.'

    async def test_a_part_of_a_models_name_will_do(self, server: Scripted) -> None:
        server.models = [{"id": "org/Mistral-7B-Instruct"}, {"id": "org/Qwen-3"}]
        async with chatting(server, model="mistral") as chat:
            assert chat.of(Loaded)[0].name == "Mistral-7B-Instruct"

    async def test_no_models(self, server: Scripted) -> None:
        server.models = []
        assert await self.sentence(server) == "far lists no models: name one with --model."

    async def test_no_api(self, server: Scripted) -> None:
        server.paths["/v1/models"] = Answer([b"<html>hello"], kind="text/html")
        assert await self.sentence(server) == (
            "far answers with something that is not JSON: its url must be that of an OpenAI-compatible server."
        )

    @pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
    async def test_with_and_without_v1(self, server: Scripted, path: str) -> None:
        async with chatting(server, url=server.url + path) as chat:
            assert chat.of(Loaded)

    async def test_the_context_that_the_chat_asks_for_wins(self, server: Scripted) -> None:
        async with chatting(server, Load("engine:far", n_ctx=1000), n_ctx=5000) as chat:
            assert chat.of(Loaded)[0].n_ctx == 1000


class TestKeys:
    async def test_from_the_environment_in_the_header_and_nowhere_else(
        self, server: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORK_KEY", "sk-very-secret")
        server.replies = [refuses(401, "no")]
        async with chatting(server, key_env="WORK_KEY") as chat:
            failed = await chat.ask()
        assert all(headers["Authorization"] == "Bearer sk-very-secret" for *_, headers in server.asked)
        assert isinstance(failed, Failed)
        assert failed.message == "far refuses the key (no): see to WORK_KEY."
        assert "very-secret" not in repr(chat.events)

    async def test_a_server_that_repeats_it(self, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORK_KEY", "sk-very-secret\n")
        said = b'data: {"error": {"message": "bad Bearer sk-very-secret"}}\n\n'
        server.replies = [refuses(401, "bad Bearer sk-very-secret"), Answer([said])]
        async with chatting(server, key_env="WORK_KEY") as chat:
            for _ in range(2):
                failed = await chat.ask()
                assert isinstance(failed, Failed) and "bad Bearer [the key]" in failed.message
        server.paths["/v1/models"] = refuses(401, "bad Bearer sk-very-secret")
        async with chatting(server, key_env="WORK_KEY") as chat:
            assert "very-secret" not in repr(chat.events)

    @pytest.mark.parametrize("key", ["sk\n-x", "schlüssel", "a b", "\x1b[2J"])
    async def test_what_no_key_can_be(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        monkeypatch.setenv("WORK_KEY", key)
        with pytest.raises(ServerError, match="has characters that no key has: set it anew") as told:
            Server(About("far", "http://127.0.0.1:1", key_env="WORK_KEY"))
        assert key not in str(told.value)

    async def test_a_variable_that_is_not_set(
        self, server: Scripted, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("WORK_KEY", raising=False)
        with pytest.raises(
            Exception, match=r"The key of far is to be in the variable WORK_KEY, which is not set\."
        ):
            async with chatting(server, key_env="WORK_KEY"):
                pass

    async def test_it_is_said_when_a_key_goes_unencrypted_over_the_network(self) -> None:
        assert not Server(About("far", "http://127.0.0.1:1")).sends_key_in_clear

    @pytest.mark.parametrize(
        ("url", "clear"),
        [
            ("http://example.invalid", True),
            ("https://example.invalid", False),
            ("http://localhost:80", False),
            ("http://[::1]:80", False),
        ],
    )
    async def test_where_a_key_is_safe(self, monkeypatch: pytest.MonkeyPatch, url: str, clear: bool) -> None:
        monkeypatch.setenv("WORK_KEY", "k")
        assert Server(About("far", url, key_env="WORK_KEY")).sends_key_in_clear is clear

    async def test_from_the_keyring(self, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys
        import types

        fake = types.SimpleNamespace(get_password=lambda service, user: f"{service}+{user}")
        monkeypatch.setitem(sys.modules, "keyring", fake)
        async with chatting(server, keyring="ds4chat/work"):
            pass
        assert server.asked[0][3]["Authorization"] == "Bearer ds4chat+work"

    async def test_without_the_package(self, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "keyring", None)
        with pytest.raises(Exception, match=r"needs the package keyring: `pip install 'ds4chat\[keyring\]'`"):
            async with chatting(server, keyring="ds4chat/work"):
                pass


def test_hostile_lines_end_in_a_sentence_or_are_taken() -> None:
    from ds4chat.engine.remote.stream import Lines, Reply, StreamError

    for line in (
        'data: {"choices": 3}',
        'data: {"choices": [null]}',
        'data: {"choices": [{"delta": [1]}], "usage": "x", "timings": []}',
        'data: {"usage": {"prompt_tokens": -1, "completion_tokens": true, "prompt_tokens_details": 4}}',
        'data: {"choices": [{"delta": {"content": {"a": 1}}, "finish_reason": 7}]}',
        "data:",
        "id: 3",
        "\ud800",
    ):
        reply = Reply()
        assert reply.take(line) == "" and (reply.usage.prompt, reply.usage.cached) == (None, None)
    for line in (
        "data: [1]",
        "data: " + "[" * 100_000,
        'data: {"error": {"message": ["x"]}}',
        "data: \ud800",
    ):
        with pytest.raises(StreamError):
            Reply().take(line)
    lines = Lines()
    assert list(lines.feed(b"a\r")) == [] and list(lines.feed(b"\nb\rc\n")) == ["a", "b", "c"]
