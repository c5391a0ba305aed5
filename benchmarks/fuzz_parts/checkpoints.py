"""Checkpoint files: one alone, and a folder of them that a store opens."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import shutil
import socket
import stat
import struct
import time
from pathlib import Path

import xxhash

from benchmarks.fuzz_parts.mutate import mutate_bytes
from benchmarks.fuzz_parts.target import Outcome, Target, UncaughtError
from ds4chat.checkpoints import inventory, quarantine, upkeep
from ds4chat.checkpoints.directory import Directory
from ds4chat.checkpoints.format import (
    HEADER_BYTES,
    hash_tokens,
    open_span,
    read_header,
    read_tokens,
    token_hash,
)
from ds4chat.checkpoints.prefix import ROOT, sha1
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, SpanDraft
from ds4chat.checkpoints.span import Outcome as PutOutcome
from ds4chat.checkpoints.store import Store
from ds4chat.checkpoints.trailers import Trailer
from ds4chat.errors import CheckpointError
from tests.support.mutations import FIELDS, MUTATIONS, Files, refit

IDENTITY = Identity(
    "tiny-model",
    bytes(range(8)),
    bytes(range(16)),
    4,
    1,
    loose=b"l" * 8,
    about={"model": "Tiny", "kv_type": "f16"},
)
KEY = b"The ship carries salt and a cat, and nobody on board knows its name."
TOKENS = list(range(100, 100 + 34))
CUTS = (0, 8, 20, 34)
"""Tokens at which the spans of the chain end; two bytes of the key each."""
PAYLOAD = 96


def example_files(root: Path) -> tuple[str, str, Files]:
    """Family, variant and span files by name: a chain of three spans and one that branches off."""
    store = Store.open(root, IDENTITY, budget_mb=0, clock=lambda: 1.7e9)
    previous = ROOT
    for start, end in itertools.pairwise(CUTS):
        previous = _put(store, previous, KEY, TOKENS, start, end)
    other = KEY[:16] + b" but other words"
    parent = sha1(KEY[:16])
    _put(store, parent, other, [*TOKENS[:8], *range(500, 508)], 8, 16)
    store.close()
    folder = root / IDENTITY.folder
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("*.kv"))}
    shutil.rmtree(root)
    return IDENTITY.folder.parent.name, IDENTITY.folder.name, files


def _put(store: Store, parent: bytes, key: bytes, tokens: list[int], start: int, end: int) -> bytes:
    text = key[2 * start : 2 * end]
    # What mutations of cells expect: a head of 16 bytes, then 12 bytes a cell.
    payload = struct.pack("<4I", 1, 0, 1, end - start) + b"".join(
        struct.pack("<iIi", at, 1, 0) for at in range(start, end)
    )
    result = store.put(
        SpanDraft(
            parent, sha1(key[: 2 * end]), start, end, 512, Reason.CONTINUED, text, tokens[start:end],
            token_hash(tokens[:start]), token_hash(tokens[:end]), 2 * end, payload + bytes(PAYLOAD), 50,
            trailers=(Trailer(b"KTM1", 1, b"{}"),),
        )
    )  # fmt: skip
    assert result.outcome is PutOutcome.STORED, result
    return sha1(key[: 2 * end])


class CheckpointFile(Target):
    """One file, read in every way there is. Accepted is what verifies."""

    name = "checkpoint file"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        _, _, self.files = example_files(self.folder / "made")
        self.path = self.folder / f"{'ab' * 20}.kv"

    def make(self, draw: random.Random) -> bytes:
        files = dict(self.files)
        kind = draw.randrange(10)
        if kind < 3:
            return mutate_bytes(draw, draw.choice(sorted(files.values())), sorted(files.values()))
        if kind < 8:
            MUTATIONS[draw.choice(sorted(set(MUTATIONS) - {"deleted file"}))](files, draw)
            changed = [c for n, c in files.items() if self.files.get(n) != c]
            return draw.choice(changed or sorted(files.values()))
        content = draw.choice(sorted(files.values()))
        return many_fields(draw, content) if kind == 8 else content + trailers(draw)

    def feed(self, data: bytes) -> Outcome:
        self.path.write_bytes(data)
        _refused(lambda: read_header(self.path))
        _refused(lambda: read_tokens(self.path))
        try:
            with open_span(self.path) as loaded:
                trailing = loaded.trailers
                if sum(len(t.data) for t in trailing) > len(data):
                    raise UncaughtError("more trailers than bytes")
                if len(loaded.payload) != loaded.payload_size or loaded.payload_address <= 0:
                    raise UncaughtError("a payload of another size than its header says")
                loaded.verify()
                if (
                    hash_tokens(loaded.tokens).intdigest() < 0
                    or len(loaded.tokens) != loaded.header.token_count
                ):
                    raise UncaughtError("other tokens than its header says")
        except CheckpointError as error:
            _told(error)
            return "refused"
        return "accepted"


def _told(error: CheckpointError) -> None:
    if not str(error).strip():
        raise UncaughtError("a refusal without a reason")


def _refused(read: object) -> None:
    try:
        read()  # type: ignore[operator]
    except CheckpointError as error:
        _told(error)


def many_fields(draw: random.Random, content: bytes) -> bytes:
    """A header of nothing but chance, its magic and version aside, with checksums that fit."""
    data = bytearray(content)
    for field in draw.sample(sorted(FIELDS), draw.randrange(1, 8)):
        if field in ("magic", "version"):
            continue
        offset, form = FIELDS[field]
        size = struct.calcsize("<" + form)
        value = draw.choice((draw.randrange(256**size), draw.randrange(64), 256**size - 1)) % 256**size
        data[offset : offset + size] = value.to_bytes(size, "little")
    return refit(bytes(data))


def trailers(draw: random.Random) -> bytes:
    """Records behind a payload: a great many, empty ones, some whose length leads astray."""
    records = []
    for _ in range(draw.choice((1, 5, 300))):
        body = draw.randbytes(draw.choice((0, 3, 50)))
        length = draw.choice((len(body), len(body), len(body), 2**64 - 1, 2**63, 10**6))
        record = (
            struct.pack("<4sIQ", draw.choice((b"KTM1", b"\0\0\0\0", b"\xff\xff\xff\xff")), 1, length) + body
        )
        records.append(
            record + struct.pack("<Q", xxhash.xxh3_64_intdigest(record) ^ draw.choice((0, 0, 0, 1)))
        )
    return b"".join(records)


class CheckpointFolder(Target):
    """A directory with damaged, forged and foreign things in it, through the store and the `cache` commands."""

    name = "checkpoint folder"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        _, _, self.files = example_files(self.folder / "made")
        self.root = self.folder / "kv"
        self.place = self.root / IDENTITY.folder
        self.outside = self.folder / "not-in-kv"
        self.outside.mkdir(exist_ok=True)
        self.chain = [sha1(KEY[: 2 * end]) for end in CUTS[1:]]

    def make(self, draw: random.Random) -> bytes:
        """The seed of what is laid out: it is made in `feed`, since it is more than bytes."""
        return draw.randbytes(8)

    def arrange(self, data: bytes) -> None:
        self._lay_out(random.Random(data))

    def feed(self, data: bytes) -> Outcome:
        draw = random.Random(data + b"used")
        before = self._elsewhere()
        whole = self._use(draw)
        if self._elsewhere() != before:
            raise UncaughtError("a file outside of the folder was changed")
        return "accepted" if whole else "refused"

    def _elsewhere(self) -> list[tuple[str, bytes]]:
        """What is not the store's, but for the two fields of a checkpoint (by a hard link) that a restore counts in."""
        found = []
        for path in sorted(self.outside.iterdir()):
            data = path.read_bytes()
            found.append((path.name, data[:12] + data[16:32] + data[40:]))
        return found

    def _lay_out(self, draw: random.Random) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.place.mkdir(parents=True)
        for path in self.outside.iterdir():
            path.unlink()
        (self.outside / "mine").write_bytes(draw.choice(sorted(self.files.values())))
        files = dict(self.files)
        for _ in range(draw.choice((0, 1, 1, 2, 4))):
            kind = draw.choice(sorted(MUTATIONS))
            # What was changed before may leave this one no way.
            with contextlib.suppress(CheckpointError, ValueError, struct.error, IndexError, KeyError):
                MUTATIONS[kind](files, draw)
        for name, content in files.items():
            (self.place / name).write_bytes(content)
        for _ in range(draw.choice((0, 0, 1, 2))):
            self._odd(draw)

    def _odd(self, draw: random.Random) -> None:
        """Something that is no plain file, under a name that means something to the store."""
        span = draw.choice([*sorted(self.files), f"{draw.randbytes(20).hex()}.kv"])
        names = (
            self.place / span, self.place / f"{span}.bad", self.place / f"{span}.strike", self.place / f"{span}.tmp.12",
            self.place / "variant.json", self.root / "pins", self.root / "leases", self.root / ".lock",
            self.root / "pins" / span[:40], self.root / "leases" / "1-ab.lock", self.root / "leases" / "1-ab.json",
            self.place.parent / "0123456789abcdef" / "variant.json", self.root / "zz\x1b[31m" / "variant" / span,
            self.place.parent / "\u202eevil" / span,
        )  # fmt: skip
        path = draw.choice(names)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            kind = draw.randrange(9)
            if kind == 0:
                os.mkfifo(path)
            elif kind == 1:
                path.mkdir()
            elif kind == 2:
                path.symlink_to(
                    draw.choice((self.outside / "mine", "/dev/zero", self.place, path.name, "/nowhere/x"))
                )
            elif kind == 3:
                path.hardlink_to(self.outside / "mine")
            elif kind == 4:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(path)[-100:] if len(str(path)) > 100 else str(path))
            elif kind == 5:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
            elif kind == 6:
                path.write_bytes(
                    draw.choice((b"", b"{}", b"[" * 10_000, draw.randbytes(300), b'{"loose": 5}'))
                )
            elif kind == 7:
                with path.open("wb") as file:
                    file.truncate(draw.choice((HEADER_BYTES, 2**40)))
            else:
                path.write_bytes(draw.choice(sorted(self.files.values())))
                path.chmod(draw.choice((0, 0o400, 0o777)))
        except OSError:
            pass  # an odd thing that is there already, or that only root may make

    def _use(self, draw: random.Random) -> bool:
        notices: list[str] = []
        store = Store.open(
            self.root, IDENTITY, budget_mb=draw.choice((0, 0, 1)), on_notice=notices.append,
            accept_different_quant=True, crashed_pid=1,
        )  # fmt: skip
        try:
            found = store.find(KEY, 1000, 2048)
            parent = None
            taken = 0
            for span in found:
                try:
                    with store.load(span, parent, KEY) as loaded:
                        taken += loaded.header.token_count
                        _ = loaded.trailers
                except CheckpointError as error:
                    _told(error)
                    break
                parent = span
            store.touch(found)
            for behind in (store.behind([], 2048), store.behind(found, 2048), store.roots_along(KEY)):
                for span in behind:
                    _refused(lambda span=span: store.load(span, None))
            store.partial(found, TOKENS, 2048)
            store.set_live_chain(self.chain)
            _put_again(store)
            _ = store.total_bytes
        finally:
            store.close()
        self._maintain(draw)
        return taken == CUTS[-1]

    def _maintain(self, draw: random.Random) -> None:
        verdict = inventory.verify(self.root)
        for stock in inventory.take_stock(self.root):
            stock.line(set(self.chain))
        directory = Directory(self.root)
        upkeep.survey(directory, IDENTITY, time.time(), self.chain)
        directory.default_budget()
        what = draw.randrange(5)
        try:
            if what == 0:
                inventory.delete_faults(self.root, verdict.faults)
            elif what == 1:
                inventory.prune(self.root, 500, time.time(), 21_600.0)
            elif what == 2:
                inventory.clear(self.root)
            elif what == 3:
                upkeep.remove_spans(directory, self.chain)
            else:
                for path in sorted(self.place.glob("*.kv")):
                    quarantine.strike(path)
        except OSError as error:
            # The commands tell it in a sentence, see `cli_cache._disk`.
            if not (error.strerror or str(error)):
                raise UncaughtError("a failure of the disk without a reason") from error


def _put_again(store: Store) -> None:
    previous = ROOT
    for start, end in itertools.pairwise(CUTS):
        text = KEY[2 * start : 2 * end]
        draft = SpanDraft(
            previous, sha1(KEY[: 2 * end]), start, end, 512, Reason.CONTINUED, text, TOKENS[start:end],
            token_hash(TOKENS[:start]), token_hash(TOKENS[:end]), 2 * end, bytes(200), 50,
        )  # fmt: skip
        store.put(draft)
        previous = draft.sha1
