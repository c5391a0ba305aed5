"""What `cache ls` and `cache stats` tell: the join of the checkpoint directory, the session database and the models
that would be used now, told by their files alone.

Rows are plain dictionaries, as `--json` prints them: sizes in bytes, lengths in tokens, times in seconds since 1970.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ds4chat import config, paths
from ds4chat.checkpoints.inventory import Stock, default_budget
from ds4chat.checkpoints.pins import pinned
from ds4chat.checkpoints.span import SpanInfo
from ds4chat.cli_setup import Setup
from ds4chat.engine.weights import weights_hash
from ds4chat.errors import ModelError
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import SessionInfo

MB = 10**6

NO_SESSION = "(no session)"


def rows(setup: Setup, model: str | None, database: Database, stocks: list[Stock]) -> list[dict[str, Any]]:
    pins = pinned(setup.paths.kv_dir)
    current = _Current(setup, model)
    owned: dict[Path, set[bytes]] = {stock.folder: set() for stock in stocks}
    found: list[dict[str, Any]] = []
    for info in database.list_sessions(archived=None):
        names = {bytes.fromhex(span.sha1) for span in database.spans_of(info.id)}
        if not names:
            continue
        lines = {stock.folder: stock.line(names) for stock in stocks}
        for folder, line in lines.items():
            owned[folder] |= line
        reusable, reason = current.judge(info, database.model_path(info.id), stocks, lines)
        found.append(
            _row(info.id, info.title, stocks, lines)
            | {
                "pinned": bool(names & pins),
                "reusable": reusable > 0,
                "reusable_tokens": reusable,
                "reason": reason,
            }
        )
    rest = {stock.folder: stock.spans.keys() - owned[stock.folder] for stock in stocks}
    if any(rest.values()) or any(stock.junk for stock in stocks):
        row = _row(None, NO_SESSION, stocks, rest)
        row["bytes"] += sum(sum(stock.junk.values()) for stock in stocks)
        row["files"] += sum(len(stock.junk) for stock in stocks)
        is_pinned = any(pins & line for line in rest.values())
        found.append(
            row
            | {
                "pinned": is_pinned,
                "reusable": False,
                "reusable_tokens": 0,
                "reason": "no session stands on them",
            }
        )
    return found


def _row(
    session: str | None, title: str, stocks: list[Stock], lines: dict[Path, set[bytes]]
) -> dict[str, Any]:
    spans = [stock.spans[name] for stock in stocks for name in lines[stock.folder]]
    ends = [span.end for span in spans]
    return {
        "session": session,
        "title": title,
        "tokens": max(ends, default=0) if session else sum(span.end - span.start for span in spans),
        "bytes": sum(span.size for span in spans),
        "files": len(spans),
        "last_used": max((span.header.last_used for span in spans), default=0),
    }


class _Current:
    """The models that would be used now, told by their files alone."""

    def __init__(self, setup: Setup, model: str | None) -> None:
        self._setup, self._model = setup, model
        self._kv_type = setup.config.model.kv_type
        self._known: dict[str, str] = {}

    def judge(
        self, info: SessionInfo, model_path: str, stocks: list[Stock], lines: dict[Path, set[bytes]]
    ) -> tuple[int, str]:
        """How many tokens of a session can be restored, and where it is none, why."""
        here = [stock for stock in stocks if lines[stock.folder]]
        if not here:
            return 0, "nothing of it is on disk any more"
        try:
            fingerprint = self._fingerprint(info, model_path)
        except (ModelError, OSError):
            return 0, "its model is not there"
        best, reason = 0, ""
        for stock in here:
            fault = self._fault(stock, fingerprint)
            whole = [stock.spans[name].end for name in lines[stock.folder] & stock.whole]
            if fault is None and not whole:
                fault = "the beginning of its chain is missing"
            if fault is None:
                best = max(best, *whole)
            else:
                reason = reason or fault
        return best, "" if best else reason

    def _fault(self, stock: Stock, fingerprint: str) -> str | None:
        about = stock.about
        if stock.fingerprint != fingerprint:
            return (
                f"computed with other weights ({about.model})"
                if about.model
                else "computed with other weights"
            )
        if about.kv_type and about.kv_type != self._kv_type:
            return f"KV type {about.kv_type}, and {self._kv_type} is set"
        build = _build()
        if about.build and build and about.build != build:
            return f"written by llama-cpp-python {about.build}, and {build} is installed"
        return None

    def _fingerprint(self, info: SessionInfo, model_path: str) -> str:
        key = "" if self._model is not None else model_path
        if key not in self._known:
            chosen = config.choose_model(
                self._model,
                key,
                self._setup.config,
                self._setup.paths,
                session_name=info.id,
                starter=paths.starter_model(),
            )
            self._known[key] = weights_hash(chosen, self._setup.paths.data_dir / "weights.json").hex()
        return self._known[key]


def _build() -> str:
    """The installed version of llama-cpp-python, "" when it cannot be told."""
    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:
        return ""


def stats(setup: Setup, stocks: list[Stock]) -> dict[str, Any]:
    def sums(spans: list[SpanInfo]) -> dict[str, int]:
        return {
            "files": len(spans),
            "tokens": sum(span.end - span.start for span in spans),
            "bytes": sum(span.size for span in spans),
            "hits": sum(span.header.hits for span in spans),
        }

    every = [span for stock in stocks for span in stock.spans.values()]
    junk = [size for stock in stocks for size in stock.junk.values()]
    broken = [span.size for stock in stocks for name, span in stock.spans.items() if name not in stock.whole]
    reasons = sorted({span.header.reason for span in every})
    return {
        "path": str(setup.paths.kv_dir),
        "budget_bytes": budget(setup),
        **sums(every),
        "files": len(every) + len(junk),
        "bytes": sum(stock.nbytes for stock in stocks),
        "unusable_files": len(junk) + len(broken),
        "unusable_bytes": sum(junk) + sum(broken),
        "pinned": len(pinned(setup.paths.kv_dir)),
        "variants": [
            {
                "family": stock.family,
                "variant": stock.folder.name,
                "model": stock.about.model,
                "kv_type": stock.about.kv_type,
                "build": stock.about.build,
                "quant_bits": stock.about.quant_bits,
                **sums(list(stock.spans.values())),
            }
            for stock in stocks
        ],
        "reasons": [
            {"reason": reason.label, **sums([span for span in every if span.header.reason is reason])}
            for reason in reasons
        ],
    }


def budget(setup: Setup) -> int:
    """Bytes; 0 for no limit."""
    space = setup.config.kv.space_mb
    return default_budget(setup.paths.kv_dir) if space is None else space * MB
