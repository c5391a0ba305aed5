"""What the checkpoint panel says of each chat, in columns and in a sentence. Pure."""

from __future__ import annotations

import time

from ds4chat.config import parse_setting
from ds4chat.ui.desk import CheckpointRow
from ds4chat.ui.screens.amounts import size_words, tokens_words
from ds4chat.ui.widgets.row_list import Column
from ds4chat.ui.wording import age

COLUMNS = (
    Column(),
    Column(6, right=True),
    Column(7, right=True),
    Column(4, need=44, right=True),
    Column(34, need=60),
)

PINNED = "◆"


def check_budget(text: str) -> object:
    return parse_setting("kv", "space_mb", text)


def mark(row: CheckpointRow) -> str:
    return PINNED if row.pinned else "✗" if row.reusable else " "


def cells(row: CheckpointRow) -> tuple[str, ...]:
    used = age(max(time.time() - row.last_used, 0)) if row.last_used else ""
    usable = row.reusable or f"{row.reusable_tokens:,} tokens reusable"
    return row.title or "Untitled", tokens_words(row.tokens), size_words(row.bytes), used, usable


def sentence(row: CheckpointRow) -> str:
    usable = (
        f"cannot be used now: {row.reusable}" if row.reusable else f"{row.reusable_tokens:,} can be restored"
    )
    pinned = "pinned, " if row.pinned else ""
    return f"{row.tokens:,} tokens, {size_words(row.bytes)}, {pinned}{usable}."
