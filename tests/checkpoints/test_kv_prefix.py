"""Key bytes and the descent along them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.checkpoints.prefix import ROOT, deepest_chain, key_bytes, key_offsets, partial_child, sha1
from ds4chat.errors import CheckpointError


@dataclass(frozen=True)
class Span:
    sha1: bytes
    parent: bytes
    key_len: int


class Tree:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def grow(self, key: bytes, *ends: int, parent: int = 0) -> None:
        """Spans of `key` that end at these lengths, the first one from `parent` on."""
        for end in ends:
            self.spans.append(Span(sha1(key[:end]), sha1(key[:parent]) if parent else ROOT, end))
            parent = end

    def children(self, name: bytes) -> Sequence[Span]:
        return sorted((s for s in self.spans if s.parent == name), key=lambda s: s.key_len)

    def lengths(self, name: bytes) -> list[int]:
        return sorted({s.key_len for s in self.children(name)})

    def node(self, name: bytes) -> Span | None:
        return next((s for s in self.spans if s.sha1 == name), None)

    def chain(self, key: bytes, longest: int = 10**9) -> list[Span]:
        return deepest_chain(key, self.lengths, self.node, lambda s: s.key_len <= longest)

    def find(self, key: bytes, longest: int = 10**9) -> list[int]:
        return [s.key_len for s in self.chain(key, longest)]


def test_key_bytes_vectors() -> None:
    pieces = [(1, None), (50, b"Hi "), (51, "\u00e9".encode()), (0x01020304, None)]
    key = b"\xff\x01\x00\x00\x00Hi \xc3\xa9\xff\x04\x03\x02\x01"
    assert key_bytes(pieces) == key
    assert key_offsets(pieces) == (key, [5, 8, 10, 15])
    assert sha1(key).hex() == hashlib.sha1(key).hexdigest()
    assert key_bytes([]) == b""


def test_sha1_vectors() -> None:
    """FIPS 180's own; a span's name is the SHA-1 that any other program computes."""
    assert sha1(b"").hex() == "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert sha1(b"abc").hex() == "a9993e364706816aba3e25717850c26c9cd0d89d"
    two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
    assert sha1(two_blocks).hex() == "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
    assert sha1(b"a" * 10**6).hex() == "34aa973cd4c4daa4f61eeb2bdbad27316534016f"


def test_typed_text_never_equals_a_control_token() -> None:
    typed = key_bytes([(i, bytes((c,))) for i, c in enumerate(b"<|im_end|>")])
    assert typed != key_bytes([(2, None)])
    assert 0xFF not in typed


def test_lookup_takes_the_deepest_whole_chain() -> None:
    key = b"a long conversation about nothing in particular"
    tree = Tree()
    tree.grow(key, 5, 10, 20)
    tree.grow(key, 30, 40, parent=25)
    assert tree.find(key) == [5, 10, 20]


def test_a_match_that_leads_nowhere_does_not_hide_one_that_goes_deeper() -> None:
    key = b"a long conversation about nothing in particular"
    tree = Tree()
    tree.grow(key, 10)
    tree.grow(key, 20, parent=10)
    tree.grow(key, 15, 18, 33, parent=10)
    assert tree.find(key) == [10, 15, 18, 33]
    tree.grow(key, 40, parent=20)
    assert tree.find(key) == [10, 20, 40]


def test_only_what_matches_byte_for_byte_counts() -> None:
    tree = Tree()
    tree.grow(b"hello world, how are you", 6, 12, 24)
    assert tree.find(b"hello world, how is it") == [6, 12]
    assert tree.find(b"hello world,") == [6, 12]
    assert tree.find(b"hello world") == [6]
    assert tree.find(b"") == []


def test_what_is_not_accepted_is_left_out_with_all_behind_it() -> None:
    key = b"0123456789" * 4
    tree = Tree()
    tree.grow(key, 10, 20, 30)
    assert tree.find(key, longest=20) == [10, 20]
    assert tree.find(key, longest=5) == []


def test_a_child_no_longer_than_its_parent_is_passed_over() -> None:
    key = b"0123456789" * 4
    tree = Tree()
    tree.grow(key, 10, 20)
    tree.spans.append(Span(sha1(key[:30]), sha1(key[:30]), 30))
    tree.spans.append(Span(sha1(key[:5]), sha1(key[:20]), 5))
    tree.spans.append(Span(sha1(b""), ROOT, 0))
    assert tree.find(key) == [10, 20]


def test_a_cycle_of_parents_leads_nowhere() -> None:
    key = b"0123456789" * 4
    tree = Tree()
    tree.grow(key, 10)
    tree.spans.append(Span(sha1(key[:20]), sha1(key[:30]), 20))
    tree.spans.append(Span(sha1(key[:30]), sha1(key[:20]), 30))
    assert tree.find(key) == [10]


def test_a_length_that_is_not_where_the_name_ends_is_passed_over() -> None:
    key = b"0123456789" * 4
    tree = Tree()
    tree.grow(key, 10, 20)
    tree.spans.append(Span(sha1(key[:30]), sha1(key[:20]), 25))
    tree.grow(key, 30, parent=10)
    assert tree.find(key) == [10, 20]


@settings(deadline=None)
@given(st.data())
def test_any_tree_gives_what_trying_every_chain_gives(data: st.DataObject) -> None:
    alphabet = st.binary(min_size=12, max_size=12).map(lambda b: bytes(x % 2 for x in b))
    tree = Tree()
    for text in data.draw(st.lists(alphabet, max_size=6)):
        ends = sorted(data.draw(st.sets(st.integers(1, 12), max_size=5)))
        known = {s.sha1 for s in tree.spans}
        parent = 0
        for end in ends:
            if sha1(text[:end]) not in known:
                tree.grow(text, end, parent=parent)
            parent = end
    key = data.draw(alphabet)

    def deepest(name: bytes) -> int:
        fitting = [s for s in tree.children(name) if sha1(key[: s.key_len]) == s.sha1]
        return max((max(s.key_len, deepest(s.sha1)) for s in fitting), default=0)

    chain = tree.chain(key)
    assert (chain[-1].key_len if chain else 0) == deepest(ROOT)
    assert [s.parent for s in chain] == [ROOT, *(s.sha1 for s in chain)][: len(chain)]


def test_the_child_that_agrees_furthest() -> None:
    tree = Tree()
    tree.grow(b"abc", 3)
    tree.grow(b"abd", 3)
    tree.grow(b"xyz", 3)
    tokens = dict(zip(tree.spans, ([1, 2, 3, 4], [1, 2, 9], [7]), strict=True))
    children = tree.children(ROOT)
    assert partial_child([1, 2, 3, 5], children, tokens.__getitem__) == (tree.spans[0], 3)
    assert partial_child([1, 2], children, tokens.__getitem__) == (tree.spans[0], 2)
    assert partial_child([8], children, tokens.__getitem__) is None
    assert partial_child([], children, tokens.__getitem__) is None


def test_a_child_that_cannot_be_read_is_passed_over() -> None:
    tree = Tree()
    tree.grow(b"abc", 3)
    tree.grow(b"abd", 3)

    def tokens_of(span: Span) -> list[int]:
        if span is tree.spans[0]:
            raise CheckpointError("gone")
        return [1]

    assert partial_child([1, 2], tree.spans, tokens_of) == (tree.spans[1], 1)
