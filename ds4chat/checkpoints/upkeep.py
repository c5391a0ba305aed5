"""Work over all folders of a checkpoint directory: eviction and removal, with or without a loaded model.

Promises to delete children before their parents and never a chain it was told to spare. Callers hold the
directory's lock. It must not know the engine, nor the in-memory index of a store: what is on disk now
decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ds4chat.checkpoints import pins
from ds4chat.checkpoints.directory import BAD, Directory, FileId, open_folder
from ds4chat.checkpoints.format import read_header, read_raw, unpack_listed
from ds4chat.checkpoints.leases import leased
from ds4chat.checkpoints.policy import SLACK, Entry, over_budget, victims
from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.span import (
    SUFFIX,
    SUPPORTED_FLAGS,
    Identity,
    SpanInfo,
    discontinuity,
    span_path,
)
from ds4chat.errors import CheckpointError

log = logging.getLogger(__name__)


def survey(
    directory: Directory,
    identity: Identity | None,
    now: float,
    pinned: Collection[bytes] = (),
    expendable: Collection[bytes] = (),
) -> list[Entry]:
    """Every span file below the root as eviction sees it, its id being its `Path`; headers are read afresh,
    since other processes count hits in them. `now` is in seconds since 1970; `pinned` and `expendable` are names.

    Unusable is what this build cannot restore: an unreadable header, another payload version, a chain with a
    gap, a file set aside. Another model's spans are usable; its user may come back. Files being written are not
    in it.
    """
    entries: list[Entry] = []
    for folder in directory.folders():
        listing = directory.listing(folder)
        spans = read_spans(folder, listing.files)
        usable = usable_spans(spans, identity)
        held = _continuations(spans, pinned)
        for name, file in listing.files.items():
            path = span_path(folder, name)
            span = spans.get(name)
            if span is None:
                entries.append(_junk(path, file.size))
                continue
            header = span.header
            entries.append(
                Entry(
                    id=path,
                    parent=None if header.parent == ROOT else span_path(folder, header.parent),
                    nbytes=file.size,
                    tokens=header.token_count,
                    hits=header.hits,
                    age_seconds=max(now - header.last_used, 0.0),
                    cost_us_per_token=header.cost_us,
                    reason=header.reason,
                    usable=name in usable,
                    pinned=name in held,
                    expendable=name in expendable,
                )
            )
        entries += [_junk(folder / name, size) for name, size in listing.beside.items() if name.endswith(BAD)]
    return entries


def read_spans(folder: Path, files: Mapping[bytes, FileId]) -> dict[bytes, SpanInfo]:
    """The spans of a folder whose headers can be read, by name."""
    spans: dict[bytes, SpanInfo] = {}
    with suppress(OSError), open_folder(folder) as fd:
        for name, file in files.items():
            with suppress(CheckpointError, OSError):
                header = unpack_listed(read_raw(name.hex() + SUFFIX, fd), file.size)
                spans[name] = SpanInfo(folder, name, header, file.size, file.inode)
    return spans


def _junk(path: Path, nbytes: int) -> Entry:
    return Entry(path, None, nbytes, 1, 0, 0.0, 0, Reason.CONTINUED, usable=False)


def _continuations(spans: dict[bytes, SpanInfo], names: Collection[bytes]) -> set[bytes]:
    """These, and all that continues them: a pinned chat stays pinned while it grows. What they stand on is the
    policy's to keep."""
    if not names:
        return set()
    held = set(names)
    for name, span in sorted(spans.items(), key=lambda item: item[1].end):
        if span.parent in held:
            held.add(name)
    return held


def usable_spans(spans: dict[bytes, SpanInfo], identity: Identity | None) -> set[bytes]:
    """Names of those whose whole chain is there and fits. Parents end before their children, so one pass does.

    Args:
        identity: the loaded model's, for the payload version; None takes any.
    """
    usable: set[bytes] = set()
    for name, span in sorted(spans.items(), key=lambda item: item[1].end):
        header = span.header
        if identity is not None and header.payload_abi != identity.payload_abi:
            continue
        if header.flags & ~SUPPORTED_FLAGS:
            continue
        if header.parent != ROOT and header.parent not in usable:
            continue
        if discontinuity(header, spans.get(header.parent)) is None:
            usable.add(name)
    return usable


def make_room(
    directory: Directory,
    identity: Identity | None,
    need_bytes: int,
    budget_bytes: int,
    now: float,
    half_life_seconds: float,
    protected: Collection[Path] = (),
    expendable: Collection[bytes] = (),
    all_or_nothing: bool = True,
    slack: float = SLACK,
) -> list[Path] | None:
    """Delete files until `need_bytes` more fit the budget, and name them in the order they went. Spares pinned
    spans and those that any process stands on, besides the `protected`; takes the `expendable` ones first.

    None, with nothing deleted, when all that may go is not enough; without `all_or_nothing` what may go goes
    then. A file that cannot be deleted raises its `OSError`; one that is gone already counts as deleted.
    """
    total = directory.total_bytes()
    if not over_budget(total + need_bytes, budget_bytes, slack):
        return []
    directory.sweep()
    total = directory.total_bytes()
    entries = survey(directory, identity, now, pins.pinned(directory.root), expendable)
    spared = {*protected, *leased(directory.root)}
    # What is being written counts, and cannot go.
    sizes = {entry.id: entry.nbytes for entry in entries}
    need_bytes += max(total - sum(sizes.values()), 0)
    chosen = victims(entries, need_bytes, budget_bytes, spared, half_life_seconds, slack)
    left = sum(sizes.values()) - sum(sizes[id_] for id_ in chosen)
    if all_or_nothing and over_budget(left + need_bytes, budget_bytes, slack):
        return None
    paths = [id_ for id_ in chosen if isinstance(id_, Path)]
    for path in paths:
        path.unlink(missing_ok=True)
    if paths:
        log.info("evicted %d spans, %d bytes", len(paths), sum(sizes[path] for path in paths))
    return paths


def remove_spans(directory: Directory, names: Iterable[bytes], keep: Iterable[bytes] = ()) -> list[Path]:
    """Delete the spans of these SHA-1s in every folder, then their ancestors, as long as nothing continues
    them.

    What was set aside of them goes too. A span with a child that stays, stays. So do the spans in `keep` (others
    stand on them), pinned ones, those that a running process stands on, and all that these stand on. Returns what
    was deleted, children first. Raises `OSError`.
    """
    wanted = set(names)
    kept_names = {*keep, *pins.pinned(directory.root)}
    spared = leased(directory.root)
    removed: list[Path] = []
    for folder in directory.folders():
        listing = directory.listing(folder)
        files = listing.files
        aside = {bytes.fromhex(name[:40]) for name in listing.beside if name.endswith(BAD)}
        if not wanted & (files.keys() | aside):
            continue
        parents = {name: _parent_of(span_path(folder, name)) for name in files}
        here = {name for name in files if span_path(folder, name) in spared} if spared else set()
        kept = {name for start in kept_names | here for name in _line(start, parents)}
        for name in (wanted & aside) - kept_names:
            path = folder / (span_path(folder, name).name + BAD)
            path.unlink(missing_ok=True)
            removed.append(path)
        children: dict[bytes, int] = {}
        for parent in parents.values():
            children[parent] = children.get(parent, 0) + 1
        doomed = [name for name in wanted if name in parents]
        while doomed:
            name = doomed.pop()
            if name in kept or name not in parents or children.get(name, 0):
                continue
            path = span_path(folder, name)
            path.unlink(missing_ok=True)
            removed.append(path)
            parent = parents.pop(name)
            children[parent] -= 1
            doomed.append(parent)
    return removed


def _parent_of(path: Path) -> bytes:
    """`ROOT` where the header cannot be read: nothing is known to stand above such a file."""
    try:
        return read_header(path)[0].parent
    except (CheckpointError, OSError):
        return ROOT


def _line(name: bytes, parents: dict[bytes, bytes]) -> list[bytes]:
    """A span and all it stands on."""
    line: list[bytes] = []
    seen: set[bytes] = set()
    while name in parents and name not in seen:
        seen.add(name)
        line.append(name)
        name = parents[name]
    return line
