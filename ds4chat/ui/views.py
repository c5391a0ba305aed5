"""What the screen remembers of every session it has shown: pure, in memory, gone when the app ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ds4chat.sessions.session import Session
from ds4chat.ui.widgets.conversation import Note


@dataclass
class View:
    """A session as it was last seen.

    Attributes:
        draft: what stands in the prompt box, not sent.
        place: where the reader was (see `Transcript.place`).
        notes: sentences of the program between the messages.
        incognito: nothing of it reaches the disk.
    """

    session: Session
    read_only: bool = False
    draft: str = ""
    place: tuple[int, int] | None = None
    notes: list[Note] = field(default_factory=list)
    incognito: bool = False

    @property
    def is_new(self) -> bool:
        """Nothing was said yet, so nothing was saved."""
        return self.session.head_id is None


class Views:
    """The views by session id; `current` is on the screen."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}
        self._early: dict[str, list[Note]] = {}
        self.current: View | None = None

    def __iter__(self) -> Iterator[View]:
        return iter(self._views.values())

    def get(self, session_id: str) -> View | None:
        return self._views.get(session_id)

    def put(self, session: Session, *, read_only: bool, incognito: bool = False) -> View:
        """The view of an opened session, with what is remembered of it."""
        view = self._views.get(session.id)
        if view is None:
            notes = self._early.pop(session.id, [])
            view = self._views[session.id] = View(session, draft=session.draft, notes=notes)
        view.session, view.read_only, view.incognito = session, read_only, incognito
        return view

    def drop(self, session_id: str) -> None:
        """Forget a session that was deleted."""
        self._views.pop(session_id, None)

    def unused(self, *, incognito: bool = False) -> View | None:
        """A new session in which nothing was said yet: one is enough."""
        return next((v for v in self if v.is_new and not v.read_only and v.incognito == incognito), None)

    def note(self, session_id: str, text: str, severity: str) -> Note:
        """Remember a sentence at the end of a session as it is now, shown or not."""
        view = self._views.get(session_id)
        note = Note(view.session.head_id if view else None, text, severity)
        (view.notes if view else self._early.setdefault(session_id, [])).append(note)
        return note
