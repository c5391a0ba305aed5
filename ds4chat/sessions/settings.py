"""What each session's turns run with: the defaults of this run, and over them what the session sets for itself.

Promises: a setting that is no setting is refused before anything is written; what a session does not set follows the
defaults of the run. Must not know: the engine child, the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ds4chat.engine.protocol import Loaded, Sampling
from ds4chat.errors import UsageError
from ds4chat.sessions import events as ev
from ds4chat.sessions.engine_host import EngineOptions
from ds4chat.sessions.session import Session, clean_text
from ds4chat.sessions.shelf import Shelf

SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed")

WHOLE = frozenset({"top_k", "seed", "max_tokens", "ctx"})
"""Settings that are whole numbers."""

KEYS = (*SAMPLING_KEYS, "max_tokens", "ctx", "persona", "tools")
"""All that `Session.params` may hold; `persona` is a name, `tools` is whether they are on, the others are numbers."""

Params = dict[str, float | int | str | bool | None]


class Settings:
    """The settings of all sessions of one run."""

    def __init__(
        self,
        shelf: Shelf,
        options: EngineOptions,
        sampling: Sampling,
        max_tokens: int | None,
        emit: Callable[[ev.ManagerEvent], None],
        tools: Callable[[Session, Loaded], str | None] = lambda _session, _loaded: "",
    ) -> None:
        """`tools`: see `Tooling.declarations`."""
        self._shelf, self._emit, self.tools = shelf, emit, tools
        self._sampling, self._max_tokens = sampling, max_tokens
        self._model, self._ctx, self._pinned = options.model_path, options.n_ctx, options.pinned
        self._chosen: set[str] = set()
        """Sessions whose model was chosen in this run: that counts more than a model named for the whole run."""

    # ---- what a turn runs with ----

    def model(self, session: Session) -> Path:
        """The model chosen for the session, else the one named for the run, else the session's own while its file is
        there, else the default."""
        own = Path(session.model_path) if session.model_path else None
        if own is None or not own.is_file() or (self._pinned and session.id not in self._chosen):
            return self._model
        return own

    def ctx(self, session: Session) -> int | None:
        """Tokens of context; None leaves it to the engine."""
        own = session.params.get("ctx")
        return int(own) if isinstance(own, int | float) and own else self._ctx

    def sampling(self, session: Session, again: int = 0) -> Sampling:
        """How a reply is sampled. `again`: replies to the same message so far, so that with a seed too each is another
        one."""
        own = {k: v for k in SAMPLING_KEYS if (v := session.params.get(k)) is not None}
        sampling = msgspec.structs.replace(self._sampling, **own)
        if sampling.seed is not None and again:
            sampling = msgspec.structs.replace(sampling, seed=(sampling.seed + again) % 2**32)
        return sampling

    def max_tokens(self, session: Session) -> int | None:
        """Longest reply; None: no limit."""
        own = session.params.get("max_tokens")
        return int(own) if isinstance(own, int | float) and own else self._max_tokens

    def effective(self, session: Session, loaded: Loaded | None) -> dict[str, object]:
        """All of it, by name. `ctx` is None while only the engine could tell."""
        path = self.model(session)
        ctx, name = self.ctx(session), path.name.removesuffix(".gguf")
        if loaded is not None and Path(loaded.path) == path:
            ctx, name = ctx or loaded.n_ctx, loaded.name
        elif session.model and session.model_path == str(path):
            name = session.model
        sampling = self.sampling(session)
        return {
            "model": name,
            "model_path": str(path),
            "ctx": ctx,
            **{key: getattr(sampling, key) for key in SAMPLING_KEYS},
            "max_tokens": self.max_tokens(session),
            "system": session.system,
            "persona": session.params.get("persona") or "",
        }

    # ---- changes ----

    def begin(self, session: Session, params: Mapping[str, Any] | None, model_path: str) -> None:
        """Settings a new session begins with. Raises UsageError."""
        session.params = check(params or {})
        if model_path:
            session.model_path = model_path
            self._chosen.add(session.id)

    def set_system(self, session: Session, text: str) -> None:
        """Another system prompt; what was said stays, and the window with it."""
        text = clean_text(text)
        if text != session.system:
            session.system, session.cold_done = text, False
            self._shelf.write(session.id, self._shelf.db.set_system, session.id, text)
            self._shelf.write(session.id, self._shelf.db.set_cold_done, session.id, False)
        self._emit(ev.SettingsChanged(session.id))

    def set_params(self, session: Session, params: Mapping[str, Any]) -> None:
        """Replace what the session sets for itself. Raises UsageError."""
        before = self.ctx(session)
        session.params = check(params)
        self._shelf.write(session.id, self._shelf.db.set_params, session.id, session.params)
        after = self.ctx(session)
        if session.window_start_id is not None and not session.summary and (after or 0) > (before or 0):
            # A larger context has room for more than was left of the smaller one: what does not fit falls out again.
            session.window_start_id = None
            self._shelf.write(session.id, self._shelf.db.set_window_start, session.id, None)
            self._emit(ev.PathChanged(session.id))
        self._emit(ev.SettingsChanged(session.id))

    def set_model(self, session: Session, path: Path) -> None:
        """The model of the next turn. Raises UsageError when there is no such file."""
        if not path.is_file():
            raise UsageError(f"There is no model at {path}: choose a GGUF file.")
        self._chosen.add(session.id)
        if session.model_path != str(path):
            session.model_path, session.model = str(path), path.name.removesuffix(".gguf")
            session.cold_done = False
            db = self._shelf.db
            self._shelf.write(session.id, db.set_model, session.id, session.model, session.model_path)
            self._shelf.write(session.id, db.set_cold_done, session.id, False)
        self._emit(ev.SettingsChanged(session.id))


def check(params: Mapping[str, Any]) -> Params:
    """The settings that are set, as they are kept. Raises UsageError for a name or a kind of value that is none."""
    kept: Params = {}
    for key, value in params.items():
        if key not in KEYS:
            raise UsageError(f'A chat has no setting "{key}": allowed are {", ".join(KEYS)}.')
        if value is None or value == "":
            continue
        if key == "persona":
            kept[key] = clean_text(str(value))
        elif key == "tools":
            if not isinstance(value, bool):
                raise UsageError(f"tools must be true or false, not {value!r}.")
            kept[key] = value
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{key} must be a number, not {value!r}.")
        elif key in WHOLE and value != int(value):
            raise UsageError(f"{key} must be a whole number, not {value!r}.")
        else:
            kept[key] = int(value) if key in WHOLE else float(value)
    return kept


class RestoreSpeed:
    """How long a restore takes, from those seen so far."""

    DEFAULT = 1_500_000.0
    """Bytes a millisecond before any was seen: a warm page cache on a common machine."""

    KEPT = 0.8
    """Share of what was seen before that still counts with each further restore."""

    def __init__(self) -> None:
        self._bytes = self._ms = 0.0

    def saw(self, size: float, ms: float) -> None:
        """A restore of `size` bytes took `ms` milliseconds."""
        if size > 0 and ms > 0:
            self._bytes = self._bytes * self.KEPT + size
            self._ms = self._ms * self.KEPT + ms

    def ms(self, size: int) -> float | None:
        """Milliseconds that `size` bytes will take; None for nothing."""
        if size <= 0:
            return None
        return size / (self._bytes / self._ms if self._ms else self.DEFAULT)
