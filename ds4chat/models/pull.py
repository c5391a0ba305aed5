"""Models out of the Hugging Face hub into the models folder: which file of a repository, and its bytes, proven.

Promises: a file has its final name only when it is whole and its SHA-256 is the hub's; what came of one that was broken
off stays beside it, and the next try goes on from there; nothing that is there is overwritten. Must not know: the
terminal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.gguf_header import quantization_in
from ds4chat.models.hub import BrokenConnectionError, Hub, RemoteFile, Repository
from ds4chat.models.listing import size_words
from ds4chat.validation import short

PREFERRED = (
    "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "MXFP4", "Q5_K_M", "Q5_K_S", "Q5_0", "Q5_1", "Q6_K",
    "Q8_0", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_S", "Q2_K", "BF16", "F16", "F32",
)  # fmt: skip
"""What to take when none is named: first the best for its size, then larger ones, then those that lose more."""

CHUNK = 1 << 20
TRIES = 5
"""Broken connections in a row, none of which brought a byte, after which a download ends."""

FIRST_PAUSE = 1.0
"""Seconds before another try; each further one that brings nothing waits twice as long."""

SPARE_BYTES = 200_000_000
"""What is left free on the disk."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)

Progress = Callable[[str, int, int], None]
"""Is told a file's name, the bytes that are here and all of them."""


@dataclass(frozen=True)
class Candidate:
    """A model of a repository: one file, or all parts of a split one."""

    name: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def quantization(self) -> str:
        return quantization_in(self.name.rpartition("/")[2])

    def __str__(self) -> str:
        size = f" ({size_words(self.size)})" if self.size else ""
        return f"{self.quantization or self.name}{size}"


def parse_source(text: str) -> tuple[str, str]:
    """ "hf:ORG/REPO:FILE" as repository and file; the file is "" when left out. Raises UsageError."""
    if not text.lower().startswith("hf:"):
        raise UsageError(f'"{short(text)}" is no model to pull: give hf:ORG/REPO or hf:ORG/REPO:FILE.')
    repository, _, file = text[3:].partition(":")
    return repository.strip("/"), file


def candidates(repository: Repository) -> list[Candidate]:
    """The models of a repository, by name: GGUF files, but no projectors and importance matrices."""
    groups: dict[str, list[RemoteFile]] = {}
    for file in repository.files:
        base = file.name.rpartition("/")[2].lower()
        if base.endswith(".gguf") and not any(word in base for word in ("mmproj", "imatrix")):
            groups.setdefault(_PART.sub("", file.name), []).append(file)
    return [
        Candidate(name, tuple(sorted(files, key=lambda file: file.name)))
        for name, files in sorted(groups.items(), key=lambda item: item[0].casefold())
    ]


def choose(repository: Repository, wanted: str = "") -> tuple[Candidate, list[Candidate]]:
    """The model to pull and the others there are. `wanted` is a file's name or a quantization. Raises UsageError."""
    found = candidates(repository)
    if not found:
        raise UsageError(
            f"{repository.name} has no GGUF files: look for a repository of the same model with GGUF in its name."
        )
    if wanted:
        low = wanted.casefold()
        fitting = [c for c in found if any(low in (f.name.casefold(), _base(f).casefold()) for f in c.files)]
        fitting = fitting or [c for c in found if c.quantization.casefold() == low]
        if not fitting:
            listed = ", ".join(map(str, found))
            raise UsageError(f'{repository.name} has no "{short(wanted)}": there are {listed}.')
        chosen = fitting[0]
    else:
        ranks = {name: rank for rank, name in enumerate(PREFERRED)}
        chosen = min(found, key=lambda c: (ranks.get(c.quantization, len(ranks)), len(c.name), c.name))
    return chosen, [other for other in found if other is not chosen]


def _base(file: RemoteFile) -> str:
    return file.name.rpartition("/")[2]


def pull(
    hub: Hub,
    repository: Repository,
    candidate: Candidate,
    folder: Path,
    progress: Progress,
) -> list[Path]:
    """Bring all files of a model into the folder, and return their paths.

    Raises:
        Ds4chatError: the hub, the disk, or a sum that is not right.
        UsageError: another file of that name is there.
    """
    targets = [(file, folder / _safe_name(file)) for file in candidate.files]
    todo = [(file, target) for file, target in targets if not _is_here(file, target, progress)]
    with _disk(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = sum(p.stat().st_size for f, t in todo if (p := _partial(f, t)).is_file())
        missing = sum(file.size for file, _ in todo) - partial
        free = shutil.disk_usage(folder).free - SPARE_BYTES
    if todo and missing > free:
        raise Ds4chatError(
            f"{candidate.name} needs {size_words(missing)}, and {size_words(max(free, 0))} are free in {folder}: "
            "make room, or choose a smaller quantization."
        )
    for file, target in todo:
        with _disk(target):
            _fetch(hub, repository, file, target, progress)
    return [target for _, target in targets]


def _safe_name(file: RemoteFile) -> str:
    """The last part of its name. Raises UsageError when that could not be a model's here."""
    name = _base(file)
    if not name.isprintable() or name.startswith(".") or len(name.encode()) > 200:
        raise UsageError(f"{short(file.name)} cannot be kept under its name: download it by hand.")
    return name


def _partial(file: RemoteFile, target: Path) -> Path:
    """Where the bytes lie that have come so far; those of another version lie elsewhere."""
    return target.with_name(f"{target.name}.{file.sha256[:12] or 'unknown'}.part")


def _is_here(file: RemoteFile, target: Path, progress: Progress) -> bool:
    """Whether a file is there already and whole. Raises UsageError when it is another one."""
    if not os.path.lexists(target):
        return False
    with _disk(target):
        same = target.is_file() and (not file.size or target.stat().st_size == file.size)
        if same and file.sha256:
            with target.open("rb") as opened:
                same = _sum_of(opened, file, progress).hexdigest() == file.sha256
    if not same:
        raise UsageError(f"{target} is there already and is another file: move it away, or rename it.")
    return True


def _sum_of(opened: BinaryIO, file: RemoteFile, progress: Progress) -> hashlib._Hash:
    digest = hashlib.sha256()
    while chunk := opened.read(CHUNK):
        digest.update(chunk)
        progress(f"checking {_base(file)}", opened.tell(), file.size)
    return digest


def _fetch(
    hub: Hub,
    repository: Repository,
    file: RemoteFile,
    target: Path,
    progress: Progress,
) -> None:
    partial = _partial(file, target)
    with partial.open("a+b") as out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Ds4chatError(f"Another ds4chat is pulling {_base(file)}: wait until it is done.") from None
        if not file.sha256:
            out.truncate(0)  # nothing would tell whether it belongs together
        out.seek(0)
        digest = _sum_of(out, file, progress)
        fails = 0
        while not file.size or out.tell() < file.size:
            before = out.tell()
            try:
                digest = _receive(hub, repository, file, out, digest, progress)
                break
            except BrokenConnectionError as error:
                fails = fails + 1 if out.tell() <= before else 1
                if fails >= TRIES:
                    raise Ds4chatError(f"{error} The same command goes on where it stopped.") from error
                time.sleep(FIRST_PAUSE * 2 ** (fails - 1))
        out.flush()
        os.fsync(out.fileno())
        if (file.size and out.tell() != file.size) or (file.sha256 and digest.hexdigest() != file.sha256):
            partial.unlink()
            raise Ds4chatError(
                f"What came of {_base(file)} is not what the hub has (its SHA-256 differs) and was deleted: "
                "pull it again."
            )
        partial.replace(target)
    for old in target.parent.glob(f"{_escaped(target.name)}.*.part"):
        with contextlib.suppress(OSError):
            old.unlink()


def _receive(
    hub: Hub,
    repository: Repository,
    file: RemoteFile,
    out: BinaryIO,
    digest: hashlib._Hash,
    progress: Progress,
) -> hashlib._Hash:
    """Write what comes behind what is there, and return the sum of all. Raises HubError."""
    start = out.tell()
    response = hub.open(repository, file, start)
    with contextlib.closing(response):
        if start and not _goes_on(response, start):
            out.seek(0)
            out.truncate()
            digest, start = hashlib.sha256(), 0
        while True:
            try:
                chunk = response.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise hub.broken(error) from error
            if not chunk:
                if response.length:
                    raise hub.broken(ConnectionError("the connection ended early"))
                return digest
            out.write(chunk)
            digest.update(chunk)
            progress(_base(file), out.tell(), file.size)


def _goes_on(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether an answer begins where it was asked to, and not at the beginning."""
    return response.status == 206 and (response.getheader("Content-Range") or "").startswith(
        f"bytes {start}-"
    )


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Ds4chatError(
                f"The disk of {path} is full: make room; the same command goes on where it stopped."
            ) from error
        raise Ds4chatError(
            f"{path} cannot be written ({error.strerror or error}): see to it and try again."
        ) from error


def others_in_words(others: Sequence[Candidate], most: int = 12) -> str:
    """For a sentence about what else there is."""
    listed = ", ".join(map(str, others[:most]))
    return f"{listed} and {len(others) - most} more" if len(others) > most else listed
