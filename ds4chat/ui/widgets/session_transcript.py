"""The messages a session stands on as a transcript, made again when it stands on others, at the reader's place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ds4chat.sessions.session import Message, Session
from ds4chat.ui.entries import (
    Entry,
    Memory,
    MessageEntry,
    NoteEntry,
    ReplyEntry,
    RuleEntry,
    SummaryEntry,
    SummaryGrowingEntry,
    ToolEntry,
    UserEntry,
)
from ds4chat.ui.widgets.choosing import ChoosingTranscript
from ds4chat.ui.wording import message_status

WINDOW_TEXT = "older messages no longer reach the model"


@dataclass(frozen=True)
class Note:
    """A sentence of the program within a conversation, after message `after_id` (None: before the first)."""

    after_id: int | None
    text: str
    severity: str = "information"


class SessionTranscript(ChoosingTranscript):
    """Makes entries of the messages a session stands on, and knows those that it made."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.session: Session | None = None
        self._notes: Sequence[Note] = ()
        self._rule = RuleEntry(WINDOW_TEXT)
        self._summary: SummaryEntry | None = None
        self._growing: dict[str, SummaryGrowingEntry] = {}
        self._memory = Memory()
        self._errors: dict[int, str] = {}
        self._ahead: dict[int, int] = {}
        self._calling: dict[int, str] = {}
        """What is said below a reply whose calls are worked off, by its id."""
        self._progress: dict[str, tuple[int, int]] = {}

    # -- a session as a whole

    def show_session(
        self, session: Session, notes: Sequence[Note] = (), place: tuple[int, int] | None = None
    ) -> None:
        """Show a session from its end, or from where `place` says the reader was. `notes` may grow."""
        if session is not self.session:
            self._by_message = {}
            self._summary = None
            self.choose(None)
        self.session, self._notes = session, notes
        self.show(self._build(session), place)

    def _build(self, session: Session) -> list[Entry]:
        """Its entries; those that are there already keep their painted lines."""
        path = session.path()
        notes: dict[int | None, list[Entry]] = {}
        for note in self._notes:
            # What was said on another branch waits there.
            after = note.after_id if note.after_id in session.messages else None
            notes.setdefault(after, []).append(NoteEntry(note.text, note.severity))
        alternatives = Counter(message.parent_id for message in session.messages.values())
        entries = notes.get(None, [])
        window = [*self._summary_entries(session)]
        for index, message in enumerate(path):
            if message.id == session.window_start_id:
                entries += [*window, self._rule] if index else window
                window = []
            entry = self._entry(message)
            branches = alternatives[message.parent_id] > 1
            entry.set_branch(branch_of(session, message) if branches else None)
            entries.append(entry)
            entries += notes.get(message.id, [])
        if session.id in self._growing:
            entries.append(self._growing[session.id])
        return window + entries

    def _summary_entries(self, session: Session) -> list[SummaryEntry]:
        if not session.summary:
            self._summary = None
            return []
        if self._summary is None:
            self._summary = SummaryEntry(session.summary)
        self._summary.set(session.summary)
        return [self._summary]

    def reload(self) -> None:
        """Show the session as it stands now, at the place where the reader is."""
        session = self.session
        if session is None:
            return
        before, choosable, chosen = self._entries, self.choosable(), self.chosen
        entries = self._build(session)
        place = None
        if not self.following and self._anchor is not None:
            here = set(map(id, entries))
            anchor, line = self._anchor
            at = before.index(anchor) if anchor in before else 0
            if id(anchor) in here:
                place = (entries.index(anchor), line)
            else:
                kept = next((e for e in reversed(before[:at]) if id(e) in here), None)
                place = (min(entries.index(kept) + 1 if kept else 0, max(len(entries) - 1, 0)), line)
        self.show(entries, place)
        if chosen is not None:
            at = choosable.index(chosen) if chosen in choosable else 0
            self.choose(self._same(chosen, at))

    def _same(self, chosen: Entry, at: int) -> Entry | None:
        """What stands where the chosen entry, number `at` of those before, stood."""
        now = self.choosable()
        if chosen in now or not now:
            return chosen if now else None
        if isinstance(chosen, MessageEntry):
            for entry in now:
                if isinstance(entry, MessageEntry) and entry.message.parent_id == chosen.message.parent_id:
                    return entry
        return now[min(at, len(now) - 1)]

    def add_note(self, note: Note) -> None:
        """Show a sentence at the end."""
        self.add(NoteEntry(note.text, note.severity))

    def _entry(self, message: Message) -> MessageEntry:
        status, severity = self._status(message)
        known = self.message(message.id)
        if known is not None and known.message is message:
            known.pull()
            known.set_status(status, severity)
            return known
        if message.role == "user":
            return UserEntry(message, "You", status, severity)
        if message.role == "tool":
            return ToolEntry(message, status, severity, self._memory)
        return ReplyEntry(message, message.model or "Reply", status, severity, self._memory)

    def _status(self, message: Message) -> tuple[str, str]:
        session = self.session
        if message.id in self._calling:
            return self._calling[message.id], "information"
        return message_status(
            message,
            is_last=session is not None and session.head_id == message.id,
            error=self._errors.get(message.id, ""),
            ahead=self._ahead.get(message.id),
            progress=self._progress.get(session.id) if session is not None else None,
        )


def branch_of(session: Session, message: Message) -> tuple[int, int] | None:
    """Which of its alternatives a message is, and how many there are; None when there is no other."""
    siblings = session.siblings(message.id)
    if len(siblings) < 2 or message not in siblings:
        return None
    return siblings.index(message) + 1, len(siblings)
