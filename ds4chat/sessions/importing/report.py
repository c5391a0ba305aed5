"""What an import says of each file: one line, and more when it is asked for. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ds4chat.sessions.importing.taking import Outcome, Taken

FAULTS_TOLD = 3
"""Chats that cannot be read, of one file, that are told one by one without -v."""


@dataclass
class FileReport:
    """What became of the chats of one file.

    Attributes:
        kind: what the file is, as "ChatGPT export".
        chats: what became of each; those that came in or were here only when `detailed`.
        fault: why the file as a whole could not be read, a sentence; "" when it could.
        stopped: it was broken off by the user.
    """

    path: Path
    kind: str = ""
    detailed: bool = False
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    messages: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    chats: list[tuple[str, Taken]] = field(default_factory=list)
    skipped_for: Counter[str] = field(default_factory=Counter)
    only: Taken | None = None
    fault: str = ""
    stopped: bool = False

    def add(self, where: str, taken: Taken) -> None:
        """Count a chat."""
        self.outcomes[taken.outcome] += 1
        self.messages += taken.messages
        self.left_out.update(taken.left_out or {})
        if taken.outcome == "skipped":
            self.skipped_for[taken.reason] += 1
        self.only = taken if self.total == 1 else None
        if self.detailed or (taken.outcome == "failed" and len(self.chats) < FAULTS_TOLD):
            self.chats.append((where, taken))

    @property
    def total(self) -> int:
        """How many chats the file has, as far as it was read."""
        return self.outcomes.total()

    @property
    def failed(self) -> bool:
        """Whether nothing in it could be read."""
        return bool(self.fault) or (self.total > 0 and self.outcomes["failed"] == self.total)

    @property
    def has_faults(self) -> bool:
        """Whether something in it could not be read."""
        return bool(self.fault or self.outcomes["failed"])

    def line(self) -> str:
        """What became of it, for a file of several chats."""
        outcomes = self.outcomes
        parts: list[str] = []
        if outcomes["imported"] or not self.total:
            parts.append(f"{count(outcomes['imported'], 'chat')} imported")
        if outcomes["updated"]:
            parts.append(f"{count(outcomes['updated'], 'chat')} updated")
        if self.messages:
            parts[-1] += f" ({count(self.messages, 'message')})"
        if outcomes["known"]:
            parts.append(f"{outcomes['known']:,} already here")
        parts += [f"{number:,} skipped ({reason})" for reason, number in self.skipped_for.most_common()]
        if outcomes["failed"]:
            parts.append(f"{outcomes['failed']:,} could not be read")
        kind = f" ({self.kind})" if self.kind else ""
        text = f"{self.path}{kind}: {', '.join(parts)}"
        if self.left_out:
            text += f"; left out: {self.missing()}"
        if self.stopped:
            text += "; stopped before its end, import it again for the rest"
        return text + "."

    def missing(self) -> str:
        """What did not come in, by kind."""
        return ", ".join(f"{kind} ({number:,})" for kind, number in self.left_out.most_common())

    def details(self) -> list[str]:
        """A line for each chat."""
        return [_detail(where, taken) for where, taken in self.chats]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "file": str(self.path),
            "kind": self.kind,
            "imported": self.outcomes["imported"],
            "updated": self.outcomes["updated"],
            "already_here": self.outcomes["known"],
            "skipped": self.outcomes["skipped"],
            "failed": self.outcomes["failed"],
            "messages": self.messages,
            "left_out": dict(self.left_out),
            "fault": self.fault,
            "stopped": self.stopped,
            "chats": [
                {
                    "where": where,
                    "outcome": "already here" if taken.outcome == "known" else taken.outcome,
                    "session": taken.session_id or None,
                    "title": taken.title,
                    "messages": taken.messages,
                    "reason": taken.reason,
                    "left_out": dict(taken.left_out or {}),
                }
                for where, taken in self.chats
            ],
        }


def fault_of(path: Path, where: str, taken: Taken) -> str:
    """The sentence about a chat that cannot be read."""
    named = f' "{taken.title}"' if taken.title else ""
    place = f"{where}{named}" if where else named.strip()
    return f"{path}{', ' if place else ''}{place}: {taken.reason}."


def _detail(where: str, taken: Taken) -> str:
    named = f"{taken.session_id or '--------'}  {taken.title or where or '(no title)'}"
    match taken.outcome:
        case "imported":
            what = count(taken.messages, "message")
        case "updated":
            what = f"{count(taken.messages, 'message')} added"
        case "known":
            what = "already here"
        case _:
            what = f"{taken.outcome}: {taken.reason}"
    if taken.left_out:
        what += "; left out: " + ", ".join(f"{kind} ({n:,})" for kind, n in taken.left_out.most_common())
    return f"  {named}: {what}"


def count(number: int, what: str) -> str:
    """ "1 chat", "2 chats"."""
    return f"{number:,} {what}{'s' * (number != 1)}"
