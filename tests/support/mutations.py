"""Files of a checkpoint directory, changed in every way that is no accident of one bit alone, and what the engine
makes of them.

A mutation takes the span files of one chat's folder by name and changes some. None may bring the engine down, and none
may change an answer: what is damaged is passed over and computed again. Checksums are made to fit where that is what
a careless program could do; rows are never changed under a checksum that fits, since nothing could tell.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ds4chat.checkpoints.format import HEADER_BYTES, Header
from ds4chat.checkpoints.store import Store
from ds4chat.checkpoints.writer import Writer
from ds4chat.engine.live import LiveState
from ds4chat.engine.protocol import Done, Event, Generate, Stored, Token
from ds4chat.engine.turn import Turns
from tests.support.engine_room import GREEDY, EngineRoom, system, user

Files = dict[str, bytes]
"""Content by file name."""

SENTENCE = "The {} ship carries {} barrels of salt and a cat, and nobody on board knows its name. "
CHATS = [
    [system("You like ships. " * 10), user("".join(SENTENCE.format(i, i) for i in range(4)))],
    [system("You like ships. " * 10), user("".join(SENTENCE.format(i, 2 * i) for i in range(3)))],
    [user("".join(SENTENCE.format(i, 3 * i) for i in range(3)))],
]
"""The first is asked again after each mutation; the second shares its system block."""

MAX_TOKENS = 12

# Offset and struct format of each header field.
FIELDS = {
    "magic": (0, "3s"), "version": (3, "B"), "quant": (4, "B"), "reason": (5, "B"), "flags": (6, "B"),
    "abi": (7, "B"), "end": (8, "I"), "hits": (12, "I"), "context": (16, "I"), "start": (20, "I"),
    "created": (24, "Q"), "last used": (32, "Q"), "payload bytes": (40, "Q"), "parent": (48, "20s"),
    "text bytes": (68, "I"), "token count": (72, "I"), "cost": (76, "I"), "fingerprint": (80, "16s"),
    "variant": (96, "8s"), "key length": (104, "Q"), "start hash": (112, "Q"), "end hash": (120, "Q"),
}  # fmt: skip


def refit(content: bytes) -> bytes:
    """The file with both checksums made to fit, as far as its sizes allow."""
    if len(content) < HEADER_BYTES:
        return content
    data = bytearray(content)
    (payload_bytes,) = struct.unpack_from("<Q", data, 40)
    text_bytes, token_count = struct.unpack_from("<II", data, 68)
    tokens_at = HEADER_BYTES + text_bytes
    payload_at = tokens_at + 4 * token_count
    payload = data[payload_at : payload_at + payload_bytes]
    struct.pack_into("<Q", data, 128, xxhash.xxh3_64_intdigest(bytes(payload)))
    fixed = bytes(data[:12] + data[16:32] + data[40:136] + data[HEADER_BYTES:payload_at])
    struct.pack_into("<Q", data, 136, xxhash.xxh3_64_intdigest(fixed))
    return bytes(data)


def _some(files: Files, draw: random.Random) -> str:
    return draw.choice(sorted(files))


def _set(content: bytes, field: str, value: object) -> bytes:
    offset, form = FIELDS[field]
    data = bytearray(content)
    struct.pack_into("<" + form, data, offset, value)
    return bytes(data)


def bit_flips(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    data = bytearray(files[name])
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        # Half of them ahead of the payload, which is most of the file.
        limit = draw.choice((len(data), HEADER_BYTES + 400))
        data[draw.randrange(min(limit, len(data)))] ^= 1 << draw.randrange(8)
    files[name] = bytes(data)


def truncation_at_an_edge(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    header = Header.unpack(files[name])
    edge = draw.choice((0, 3, 12, 48, 143, 144, header.tokens_at, header.payload_at, header.trailers_at))
    files[name] = files[name][: max(0, edge + draw.choice((-1, 0, 0, 1)))]


def truncation(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    files[name] = files[name][: draw.randrange(len(files[name]))]


def bytes_added(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    extra = draw.randbytes(draw.choice((1, 7, 24, 1000)))
    header = Header.unpack(files[name])
    at = draw.choice((len(files[name]), header.payload_at, header.tokens_at, HEADER_BYTES, 0))
    files[name] = files[name][:at] + extra + files[name][at:]


def trailers(files: Files, draw: random.Random) -> None:
    """Records behind the payload: of known and unknown tags, with wrong lengths and sums."""
    name = _some(files, draw)
    body = draw.choice((b"", b"{}", b'{"a": 1}', draw.randbytes(50)))
    length = draw.choice((len(body), len(body) + 1, 2**63, 0))
    record = (
        struct.pack(
            "<4sIQ", draw.choice((b"KTM\0", b"KTM1", b"KTM ", b"????")), draw.choice((0, 1, 9)), length
        )
        + body
    )
    total = xxhash.xxh3_64_intdigest(record) ^ draw.choice((0, 0, 1))
    files[name] += record + struct.pack("<Q", total)


def swapped_files(files: Files, draw: random.Random) -> None:
    one, two = draw.sample(sorted(files), 2)
    files[one], files[two] = files[two], files[one]


def copied_file(files: Files, draw: random.Random) -> None:
    """One file under another's name, or under a name nobody has."""
    name = draw.choice((_some(files, draw), f"{draw.randbytes(20).hex()}.kv"))
    files[name] = files[_some(files, draw)]


def deleted_file(files: Files, draw: random.Random) -> None:
    del files[_some(files, draw)]


def zero_length(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    header = Header.unpack(files[name])
    what = draw.randrange(4)
    if what == 0:
        files[name] = b""
    elif what == 1:
        files[name] = bytes(len(files[name]))
    elif what == 2:
        files[name] = refit(_set(files[name][: header.payload_at], "payload bytes", 0))
    else:
        data = files[name][:HEADER_BYTES] + files[name][header.tokens_at :]
        files[name] = refit(_set(data, "text bytes", 0))


def huge_length(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    field, bits = draw.choice(
        (("payload bytes", 64), ("text bytes", 32), ("token count", 32), ("end", 32), ("key length", 64))
    )
    value = draw.choice((2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 2 ** (bits // 2), 2**31))
    changed = _set(files[name], field, value)
    if field == "token count" and draw.random() < 0.5:
        changed = _set(changed, "end", min(Header.unpack(files[name]).start + value, 2**32 - 1))
    files[name] = refit(changed) if draw.random() < 0.7 else changed


def edited_header(files: Files, draw: random.Random) -> None:
    """Any field, any value, with checksums that fit."""
    name = _some(files, draw)
    for field in draw.sample(sorted(FIELDS), draw.choice((1, 1, 2))):
        offset, form = FIELDS[field]
        size = struct.calcsize("<" + form)
        old = int.from_bytes(files[name][offset : offset + size], "little")
        limit = 256**size
        value = draw.choice(
            (0, 1, old + 1, old - 1, old ^ (1 << draw.randrange(8 * size)), limit - 1, draw.randrange(limit))
        )
        data = bytearray(files[name])
        data[offset : offset + size] = (value % limit).to_bytes(size, "little")
        files[name] = bytes(data)
    files[name] = refit(files[name])


def wrong_parent(files: Files, draw: random.Random) -> None:
    name = _some(files, draw)
    header = Header.unpack(files[name])
    other = draw.choice(
        (bytes(20), draw.randbytes(20), bytes.fromhex(name[:40]), bytes.fromhex(_some(files, draw)[:40]))
    )
    changed = _set(files[name], "parent", other)
    target = files.get(f"{other.hex()}.kv")
    if target is not None and draw.random() < 0.5:
        # As if it continued that one: all that its header can say of it fits.
        parent = Header.unpack(target)
        for field, value in (
            ("start", parent.end),
            ("end", parent.end + header.token_count),
            ("key length", parent.key_len + header.text_bytes),
            ("start hash", parent.end_hash),
        ):
            changed = _set(changed, field, value)
    files[name] = refit(changed)


def cycle_of_parents(files: Files, draw: random.Random) -> None:
    names = draw.sample(sorted(files), min(draw.choice((1, 2, 3)), len(files)))
    for name, parent in zip(names, [*names[1:], names[0]], strict=True):
        changed = _set(files[name], "parent", bytes.fromhex(parent[:40]))
        if Header.unpack(files[name]).start == 0:
            changed = _set(
                _set(changed, "start", 1), "token count", Header.unpack(files[name]).token_count - 1
            )
        files[name] = refit(changed)


def forged_positions(files: Files, draw: random.Random) -> None:
    """Cells that are not the span's, which llama.cpp would take as they come."""
    name = _some(files, draw)
    data = bytearray(files[name])
    header = Header.unpack(files[name])
    at = header.payload_at
    cell = at + 16 + 12 * draw.randrange(header.token_count)
    (position,) = struct.unpack_from("<i", data, cell)
    what = draw.randrange(6)
    if what == 0:
        struct.pack_into(
            "<i", data, cell, draw.choice((-1, -5, 2**31 - 1, -(2**31), position + 1, 0, header.end))
        )
        if struct.unpack_from("<i", data, cell)[0] == position:
            struct.pack_into("<i", data, cell, position + 7)
    elif what == 1:
        for i in range(header.token_count):
            struct.pack_into("<i", data, at + 16 + 12 * i, header.start + i + 1)
    elif what == 2:
        struct.pack_into("<I", data, cell + 4, draw.choice((0, 2, 2**32 - 1)))
    elif what == 3:
        struct.pack_into(
            "<I", data, at + 12, draw.choice((0, header.token_count - 1, header.token_count + 1, 2**31))
        )
    elif what == 4:
        struct.pack_into("<I", data, at + 8, draw.choice((0, 2, 2**32 - 1)))
    else:
        struct.pack_into("<I", data, at, draw.randrange(2**32))
    files[name] = refit(bytes(data))


def shorter_payload(files: Files, draw: random.Random) -> None:
    """Cut, with sizes and checksums made to fit."""
    name = _some(files, draw)
    header = Header.unpack(files[name])
    left = draw.randrange(header.payload_bytes)
    files[name] = refit(_set(files[name][: header.payload_at + left], "payload bytes", left))


MUTATIONS: dict[str, Callable[[Files, random.Random], None]] = {
    function.__name__.replace("_", " "): function
    for function in (
        bit_flips,
        truncation_at_an_edge,
        truncation,
        bytes_added,
        trailers,
        swapped_files,
        copied_file,
        deleted_file,
        zero_length,
        huge_length,
        edited_header,
        wrong_parent,
        cycle_of_parents,
        forged_positions,
        shorter_payload,
    )
}


@dataclass(frozen=True)
class Answer:
    """Tokens of a reply, how many of its prompt came from disk, whether it came at all, and the files it stands on."""

    tokens: list[int]
    restored: int
    done: bool
    files: set[str]


class Bench:
    """One loaded model and the files of its chats; every question gets a store of its own, as after a restart."""

    def __init__(self, model: Path, folder: Path) -> None:
        """`folder` is made anew for each mutation."""
        self.root = folder / "kv"
        with EngineRoom(model, self.root, n_ctx=512, threads=1) as room:
            for number, chat in enumerate(CHATS):
                room.chat(chat, max_tokens=MAX_TOKENS, session=str(number))
            store = room.engine._store
            assert store is not None and store.identity is not None
            self._identity = store.identity
        self.folder = self.root / self._identity.folder
        self.files: Files = {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.kv"))}
        assert len(self.files) >= 6
        self._room = EngineRoom(model, None, n_ctx=512, threads=1)
        self._room.__enter__()
        turns = self._room.engine._turns
        assert turns is not None
        self._turns = turns
        self.expected = self.ask()
        assert self.expected.restored > 100
        self.chain = self.expected.files
        assert len(self.chain) >= 3

    def close(self) -> None:
        self._room.__exit__(None, None, None)

    def mutate(self, kind: str, seed: int) -> None:
        """Lay out the files as they were, one mutation apart."""
        draw = random.Random(seed)
        # Mostly among the files the question needs; now and then among all.
        names = self.chain if draw.random() < 0.8 else set(self.files)
        changed = {name: content for name, content in self.files.items() if name in names}
        MUTATIONS[kind](changed, draw)
        files = {name: content for name, content in self.files.items() if name not in names} | changed
        shutil.rmtree(self.root)
        self.folder.mkdir(parents=True)
        for name, content in files.items():
            (self.folder / name).write_bytes(content)

    def ask(self) -> Answer:
        """The first chat's question, on an engine that starts over this directory."""
        events: list[Event] = []
        old = self._turns
        store = Store.open(self.root, self._identity, old._policy, 0)
        live = LiveState(old._context, old._builder, events.append, store, writer := Writer(store))
        try:
            live.clear()
            turns = Turns(old._model, old._context, old._builder, live, old._policy, events.append)
            turns.generate(Generate("0", 1, CHATS[0], GREEDY, MAX_TOKENS, False, True), lambda: False)
        finally:
            writer.close()
            live.close()
            store.close()
        tokens = [t for event in events if isinstance(event, Token) for t in event.tokens]
        done = [event for event in events if isinstance(event, Done)]
        files = {f"{event.sha1}.kv" for event in events if isinstance(event, Stored)}
        return Answer(tokens, done[0].cached_tokens if done else 0, bool(done), files)
