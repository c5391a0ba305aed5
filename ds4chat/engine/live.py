"""The live state and the chain of checkpoints it stands on: restore, cut back, capture.

Promises: `tokens` are exactly what the cache holds, token for token; a span is captured live at its end and never past
the last good decode; whatever fails while storing or restoring costs time, never the turn. Must not know: messages,
templates, sampling. All methods run on the engine thread; results of writes arrive on the writer thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ds4chat.checkpoints.format import Flag, LoadedSpan, open_span
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Outcome, PutResult, SpanDraft, SpanInfo
from ds4chat.checkpoints.store import Store
from ds4chat.checkpoints.trailers import Trailer
from ds4chat.checkpoints.writer import Buffer, Writer
from ds4chat.engine import tool_calls
from ds4chat.engine.chain import Link, ReadAhead
from ds4chat.engine.llama import Context
from ds4chat.engine.prompt import Prompt, PromptBuilder
from ds4chat.engine.protocol import Event, Stored
from ds4chat.errors import CheckpointError

log = logging.getLogger(__name__)

WORTH_A_LOOK = 64
"""New tokens from which on the store is asked although the live state already begins the prompt."""

WORTH_A_RESTORE = 32
"""Tokens more than the live state offers from which on a restore beats computing them."""

KEPT_SNAPSHOTS = 3
"""Whole states kept of a conversation: the end of the turn before, the end of this prompt, the end of this turn."""

MOST_TRAILERS_BEHIND = 32
"""Spans behind a chain that are opened for their trailers: forks of one past are rarely more."""

CONTROL = b"\xff"
"""First key byte of a control token."""

MAPPED_AT_ONCE = 4
"""Spans that llama.cpp has taken in and that are still to be left by the other thread, which may be late."""

FLUSH_SECONDS = 30.0
"""How long a look-up waits for spans that are still being written."""


@dataclass(frozen=True)
class Reuse:
    """What a prompt found: `cached` tokens are live, `restored` of them came from `spans` files in `ms`
    milliseconds."""

    prompt: Prompt
    cached: int
    restored: int = 0
    spans: int = 0
    ms: float = 0.0


class LiveState:
    """One session's tokens in the cache."""

    def __init__(
        self,
        context: Context,
        builder: PromptBuilder,
        emit: Callable[[Event], None],
        store: Store | None,
        writer: Writer | None,
        *,
        read_only: bool = False,
        snapshots: bool = False,
    ) -> None:
        """Without `store` (and `writer`) nothing is stored or restored.

        Args:
            read_only: restore but store nothing.
            snapshots: a payload is the whole state at its end: each stands at the root, the last few are kept.
        """
        self._snapshots = snapshots
        self._context, self._builder, self._emit = context, builder, emit
        self._store, self._writer, self._read_only = store, writer, read_only
        self._ahead = ReadAhead(context)
        self.session = ""
        self._keep = True
        """Whether what is live may be stored."""
        self._foreign: Path | None = None
        """The folder the live state was restored from, when another quantization computed it."""
        self.tokens: list[int] = []
        self.chain: list[Link] = [Link.root()]
        self.prefill_us_per_token = 0
        self.tool_calls: dict[str, str] = {}
        """Exact texts of tool calls by id, of all spans seen so far."""

    def close(self) -> None:
        self._ahead.close()

    def __len__(self) -> int:
        return len(self.tokens)

    # ---- what is live ----

    def clear(self) -> None:
        """Empty the cache; needed after anything that left it in an unknown state."""
        self._empty()
        if self._store is not None:
            self._store.set_live_chain(())

    def _empty(self) -> None:
        self._context.clear()
        self.tokens = []
        self.chain = [Link.root()]
        self._foreign = None

    def forget(self, session: str) -> None:
        """Drop the live state if it is this session's, its tail unstored."""
        if session == self.session:
            self.clear()
            self.session, self._keep = "", True

    def decode(self, tokens: list[int], *, logits: bool) -> None:
        """Compute tokens at the end of the live state. Raises llama.DecodeError with `tokens` unchanged."""
        self._context.decode(tokens, len(self.tokens), logits=logits)
        self.tokens += tokens

    def cut_back(self, to: int) -> None:
        """Drop what lies beyond `to` tokens; ask `Context.can_rewind` first."""
        self._context.rewind(to)
        del self.tokens[to:]
        while self.chain[-1].end > to:
            self.chain.pop()

    def failed_decode(self) -> None:
        """A decode failed or was aborted: dense and sliding-window caches are rolled back by llama.cpp, others are
        not."""
        if self._context.model.memory not in ("dense", "sliding-window"):
            self.clear()

    # ---- storing ----

    def store(self, reason: Reason) -> None:
        """Capture the tokens since the last stored end as a span and hand it to the writer."""
        if self._store is None or self._writer is None or self._read_only or not self._store.writable:
            return
        if not self._keep:
            return
        if self._foreign is not None:
            # What is computed on top of another quantization's rows is neither that one's nor this one's.
            return
        for link in self._drop_lost():
            # Rows that are still live are written again as they were; a state in the past cannot be.
            if not self._snapshots and self._context.can_rewind(len(self.tokens), link.end):
                self._store_to(link.end, Reason.CONTINUED)
        self._store_to(len(self.tokens), reason)

    def _store_to(self, end: int, reason: Reason) -> None:
        assert self._store is not None and self._writer is not None
        if end <= self.chain[-1].end:
            return
        parent = self.chain[0] if self._snapshots else self.chain[-1]
        tokens = self.tokens[parent.end : end]
        key = b"".join(self._builder.key_piece(t) for t in tokens)
        link = parent.extended(key, tokens)
        end_hash = link.token_hash.intdigest()
        match self._store.standing(link.name, end_hash):
            case Outcome.STANDS:
                link.stored = True
                self._go_on_from(link)
                self._emit(Stored(self.session, link.name.hex(), parent.end, end, reason.label, 0))
                return
            case Outcome.TOKENS_DIFFER:
                return
        try:
            buffer = self._capture(parent.end, end)
        except CheckpointError as error:
            log.error("span %d..%d was not captured: %s", parent.end, end, error)
            return
        draft = SpanDraft(
            parent=parent.name,
            sha1=link.name,
            start=parent.end,
            end=end,
            context_size=self._context.n_ctx,
            reason=reason,
            text=key,
            tokens=tokens,
            start_hash=parent.token_hash.intdigest(),
            end_hash=end_hash,
            key_len=link.key_length,
            payload=buffer.view,
            cost_us=self.prefill_us_per_token,
            flags=Flag.SNAPSHOT if self._snapshots else Flag.NONE,
            trailers=self._trailers(parent.end, end),
        )
        session = self.session
        outdated = self._outdated(key, end) if self._snapshots else []

        def written(result: PutResult) -> None:
            if result.is_on_disk:
                name = draft.sha1.hex()
                link.stored = True
                self._emit(Stored(session, name, draft.start, draft.end, reason.label, result.nbytes))
                self._remove(outdated)
            else:
                link.failed = True
                log.info("span %d..%d: %s %s", draft.start, draft.end, result.outcome.value, result.message)

        self._go_on_from(link)
        self._writer.submit(draft, buffer, written)

    def _capture(self, start: int, end: int) -> Buffer:
        """The span's payload in a buffer of the writer's. Raises CheckpointError."""
        assert self._store is not None and self._writer is not None
        size = self._context.open_span(start, end)
        try:
            if not self._store.fits(size):
                raise CheckpointError(f"its {size} bytes are more than the whole budget")
            buffer = self._writer.acquire(size)
            if self._context.read_span(buffer.address, size) != size:
                buffer.release()
                raise CheckpointError("llama.cpp gave other bytes than it announced")
            return buffer
        finally:
            self._context.close_span()

    def _trailers(self, start: int, end: int) -> tuple[Trailer, ...]:
        """What goes with the span `[start, end)` beside its rows: the tool calls that end in it, as they were written.

        A call may have begun in a span before, so the text is taken from the control token before `start` on.
        """
        begin = start
        while begin > 0 and self._builder.key_piece(self.tokens[begin - 1])[:1] != CONTROL:
            begin -= 1

        def text(first: int, last: int) -> str:
            return b"".join(map(self._context.model.piece, self.tokens[first:last])).decode(
                "utf-8", "replace"
            )

        before = len(text(begin, start))
        calls = {call.id: call.text for call in tool_calls.blocks(text(begin, end)) if call.end > before}
        self.tool_calls |= calls
        return (Trailer(tool_calls.TAG, tool_calls.VERSION, tool_calls.pack(calls)),) if calls else ()

    def _read_trailers(self, span: LoadedSpan) -> None:
        for trailer in span.trailers:
            if (trailer.tag, trailer.version) == (tool_calls.TAG, tool_calls.VERSION):
                self.tool_calls |= tool_calls.unpack(trailer.data)

    def learn_tool_calls(self, prompt: Prompt, wanted: set[str]) -> bool:
        """Look for the exact texts of tool calls in the spans along a prompt and right behind them; whether any of the
        `wanted` ids came to be known."""
        if self._store is None:
            return False
        missing = wanted - self.tool_calls.keys()
        if missing:
            n_ctx = self._context.n_ctx
            chain = self._store.find(prompt.key, len(prompt.tokens), n_ctx)
            behind = deque(self._store.behind(chain, n_ctx))
            spans, seen = deque(chain), 0
            while spans or (behind and seen < MOST_TRAILERS_BEHIND and missing - self.tool_calls.keys()):
                if spans:
                    info = spans.popleft()
                else:
                    # A call that begins in one span may end, and be written down, in the next or the one after.
                    info, seen = behind.popleft(), seen + 1
                    behind.extend(self._store.behind([info], n_ctx))
                try:
                    with open_span(info.path) as span:
                        self._read_trailers(span)
                except CheckpointError as error:
                    log.info("no trailers of %s: %s", info.sha1.hex(), error)
        return bool(missing & self.tool_calls.keys())

    def _outdated(self, key: bytes, end: int) -> list[bytes]:
        """The snapshots of this conversation that go when the one at `end` is there: all but the last few and those
        that other sessions may begin with."""
        assert self._store is not None
        own = [
            span.sha1
            for span in self._store.roots_along(key)
            if span.end < end and span.header.flags & Flag.SNAPSHOT and span.header.reason is not Reason.COLD
        ]
        return own[: 1 - KEPT_SNAPSHOTS]

    def _remove(self, names: list[bytes]) -> None:
        if names and self._store is not None:
            try:
                self._store.remove(names)
            except OSError as error:
                log.warning("outdated snapshots stay: %s", error)

    def _go_on_from(self, link: Link) -> None:
        assert self._store is not None
        if self._snapshots:
            del self.chain[1:]
        self.chain.append(link)
        self._store.set_live_chain([stored.name for stored in self.chain[1:]])

    def _drop_lost(self) -> list[Link]:
        """Nothing stands on a span that is not on disk: the next one starts at the last ancestor that is.

        Returns the links whose files were deleted since. A span that still waits to be written on top of one will find
        that its parent is gone.
        """
        assert self._store is not None
        failed = next((i for i, link in enumerate(self.chain) if link.failed), len(self.chain))
        del self.chain[failed:]
        last = kept = next((i for i in range(len(self.chain) - 1, 0, -1) if self.chain[i].stored), 0)
        while kept and not self._store.holds(self.chain[kept].name):
            kept -= 1
        if kept == last:
            return []
        lost = self.chain[kept + 1 : last + 1]
        del self.chain[kept + 1 :]
        return lost

    # ---- finding and restoring ----

    def take_up(self, session: str, prompt: Prompt, *, keep: bool = True) -> Reuse:
        """Make as much of a prompt live as the cache and the store have, at most all but its last token.

        The live state's own tail is stored first when it belongs to another session.

        Args:
            keep: False: nothing of it is stored, until this is called again. What goes beyond the prompt then is cut
                off, so that nothing which was not to be kept is stored later.
        """
        if session != self.session or keep is not self._keep:
            self._store_for_another(prompt)
            self.session, self._keep = session, keep
        began = time.perf_counter()
        limit = len(prompt.tokens) - 1
        live = common_prefix(self.tokens, prompt.tokens, limit)
        goes_on = live == len(self.tokens)
        if not goes_on and not self._context.can_rewind(len(self.tokens), live):
            live = 0
        if self._store is not None and (live == 0 or not goes_on or limit - live >= WORTH_A_LOOK):
            found = self._restore(session, prompt, limit, live, began)
            if found is not None:
                return found
        if live < len(self.tokens):
            if live:
                before = len(self.chain)
                self.cut_back(live)
                if self._store is not None and len(self.chain) < before:
                    # Another session's checkpoints are not held on to: it may be deleted.
                    self._store.set_live_chain([link.name for link in self.chain[1:]], self._foreign)
            else:
                self.clear()
        return Reuse(prompt, live)

    def _store_for_another(self, prompt: Prompt) -> None:
        """Store the tail before another session takes the engine, and not in place of what that one needs now."""
        if self._store is None or self._writer is None:
            return
        self._store.spare(self._store.find(prompt.key, len(prompt.tokens), self._context.n_ctx))
        self.store(Reason.EVICT)

    def _restore(self, session: str, prompt: Prompt, limit: int, live: int, began: float) -> Reuse | None:
        """Restore the deepest chain that beats `live` tokens, None when there is none."""
        assert self._store is not None and self._writer is not None
        self._writer.flush(FLUSH_SECONDS)
        n_ctx = self._context.n_ctx
        while True:
            chain = self._store.find(prompt.key, limit, n_ctx)
            worth = chain[-1].end if chain else 0
            further: SpanInfo | None = None
            if self._context.rewinds and self._context.model.memory == "dense" and worth < limit:
                part = self._store.partial(chain, prompt.tokens, n_ctx)
                if part is not None and min(part[1], limit) >= worth + WORTH_A_RESTORE:
                    further, worth = part[0], min(part[1], limit)
            if worth < live + WORTH_A_RESTORE and not (worth > live and live == 0):
                return None
            live = 0
            stored = self._load(chain, further, prompt.key)
            if stored is None:
                # The store no longer offers what failed, so this ends.
                continue
            # Only the chain's tokens stand for the prompt's own bytes; what lies behind them is another chat's text.
            prompt = self._builder.realign(prompt, stored[: chain[-1].end] if chain else [])
            limit = len(prompt.tokens) - 1
            agreed = common_prefix(stored, prompt.tokens, limit)
            if agreed < len(self.tokens):
                if not self._context.can_rewind(len(self.tokens), agreed):
                    limit = agreed
                    continue
                self.cut_back(agreed)
            # Nothing waits for the count of hits.
            self._ahead.later(self._store.touch, chain)
            for span in chain:
                # This session stands on them now, whichever one stored them.
                reason = Reason(span.header.reason).label
                self._emit(Stored(session, span.sha1.hex(), span.start, span.end, reason, span.size))
            self._store.set_live_chain([link.name for link in self.chain[1:]], self._foreign)
            ms = (time.perf_counter() - began) * 1000
            return Reuse(prompt, agreed, agreed, len(chain) + (further is not None), ms)

    def _load(self, chain: list[SpanInfo], further: SpanInfo | None, key: bytes) -> list[int] | None:
        """Hand a chain's spans to an emptied cache in order, each verified while the one before it is taken in.

        Returns the tokens they hold, None (and an empty cache) when one of them cannot be used.

        Args:
            further: a span behind the chain that agrees with the prompt for a part only.
            key: the prompt's key bytes, which the chain's text must be part of.
        """
        assert self._store is not None
        spans = [*chain, further] if further is not None else chain
        keys = [None if info is further else key for info in spans]
        foreign = chain[0].folder if chain and self._store.is_foreign(chain[0]) else None
        # Named before any of them is used, so that eviction elsewhere spares them.
        name = partial(self._store.set_live_chain, [span.sha1 for span in chain], foreign)
        ready = self._ahead.read(self._store, spans, keys, name)
        self._empty()
        self._foreign = foreign
        links = [Link.root()]
        lefts: deque[Future[None]] = deque()

        def leave(span: LoadedSpan, tokens: list[int]) -> None:
            with span:
                links.append(links[-1].extended(span.text, tokens))
                links[-1].stored = True

        with self._store.handing() as handed:
            for i, info in enumerate(spans):
                try:
                    span, tokens = next(ready)
                    try:
                        handed(info)
                        self._context.restore(span.payload_address, span.payload_size, info.start, info.end)
                    finally:
                        # Done beside the next span's copying. A mapping holds a descriptor until it is left.
                        lefts.append(self._ahead.later(leave, span, tokens))
                        if len(lefts) > MAPPED_AT_ONCE:
                            lefts.popleft().result()
                    self.tokens += tokens
                except CheckpointError as error:
                    log.warning("checkpoint %s is not used: %s", info.sha1.hex(), error)
                    self._store.forget(info)
                    self._forget_damaged(spans[i + 1 :], info)
                    self.clear()
                    return None
        lefts[-1].result()
        self.chain = links
        return list(self.tokens)

    def _forget_damaged(self, spans: list[SpanInfo], parent: SpanInfo) -> None:
        """Where one file is damaged others may be: those found now are replaced as soon as they are computed again."""
        assert self._store is not None
        for info in spans:
            with suppress(CheckpointError), self._store.load(info, parent):
                pass
            parent = info


def common_prefix(a: list[int], b: list[int], limit: int) -> int:
    """Length of the common prefix, at most `limit` tokens."""
    limit = max(0, min(limit, len(a), len(b)))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
