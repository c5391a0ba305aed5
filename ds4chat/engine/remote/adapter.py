"""Turns of the chat, played through a server: commands in, events out.

Promises: one turn at a time, in order; a cancel closes the connection at once; a reply that breaks off ends in `Failed`
with a sentence, and what came of it was told before. Must not know: how a request is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ds4chat.engine.protocol import (
    Cancel,
    ChatMessage,
    Command,
    ContextFull,
    Done,
    Event,
    Failed,
    Forget,
    Generate,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Notice,
    Prefill,
    Prepare,
    Prepared,
    Pulse,
    Restored,
    Started,
    StopReason,
    Token,
)
from ds4chat.engine.remote.server import CONTINUES, Kind, Server, ServerError
from ds4chat.engine.remote.stream import Lines, Reply, StreamError, without_thoughts

log = logging.getLogger(__name__)

PULSE_SECONDS = 5.0
"""Between two signs of life while the server says nothing."""

RETRIES = 3
"""Of a request that a server puts off."""

MOST_WAIT_SECONDS = 30.0
"""That a server may ask to wait; for longer the user decides."""

FULL = 0.85
"""Of the context: a longer prompt is not sent, older turns fall out first."""

MARKERS = 4
"""Tokens around a message, about."""

BYTES_A_TOKEN = 3.5
"""Before the server has counted anything; less than most texts have, so that the context is rather full too early."""

GRAMMARS: dict[Kind, str] = {"llama-server": "grammar", "vllm": "structured_outputs", "sglang": "ebnf"}
"""Servers that can hold a reply to a grammar, and the parameter it goes by."""

STOPS: dict[str, StopReason] = {"stop": "stop", "length": "length"}

_TOO_LONG = re.compile(r"context|too long|maximum.*(length|token)|exceed", re.IGNORECASE)


class Counter:
    """Tokens of texts, estimated from what the server counted before."""

    def __init__(self) -> None:
        self._rate = 1 / BYTES_A_TOKEN

    def of(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Tokens that each message takes, about."""
        return [MARKERS + round(len(m.text.encode()) * self._rate) for m in messages]

    def learn(self, messages: Sequence[ChatMessage], tokens: int | None) -> None:
        """The server counted a prompt."""
        size = sum(len(m.text.encode()) for m in messages)
        if tokens and size > 200:
            self._rate = min(max((tokens - MARKERS * len(messages)) / size, 0.05), 2.0)


def shared_out(counts: Sequence[int], total: int) -> list[int]:
    """Estimates made to add up to what was counted."""
    whole = sum(counts)
    if not counts or total <= 0 or whole <= 0:
        return list(counts)
    shared = [count * total // whole for count in counts]
    shared[-1] += total - sum(shared)
    return shared


class Adapter:
    """One server, one turn at a time."""

    def __init__(self, server: Server, emit: Callable[[Event], None]) -> None:
        self._server, self._emit_to = server, emit
        self._said_at = time.monotonic()
        self._queue: asyncio.Queue[Command] = asyncio.Queue()
        self._cancelled: set[tuple[str, int]] = set()
        self._running: tuple[tuple[str, int], asyncio.Task[None]] | None = None
        self._counter = Counter()
        self._reply, self._first = Reply(), 0.0
        """Of the turn that runs, and when its text began."""
        self._plain = False
        """The server takes none but the standard parameters."""
        self._in_slot = ""
        self._slots_work = True

    # ---- commands ----

    def put(self, command: Command) -> None:
        """A command from the parent."""
        if isinstance(command, Cancel):
            key = (command.session, command.turn)
            self._cancelled.add(key)
            if self._running is not None and self._running[0] == key:
                self._running[1].cancel()
        else:
            self._queue.put_nowait(command)

    async def run(self) -> None:
        """Work commands off until cancelled."""
        beat = asyncio.create_task(self._beat())
        try:
            while True:
                await self._one(await self._queue.get())
        finally:
            beat.cancel()

    async def _one(self, command: Command) -> None:
        match command:
            case Load():
                await self._load(command)
            case Generate():
                await self._turn(command, self._generate(command))
            case Prepare():
                await self._turn(command, self._prepare(command))
            case Forget():
                if command.session == self._in_slot:
                    self._in_slot = ""
            case _:
                pass

    async def close(self) -> None:
        """Keep what the server computed for the session at hand, where it can."""
        with contextlib.suppress(ServerError, TimeoutError):
            async with asyncio.timeout(5):
                await self._save_slot()

    def _emit(self, event: Event) -> None:
        self._said_at = time.monotonic()
        if isinstance(event, Failed | LoadFailed | Notice):
            # A server may repeat the key in what it says went wrong.
            event = msgspec.structs.replace(event, message=self._server.without_key(event.message))
        self._emit_to(event)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(PULSE_SECONDS / 2)
            if self._running is not None and time.monotonic() - self._said_at > PULSE_SECONDS:
                self._emit(Pulse())

    async def _load(self, command: Load) -> None:
        server = self._server
        self._emit(Loading(0.0))
        try:
            await server.connect()
        except ServerError as error:
            self._emit(LoadFailed(str(error)))
            return
        if server.sends_key_in_clear:
            self._emit(
                Notice(
                    f"The key of {server.name} goes over the network unencrypted: use https where you can."
                )
            )
        if command.n_ctx:
            server.n_ctx = command.n_ctx
        self._emit(
            Loaded(
                name=server.model.rpartition("/")[2].removesuffix(".gguf") or server.name,
                path=command.model_path,
                architecture=server.kind,
                n_ctx=server.n_ctx,
                n_ctx_train=server.n_ctx,
                memory="dense",
                fingerprint=hashlib.sha256(f"{server.about.url}\0{server.model}".encode()).hexdigest()[:32],
                kv_bytes_per_token=0,
            )
        )

    async def _turn(self, command: Generate | Prepare, work: Any) -> None:
        key = (command.session, command.turn)
        self._reply, self._first = Reply(), time.monotonic()
        if key in self._cancelled:
            self._cancelled.discard(key)
            work.close()
            self._stopped(command)
            return
        task = asyncio.create_task(work)
        self._running = (key, task)
        try:
            await task
        except asyncio.CancelledError:
            if key not in self._cancelled:
                task.cancel()
                raise
            self._stopped(command)
        except ServerError as error:
            # What the server refuses, it refuses again; all else passes.
            refused = 400 <= error.status < 500 and error.status not in (401, 403, 408, 429)
            self._emit(Failed(*key, str(error), passing=not refused))
        except StreamError as error:
            self._emit(Failed(*key, f"{self._server.name} sent {error}: send again.", passing=True))
        except Exception:
            log.exception("turn %d of session %s", command.turn, command.session)
            self._emit(Failed(*key, "The engine failed on this turn (the log has the details): send again."))
        finally:
            self._running = None
            self._cancelled.discard(key)

    def _stopped(self, command: Generate | Prepare) -> None:
        """The end of a turn that was cancelled."""
        key, reply = (command.session, command.turn), self._reply
        if isinstance(command, Prepare):
            self._emit(Prepared(*key, 0, 0))
            return
        counts = self._counter.of(command.messages)
        prompt, generated = reply.usage.prompt or sum(counts), reply.pieces
        counts = shared_out(counts, prompt)
        if not command.continue_reply:
            counts.append(generated)
        ms = (time.monotonic() - self._first) * 1000
        live = prompt + generated
        self._emit(Done(*key, "cancelled", prompt, 0, prompt, generated, 0.0, 0.0, ms, live, counts))

    # ---- turns ----

    async def _prepare(self, command: Prepare) -> None:
        await self._take_slot(command.session, command.turn, store=command.store)
        self._emit(Prepared(command.session, command.turn, 0, 0))

    async def _generate(self, command: Generate) -> None:
        key = (command.session, command.turn)
        server, counts = self._server, self._counter.of(command.messages)
        if command.continue_reply and server.kind not in CONTINUES:
            raise ServerError(
                f"{server.name} cannot go on with a reply that was cut off: have it answer anew, or ask it to go on."
            )
        if command.grammar and server.kind not in GRAMMARS:
            raise ServerError(
                f"{server.name} takes no grammar for its replies: use --engine local, or a server that is "
                "llama-server, vLLM or SGLang.",
                400,
            )
        if not command.force and sum(counts) > FULL * server.n_ctx:
            self._emit(ContextFull(*key, sum(counts), server.n_ctx, counts))
            return
        await self._take_slot(command.session, command.turn, store=command.store)
        self._emit(Prefill(*key, 0, sum(counts)))
        reply, began = self._reply, time.monotonic()
        self._first = began
        try:
            async with contextlib.AsyncExitStack() as stack:
                response = await self._begin(command, stack)
                lines = Lines()
                async for data in response.aiter_bytes():
                    for line in lines.feed(data):
                        text = reply.take(line)
                        if text and reply.pieces <= 1:
                            self._first = time.monotonic()
                            self._started(command, reply, sum(counts))
                        if text:
                            self._emit(Token(*key, text, []))
                    if reply.done:
                        break
        except ServerError as error:
            if error.status == 400 and not command.force and _TOO_LONG.search(error.words):
                self._emit(ContextFull(*key, max(sum(counts), server.n_ctx), server.n_ctx, counts))
                return
            raise
        if not reply.finish and not reply.done:
            raise ServerError(
                f"{server.name} broke off in the middle of the reply: go on with it, or send again."
            )
        if reply.pieces == 0:
            self._started(command, reply, sum(counts))
        self._done(command, reply, counts, (self._first - began) * 1000)

    def _started(self, command: Generate, reply: Reply, estimate: int) -> None:
        prompt = reply.usage.prompt or estimate
        cached = min(reply.usage.cached or 0, prompt)
        self._emit(Started(command.session, command.turn, prompt, cached, prompt - cached))

    def _done(self, command: Generate, reply: Reply, counts: list[int], prefill_ms: float) -> None:
        usage = reply.usage
        self._counter.learn(command.messages, usage.prompt)
        prompt = usage.prompt or sum(counts)
        cached = min(usage.cached or 0, prompt)
        generated = reply.pieces if usage.generated is None else usage.generated
        counts = shared_out(counts, prompt)
        if command.continue_reply:
            counts[-1] += generated
        else:
            counts.append(generated)
        stop = STOPS.get(reply.finish, "stop")
        if stop == "length" and prompt + generated >= self._server.n_ctx:
            stop = "context"
        self._emit(
            Done(
                session=command.session,
                turn=command.turn,
                stop_reason=stop,
                prompt_tokens=prompt,
                cached_tokens=cached,
                prefilled_tokens=prompt - cached,
                generated_tokens=generated,
                restore_ms=0.0,
                prefill_ms=prefill_ms,
                generate_ms=(time.monotonic() - self._first) * 1000,
                live_tokens=prompt + generated,
                message_tokens=counts,
                cold=command.cold,
            )
        )

    async def _begin(self, command: Generate, stack: contextlib.AsyncExitStack) -> Any:
        """The response, once the server takes the request: one that is busy is asked again, one that knows none but the
        standard parameters gets those alone. Raises ServerError."""
        tries = 0
        while True:
            try:
                return await stack.enter_async_context(self._server.reply(self._body(command)))
            except ServerError as error:
                if error.status in (429, 503) and tries < RETRIES:
                    wait = 2.0**tries if error.retry_after is None else error.retry_after
                    if wait > MOST_WAIT_SECONDS:
                        raise ServerError(
                            f"{self._server.name} asks to wait {wait:,.0f} s before the next request: send again then.",
                            error.status,
                        ) from None
                    if wait >= 1:
                        self._emit(Notice(f"{self._server.name} is busy: asked again in {wait:.0f} s."))
                    tries += 1
                    await asyncio.sleep(wait)
                elif error.status in (400, 422) and not self._plain and not _TOO_LONG.search(error.words):
                    self._plain = True
                    if extra := _extra(command):
                        without = ", ".join(extra)
                        self._emit(
                            Notice(f"{self._server.name} seems to refuse {without}: asked again without.")
                        )
                else:
                    raise

    def _body(self, command: Generate) -> dict[str, Any]:
        messages = [
            {"role": m.role, "content": without_thoughts(m.text) if m.role == "assistant" else m.text}
            for m in command.messages
        ]
        sampling = command.sampling
        body: dict[str, Any] = {
            "model": self._server.model,
            "messages": messages,
            "stream": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if command.max_tokens is not None:
            body["max_tokens"] = command.max_tokens
        if not self._plain:
            body |= {"stream_options": {"include_usage": True}} | _extra(command)
        kind = self._server.kind
        if kind == "llama-server":
            body["cache_prompt"] = True
            if self._server.slots and self._slots_work:
                body["id_slot"] = 0
        if command.grammar:
            name = GRAMMARS[kind]
            body[name] = {"grammar": command.grammar} if name == "structured_outputs" else command.grammar
        if command.continue_reply and kind in ("vllm", "sglang"):
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    # ---- slots of llama-server: what it computed for a session, saved and restored by it ----

    async def _take_slot(self, session: str, turn: int, *, store: bool) -> None:
        """Have the server keep the state of the session before, and bring back this one's. Says nothing when the server
        was not started with a folder for it."""
        if self._server.kind != "llama-server" or not self._server.slots or session == self._in_slot:
            return
        await self._save_slot()
        self._in_slot = ""
        if store and self._slots_work:
            began = time.monotonic()
            answer = await self._slot("restore", session)
            count = answer.get("n_restored")
            if isinstance(count, int) and count > 0:
                self._emit(Restored(session, turn, count, 1, (time.monotonic() - began) * 1000))
            self._in_slot = session

    async def _save_slot(self) -> None:
        if self._in_slot and self._slots_work:
            await self._slot("save", self._in_slot)

    async def _slot(self, action: str, session: str) -> dict[str, Any]:
        try:
            return await self._server.ask(
                "POST", f"/slots/0?action={action}", {"filename": f"ds4chat-{session}.bin"}, root=True
            )
        except ServerError as error:
            if error.status in (404, 405, 501):
                self._slots_work = False
            log.info("slot: %s", self._server.without_key(str(error)))
            return {}


def _extra(command: Generate) -> dict[str, Any]:
    """Parameters that are not standard and that local servers know, where they stand at other than off."""
    sampling = command.sampling
    extra: dict[str, Any] = {}
    if sampling.top_k > 0:
        extra["top_k"] = sampling.top_k
    if sampling.min_p > 0:
        extra["min_p"] = sampling.min_p
    if sampling.repeat_penalty != 1.0:
        # The one name is llama.cpp's, the other vLLM's and SGLang's.
        extra |= {"repeat_penalty": sampling.repeat_penalty, "repetition_penalty": sampling.repeat_penalty}
    return extra
