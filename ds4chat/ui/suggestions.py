"""What may be meant by what is being typed: pure, for the list above the prompt box."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suggestion:
    """One line of the list.

    Attributes:
        label, detail: what it says.
        start, end: columns of the cursor's line that `insert` replaces.
        run: Enter also sends the line.
    """

    label: str
    detail: str
    start: int
    end: int
    insert: str
    run: bool = False
