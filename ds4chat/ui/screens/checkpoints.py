"""The checkpoints on disk: what each chat has there, how full the budget is, and keeping, checking and clearing them.

Reading the directory takes a thread's time, never the screen's; so does every change.
"""

from __future__ import annotations

import threading
import time

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ds4chat.ui.desk import CheckpointReport, CheckpointRow, Desk
from ds4chat.ui.keys import key
from ds4chat.ui.screens.amounts import bar, size_words
from ds4chat.ui.screens.ask import AskScreen
from ds4chat.ui.screens.checkpoint_rows import COLUMNS, cells, check_budget, mark, sentence
from ds4chat.ui.screens.confirm import ConfirmScreen
from ds4chat.ui.screens.panel import Panel
from ds4chat.ui.styles import stylesheet
from ds4chat.ui.text import clip, one_line
from ds4chat.ui.widgets.row_list import ListRow, RowList

NO_SESSION = "-"
"""Key of the row of what no session stands on: a row's key is never empty."""

MB = 10**6
PAINTS_A_SECOND = 10


class Verified(Message):
    """So much was read of all there is, in bytes."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__()
        self.done, self.total = done, total


class CheckpointsScreen(Panel[None]):
    """Everything here is about files: no chat loses a word by it."""

    DEFAULT_CSS = stylesheet(__file__)
    AUTO_FOCUS = "#checkpoints"
    BINDINGS = [
        key(
            "p,enter",
            "pin",
            "pins",
            "checkpoints.pin",
            "Keep this chat's checkpoints, or let them go.",
            show=True,
        ),
        key("v", "verify", "verifies", "checkpoints.verify", "Read all files and check them.", show=True),
        key(
            "c,delete",
            "clear",
            "clears",
            "checkpoints.clear",
            "Delete this chat's checkpoints, after asking.",
            show=True,
        ),
        key("b", "budget", "budget", "checkpoints.budget", "Set how much may be kept on disk.", show=True),
        key(
            "a",
            "clear_all",
            "clears all",
            "checkpoints.clear_all",
            "Delete all checkpoints, after asking.",
            show=True,
        ),
        key("f5,r", "reload", "reads again", "checkpoints.reload", "Read the directory again.", show=True),
        key("escape", "leave", "closes", "checkpoints.close", "End the reading, or close this.", show=True),
    ]

    def __init__(self, desk: Desk, current: str = "") -> None:
        super().__init__()
        self._desk, self._current = desk, current
        self._report: CheckpointReport | None = None
        self._stop = threading.Event()
        self.verifying = False
        self._news = ""

    def compose(self) -> ComposeResult:
        with self.box("Checkpoints"):
            yield Static("", id="usage", markup=False)
            yield RowList(COLUMNS, id="checkpoints", empty="Reading the directory…")
            yield self.foot()

    def on_mount(self) -> None:
        super().on_mount()
        self.action_reload()

    def on_unmount(self) -> None:
        self._stop.set()

    def action_reload(self) -> None:
        self.ask(self._desk.checkpoints, self._take)

    def _take(self, report: CheckpointReport) -> None:
        first = self._report is None
        self._report = report
        rows = [
            ListRow(row.session_id or NO_SESSION, cells(row), mark=mark(row), faint=bool(row.reusable))
            for row in report.rows
        ]
        listed = self.query_one(RowList)
        listed.empty = "There are no checkpoints yet"
        listed.set_rows(rows, self._current if first else None)
        self._show_usage()
        if not self.verifying:
            self._say()

    def _say(self) -> None:
        """What happened last, else what the row under the cursor is."""
        row = self._row
        self.words(self._news or (sentence(row) if row else ""))

    def _show_usage(self) -> None:
        report = self._report
        if report is None:
            return
        width = self.query_one("#usage").content_size.width
        total = size_words(report.total_bytes)
        if report.budget_bytes:
            part = report.total_bytes / report.budget_bytes
            words = f" {total} of {size_words(report.budget_bytes)} · {100 * part:.0f}%"
            first = bar(part, max(width - len(words), 4)) + words if width > len(words) + 8 else words.strip()
        else:
            first = f"{total}, no limit"
        line = self.query_one("#usage", Static)
        where = clip(one_line(report.directory), max(width, 1))
        line.update(Content.assemble(first, (f"\n{where}", "$foreground 60%")))
        line.set_class(bool(report.budget_bytes) and report.total_bytes > report.budget_bytes, "-over")

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self._show_usage)

    @property
    def _row(self) -> CheckpointRow | None:
        at = self.query_one(RowList).current
        rows = self._report.rows if self._report else []
        return next((row for row in rows if (row.session_id or NO_SESSION) == at), None)

    def on_row_list_moved(self, message: RowList.Moved) -> None:
        if not self.verifying:
            self._news = self._news if message.listed else ""
            self._say()

    def on_row_list_chosen(self) -> None:
        self.action_pin()

    # -- what can be done

    def action_pin(self) -> None:
        row = self._row
        if row is None:
            return
        if not row.session_id:
            self.words("No chat stands on these, so there is nothing to pin.", severity="warning")
            return
        on = not row.pinned
        self.ask(lambda: self._desk.pin_checkpoints(row.session_id, on), lambda _: self.action_reload())

    def action_verify(self) -> None:
        if self.verifying:
            return
        self.verifying = True
        self._stop.clear()
        painted = 0.0

        def progress(done: int, total: int) -> bool:
            nonlocal painted
            now = time.monotonic()
            if now - painted > 1 / PAINTS_A_SECOND or done >= total:
                painted = now
                self.post_message(Verified(done, total))
            return not self._stop.is_set()

        self.words("Reading all files… Esc ends it.")
        self.ask(lambda: self._desk.verify_checkpoints(progress), self._verified, self._end_verifying)

    def on_verified(self, message: Verified) -> None:
        if self.verifying:
            part = message.done / message.total if message.total else 1.0
            width = max(min(self.query_one("#words").content_size.width - 44, 30), 0)
            read = f"{size_words(message.done)} of {size_words(message.total)} read"
            self.words(f"{bar(part, width)} {read} · Esc ends it".strip())

    def _end_verifying(self, _: object = None) -> None:
        self.verifying = False

    def _verified(self, sentence: str) -> None:
        self.verifying = False
        self._news = sentence
        self.words(sentence, severity="warning" if "cannot be used" in sentence else "information")

    def action_clear(self) -> None:
        row = self._row
        if row is not None:
            what = (
                f"the checkpoints of “{one_line(row.title)}”" if row.session_id else "checkpoints of no chat"
            )
            later = " The chat stays; its past is computed again when it is needed." if row.session_id else ""
            self._ask_to_clear(f"Delete {what} ({size_words(row.bytes)})?{later}", row.session_id)

    def action_clear_all(self) -> None:
        if self._report is not None and self._report.total_bytes:
            size = size_words(self._report.total_bytes)
            question = (
                f"Delete all checkpoints ({size}), pinned ones too? Chats stay; their past is computed again."
            )
            self._ask_to_clear(question, None)

    def _ask_to_clear(self, question: str, session_id: str | None) -> None:
        def cleared(nbytes: int) -> None:
            stay = "" if nbytes else " What a running chat stands on stays."
            self._news = f"{size_words(nbytes)} were deleted.{stay}"
            self.action_reload()

        def clear(sure: bool | None) -> None:
            if sure:
                self.ask(lambda: self._desk.clear_checkpoints(session_id), cleared)

        self.app.push_screen(ConfirmScreen(question), clear)

    def action_budget(self) -> None:
        if self._report is None:
            return
        value = str(round(self._report.budget_bytes / MB))
        hint = "MB for all checkpoints; 0: no limit; nothing: a tenth of the free disk. What does not fit is deleted."

        def saved(nbytes: int) -> None:
            deleted = f" {size_words(nbytes)} were deleted." if nbytes else ""
            self._news = f"Saved; the loaded model keeps to it from the next start on.{deleted}"
            self.action_reload()

        def save(typed: str | None) -> None:
            if typed is not None:
                self.ask(lambda: self._desk.set_budget(typed), saved)

        self.app.push_screen(AskScreen("Budget in MB", value, hint, check_budget), save)

    def action_leave(self) -> None:
        """End the reading first, then close."""
        if self.verifying:
            self._stop.set()
        else:
            self.dismiss(None)
