"""The bench's child: `python -m ds4chat.engine.bench`, a `Request` line in on stdin, answer lines out on stdout.

Promises: what is measured is the engine's own code, `Turns.prefill`, `LiveState.take_up` and `LiveState.store` over a
real store; what is compared is measured right after each other, round by round. Must not know: tables, plots, the
command line. Its standard input is held open by who wants the result; when it ends, this process does.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ds4chat.bench.report import (
    Answer,
    Generation,
    Growth,
    Length,
    Progress,
    Refused,
    Report,
    Request,
    decode_request,
    encode,
)
from ds4chat.checkpoints.mapping import Mapping
from ds4chat.checkpoints.policy import batch_ends
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.writer import Writer
from ds4chat.engine.llama import BATCH_TOKENS, BUILD, Context, Sampler
from ds4chat.engine.payload import CELL_BYTES
from ds4chat.engine.prompt import Prompt, PromptBuilder
from ds4chat.engine.protocol import Event, Loaded, Loading, Prefill, Sampling, Stored
from ds4chat.engine.template import TemplateError
from ds4chat.engine.turn import Turns
from ds4chat.engine.worker import Engine
from ds4chat.errors import Ds4chatError

log = logging.getLogger(__name__)

SESSION = "bench"
FLUSH_SECONDS = 120.0
HOT = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""Every run says something else, so that what it stores is not on disk yet."""


class _RefusalError(Exception):
    """The text is for the user."""


def _never() -> bool:
    return False


class Bench:
    """One loaded model and its measurements."""

    def __init__(self, request: Request, answer: Callable[[Answer], None]) -> None:
        """Loads the model. Raises Ds4chatError."""
        self._request, self._answer = request, answer
        self._stored: list[Stored] = []
        self._within = (0, 1)
        engine = Engine(self._event)
        self._loaded: Loaded = engine._loaded(request.load)
        turns, writer, store = engine._turns, engine._writer, engine._store
        if turns is None or writer is None or store is None:
            raise _RefusalError(
                f"{self._loaded.name} cannot be stored and restored by this llama.cpp: no bench."
            )
        self._turns: Turns = turns
        self._writer: Writer = writer
        self._context: Context = turns._context
        self._builder: PromptBuilder = turns._builder
        self._policy = turns._policy
        self._find = store.find
        self._folder = Path(request.load.kv.directory)
        self._chat = self._long_chat(max(request.lengths) + 2 * request.generated + 2)
        self._warm = _Warm()

    def _event(self, event: Event) -> None:
        match event:
            case Stored():
                self._stored.append(event)
            case Loading():
                self._answer(Progress("loading the model", round(1000 * event.progress), 1000))
            case Prefill():
                done, total = self._within
                self._answer(Progress(f"computing {total:,} tokens", done + event.done, total))

    # ---- the chat ----

    def _long_chat(self, tokens: int) -> Prompt:
        """The request's chat, its turns repeated until it has so many tokens."""
        chat = self._request.chat
        if self._loaded.n_ctx < tokens:
            raise _RefusalError(
                f"{max(self._request.lengths):,} tokens and a reply do not fit in the context of "
                f"{self._loaded.n_ctx:,}: give a larger --ctx, or smaller numbers with --tokens."
            )
        turns = [m for m in chat if m.role != "system"]
        while True:
            try:
                prompt = self._builder.build(chat)
            except TemplateError:
                # Some templates know no system prompt.
                if chat[0].role != "system":
                    raise
                chat = chat[1:]
                continue
            if len(prompt.tokens) >= tokens:
                self._roles = [m.role for m in chat]
                return prompt
            chat = [*chat, *turns]

    def _upto(self, tokens: int) -> Prompt:
        """The chat's first tokens, as a prompt."""
        chat = self._chat
        key = chat.key[: chat.key_ends[tokens - 1]]
        boundaries = [b for b in chat.boundaries if b < tokens]
        return Prompt(
            chat.tokens[:tokens], key, chat.key_ends[:tokens], boundaries, min(chat.system_end, tokens)
        )

    # ---- by length ----

    def run(self) -> Report:
        """All measurements, the shortest length first."""
        parts, asked = self._request.parts, self._request.lengths
        lengths = self._by_length(asked) if "lengths" in parts else []
        generation = self._generation(asked[0]) if "generation" in parts else None
        growth = self._growth(asked[-1]) if "growth" in parts else None
        loaded, load = self._loaded, self._request.load
        return Report(
            model=loaded.name,
            architecture=loaded.architecture,
            memory=loaded.memory,
            kv_type=load.kv_type,
            n_ctx=loaded.n_ctx,
            kv_bytes_per_token=loaded.kv_bytes_per_token,
            build=BUILD,
            cores=os.cpu_count() or 1,
            rounds=self._request.rounds,
            lengths=lengths,
            growth=growth,
            generation=generation,
        )

    def _by_length(self, asked: list[int]) -> list[Length]:
        """One computation in the engine's batches, stopped at each length to come back to it from disk."""
        lengths: list[Length] = []
        prefill_ms = 0.0
        for tokens in asked:
            prefill_ms += self._compute(tokens)
            lengths.append(self._length(self._upto(tokens + 1), prefill_ms))
        return lengths

    def _compute(self, tokens: int) -> float:
        """Compute and store the chat from what is live up to `tokens`; milliseconds, the wait for the disk apart."""
        live = self._turns.live
        live.session = SESSION
        self._within = (len(live), tokens)
        began = time.perf_counter()
        prompt = self._upto(tokens + 1)
        self._turns.prefill(SESSION, 0, prompt, len(live), not len(live), _never, upto=tokens)
        live.store(Reason.SHUTDOWN)
        took = _ms_since(began)
        self._flush()
        return took

    def _length(self, prompt: Prompt, prefill_ms: float) -> Length:
        tokens, rounds = len(prompt.tokens) - 1, self._request.rounds
        live = self._turns.live
        chain = self._find(prompt.key, tokens, self._context.n_ctx)
        files = [span.path for span in chain]
        whole = self._folder / "whole-state.bin"
        times: list[_Round] = []
        # The first round warms memory and caches up and does not count.
        for i in range(rounds + 1):
            self._answer(Progress(f"restoring {tokens:,} tokens", i, rounds + 1))
            save_ms, whole_bytes = self._save_whole(whole, tokens)
            load_ms = self._load_whole(whole, whole_bytes, tokens)
            xxh3_ms, read_ms = _timed(lambda: _hash_mapped(files)), _timed(lambda: self._warm.read(files))
            live.clear()
            restored = live.take_up(SESSION, prompt)
            if restored.restored != tokens:
                raise _RefusalError(
                    f"Only {restored.restored:,} of {tokens:,} tokens came back from disk: no bench."
                )
            times.append(_Round(restored.ms, xxh3_ms, read_ms, save_ms, load_ms))
        whole.unlink()
        del times[0]
        restore_ms = _median(times, lambda t: t.restore)
        return Length(
            tokens=tokens,
            spans=len(files),
            file_bytes=sum(span.size for span in chain),
            prefill_ms=prefill_ms,
            restore_ms=restore_ms,
            xxh3_ms=_median(times, lambda t: t.xxh3),
            read_ms=_median(times, lambda t: t.read),
            whole_bytes=whole_bytes,
            whole_save_ms=_median(times, lambda t: t.save),
            whole_load_ms=_median(times, lambda t: t.load),
            restore_over_xxh3=_median(times, lambda t: t.restore / t.xxh3),
            restore_over_read=_median(times, lambda t: t.restore / t.read),
            restore_over_whole_load=_median(times, lambda t: t.restore / t.load),
            prefill_over_restore=prefill_ms / restore_ms,
        )

    def _save_whole(self, path: Path, tokens: int) -> tuple[float, int]:
        """The live state out of llama.cpp in one piece and into a file; milliseconds and bytes."""
        size = self._context.open_span(0, tokens)
        try:
            self._warm.grow(size)
            began = time.perf_counter()
            self._context.read_span(self._warm.address, size)
            with path.open("wb", buffering=0) as file:
                file.write(self._warm.view[:size])
            return _ms_since(began), size
        finally:
            self._context.close_span()

    def _load_whole(self, path: Path, size: int, tokens: int) -> float:
        """Back from the file into an empty cache; milliseconds."""
        self._turns.live.clear()
        began = time.perf_counter()
        self._warm.read([path])
        self._context.restore(self._warm.address, size, 0, tokens)
        return _ms_since(began)

    # ---- generation ----

    def _generation(self, base: int) -> Generation:
        """Runs of `generated` tokens behind the chat's first `base`, in pairs with and without storing.

        Each run with storing stores one span as long as the run, in its middle, so that the writer works beside the
        rest of it: the same bytes a token as in a chat, and at least as many files.
        """
        run = min(self._request.generated, self._policy.interval)
        if "lengths" not in self._request.parts:
            self._compute(base)
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for i in range(self._request.pairs + 1):
            self._answer(Progress("generating with and without storing", i, self._request.pairs + 1))
            for storing in (True, False) if i % 2 else (False, True):
                speeds[storing].append(self._generate(base, run, storing, seed=i))
        pairs = list(zip(speeds[True], speeds[False], strict=True))[1:]
        return Generation(
            pairs=len(pairs),
            tokens=run,
            plain_per_second=statistics.median(plain for _, plain in pairs),
            storing_per_second=statistics.median(storing for storing, _ in pairs),
            storing_over_plain=statistics.median(storing / plain for storing, plain in pairs),
        )

    def _generate(self, base: int, run: int, storing: bool, seed: int) -> float:
        """Tokens a second of one run."""
        live = self._turns.live
        live.clear()
        live.take_up(SESSION, self._upto(base + 1))
        lead = base + run // 2
        live.decode(self._chat.tokens[len(live) : lead], logits=True)
        sampler = Sampler(self._context, HOT, seed, [])
        began = time.perf_counter()
        for i in range(run):
            live.decode([sampler.sample()], logits=True)
            if storing and i == run // 2:
                live.store(Reason.CONTINUED)
        seconds = time.perf_counter() - began
        sampler.close()
        self._flush()
        return run / seconds

    # ---- growth ----

    def _growth(self, tokens: int) -> Growth:
        """The same chat turn by turn, everything stored as a chat stores it, from an empty directory on."""
        for path in self._folder.rglob("*.kv"):
            path.unlink()
        live, edges, turns, cold = self._turns.live, [*self._chat.boundaries[1:], tokens], 0, True
        live.clear()
        self._stored.clear()
        for role, edge in zip(self._roles, edges, strict=False):
            end = min(edge, tokens)
            self._within = (len(live), tokens)
            if role == "user":
                turns += 1
                is_cold = cold and end >= self._policy.min_tokens
                cold = cold and not is_cold
                self._turns.prefill(SESSION, turns, self._upto(end + 1), len(live), is_cold, _never, upto=end)
            elif role == "assistant":
                self._reply(end)
                live.store(Reason.IDLE)
            if end == tokens:
                break
        live.store(Reason.SHUTDOWN)
        self._flush()
        kv_bytes = self._context.open_span(0, tokens)
        self._context.close_span()
        # Exact where all layers keep all rows, too little elsewhere.
        row = self._loaded.kv_bytes_per_token + CELL_BYTES
        ends = {event.end for event in self._stored}
        whole = sum(max(0, kv_bytes - row * (tokens - end)) for end in ends)
        written = sum(event.size for event in self._stored)
        return Growth(
            tokens=tokens,
            turns=turns,
            stores=len(ends),
            kv_bytes=kv_bytes,
            written_bytes=written,
            whole_bytes=whole,
            written_over_kv=written / kv_bytes,
            whole_over_kv=whole / kv_bytes,
        )

    def _reply(self, end: int) -> None:
        """The chat's tokens up to `end` as a reply: stored at frontiers like one, but computed in batches."""
        live = self._turns.live
        for stop in batch_ends(len(live), end, BATCH_TOKENS, self._policy):
            live.decode(self._chat.tokens[len(live) : stop], logits=False)
            if self._turns.stores_at(stop):
                live.store(Reason.CONTINUED)

    def _flush(self) -> None:
        if not self._writer.flush(FLUSH_SECONDS):
            raise _RefusalError(f"{self._folder} takes nothing any more: no bench.")


@dataclass(frozen=True)
class _Round:
    """Milliseconds, measured right after each other."""

    restore: float
    xxh3: float
    read: float
    save: float
    load: float


class _Warm:
    """Memory that was touched before, to copy and to read into."""

    def __init__(self) -> None:
        self._size = 0
        self.grow(1)

    def grow(self, size: int) -> None:
        """At least `size` bytes."""
        if size <= self._size:
            return
        self._size = size
        self._map = mmap.mmap(-1, size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        ctypes.memset(self.address, 1, size)

    def read(self, files: Sequence[Path]) -> None:
        """All files, one after the other, each to the front."""
        for path in files:
            with path.open("rb", buffering=0) as file:
                size, at = os.fstat(file.fileno()).st_size, 0
                self.grow(size)
                while at < size and (count := file.readinto(self.view[at:size])):
                    at += count


def _hash_mapped(files: Sequence[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            mapping = Mapping(file.fileno(), os.fstat(file.fileno()).st_size)
        with mapping.view as view:
            xxhash.xxh3_64_intdigest(view)
        mapping.close()


def _median(times: Sequence[_Round], value: Callable[[_Round], float]) -> float:
    return statistics.median(map(value, times))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return _ms_since(began)


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _leave_with_parent(folder: str) -> None:
    """Nobody waits for the result any more: go, and leave no files behind."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """One request, answers until the report or the refusal. What llama.cpp prints goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    request = decode_request(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, args=(request.load.kv.directory,), daemon=True).start()

    def answer(message: Answer) -> None:
        with contextlib.suppress(BrokenPipeError):
            out.write(encode(message))
            out.flush()

    try:
        answer(Bench(request, answer).run())
    except (_RefusalError, Ds4chatError, TemplateError) as error:
        answer(Refused(str(error)))
    except Exception as error:
        log.exception("bench")
        answer(
            Refused(f"The bench failed ({type(error).__name__}: {error}); the engine's log has the details.")
        )
    # Threads of llama.cpp and of the writer are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
