"""Replies that follow a grammar: which tokens it lets through, and how one is drawn that it does.

Promises: what llama.cpp would abort at is never handed to it; a grammar that leaves no token, or takes too long, is a
`GrammarError` with a sentence for the user, and what cannot be stopped ends the process by SIGPROF. Must not know:
messages, sessions.
"""

from __future__ import annotations

import ctypes
import math
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ds4chat import gbnf
from ds4chat.engine import llama
from ds4chat.engine.llama import Context, Model, Sampler
from ds4chat.engine.protocol import Sampling
from ds4chat.engine.sandbox import timed

lib = llama.LIB

SECONDS = 5.0
"""Of processor time for one token, a hundred times what a large vocabulary takes: more means that the ways in which the
text can be read multiply with each character."""

HARD_SECONDS = 0.0
"""Of the process's own time, after which one call that does not return ends the process; 0: never."""

ROOT = gbnf.ROOT.encode()

Candidates = Any
"""A `llama_token_data_array`."""


class GrammarError(Exception):
    """The reply cannot follow the grammar; the text is one sentence for the user."""


@contextmanager
def _limited() -> Iterator[None]:
    """An end to the time that llama.cpp takes for a grammar. Raises GrammarError behind a call that took too long."""
    began = time.thread_time()
    # Another signal than the template's, so that the parent can tell which it was.
    with timed(signal.ITIMER_PROF, HARD_SECONDS):
        yield
    if time.thread_time() - began > SECONDS:
        raise GrammarError(
            "The grammar can read this answer in too many ways, so each token takes longer than the one before: write "
            "it so that each text can be read in one way."
        )


class Grammar:
    """A grammar, and how far a reply has come in it."""

    def __init__(self, model: Model, text: str) -> None:
        """Raises GrammarError for what is no grammar."""
        self._model = model
        try:
            gbnf.parse(text)
        except gbnf.GrammarError as error:
            raise GrammarError(f"The grammar cannot be used: {error}.") from None
        with _limited():
            self._sampler = lib.llama_sampler_init_grammar(model.vocab, text.encode(), ROOT)
        if not self._sampler:
            raise GrammarError(
                "The grammar cannot be used: the engine does not take it (its log says why): write it more simply."
            )
        self._one = (lib.llama_token_data * 1)()
        n = model.n_vocab
        self._ids = memoryview((ctypes.c_int32 * n)(*range(n))).cast("B").cast("i")
        self._data = (lib.llama_token_data * n)()
        # Fields of three times four bytes: id, logit, probability.
        memory = memoryview(self._data).cast("B")
        self._data_ids, self._logits = memory.cast("i")[::3], memory.cast("f")[1::3]

    def close(self) -> None:
        lib.llama_sampler_free(self._sampler)

    def candidates(self, logits: memoryview[Any]) -> Candidates:
        """All tokens with these logits, to draw from; the one from before is overwritten."""
        self._data_ids[:] = self._ids
        self._logits[:] = logits
        return lib.llama_token_data_array(self._data, len(self._ids), -1, False)

    def mask(self, candidates: Candidates) -> bool:
        """Set the logits of all that may not come next to minus infinity; whether any is left."""
        for token in self._model.never_written:
            self._logits[token] = -math.inf
        with _limited():
            lib.llama_sampler_apply(self._sampler, ctypes.byref(candidates))
        return bool(max(self._logits) != -math.inf)

    def allows(self, token: int) -> bool:
        """Whether the reply may go on with this token."""
        if token in self._model.never_written:
            return False
        self._one[0] = lib.llama_token_data(token, 1.0, 0.0)
        with _limited():
            lib.llama_sampler_apply(
                self._sampler, ctypes.byref(lib.llama_token_data_array(self._one, 1, -1, False))
            )
        return bool(self._one[0].logit != -math.inf)

    def is_at_end(self) -> bool:
        """Whether nothing is left but to end the reply."""
        self.mask(self.candidates(memoryview(bytes(4 * len(self._ids))).cast("f")))
        is_eog = self._model.is_eog
        return all(is_eog(token) for token, logit in enumerate(self._logits) if logit != -math.inf)

    def accept(self, token: int) -> None:
        """The reply goes on with a token, one that is allowed: anything else would end the process."""
        if not self._model.is_eog(token):
            with _limited():
                lib.llama_sampler_accept(self._sampler, token)

    def follow(self, written: Iterable[int]) -> None:
        """Go through what is written of a reply that goes on. Raises GrammarError when it does not fit."""
        for token in written:
            if self._model.is_eog(token) or not self.allows(token):
                raise GrammarError("What is written of this answer does not fit the grammar: ask anew.")
            self.accept(token)


class ConstrainedSampler(Sampler):
    """The same chain; what it draws must be allowed by a grammar.

    The grammar looks at the token that was drawn, which costs little, and only when it refuses that at all of them.
    """

    def __init__(
        self, context: Context, sampling: Sampling, seed: int, before: Iterable[int], grammar: Grammar
    ) -> None:
        super().__init__(context, sampling, seed, before)
        self._grammar = grammar

    def sample(self) -> int:
        """Draw the next token. Raises GrammarError when none is allowed."""
        token = self._draw(self._candidates())
        if not self._grammar.allows(token):
            candidates = self._candidates()
            if not self._grammar.mask(candidates):
                # The chain would make of this a token that is not allowed, or none.
                raise GrammarError(_NOTHING)
            token = self._draw(candidates)
            if not self._grammar.allows(token):
                raise GrammarError(_NOTHING)
        lib.llama_sampler_accept(self._chain, token)
        self._grammar.accept(token)
        return token

    def _candidates(self) -> Candidates:
        context = self._context
        logits = lib.llama_get_logits_ith(context.handle, -1)
        array = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * context.model.n_vocab))[0]
        return self._grammar.candidates(memoryview(array).cast("B").cast("f"))

    def _draw(self, candidates: ctypes.Structure) -> int:
        lib.llama_sampler_apply(self._chain, ctypes.byref(candidates))
        return int(candidates.data[candidates.selected].id)


_NOTHING = (
    "The grammar allows nothing here that the model has a token for: see that each of its rules can be followed to an "
    "end."
)
