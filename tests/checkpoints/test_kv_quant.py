"""What a variant's folder says of itself, and chains that another quantization of the model computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kv_helpers import IDENTITY, Clock, Talk, load_chain, span_files

from ds4chat.checkpoints.format import read_header
from ds4chat.checkpoints.span import Identity, Outcome
from ds4chat.checkpoints.store import FOREIGN_WORTH, Store
from ds4chat.checkpoints.variants import FILE, Variant, read_variant, siblings
from ds4chat.engine.protocol import ChatMessage, Stored
from tests.support import memos
from tests.support.engine_room import SMALL, EngineRoom, Reply, system, user
from tests.support.tiny_models import write_tiny_model

LOOSE = b"loosely1"
Q4 = replace(IDENTITY, loose=LOOSE, about={"model": "m-Q4", "kv_type": "f16", "build": "1.2", "n_ctx": "64"})
Q8 = replace(Q4, variant=b"variant2", fingerprint=b"fingerprint-0002", quant_bits=8)
TALK = Talk([901, *range(100, 880)])
LONG = 3 * FOREIGN_WORTH


def open_as(root: Path, identity: Identity, accept: bool = False) -> Store:
    return Store.open(root, identity, budget_mb=0, clock=Clock(), accept_different_quant=accept)


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    open_as(tmp_path, Q4)
    folder = tmp_path / Q4.folder
    assert read_variant(folder) == Variant(
        model="m-Q4",
        fingerprint=IDENTITY.fingerprint.hex(),
        quant_bits=16,
        payload_abi=1,
        loose=LOOSE.hex(),
        kv_type="f16",
        build="1.2",
        created=1_700_000_000,
        about={"n_ctx": "64"},
    )
    before = (folder / FILE).stat().st_ino
    open_as(tmp_path, Q4)
    assert (folder / FILE).stat().st_ino == before
    (folder / FILE).write_text("{")
    open_as(tmp_path, Q4)
    assert read_variant(folder) is not None
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_by_default_no_other_quantization_is_looked_at(tmp_path: Path) -> None:
    TALK.put(open_as(tmp_path, Q8), 10, 700)
    assert TALK.find(open_as(tmp_path, Q4)) == []


def test_a_chain_of_another_quantization_is_found_loaded_and_counted(tmp_path: Path) -> None:
    spans = TALK.put(open_as(tmp_path, Q8), 10, 700)
    store = open_as(tmp_path, Q4, accept=True)
    assert TALK.find(store) == [10, 700]
    assert load_chain(store, TALK)[0] == TALK.tokens[:700]
    chain = store.find(TALK.key, 10**6, 10**6)
    assert all(map(store.is_foreign, chain))
    store.touch(chain)
    assert [read_header(span.path)[0].hits for span in spans] == [1, 1]
    assert [span.header.hits for span in store.find(TALK.key, 10**6, 10**6)] == [1, 1]
    store.forget(chain[1])
    assert TALK.find(store) == []
    assert not store.holds(TALK.name(10))
    assert store.put(TALK.draft(10, 20)).outcome is Outcome.PARENT_GONE


def test_the_models_own_chain_is_preferred_unless_another_goes_much_further(tmp_path: Path) -> None:
    TALK.put(open_as(tmp_path, Q8), 10, 100, 10 + FOREIGN_WORTH, 100 + FOREIGN_WORTH)
    store = open_as(tmp_path, Q4, accept=True)
    TALK.put(store, 100)
    assert TALK.find(store, max_tokens=99 + FOREIGN_WORTH) == [100]
    assert TALK.find(store) == [10, 100, 10 + FOREIGN_WORTH, 100 + FOREIGN_WORTH]
    assert not store.is_foreign(store.find(TALK.key, 120, 10**6)[0])


@pytest.mark.parametrize(
    "other",
    [
        replace(Q8, loose=b"loosely2"),
        replace(Q8, loose=b""),
        replace(Q8, fingerprint=Q4.fingerprint),
        replace(Q8, payload_abi=2),
        replace(Q8, family="another"),
    ],
    ids=["other names", "no names", "same weights", "other payload", "other family"],
)
def test_what_differs_in_more_than_quantization_is_never_used(tmp_path: Path, other: Identity) -> None:
    TALK.put(open_as(tmp_path, other), 10, 700)
    assert TALK.find(open_as(tmp_path, Q4, accept=True)) == []
    assert siblings(tmp_path, Q4) == []
    assert siblings(tmp_path, replace(Q4, loose=b"")) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b'{"loose": 7}', b'{"loose":"%s","fingerprint":"xx"}' % LOOSE.hex().encode()],
)
def test_a_folder_that_says_nothing_readable_is_no_sibling(tmp_path: Path, content: bytes) -> None:
    TALK.put(open_as(tmp_path, Q8), 700)
    (tmp_path / Q8.folder / FILE).write_bytes(content)
    (tmp_path / Q8.folder.parent / "no variant").mkdir()
    assert TALK.find(open_as(tmp_path, Q4, accept=True)) == []


def test_a_folder_that_claims_to_be_another_gives_no_span_away(tmp_path: Path) -> None:
    """Each span's own header decides: spans of third weights in a sibling's folder are passed over."""
    TALK.put(open_as(tmp_path, Q8), 700)
    file = tmp_path / Q8.folder / FILE
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"fingerprint": "00" * 16}))
    assert TALK.find(open_as(tmp_path, Q4, accept=True)) == []


# ---- on the engine

SHORT = [user("The ship carries salt and a cat. " * 8)]
CHAT = [system("You like ships. " * 10), user("The ship carries salt and a cat. " * 60)]


@pytest.fixture(scope="module")
def noised(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dense tiny model's twin: the same shapes and names, other weights."""
    return write_tiny_model("dense", tmp_path_factory.mktemp("noised") / "dense.gguf", starter, seed=1)


def ask(model: Path, kv_dir: Path | None, accept: bool = False, chat: Sequence[ChatMessage] = CHAT) -> Reply:
    kv = type(SMALL)(
        **{f: getattr(SMALL, f) for f in SMALL.__struct_fields__} | {"accept_different_quant": accept}
    )
    with EngineRoom(model, kv_dir, kv, n_ctx=2048, threads=1, memo=str(memos.ROOM)) as room:
        return room.chat(list(chat), max_tokens=12)


def test_no_span_of_one_model_is_used_by_another_of_the_same_shapes(
    tiny: dict[str, Path], noised: Path, tmp_path: Path
) -> None:
    assert ask(tiny["dense"], tmp_path).done is not None
    first = len(span_files(tmp_path))
    reply = ask(noised, tmp_path)
    assert reply.restored == 0
    assert reply.tokens == ask(noised, None).tokens
    assert len(span_files(tmp_path)) == 2 * first
    assert ask(noised, tmp_path).restored > 0


def test_the_starter_model_and_a_noised_copy_share_nothing(starter: Path, tmp_path: Path) -> None:
    copy, kv_dir = tmp_path / starter.name, tmp_path / "kv"
    data = np.fromfile(starter, np.uint8)
    # The weights lie behind the metadata; some low bits in one place are another model of the same shapes and name.
    middle = len(data) * 5 // 8
    data[middle : middle + 400_000] ^= 3
    data.tofile(copy)
    assert ask(starter, kv_dir, chat=SHORT).done is not None
    first = span_files(kv_dir)
    assert ask(copy, kv_dir, chat=SHORT).restored == 0
    own = [path for path in span_files(kv_dir) if path not in first]
    assert {path.parent for path in own}.isdisjoint(path.parent for path in first)
    assert {path.parents[1] for path in own} == {path.parents[1] for path in first}, "one family"
    assert ask(copy, kv_dir, chat=SHORT).restored > 0


def test_with_the_option_another_quantizations_state_is_restored_and_left_alone(
    tiny: dict[str, Path], noised: Path, tmp_path: Path
) -> None:
    ask(tiny["dense"], tmp_path)
    files = span_files(tmp_path)
    reply = ask(noised, tmp_path, accept=True)
    assert reply.restored >= FOREIGN_WORTH
    assert span_files(tmp_path) == files, "nothing is stored on top of it"
    own = {path.stem for path in files}
    assert {event.sha1 for event in reply.events if isinstance(event, Stored)} <= own
    folders = [read_variant(path) for path in sorted((tmp_path / files[0].parts[-3]).iterdir())]
    assert len({v.loose for v in folders if v is not None}) == 1
    assert len({v.fingerprint for v in folders if v is not None}) == 2
