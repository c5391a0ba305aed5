"""Messages -> the tokens of a prompt and their key bytes.

Promises: what was typed becomes plain tokens, the template's markers become control tokens; a reply keeps the ids
it was sampled with wherever the template left its text alone. Must not know: the cache, files, events.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

from ds4chat.engine.protocol import ChatMessage
from ds4chat.engine.template import ChatTemplate, Marker, Run


class Vocabulary(Protocol):
    """What a prompt needs of a model."""

    def tokenize(self, text: bytes, *, markers: bool) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def is_control(self, token: int) -> bool: ...

    @property
    def bos(self) -> int | None: ...
    @property
    def adds_bos(self) -> bool: ...


def key_piece(vocabulary: Vocabulary, token: int) -> bytes:
    """A token's part of the key bytes: its text, or 0xFF and the u32 id of a control token."""
    if vocabulary.is_control(token):
        return b"\xff" + token.to_bytes(4, "little")
    return vocabulary.piece(token)


@dataclass(frozen=True)
class Prompt:
    """A rendered conversation.

    Attributes:
        key: the key bytes of all tokens.    key_ends: length of the key after each token, bytes.
        boundaries: token index at which each message begins, its markers included.
        system_end: token index at which the system block ends, 0 without one.
    """

    tokens: list[int]
    key: bytes
    key_ends: list[int]
    boundaries: list[int]
    system_end: int

    def message_tokens(self) -> list[int]:
        """Tokens each message takes; what comes before the first counts to it, what follows the last to the last."""
        edges = [0, *self.boundaries[1:], len(self.tokens)]
        return [b - a for a, b in pairwise(edges)][: len(self.boundaries)]


class PromptBuilder:
    """Builds prompts for one model."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self._vocabulary, self._template = vocabulary, template
        self._key_pieces: dict[int, bytes] = {}

    def build(self, messages: Sequence[ChatMessage], *, continue_reply: bool = False) -> Prompt:
        """Render and tokenize. A reply's header follows a last user message. Raises TemplateError.

        Args:
            continue_reply: the last message is a reply that goes on: it stays open at its last token.
        """
        closed = list(messages[:-1]) if continue_reply else list(messages)
        reply_follows = continue_reply or not closed or closed[-1].role != "assistant"
        parts = self._template.render([(m.role, m.text) for m in closed], reply_follows=reply_follows)
        tokens: list[int] = []
        starts: dict[int, int] = {}
        for part in parts:
            if isinstance(part, Marker):
                tokens += self._vocabulary.tokenize(part.text.encode(), markers=True)
            else:
                self._add_run(part, closed, tokens, starts)
        bos = self._vocabulary.bos
        if self._vocabulary.adds_bos and bos is not None and (not tokens or tokens[0] != bos):
            tokens.insert(0, bos)
            starts = {i: at + 1 for i, at in starts.items()}
        if continue_reply:
            starts[len(closed)] = len(tokens)
            last = messages[-1]
            tokens += last.tokens or self._vocabulary.tokenize(last.text.encode(), markers=False)
        return self.of_tokens(tokens, self._boundaries(tokens, starts, messages), messages)

    def of_tokens(self, tokens: list[int], boundaries: list[int], messages: Sequence[ChatMessage]) -> Prompt:
        """A prompt of known tokens."""
        pieces = [self.key_piece(t) for t in tokens]
        first = next((i for i, m in enumerate(messages) if m.role != "system"), None)
        system_end = boundaries[first] if first is not None and first < len(boundaries) else 0
        return Prompt(tokens, b"".join(pieces), list(accumulate(map(len, pieces))), boundaries, system_end)

    def key_piece(self, token: int) -> bytes:
        """See the function of that name; remembered."""
        known = self._key_pieces.get(token)
        if known is None:
            known = self._key_pieces[token] = key_piece(self._vocabulary, token)
        return known

    def realign(self, prompt: Prompt, stored: list[int]) -> Prompt:
        """The prompt as it goes on from a stored prefix whose bytes are the same but whose tokens are not.

        The stored tokens are the truth: KV follows tokens. From the last control token at or before the end of the
        match on, the prompt's own tokens count, because a cut in the middle of a word tokenizes otherwise.

        Args:
            stored: tokens of a checkpoint chain whose key bytes begin the prompt's.
        """
        if prompt.tokens[: len(stored)] == stored:
            return prompt
        key_length = sum(len(self.key_piece(t)) for t in stored)
        mine = bisect.bisect_right(prompt.key_ends, key_length)
        while mine > 0 and not self._is_control(prompt.tokens[mine - 1]):
            mine -= 1
        theirs = len(stored)
        while theirs > 0 and not self._is_control(stored[theirs - 1]):
            theirs -= 1
        shift = theirs - mine
        tokens = stored[:theirs] + prompt.tokens[mine:]
        pieces = [self.key_piece(t) for t in tokens]
        boundaries = [b + shift if b >= mine else min(b, theirs) for b in prompt.boundaries]
        system_end = (
            prompt.system_end + shift if prompt.system_end >= mine else min(prompt.system_end, theirs)
        )
        return Prompt(tokens, b"".join(pieces), list(accumulate(map(len, pieces))), boundaries, system_end)

    def _is_control(self, token: int) -> bool:
        return self.key_piece(token)[:1] == b"\xff" and self._vocabulary.is_control(token)

    def _boundaries(
        self, tokens: list[int], starts: dict[int, int], messages: Sequence[ChatMessage]
    ) -> list[int]:
        if len(starts) == len(messages):
            bounds: list[int] = []
            for i in range(len(messages)):
                at = starts[i]
                floor = bounds[-1] + 1 if bounds else 0
                # Walk back over the header to the control token that opens the message.
                while at > floor and not self._is_control(tokens[at - 1]):
                    at -= 1
                bounds.append(at - 1 if at > floor else starts[i])
            if all(a < b for a, b in pairwise(bounds)):
                return bounds
        # No marker tells (or the template rearranged the contents): share the tokens out by length, nothing depends
        # on it but what falls out.
        total = sum(len(m.text) + 16 for m in messages) or 1
        sums = accumulate((len(m.text) + 16 for m in messages), initial=0)
        return [len(tokens) * done // total for done in sums][:-1]

    def _add_run(
        self, run: Run, messages: list[ChatMessage], tokens: list[int], starts: dict[int, int]
    ) -> None:
        at = 0
        for index, start, end in run.contents:
            message = messages[index]
            known = self._sampled(message, run.text, at, start, end)
            if known is not None:
                ids, begin = known
                tokens += self._plain(run.text[at:begin])
                starts[index] = len(tokens)
                tokens += ids
                at = end
            else:
                # Not split at the content's edges: the text is tokenized as the one run it is.
                starts[index] = len(tokens)
        tokens += self._plain(run.text[at:])

    def _plain(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text.encode(), markers=False) if text else []

    def _sampled(
        self, message: ChatMessage, text: str, floor: int, start: int, end: int
    ) -> tuple[list[int], int] | None:
        """The sampled ids that stand for a content (or its rest) and where in the run they begin, None when they
        don't fit."""
        if not message.tokens or message.role != "assistant":
            return None
        pieces = [self._vocabulary.piece(t) for t in message.tokens]
        if start >= 0:
            content = text[start:end]
            if _shown(pieces) == content:
                return message.tokens, start
            first, last = 0, len(pieces)
            while first < last and not pieces[first].strip():
                first += 1
            while last > first and not pieces[last - 1].strip():
                last -= 1
            return (
                (message.tokens[first:last], start)
                if first < last and _shown(pieces[first:last]) == content
                else None
            )
        # The front was cut off (stripped reasoning): the longest tail of ids whose bytes end the text.
        rest = text[floor:end].encode()
        first = len(pieces)
        while first > 0 and pieces[first - 1] and rest.endswith(pieces[first - 1]):
            rest = rest[: len(rest) - len(pieces[first - 1])]
            first -= 1
        try:
            return (message.tokens[first:], floor + len(rest.decode())) if first < len(pieces) else None
        except UnicodeDecodeError:
            return None


def _shown(pieces: list[bytes]) -> str:
    """What is stored as the text of sampled tokens: a broken character is U+FFFD, NUL and CR never are."""
    text = b"".join(pieces).decode("utf-8", "replace").replace("\x00", "")
    return text.replace("\r\n", "\n").replace("\r", "\n")
