"""The store on a real directory: finding, loading, storing, evicting, and what goes wrong there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import filelock
import pytest
from kv_helpers import IDENTITY, Clock, Talk, load_chain, open_store, span_files

from ds4chat.checkpoints import directory as directory_module
from ds4chat.checkpoints.directory import Directory, Temp
from ds4chat.checkpoints.format import Flag, read_header
from ds4chat.checkpoints.pins import pin
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import Identity, Outcome, discontinuity
from ds4chat.checkpoints.store import Store, remove_spans
from ds4chat.checkpoints.trailers import Trailer
from ds4chat.checkpoints.upkeep import survey
from ds4chat.errors import CheckpointError, UsageError

TALK = Talk([901, *range(100, 140), 902, *range(200, 240)])
FORK = Talk([*TALK.tokens[:30], *range(300, 340)])
FOLDER = Path("llama-test") / b"variant1".hex()


def damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1,)))


def visible(folder: Path) -> list[str]:
    """Names in a variant's folder, but for what it says of itself."""
    return sorted(path.name for path in folder.iterdir() if path.name != "variant.json")


# ---- finding and loading ----


def test_what_is_stored_is_found_and_loaded(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30, 60)
    assert TALK.find(store) == [10, 30, 60]
    tokens, payload = load_chain(store, TALK)
    assert tokens == TALK.tokens[:60]
    assert payload == TALK.payload(0, 60)


def test_another_start_finds_the_same(tmp_path: Path) -> None:
    TALK.put(open_store(tmp_path), 10, 30)
    store = open_store(tmp_path)
    assert TALK.find(store) == [10, 30]
    assert load_chain(store, TALK)[0] == TALK.tokens[:30]


def test_forks_share_their_past(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30, 60)
    assert store.put(FORK.draft(30, 50)).outcome is Outcome.STORED
    assert FORK.find(store) == [10, 30, 50]
    assert TALK.find(store) == [10, 30, 60]


def test_no_span_past_the_prompt_or_the_context_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30, 60)
    assert TALK.find(store, max_tokens=59) == [10, 30]
    assert TALK.find(store, n_ctx=29) == [10]
    assert TALK.find(store, max_tokens=60, n_ctx=60) == [10, 30, 60]


def test_a_smaller_context_prefix_is_kept(tmp_path: Path) -> None:
    """The context length at storing is for information: what fits is used, and stands instead of being written
    again."""
    store = open_store(tmp_path)
    assert store.put(TALK.draft(0, 10, context_size=64)).outcome is Outcome.STORED
    assert TALK.find(store, n_ctx=32_768) == [10]
    assert store.put(TALK.draft(0, 10, context_size=32_768)).outcome is Outcome.STANDS
    assert store.put(TALK.draft(10, 30, context_size=32_768)).outcome is Outcome.STORED
    assert TALK.find(store, n_ctx=32_768) == [10, 30]
    assert TALK.find(store, n_ctx=16) == [10]
    assert read_header(store.find(TALK.key, 10, 99)[0].path)[0].context_size == 64


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, variant=b"variant2"),
        replace(IDENTITY, family="other"),
        replace(IDENTITY, fingerprint=b"fingerprint-0002"),
        replace(IDENTITY, payload_abi=2),
    ],
)
def test_another_model_or_build_finds_nothing(tmp_path: Path, other: Identity) -> None:
    TALK.put(open_store(tmp_path), 10)
    assert TALK.find(Store.open(tmp_path, other, budget_mb=0)) == []


def test_a_copied_directory_works_elsewhere(tmp_path: Path) -> None:
    TALK.put(open_store(tmp_path / "here"), 10, 30)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    assert load_chain(open_store(tmp_path / "there"), TALK)[0] == TALK.tokens[:30]


def test_two_stores_on_one_directory_see_one_another(tmp_path: Path) -> None:
    one, two = open_store(tmp_path), open_store(tmp_path)
    TALK.put(one, 10)
    assert TALK.find(two) == [10]
    assert two.put(TALK.draft(10, 30)).outcome is Outcome.STORED
    assert TALK.find(one) == [10, 30]
    assert one.put(TALK.draft(10, 30)).outcome is Outcome.STANDS
    two.remove([TALK.name(30)])
    assert TALK.find(one) == []


def test_a_file_deleted_behind_the_index(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30, 60)
    spans[1].path.unlink()
    with pytest.raises(CheckpointError):
        store.load(spans[1], spans[0])
    assert TALK.find(store) == [10]
    assert store.put(TALK.draft(60, 70)).outcome is Outcome.PARENT_GONE
    assert store.put(TALK.draft(10, 30)).outcome is Outcome.STORED
    assert TALK.find(store) == [10, 30, 60]


@pytest.mark.parametrize("offset", [0, 7, 25, 80, 97, 104, 113, 121, 140, 150, 230, -1])
def test_a_damaged_span_is_refused_once_and_then_replaced(tmp_path: Path, offset: int) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30, 60)
    damage(spans[1].path, offset % spans[1].size)
    with pytest.raises(CheckpointError):
        store.load(spans[1], spans[0], TALK.key)
    assert TALK.find(store) == [10]
    assert spans[1].path.exists()
    assert store.standing(TALK.name(30), TALK.draft(10, 30).end_hash) is None
    assert store.put(TALK.draft(10, 30)).outcome is Outcome.STORED
    assert load_chain(store, TALK)[0] == TALK.tokens[:60]


def test_other_token_ids_for_the_same_bytes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10)
    other = Talk(TALK.tokens)
    other.tokens[5] = 950
    assert other.name(10) == TALK.name(10)
    draft = other.draft(0, 10)
    assert store.put(draft).outcome is Outcome.TOKENS_DIFFER
    assert store.standing(draft.sha1, draft.end_hash) is Outcome.TOKENS_DIFFER
    assert store.put(other.draft(10, 30)).outcome is Outcome.PARENT_GONE
    assert load_chain(store, TALK)[0] == TALK.tokens[:10]


def test_a_span_that_follows_other_tokens_is_never_used(tmp_path: Path) -> None:
    one, two = open_store(tmp_path / "one"), open_store(tmp_path / "two")
    spans = TALK.put(one, 10, 30)
    other = Talk(TALK.tokens)
    other.tokens[5] = 950
    parents = other.put(two, 10)
    moved = replace(spans[1], folder=tmp_path / "two" / FOLDER)
    shutil.copy(spans[1].path, moved.path)
    assert TALK.find(two) == [10]
    with pytest.raises(CheckpointError, match="other tokens"):
        two.load(moved, parents[0])


def test_a_file_under_a_wrong_name(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30)
    twin = Talk([*TALK.tokens[:29], 188, *TALK.tokens[30:]])
    assert twin.key_len(30) == TALK.key_len(30)
    wrong = replace(spans[1], sha1=twin.name(30))
    shutil.copy(spans[1].path, wrong.path)
    assert twin.find(store) == [10, 30]
    with pytest.raises(CheckpointError, match="text"):
        load_chain(store, twin)
    assert twin.find(store) == [10]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"start": 9}, "starts at 9"),
        ({"end": 31}, None),
        ({"parent": bytes(19) + b"x"}, "another parent"),
        ({"text_bytes": 1}, "text does not begin"),
        ({"start_hash": 1}, "other tokens"),
    ],
)
def test_what_continues_a_parent(tmp_path: Path, changes: dict[str, object], reason: str | None) -> None:
    parent, child = TALK.put(open_store(tmp_path), 10, 30)
    assert discontinuity(child.header, parent) is None
    found = discontinuity(replace(child.header, **changes), parent)  # type: ignore[arg-type]
    assert (found is None) if reason is None else (found is not None and reason in found)
    assert discontinuity(child.header, None) is not None
    assert discontinuity(parent.header, None) is None


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(IDENTITY, variant=b"variant2"), "variant"),
        (replace(IDENTITY, fingerprint=b"fingerprint-0002"), "weights"),
        (replace(IDENTITY, payload_abi=2), "payload version"),
    ],
)
def test_a_span_of_another_model_is_not_loaded(tmp_path: Path, other: Identity, reason: str) -> None:
    span = TALK.put(Store.open(tmp_path, other, budget_mb=0), 10)[0]
    with pytest.raises(CheckpointError, match=reason):
        open_store(tmp_path / "mine").load(span, None)


def test_a_file_another_process_replaced_is_read_again(tmp_path: Path) -> None:
    clock = Clock()
    one, two = open_store(tmp_path, clock), open_store(tmp_path, clock)
    span = TALK.put(one, 10)[0]
    assert TALK.find(one) == [10]
    assert two.find(TALK.key, 99, 99)[0].header == span.header
    two.forget(span)
    clock.now += 50
    TALK.put(two, 10)
    assert one.find(TALK.key, 99, 99)[0].header.created == span.header.created + 50


def test_changes_within_one_tick_of_the_file_systems_clock_are_seen(tmp_path: Path) -> None:
    one, two = open_store(tmp_path), open_store(tmp_path)
    now = time.time_ns()
    TALK.put(one, 10)
    os.utime(tmp_path / FOLDER, ns=(now, now))
    assert TALK.find(one) == [10]
    assert two.put(TALK.draft(10, 30)).outcome is Outcome.STORED
    os.utime(tmp_path / FOLDER, ns=(now, now))
    assert TALK.find(one) == [10, 30]


def test_only_a_file_that_is_there_stands(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    span = TALK.put(store, 10)[0]
    os.utime(tmp_path / FOLDER, (1, 1))
    assert store.put(TALK.draft(0, 10)).outcome is Outcome.STANDS
    span.path.unlink()
    os.utime(tmp_path / FOLDER, (1, 1))
    assert store.standing(span.sha1, span.header.end_hash) is None
    assert store.put(TALK.draft(10, 30)).outcome is Outcome.PARENT_GONE
    assert store.put(TALK.draft(0, 10)).outcome is Outcome.STORED


def test_forget_takes_a_span_out_of_every_lookup(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30, 60)
    store.forget(spans[1])
    assert TALK.find(store) == [10]
    assert spans[1].path.exists()


def test_a_part_of_a_span_for_models_that_can_be_cut_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30, 60)
    assert store.put(FORK.draft(30, 50)).outcome is Outcome.STORED
    prompt = [*TALK.tokens[:45], 999, 998]
    found = store.partial(spans[:2], prompt, 4096)
    assert found is not None
    assert (found[0].sha1, found[1]) == (spans[2].sha1, 45)
    assert store.partial(spans[:2], prompt, n_ctx=59) is None
    assert store.partial(spans[:2], [*TALK.tokens[:30], 999], 4096) is None
    root = store.partial([], TALK.tokens[:4], 4096)
    assert root is not None
    assert root[1] == 4


def test_touch_counts_a_restore_along_the_chain(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    spans = TALK.put(store, 10, 30)
    clock.now += 100
    store.touch(spans)
    store.touch(spans[:1])
    assert [read_header(s.path)[0].hits for s in spans] == [2, 1]
    assert {read_header(s.path)[0].last_used for s in spans} == {int(clock.now)}
    assert [s.header.hits for s in store.find(TALK.key, 99, 99)] == [2, 1]
    assert load_chain(store, TALK)[0] == TALK.tokens[:30]
    spans[0].path.unlink()
    store.touch(spans)
    assert read_header(spans[1].path)[0].hits == 2


# ---- storing


def test_a_prefix_stored_already_stands_and_is_not_written_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10)
    inode = spans[0].path.stat().st_ino
    result = store.put(TALK.draft(0, 10, Reason.COLD))
    assert (result.outcome, result.is_on_disk, result.nbytes) == (Outcome.STANDS, True, spans[0].size)
    assert spans[0].path.stat().st_ino == inode
    assert store.standing(TALK.name(10), TALK.draft(0, 10).end_hash) is Outcome.STANDS


def test_a_prefix_stored_in_other_spans_stands(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30)
    result = store.put(TALK.draft(0, 30))
    assert result.outcome is Outcome.STANDS
    assert len(span_files(tmp_path)) == 2


def test_a_span_whose_chain_is_broken_is_replaced(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    spans = TALK.put(store, 10, 30)
    spans[0].path.unlink()
    assert store.put(TALK.draft(0, 30)).outcome is Outcome.STORED
    assert TALK.find(store) == [30]
    assert load_chain(store, TALK)[0] == TALK.tokens[:30]


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 9},
        {"tokens": [1]},
        {"sha1": b"x"},
        {"flags": 128},
        {"flags": Flag.SNAPSHOT, "start": 1, "tokens": TALK.tokens[1:10], "parent": TALK.name(1)},
        {"sha1": bytes(20)},
        {"end_hash": 1},
        {"key_len": 1},
    ],
)
def test_a_draft_that_contradicts_itself_fails_and_leaves_storing_on(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    store = open_store(tmp_path)
    result = store.put(replace(TALK.draft(0, 10), **changes))  # type: ignore[arg-type]
    assert result.outcome in (Outcome.FAILED, Outcome.PARENT_GONE)
    assert store.writable
    assert visible(tmp_path / FOLDER) == []


def test_files_and_folders_are_for_the_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = open_store(tmp_path / "kv")
        TALK.put(store, 10)
    finally:
        os.umask(old)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [tmp_path / "kv", *(tmp_path / "kv").rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) >= 4


def test_trailers_are_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    result = store.put(TALK.draft(0, 10, trailers=(Trailer(b"KTM1", 1, b"{}"),)))
    assert result.span is not None
    with store.load(result.span, None) as loaded:
        assert loaded.trailers == [Trailer(b"KTM1", 1, b"{}")]


def test_the_family_cannot_leave_the_root(tmp_path: Path) -> None:
    identity = replace(IDENTITY, family="../../etc/pass wd")
    assert identity.folder.parts[0] == "-..-etc-pass-wd"
    assert replace(IDENTITY, family="...").folder.parts[0] == "model"
    with pytest.raises(ValueError, match="8 bytes"):
        replace(IDENTITY, variant=b"")


# ---- eviction


def sizes(root: Path) -> int:
    return sum(p.stat().st_size for p in span_files(root))


def test_makes_room_before_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    old = TALK.put(store, 20)[0]
    clock.now += 60
    draft = FORK.draft(0, 40)
    store._budget = old.size + draft.size - 100
    there: list[bool] = []
    monkeypatch.setattr(
        "ds4chat.checkpoints.store.Temp", lambda *args: there.append(old.path.exists()) or Temp(*args)
    )
    result = store.put(draft)
    assert (result.outcome, result.evicted) == (Outcome.STORED, 1)
    assert there == [False]
    assert TALK.find(store) == []
    assert FORK.find(store) == [40]
    assert sizes(tmp_path) <= store.budget_bytes


def test_eviction_spares_the_chain_of_the_present_store(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    TALK.put(store, 10, 30)
    clock.now += 3600
    other = Talk(range(500, 540))
    other.put(store, 40, reason=Reason.COLD)
    store._budget = sizes(tmp_path)
    clock.now += 3600
    assert store.put(TALK.draft(30, 60)).outcome is Outcome.STORED
    assert TALK.find(store) == [10, 30, 60]
    assert other.find(store) == []


def test_eviction_spares_the_live_and_the_pinned_chain(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    pinned, live = Talk(range(400, 440)), Talk(range(500, 540))
    pinned.put(store, 10, 30)
    live.put(store, 10, 30)
    pin(tmp_path, [pinned.name(30)])
    store.set_live_chain([live.name(30)])
    clock.now += 3600
    newest = TALK.put(store, 30)[0]
    store._budget = sizes(tmp_path)
    FORK.put(store, 29)
    assert (pinned.find(store), live.find(store)) == ([10, 30], [10, 30])
    assert not newest.path.exists()


def test_a_deleted_chat_that_was_restored_makes_room_for_one_that_was_not(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    deleted, kept = Talk(range(400, 440)), Talk(range(500, 540))
    store.touch(deleted.put(store, 30))
    clock.now += 60
    kept.put(store, 30)
    store._budget = sizes(tmp_path)
    store.set_expendable([deleted.name(30)])
    clock.now += 60
    FORK.put(store, 29)
    assert (deleted.find(store), kept.find(store), FORK.find(store)) == ([], [30], [29])


def test_an_oversize_store_evicts_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30)
    store._budget = sizes(tmp_path)
    result = store.put(FORK.draft(0, 60))
    assert (result.outcome, result.evicted) == (Outcome.TOO_LARGE, 0)
    assert TALK.find(store) == [10, 30]
    assert not store.fits(store.budget_bytes + 1)
    assert store.fits(store.budget_bytes)


def test_nothing_goes_when_it_would_not_be_enough(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    TALK.put(store, 10, 60)
    FORK.put(store, 11)
    store._budget = sizes(tmp_path)
    assert store.put(TALK.draft(60, 80)).outcome is Outcome.NO_ROOM
    assert TALK.find(store) == [10, 60]
    assert FORK.find(store)[-1] >= 10
    assert len(span_files(tmp_path)) == 3
    assert store.writable


def test_what_deleted_chats_left_goes_before_what_is_worth_less(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    kept, gone, new = Talk(range(100, 120)), Talk(range(200, 220)), Talk(range(300, 320))
    kept.put(store, 10, 20)
    clock.now += 3600
    gone.put(store, 10, 20)
    store._budget = sizes(tmp_path)
    store.set_expendable([gone.name(20), gone.name(10)])
    new.put(store, 10)
    assert kept.find(store) and len(kept.find(store)) == 2
    assert len(gone.find(store)) == 1, "only as much as was needed, from its end"
    store.set_expendable([])
    store.put(new.draft(10, 20))
    assert len(gone.find(store)) == 1, "it came back, and is younger than the other"


def test_the_budget_is_enforced_at_open_over_every_model(tmp_path: Path) -> None:
    clock = Clock()
    other = Store.open(tmp_path, replace(IDENTITY, family="other"), budget_mb=0, clock=clock)
    assert other.put(TALK.draft(0, 40, payload=bytes(20_000))).outcome is Outcome.STORED
    clock.now += 60
    big = Talk(range(100, 180))
    store = open_store(tmp_path, clock)
    assert store.put(big.draft(0, 60, payload=bytes(999_000), cost_us=10**6)).outcome is Outcome.STORED
    kept = Store.open(tmp_path, IDENTITY, budget_mb=1, clock=clock)
    assert kept.total_bytes <= 1_000_000
    assert big.find(kept) == [60]
    assert len(span_files(tmp_path)) == 1


def test_hits_other_processes_counted_are_seen(tmp_path: Path) -> None:
    clock = Clock()
    one, two = open_store(tmp_path, clock), open_store(tmp_path, clock)
    first, second = Talk(range(400, 440)), Talk(range(500, 540))
    first.put(one, 30)
    spans = second.put(one, 30)
    for _ in range(5):
        two.touch(first.put(two) or two.find(first.key, 99, 99))
    assert spans[0].header.hits == 0
    one._budget = sizes(tmp_path)
    assert one.put(TALK.draft(0, 20)).outcome is Outcome.STORED
    assert first.find(one) == [30]
    assert second.find(one) == []


def test_unreadable_and_orphaned_files_go_first(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    spans = TALK.put(store, 10, 30)
    keep = Talk(range(400, 440))
    keep.put(store, 30)
    junk = tmp_path / FOLDER / ("ab" * 20 + ".kv")
    junk.write_bytes(bytes(500))
    spans[0].path.unlink()
    clock.now += 1e6
    store._budget = sizes(tmp_path) - 600
    assert store.put(FORK.draft(0, 5)).outcome is Outcome.STORED
    assert not junk.exists()
    assert not spans[1].path.exists()
    assert keep.find(store) == [30]


def test_a_survey_tells_what_this_build_can_restore(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    spans = TALK.put(store, 10, 30, 60, 70)
    other = Talk([901, 555, *range(100, 120)])
    TALK.put(Store.open(tmp_path, replace(IDENTITY, family="old", payload_abi=9), budget_mb=0), 10)
    TALK.put(Store.open(tmp_path, replace(IDENTITY, family="another"), budget_mb=0), 10)
    loose = other.put(store, 5, 20)
    loose[0].path.unlink()
    clock.now += 10
    entries = {e.id: e for e in survey(Directory(tmp_path), IDENTITY, clock.now, {spans[3].sha1})}
    usable = {
        path.relative_to(tmp_path).parts[0] + "/" + path.stem for path, e in entries.items() if e.usable
    }
    assert usable == {f"llama-test/{s.sha1.hex()}" for s in spans} | {f"another/{spans[0].sha1.hex()}"}
    assert len(entries) == 7
    middle = entries[spans[1].path]
    assert (middle.parent, middle.nbytes, middle.tokens) == (spans[0].path, spans[1].size, 20)
    assert (middle.age_seconds, middle.pinned, entries[spans[0].path].parent) == (10, False, None)
    assert entries[spans[3].path].pinned
    spans[1].path.unlink()
    entries = {e.id: e for e in survey(Directory(tmp_path), None, clock.now, ())}
    assert [entries[span.path].usable for span in (spans[0], spans[2], spans[3])] == [True, False, False]


def test_a_survey_counts_a_chain_of_other_tokens_as_unusable(tmp_path: Path) -> None:
    spans = TALK.put(open_store(tmp_path), 10, 30)
    other = Talk(TALK.tokens)
    other.tokens[5] = 950
    (changed,) = other.put(open_store(tmp_path / "elsewhere"), 10)
    shutil.copy(changed.path, spans[0].path)
    entries = {e.id: e for e in survey(Directory(tmp_path), IDENTITY, 0, ())}
    assert entries[spans[0].path].usable
    assert not entries[spans[1].path].usable


def test_the_default_budget_is_a_tenth_of_the_free_disk_and_counts_the_store_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TALK.put(open_store(tmp_path), 60)
    held = sizes(tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000 - held))
    assert Store.open(tmp_path, IDENTITY).budget_bytes == 100_000
    assert Store.open(tmp_path / "not" / "there", IDENTITY).budget_bytes == (1_000_000 - held) // 10
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**15))
    assert Store.open(tmp_path, IDENTITY).budget_bytes == 32 * 10**9
    assert Store.open(tmp_path, IDENTITY, budget_mb=5).budget_bytes == 5_000_000
    with pytest.raises(UsageError, match="--kv-disk-space-mb"):
        Store.open(tmp_path, IDENTITY, budget_mb=-1)


# ---- removing


def test_remove_goes_up_to_the_first_span_something_else_continues(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30, 60, 70)
    store.put(FORK.draft(30, 50))
    removed = store.remove([TALK.name(70)])
    assert [path.stem for path in removed] == [TALK.name(70).hex(), TALK.name(60).hex()]
    assert (TALK.find(store), FORK.find(store)) == ([10, 30], [10, 30, 50])
    assert store.remove([TALK.name(30)]) == []
    assert len(remove_spans(tmp_path, [FORK.name(50)])) == 3
    assert span_files(tmp_path) == []
    assert FORK.find(store) == []


def test_remove_spares_what_others_stand_on_and_pins(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10, 30, 60)
    assert len(store.remove([TALK.name(60)], keep=[TALK.name(30)])) == 1
    pin(tmp_path, [TALK.name(10)])
    assert len(store.remove([TALK.name(30)])) == 1
    assert TALK.find(store) == [10]


def test_remove_works_with_no_directory_and_over_every_model(tmp_path: Path) -> None:
    assert remove_spans(tmp_path / "none", [TALK.name(10)]) == []
    assert not (tmp_path / "none").exists()
    TALK.put(open_store(tmp_path), 10)
    TALK.put(Store.open(tmp_path, replace(IDENTITY, family="other"), budget_mb=0), 10)
    assert len(remove_spans(tmp_path, [TALK.name(10)])) == 2


def test_without_a_model_nothing_is_made_found_or_put(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "kv", None)
    assert not (tmp_path / "kv").exists()
    assert not store.writable
    assert store.find(b"key", 10, 10) == []
    assert store.put(TALK.draft(0, 10)).outcome is Outcome.DISABLED
    TALK.put(open_store(tmp_path), 10)
    with pytest.raises(CheckpointError):
        store.load(open_store(tmp_path).find(TALK.key, 99, 99)[0], None)


# ---- what a crash or a disk does


def test_stray_temp_files_are_swept_and_those_being_written_stay(tmp_path: Path) -> None:
    open_store(tmp_path)
    folder = tmp_path / FOLDER
    stray = folder / (TALK.name(10).hex() + ".kv.tmp.0123456789abcdef")
    stray.write_bytes(b"half a file")
    writing = Temp(folder, TALK.name(30))
    open_store(tmp_path)
    left = visible(folder)
    assert len(left) == 1
    assert left[0].startswith(TALK.name(30).hex() + ".kv.tmp.")
    writing.file.close()
    open_store(tmp_path)
    assert visible(folder) == []


def test_a_directory_that_cannot_be_made_switches_storing_off_with_one_notice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    notices: list[str] = []
    store = Store.open(tmp_path / "file" / "kv", IDENTITY, on_notice=notices.append)
    assert not store.writable
    assert store.put(TALK.draft(0, 10)).outcome is Outcome.DISABLED
    assert store.find(TALK.key, 10, 10) == []
    assert len(notices) == 1
    assert "--kv-disk-dir" in notices[0]
    assert str(tmp_path / "file" / "kv") in notices[0]


def test_a_read_only_directory_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TALK.put(open_store(tmp_path), 10, 30)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(filelock.FileLock, "acquire", read_only)
    notices: list[str] = []
    store = Store.open(tmp_path, IDENTITY, on_notice=notices.append)
    assert not store.writable
    assert len(notices) == 1
    assert load_chain(store, TALK)[0] == TALK.tokens[:30]
    store.touch(store.find(TALK.key, 99, 99))


@pytest.mark.parametrize("call", ["fsync", "fdopen"])
def test_a_full_disk_switches_storing_off_and_leaves_no_temp_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    notices: list[str] = []
    store = open_store(tmp_path, on_notice=notices.append)
    TALK.put(store, 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr("ds4chat.checkpoints.store.write_span", full)
    assert store.put(TALK.draft(10, 30)).outcome is Outcome.FAILED
    monkeypatch.undo()
    assert not store.writable
    assert store.put(TALK.draft(10, 30)).outcome is Outcome.DISABLED
    assert len(notices) == 1
    assert "No space left on device" in notices[0]
    assert visible(tmp_path / FOLDER) == [TALK.name(10).hex() + ".kv"]
    assert load_chain(store, TALK)[0] == TALK.tokens[:10]


def test_a_busy_directory_fails_one_put_and_leaves_storing_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)

    def busy(*_: object, **__: object) -> None:
        raise filelock.Timeout(str(tmp_path / ".lock"))

    monkeypatch.setattr(filelock.FileLock, "acquire", busy)
    assert store.put(TALK.draft(0, 10)).outcome is Outcome.FAILED
    assert Store.open(tmp_path, IDENTITY).writable
    monkeypatch.undo()
    assert store.writable
    TALK.put(store, 10)


def test_a_directory_deleted_while_in_use_costs_nothing_else(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kv")
    TALK.put(store, 10, 30)
    shutil.rmtree(tmp_path / "kv")
    assert TALK.find(store) == []
    assert store.put(TALK.draft(30, 60)).outcome is Outcome.PARENT_GONE
    TALK.put(store, 10)
    assert TALK.find(store) == [10]


def test_a_file_system_that_cannot_sync_directories_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    TALK.put(open_store(tmp_path), 10)


def test_an_unchanged_folder_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    TALK.put(store, 10)
    os.utime(tmp_path / FOLDER, (1, 1))
    assert TALK.find(store) == [10]
    monkeypatch.setattr(directory_module, "_list", None)
    assert TALK.find(store) == [10]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    folder = tmp_path / FOLDER
    for name in ("README", "abc.kv", "A" * 40 + ".kv"):
        (folder / name).write_bytes(bytes(100))
    (folder / ("12" * 20 + ".kv")).symlink_to(folder / "README")
    assert store.total_bytes == 0
    assert Directory(tmp_path).total_bytes() == 0
    TALK.put(store, 10)
    assert TALK.find(store) == [10]
