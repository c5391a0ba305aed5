"""Keeps one engine child alive: starts it, loads a model, restarts it once after a crash, tells how it stands.

Promises: a crash is reported once, with the words for the user; a child that dies again before it has done a turn is
left down until the next request. Must not know: messages, the database.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from ds4chat.engine.client import EngineClient
from ds4chat.engine.place import PREFIX, RemoteEngine
from ds4chat.engine.protocol import (
    Command,
    ContextFull,
    Done,
    Event,
    Failed,
    Generate,
    KvOptions,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Prepare,
    Prepared,
    Pulse,
)
from ds4chat.engine.spawn import is_plain, remember_plain
from ds4chat.errors import EngineError
from ds4chat.sessions import silence
from ds4chat.sessions.events import EngineStatus
from ds4chat.sessions.silence import Silence

log = logging.getLogger(__name__)

_CRASHES = (-signal.SIGABRT, -signal.SIGSEGV)
"""Ends that a checkpoint file can bring about; whoever kills the child blames nobody."""


@dataclass(frozen=True)
class EngineOptions:
    """How the engine is started.

    Attributes:
        n_ctx: tokens; None: the model's own, capped at 16,384 and by a quarter of the memory.
        pinned: the user named this model for the whole run, whatever a session used before.
        remote: an engine elsewhere; `model_path` is then what stands for it (see `RemoteEngine.path`).
    """

    model_path: Path
    n_ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    kv_type: str = "f16"
    flash_attention: bool = True
    kv: KvOptions = field(default_factory=KvOptions)
    log_path: Path | None = None
    pinned: bool = False
    remote: RemoteEngine | None = None

    @property
    def elsewhere(self) -> RemoteEngine | None:
        """The engine elsewhere, when it is the one that is meant now: a chat may have chosen a model of its own."""
        return self.remote if self.remote is not None and self.model_path == self.remote.path else None

    def load_command(self, extra_buffers: bool, memo: str, crashed_pid: int = 0) -> Load:
        """What the child is asked to load. An engine elsewhere has paths of its own."""
        if self.elsewhere is not None:
            return Load(
                model_path=self.elsewhere.model,
                n_ctx=self.n_ctx,
                threads=self.threads,
                gpu_layers=self.gpu_layers,
                kv_type=self.kv_type,
                flash_attention=self.flash_attention,
                extra_buffers=extra_buffers,
                kv=msgspec.structs.replace(self.kv, directory="", budget_mb=None),
            )
        return Load(
            model_path=str(self.model_path),
            n_ctx=self.n_ctx,
            threads=self.threads,
            gpu_layers=self.gpu_layers,
            kv_type=self.kv_type,
            flash_attention=self.flash_attention,
            extra_buffers=extra_buffers,
            crashed_pid=crashed_pid,
            memo=memo,
            kv=self.kv,
        )


class EngineHost:
    """One engine at a time."""

    def __init__(
        self,
        options: EngineOptions,
        on_event: Callable[[Event], None],
        on_status: Callable[[EngineStatus], None],
        on_crash: Callable[[str], None],
        memo: Path | None = None,
        on_silence: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`on_event` gets what is not about loading; `on_crash` the sentence, before the restart begins; `on_silence`
        one when the engine says nothing for too long, and "" when it goes on.

        Args:
            memo: a small JSON file that remembers what this machine's processor cannot do.
        """
        self.options = options
        self._memo = memo
        self._on_event, self._on_status, self._on_crash = on_event, on_status, on_crash
        self._client: EngineClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_restart = True
        self._crashed_pid = 0
        self._closed = False
        self._on_silence = on_silence
        self._asked: set[tuple[str, int]] = set()
        self._silence = Silence(lambda: self._is_due, self._silence_changed)
        self._letting_go = self._gave_up = False
        self.loaded: Loaded | None = None
        self.status = EngineStatus()

    @cached_property
    def _extra_buffers(self) -> bool:
        """Whether weights may be repacked. Found out with the first load: the screen is painted before that."""
        return not is_plain(self._memo)

    @property
    def pid(self) -> int | None:
        return self._client.pid if self._client is not None else None

    @property
    def _is_due(self) -> bool:
        """Whether the engine has something to say."""
        return self.status.phase in ("starting", "loading") or bool(self._asked)

    @property
    def is_ready(self) -> bool:
        return self.status.phase == "ready"

    def has(self, model_path: Path, n_ctx: int | None) -> bool:
        """Whether this model is ready with a context as asked for (None: of the engine's own choice)."""
        loaded = self.loaded
        if not self.is_ready or loaded is None or Path(loaded.path) != model_path:
            return False
        return self.options.n_ctx == n_ctx or loaded.n_ctx == n_ctx

    def request_start(self, model_path: Path | None = None, n_ctx: int | None = None) -> None:
        """Start (or change the model and its context) in the background; `on_status` tells how it goes."""
        if self._closed or (model_path is None and self.status.phase in ("starting", "loading", "ready")):
            return
        self._set(EngineStatus("starting", self._name(model_path or self.options.model_path)))
        task = asyncio.ensure_future(self.start(model_path, n_ctx))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self, model_path: Path | None = None, n_ctx: int | None = None) -> None:
        """Spawn the child and ask it to load; an earlier child is let go first. Failures become a status.

        Args:
            model_path: None: the model and the context of before.
        """
        if model_path is not None:
            self.options = replace(self.options, model_path=model_path, n_ctx=n_ctx)
        self.loaded = None
        self._set(EngineStatus("starting", self._name(self.options.model_path)))
        await self._let_go()
        client = EngineClient(self._event, self._exited, self.options.log_path, self.options.elsewhere)
        self._client = client
        self._silence.begin()
        try:
            await client.start()
        except EngineError as error:
            self._set(EngineStatus("failed", self.status.model, message=str(error)))
            return
        if self._closed:
            await client.close()
            return
        memo = str(self._memo.with_name("models.json")) if self._memo is not None else ""
        client.send(self.options.load_command(self._extra_buffers, memo, self._crashed_pid))
        self._crashed_pid = 0

    def send(self, command: Command) -> None:
        if self._client is not None:
            if isinstance(command, Generate | Prepare):
                self._silence.begin()
                self._asked.add((command.session, command.turn))
            self._client.send(command)

    def turn_done(self) -> None:
        """The engine did its work: a crash from now on is a new one."""
        self._may_restart = True

    async def aclose(self) -> None:
        """Let the child store its tail and go."""
        self._closed = True
        for task in list(self._tasks):
            await task
        await self._let_go()
        self.loaded = None
        self._set(EngineStatus("off"))

    async def _let_go(self) -> None:
        """Have the child go; one that says nothing is not waited for."""
        client, silent = self._client, self._silence.lasts
        self._silence.end()
        self._asked.clear()
        if client is None:
            return
        if silent:
            self._letting_go = True
            client.kill()
        await client.close()
        self._letting_go = False

    def give_up(self) -> bool:
        """End a child that has said nothing for too long, and start it anew. False: it is not silent."""
        if self._client is None or not self._silence.lasts:
            return False
        self._gave_up = True
        self._client.kill()
        return True

    def kill(self) -> None:
        """End the child at once; reported like a crash."""
        if self._client is not None:
            self._client.kill()

    @staticmethod
    def _name(path: Path) -> str:
        return path.name.removeprefix(PREFIX).removesuffix(".gguf")

    def _set(self, status: EngineStatus) -> None:
        if self.options.elsewhere is not None:
            status = msgspec.structs.replace(status, place=self.options.elsewhere.name)
        self.status = status
        self._on_status(status)

    def _silence_changed(self, lasts: bool) -> None:
        self.status = msgspec.structs.replace(self.status, silent=lasts)
        doing = f" while it loads {self.status.model}" if self.status.phase != "ready" else ""
        sentence = (
            f"The engine has said nothing for {silence.SECONDS:g} seconds{doing}: it waits for the disk, or it is "
            "stuck. Stopping the reply starts it anew, and what was shown is kept."
        )
        self._on_silence(sentence if lasts else "")

    def _event(self, event: Event) -> None:
        self._silence.heard()
        if isinstance(event, Done | Failed | ContextFull | Prepared):
            self._asked.discard((event.session, event.turn))
        match event:
            case Pulse():
                pass
            case Loading(progress):
                self._set(EngineStatus("loading", self.status.model, progress))
            case Loaded():
                if self.options.elsewhere is not None:
                    # Paths of another machine mean nothing here.
                    event = msgspec.structs.replace(event, path=str(self.options.model_path))
                self.loaded = event
                self._set(EngineStatus("ready", event.name, 1.0, event.n_ctx))
            case LoadFailed(message):
                self._set(EngineStatus("failed", self.status.model, message=message))
            case _:
                self._on_event(event)

    def _exited(self, code: int) -> None:
        self._silence.end()
        self._asked.clear()
        if self._letting_go:
            return
        gave_up, self._gave_up = self._gave_up, False
        was_loading = self.status.phase in ("starting", "loading")
        if code in _CRASHES and self._client is not None and self._client.pid is not None:
            self._crashed_pid = self._client.pid
        self.loaded = None
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        log.error("the engine %s", how)
        elsewhere = self.options.elsewhere
        # A shell in between tells a signal as a code.
        illegal = (-signal.SIGILL,) if elsewhere is None else (-signal.SIGILL, 128 + signal.SIGILL)
        if code in illegal and was_loading and self._extra_buffers:
            # The processor announces instructions it does not run: load again without the code that uses them.
            self._extra_buffers = False
            if elsewhere is None:
                remember_plain(self._memo)
            self._restart()
            return
        again = (self._may_restart or gave_up) and not self._closed and not was_loading
        self._may_restart = False
        where = f" (its log is {self.options.log_path})" if self.options.log_path is not None else ""
        if elsewhere is not None:
            sentence = self._gone_elsewhere(elsewhere, how, where, again=again, loading=was_loading)
        elif code == -signal.SIGVTALRM:
            model = self.status.model
            sentence = (
                f"The chat template of {model} could not be stopped, so the engine was: choose another model with "
                "--model (in a chat: /model); what was shown is kept."
            )
        elif code == -signal.SIGPROF:
            sentence = (
                "The grammar can read this answer in too many ways, so the engine was stopped: write it so that each "
                "text can be read in one way; what was shown is kept."
            )
        elif gave_up and was_loading:
            sentence = (
                f"The engine did not answer while it loaded {self.status.model}: the next message starts it anew, or "
                "choose another model with --model (in a chat: /model)."
            )
        elif gave_up:
            sentence = "The engine did not answer and is started again; what was shown is kept."
        elif code == -signal.SIGBUS and not was_loading:
            sentence = (
                f"The engine was ended by SIGBUS: the file of {self.status.model} was cut off or changed while it was "
                "in use, or its disk fails. It is started again; what was shown is kept."
            )
        elif again:
            sentence = f"The engine {how} and is started again; what was shown is kept."
        elif code == -signal.SIGILL:
            sentence = (
                "The engine was built for another processor: install llama-cpp-python anew with "
                "CMAKE_ARGS=-DGGML_NATIVE=OFF."
            )
        elif was_loading:
            sentence = (
                f"The engine {how} while it loaded {self.status.model}{where}: the model may need more memory than "
                f"there is; try a smaller --ctx or another --model."
            )
        else:
            sentence = f"The engine {how} again{where}; the next message starts it anew."
        self._set(EngineStatus("starting" if again else "failed", self.status.model, message=sentence))
        self._on_crash(sentence)
        if again:
            self._restart()

    @staticmethod
    def _gone_elsewhere(remote: RemoteEngine, how: str, where: str, *, again: bool, loading: bool) -> str:
        """The sentence for an engine elsewhere whose command has ended."""
        what = f"ssh {how}" if remote.host else f"its command {how}"
        if loading:
            way_out = (
                f"see that `ssh {remote.host}` works without a password and that ds4chat is installed there"
                if remote.host
                else "see that its command works"
            )
            return f"The engine {remote.name} could not be started ({what}): {way_out}{where}."
        after = "It is started again" if again else "The next message tries again"
        return f"The connection to the engine {remote.name} ended ({what}). {after}; what was shown is kept."

    def _restart(self) -> None:
        self.status = msgspec.structs.replace(self.status, phase="off")
        self.request_start()
