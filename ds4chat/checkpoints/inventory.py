"""A checkpoint directory as its owner sees it, with no model loaded: what is in it, is it whole, make it smaller.

Promises that looking changes nothing, and that deleting is done under the directory's lock, spares what running
processes stand on, and names every file that went. It must not know sessions, nor the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from ds4chat.checkpoints import leases, pins, upkeep
from ds4chat.checkpoints.directory import BAD, STRIKE, Directory
from ds4chat.checkpoints.format import hash_tokens, open_span
from ds4chat.checkpoints.prefix import ROOT
from ds4chat.checkpoints.span import Identity, SpanInfo, discontinuity, mismatch, span_path
from ds4chat.checkpoints.variants import FILE, Variant, read_variant
from ds4chat.errors import CheckpointError


@dataclass(frozen=True)
class Stock:
    """What one variant's folder holds.

    Attributes:
        about: what the folder says of itself; defaults where it says nothing.
        spans: those whose header can be read, by SHA-1.
        whole: names of those whose chain is there and fits.
        junk: sizes in bytes of files that no lookup sees: unreadable or set aside.
        nbytes: of all files, those being written included.
    """

    folder: Path
    about: Variant
    spans: dict[bytes, SpanInfo]
    whole: set[bytes]
    junk: dict[Path, int]
    nbytes: int

    @property
    def family(self) -> str:
        """Name of the family's folder."""
        return self.folder.parent.name

    @property
    def fingerprint(self) -> str:
        """Of the weights, hex; "" where neither the folder nor a span tells."""
        first = next(iter(self.spans.values()), None)
        return self.about.fingerprint or (first.header.fingerprint.hex() if first is not None else "")

    def line(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names that are here, and all they stand on."""
        found: set[bytes] = set()
        for name in names:
            while name in self.spans and name not in found:
                found.add(name)
                name = self.spans[name].parent
        return found


def take_stock(root: Path) -> list[Stock]:
    """All variants' folders; none where there is no directory."""
    directory = Directory(root)
    stocks: list[Stock] = []
    for folder in directory.folders():
        listing = directory.listing(folder)
        spans = upkeep.read_spans(folder, listing.files)
        junk = {span_path(folder, n): f.size for n, f in listing.files.items() if n not in spans}
        junk |= {folder / name: size for name, size in listing.beside.items() if name.endswith(BAD)}
        whole = upkeep.usable_spans(spans, None)
        stocks.append(Stock(folder, read_variant(folder) or Variant(), spans, whole, junk, listing.nbytes))
    return stocks


def default_budget(root: Path) -> int:
    """What the store takes when nobody says otherwise, bytes."""
    return Directory(root).default_budget()


# ---- is it whole -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A file that cannot be used, and why. `inode` tells it from one that takes its place."""

    path: Path
    reason: str
    nbytes: int
    inode: int = 0


@dataclass(frozen=True)
class Verdict:
    """What a verification found; `faults` has children behind their parents."""

    files: int = 0
    nbytes: int = 0
    faults: list[Fault] = field(default_factory=list)


def verify(root: Path, on_progress: Callable[[int, int], None] | None = None) -> Verdict:
    """Read every byte of every file: checksums, names, and that each span continues its parent. What other processes
    deleted, replaced or completed meanwhile is no fault.

    Args:
        on_progress: gets the bytes read so far, and all there are.
    """
    stocks = take_stock(root)
    total = sum(stock.nbytes for stock in stocks)
    files, done = 0, 0
    faults: list[Fault] = []
    for stock in stocks:
        for path, size in stock.junk.items():
            reason = "was set aside" if path.name.endswith(BAD) else "its header cannot be read"
            if inode := _inode(path):
                faults.append(Fault(path, reason, size, inode))
        files += len(stock.spans) + len(stock.junk)
        proven: dict[bytes, _Proof] = {}
        unknown: set[bytes] = set()
        for span in sorted(stock.spans.values(), key=lambda span: span.end):
            try:
                proven[span.sha1] = _prove(stock, span, proven)
            except CheckpointError as error:
                if _changed(stock, span, unknown):
                    unknown.add(span.sha1)
                else:
                    faults.append(Fault(span.path, str(error), span.size, span.inode))
            done += span.size
            if on_progress is not None:
                on_progress(done, total)
    return Verdict(files, total, faults)


@dataclass(frozen=True)
class _Proof:
    sha1: hashlib._Hash
    tokens: xxhash.xxh3_64


def _prove(stock: Stock, span: SpanInfo, proven: dict[bytes, _Proof]) -> _Proof:
    """Raises `CheckpointError` with the reason."""
    header = span.header
    parent = stock.spans.get(header.parent)
    if header.parent == ROOT:
        before = _Proof(hashlib.sha1(usedforsecurity=False), xxhash.xxh3_64())
    elif parent is None:
        raise CheckpointError("the span it continues is not there")
    elif parent.sha1 not in proven:
        raise CheckpointError("the span it continues is damaged")
    else:
        before = proven[parent.sha1]
    identity = Identity(
        stock.family,
        bytes.fromhex(stock.folder.name) if _is_variant(stock.folder.name) else header.variant,
        bytes.fromhex(stock.fingerprint) if len(stock.fingerprint) == 32 else header.fingerprint,
        header.quant_bits,
        header.payload_abi,
    )
    reason = mismatch(header, identity) or discontinuity(header, parent)
    if reason is not None:
        raise CheckpointError(reason)
    with open_span(span.path) as loaded:
        if loaded.header.fixed_hash != header.fixed_hash:
            raise CheckpointError("it was replaced meanwhile")
        loaded.verify()
        sha1, tokens = before.sha1.copy(), before.tokens.copy()
        sha1.update(loaded.text)
        hash_tokens(loaded.tokens, tokens)
    if sha1.digest() != span.sha1:
        raise CheckpointError("its text is not what its name says")
    if tokens.intdigest() != header.end_hash:
        raise CheckpointError("its tokens are not what its hash says")
    return _Proof(sha1, tokens)


def _changed(stock: Stock, span: SpanInfo, unknown: set[bytes]) -> bool:
    """Whether a span, or what it continues, is not the file it was when stock was taken."""
    parent = span.header.parent
    before = span_path(stock.folder, parent)
    came = parent != ROOT and parent not in stock.spans and before not in stock.junk and before.exists()
    return came or parent in unknown or _inode(span.path) != span.inode


def _is_variant(name: str) -> bool:
    return len(name) == 16 and all(c in "0123456789abcdef" for c in name)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


# ---- make it smaller ---------------------------------------------------------------------------------------


def delete_faults(root: Path, faults: Iterable[Fault]) -> list[Path]:
    """Delete what a verification found, unless it was replaced since. Raises `OSError`."""
    directory = Directory(root)
    with directory.lock():
        gone = [f.path for f in reversed(list(faults)) if _inode(f.path) == f.inode != 0]
        for path in gone:
            path.unlink(missing_ok=True)
        directory.sweep()
    return gone


def prune(root: Path, budget_bytes: int, now: float, half_life_seconds: float) -> tuple[list[Path], int]:
    """Delete down to so many bytes (0: all that may go), by the rules of eviction; what went, and its bytes.
    Raises `OSError`."""
    directory = Directory(root)
    if not root.is_dir():
        return [], 0
    with directory.lock():
        directory.sweep()
        before = directory.total_bytes()
        gone = upkeep.make_room(
            directory,
            None,
            0,
            max(budget_bytes, 1),
            now,
            half_life_seconds,
            all_or_nothing=False,
            slack=0.0,
        )
    return gone or [], before - directory.total_bytes()


def clear(root: Path) -> tuple[list[Path], int]:
    """Delete every file, pinned or not, but for what running processes stand on; what went, and how many files
    stay. Raises `OSError`."""
    directory = Directory(root)
    if not root.is_dir():
        return [], 0
    gone: list[Path] = []
    stay = 0
    with directory.lock():
        leases.sweep(root)
        directory.sweep()
        leased = leases.leased(root)
        kept_names: set[bytes] = set()
        for stock in take_stock(root):
            here = {name for name in stock.spans if stock.spans[name].path in leased}
            kept = stock.line(here)
            kept_names |= kept
            stay += len(kept)
            spans = sorted(stock.spans.values(), key=lambda span: span.end, reverse=True)
            for path in (*stock.junk, *(span.path for span in spans if span.sha1 not in kept)):
                path.unlink(missing_ok=True)
                gone.append(path)
                path.with_name(path.name + STRIKE).unlink(missing_ok=True)
            if not kept:
                _remove_folder(stock.folder)
        pins.unpin(root, pins.pinned(root) - kept_names)
    return gone, stay


def _remove_folder(folder: Path) -> None:
    """The folder and its family's, if nothing else is in them."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] in ([], [FILE]):
            (folder / FILE).unlink(missing_ok=True)
            folder.rmdir()
            folder.parent.rmdir()
