"""Messages -> the tokens of a prompt and their key bytes.

Promises: what was typed becomes plain tokens, the template's markers become control tokens; a reply keeps the ids
it was sampled with wherever the template left its text alone. Must not know: the cache, files, events.
"""

from __future__ import annotations

import bisect
import codecs
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, takewhile
from typing import Any, Protocol

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
        system_end: token index at which the system block (the template's own included) ends, 0 when not known.
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

    def build(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_reply: bool = False,
        tools: Sequence[Any] | None = None,
    ) -> Prompt:
        """Render and tokenize. A reply's header follows a last user message. Raises TemplateError.

        Args:
            continue_reply: the last message is a reply that goes on: it stays open at its last token.
            tools: declarations for the template.
        """
        closed = list(messages[:-1]) if continue_reply else list(messages)
        reply_follows = continue_reply or not closed or closed[-1].role != "assistant"
        pairs = [(m.role, m.text) for m in closed]
        parts = self._template.render(pairs, reply_follows=reply_follows, tools=tools)
        tokens: list[int] = []
        places: dict[int, tuple[int, int]] = {}
        for part in parts:
            if isinstance(part, Marker):
                tokens += self._vocabulary.tokenize(part.text.encode(), markers=True)
            else:
                self._add_run(part, closed, tokens, places)
        bos = self._vocabulary.bos
        if self._vocabulary.adds_bos and bos is not None and (not tokens or tokens[0] != bos):
            tokens.insert(0, bos)
            places = {i: (start + 1, end + 1) for i, (start, end) in places.items()}
        if continue_reply:
            last = messages[-1]
            places[len(closed)] = len(tokens), len(tokens)
            tokens += self._reply_so_far(last)
        boundaries = self._boundaries(tokens, places, len(messages))
        if boundaries is None:
            return self._prompt(tokens, _shared_out(len(tokens), messages), 0)
        first = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        system_end = boundaries[first] if first < len(boundaries) else 0
        return self._prompt(tokens, boundaries, system_end)

    def _prompt(self, tokens: list[int], boundaries: list[int], system_end: int) -> Prompt:
        pieces = [self.key_piece(t) for t in tokens]
        return Prompt(tokens, b"".join(pieces), list(accumulate(map(len, pieces))), boundaries, system_end)

    def _reply_so_far(self, reply: ChatMessage) -> list[int]:
        """The tokens of a reply that goes on: the sampled ones unless the text was changed since."""
        spelled = self._spelled(reply)
        if self._are_known(reply) and reply.text in (spelled.whole, spelled.text):
            return reply.tokens
        return self._plain(reply.text, goes_on=True)

    def unfinished(self, reply: ChatMessage) -> bytes:
        """What a reply that goes on has of a character at its end that its text does not show yet."""
        spelled = self._spelled(reply)
        return spelled.rest if reply.text == spelled.text else b""

    def _are_known(self, reply: ChatMessage) -> bool:
        """Whether there are ids, all of them the vocabulary's, and none that a file could have made act."""
        return bool(reply.tokens) and all(
            self._vocabulary.piece(t) or (not reply.imported and self._vocabulary.is_control(t))
            for t in reply.tokens
        )

    def _spelled(self, reply: ChatMessage) -> Spelling:
        return Spelling([self._vocabulary.piece(t) for t in reply.tokens], "\r" in reply.text)

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
        if sum(len(self.key_piece(t)) for t in stored[:theirs]) != (prompt.key_ends[mine - 1] if mine else 0):
            # A sampled 0xFF can spell a control token's key: not the same text, so only the common tokens count.
            return prompt
        shift = theirs - mine
        boundaries = [b + shift if b >= mine else min(b, theirs) for b in prompt.boundaries]
        end = prompt.system_end
        return self._prompt(
            stored[:theirs] + prompt.tokens[mine:],
            boundaries,
            end + shift if end >= mine else min(end, theirs),
        )

    def _is_control(self, token: int) -> bool:
        return self.key_piece(token)[:1] == b"\xff" and self._vocabulary.is_control(token)

    def _boundaries(
        self, tokens: list[int], places: dict[int, tuple[int, int]], count: int
    ) -> list[int] | None:
        """Where each message begins, None when the template does not tell. One that was left out begins where the next
        one does."""
        bounds: list[int | None] = []
        floor = 0
        for i in range(count):
            if i not in places:
                bounds.append(None)
                continue
            start, end = places[i]
            if start < floor:
                return None
            between = [j for j in range(floor, start) if self._is_control(tokens[j])]
            if not between:
                bounds.append(start)
            elif floor == 0:
                bounds.append(between[-1])
            else:
                # The first one closes the message before, unless it is the only one.
                bounds.append(between[:2][-1])
            floor = max(end, 1)
        if not places:
            return None
        known = len(tokens)
        filled: list[int] = []
        for bound in reversed(bounds):
            known = known if bound is None else bound
            filled.append(known)
        return filled[::-1]

    def _add_run(
        self, run: Run, messages: list[ChatMessage], tokens: list[int], places: dict[int, tuple[int, int]]
    ) -> None:
        """Tokenize a run; text is split only at the edges of sampled ids. `places` gets where contents begin and, so
        far as it is known, end."""
        at = 0
        unsplit: list[tuple[int, int]] = []

        def add_plain(end: int) -> None:
            text = run.text[at:end]
            ids = self._plain(text, goes_on=at > 0)
            if unsplit:
                ends = list(accumulate(len(self._vocabulary.piece(t)) for t in ids))
                added = (ends[-1] if ends else 0) - len(text.encode())
                for index, start in unsplit:
                    before = len(run.text[at:start].encode()) + added
                    place = len(tokens) + bisect.bisect_right(ends, before) if start > at else len(tokens)
                    places.setdefault(index, (place, place))
                unsplit.clear()
            tokens.extend(ids)

        for index, start, end in run.contents:
            if max(start, end) < at:
                continue
            sampled = self._sampled(messages[index], run.text, at, start, end)
            if sampled is None:
                unsplit.append((index, max(start, at)))
                continue
            ids, begin, finish = sampled
            add_plain(begin)
            places.setdefault(index, (len(tokens), len(tokens) + len(ids)))
            tokens.extend(ids)
            at = finish
        add_plain(len(run.text))

    def _plain(self, text: str, *, goes_on: bool) -> list[int]:
        """Tokens of plain text; `goes_on`: behind other text, where tokenizers that begin with a space must not."""
        if not text:
            return []
        ids = self._vocabulary.tokenize(text.encode(), markers=False)
        if not goes_on or not self._begins_with_space:
            return ids
        behind = self._vocabulary.tokenize(b"\n" + text.encode(), markers=False)
        length = 0
        for i, token in enumerate(behind):
            if length == len(b" \n"):
                return behind[i:]
            length += len(self._vocabulary.piece(token))
        return ids

    @cached_property
    def _begins_with_space(self) -> bool:
        ids = self._vocabulary.tokenize(b"a", markers=False)
        return b"".join(map(self._vocabulary.piece, ids)) == b" a"

    def _sampled(
        self, message: ChatMessage, text: str, floor: int, start: int, end: int
    ) -> tuple[list[int], int, int] | None:
        """The sampled ids that stand for a content (or for most of it) and where in the run they begin and end, None
        when they don't fit.

        A template may have trimmed the content, or cut its front off (`start` is -1: stripped reasoning).
        """
        if message.role != "assistant" or 0 <= start < floor or not self._are_known(message):
            return None
        spelled = self._spelled(message)
        if start >= 0:
            content = text[start:end]
            whole = next((w for w in (spelled.whole, spelled.text) if content in (w, w.strip())), None)
            if whole is None:
                return None
            cut = 0 if content == whole else len(whole) - len(whole.lstrip())
        else:
            tails = [(_common_end(w, text[floor:end]), w) for w in (spelled.whole, spelled.text)]
            tails += [(_common_end(w.rstrip(), text[floor:end]), w.rstrip()) for _n, w in tails]
            length, whole = max(tails, key=lambda tail: tail[0])
            start, cut = end - length, len(whole) - length
        first, last = spelled.tokens_between(cut, cut + end - start)
        if first >= last:
            return None
        begin = start + (spelled.bounds[first] or 0) - cut
        bound = spelled.bounds[last]
        finish = end if last == len(message.tokens) or bound is None else start + bound - cut
        return message.tokens[first:last], begin, finish


class Spelling:
    """Sampled tokens as the text that is shown and stored of them: a broken character is U+FFFD, NUL and CR never are.

    Attributes:
        text: of whole characters.    rest: the bytes of an unfinished one at the end, if any.
        whole: the text and what that rest comes out as.
        bounds: characters before each token and after the last, None in the middle of a character.
    """

    def __init__(self, pieces: Sequence[bytes], keep_cr: bool = False) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        decoder = utf8 if keep_cr else io.IncrementalNewlineDecoder(utf8, translate=True)
        out: list[str] = []
        length = 0
        self.bounds: list[int | None] = [0]
        for piece in pieces:
            out.append(decoder.decode(piece).replace("\x00", ""))
            length += len(out[-1])
            self.bounds.append(length if decoder.getstate() == (b"", 0) else None)
        self.text = "".join(out)
        self.rest = utf8.getstate()[0]
        self.whole = self.text + decoder.decode(b"", True)

    def tokens_between(self, start: int, end: int) -> tuple[int, int]:
        """The tokens (first, behind the last) that lie in a range of characters.

        Tokens without text at its edges (control tokens, say) are among them only where it is an edge of the whole.
        """
        known = {i: bound for i, bound in enumerate(self.bounds) if bound is not None}
        first, last = 0, len(self.bounds) - 1
        if start > 0:
            first = min((i for i in known if known[i] >= start), key=lambda i: (known[i], -i), default=last)
        if end < len(self.text):
            last = max((i for i in known if known[i] <= end), key=lambda i: (known[i], -i))
        return first, last


def _common_end(a: str, b: str) -> int:
    """Characters that both end with."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _shared_out(n_tokens: int, messages: Sequence[ChatMessage]) -> list[int]:
    """Boundaries by the length of the texts: nothing depends on them but what falls out of the window."""
    lengths = [len(m.text) + 16 for m in messages]
    return (
        [n_tokens * before // sum(lengths) for before in accumulate(lengths, initial=0)][:-1]
        if lengths
        else []
    )
