"""The engine child: `python -m ds4chat.engine.worker`, JSON lines in on stdin, JSON lines out on what was stdout.

Promises: the main thread only reads commands and takes signals and never decodes, so that a cancel is heard at
once; one engine thread owns llama.cpp; end of input, SIGTERM and `Quit` store the tail and go, by force after
`GRACE_SECONDS`. Must not know: the database, the screen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypedDict

import msgspec

from ds4chat.checkpoints.policy import Policy
from ds4chat.checkpoints.reason import Reason
from ds4chat.checkpoints.store import Identity, Store
from ds4chat.checkpoints.writer import Writer
from ds4chat.engine import constraint, sandbox
from ds4chat.engine.live import LiveState
from ds4chat.engine.llama import BUILD, KV_TYPES, PAYLOAD_ABI, Context, ContextSettings, Model, SpanCost
from ds4chat.engine.memory_need import default_n_ctx, free_memory, need, refusal, trained_ctx, warning
from ds4chat.engine.probe import ability
from ds4chat.engine.prompt import PromptBuilder
from ds4chat.engine.protocol import (
    Cancel,
    Command,
    Event,
    Expendable,
    Failed,
    Forget,
    Generate,
    KvOptions,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Notice,
    Prepare,
    Pulse,
    Quit,
    decode_command,
    encode,
)
from ds4chat.engine.template import ChatTemplate, TemplateError, TemplateLimitError
from ds4chat.engine.turn import Turns
from ds4chat.errors import Ds4chatError, ModelError
from ds4chat.gguf_file import FaultError, read_contents

log = logging.getLogger(__name__)

MAX_FIXED_IN_TOKENS = 8_192
"""A fixed cost a span (a recurrent state) of more than this many tokens' rows is not paid at frontiers: only where a
turn can be taken up again."""

IDLE_SECONDS = 2.0
"""After a turn, before the tail is stored for good: a power cut then costs nothing."""

PULSE_SECONDS = 5.0
"""Between two signs of life of work that has nothing to say."""

TEMPLATE_SECONDS = 10.0
"""Of processor time, after which a template ends the process that could not be stopped before."""

GRAMMAR_SECONDS = 30.0
"""Of processor time, after which a grammar ends the process that could not be stopped before."""

GRACE_SECONDS = 10.0
"""From the wish to stop to the forced end."""


class _Terminated(BaseException):
    """A signal asked the process to end; raised in the main thread out of its read."""


class Output:
    """Event lines to the parent, whole ones, from any thread. A parent that is gone is not an error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._lock = file, threading.Lock()

    def emit(self, event: Event) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            self._file.write(encode(event))
            self._file.flush()


class Engine(threading.Thread):
    """The engine thread: loads one model and works commands off in order."""

    def __init__(
        self, emit: Callable[[Event], None], own_load: Callable[[Load], Load] = lambda load: load
    ) -> None:
        """`own_load` makes of what is asked for what is loaded here (see `main`)."""
        super().__init__(name="engine", daemon=True)
        self._own_load = own_load
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._say, self._said_at = emit, 0.0
        self._stopping = threading.Event()
        self._cancelled: set[tuple[str, int]] = set()
        self._turns: Turns | None = None
        self._store: Store | None = None
        self._writer: Writer | None = None
        self._expendable: list[bytes] = []

    def _emit(self, event: Event) -> None:
        self._said_at = time.monotonic()
        self._say(event)

    def _beat(self) -> None:
        """The work goes on: tell, when nothing else was told for a while."""
        if time.monotonic() - self._said_at > PULSE_SECONDS:
            self._emit(Pulse())

    # ---- called by the main thread ----

    def cancel(self, command: Cancel) -> None:
        self._cancelled.add((command.session, command.turn))

    def stop(self) -> None:
        """End the running turn, store the tail, end the thread."""
        self._stopping.set()
        self.commands.put(Quit())

    # ---- the thread ----

    def run(self) -> None:
        store_idle_at: float | None = None
        while not self._stopping.is_set():
            try:
                wait = None if store_idle_at is None else max(0.0, store_idle_at - time.monotonic())
                command = self.commands.get(timeout=wait)
            except queue.Empty:
                self._store_tail(Reason.IDLE)
                store_idle_at = None
                continue
            if isinstance(command, Quit):
                break
            if isinstance(command, Load):
                self._load(command)
            elif isinstance(command, Forget):
                self._forget(command)
            elif isinstance(command, Expendable):
                self._put_up(command)
            elif isinstance(command, Generate | Prepare):
                self._work(command)
                store_idle_at = time.monotonic() + IDLE_SECONDS
        self._forget_the_rest()
        self._store_tail(Reason.SHUTDOWN)
        if self._writer is not None:
            self._writer.close(GRACE_SECONDS)
        if self._store is not None:
            self._store.close()

    def _store_tail(self, reason: Reason) -> None:
        if self._turns is not None:
            try:
                self._turns.store_tail(reason)
            except Exception:
                log.exception("the tail could not be stored")

    def _work(self, command: Generate | Prepare) -> None:
        key = (command.session, command.turn)

        def cancelled() -> bool:
            self._beat()
            return key in self._cancelled or self._stopping.is_set()

        try:
            if self._turns is None:
                self._emit(Failed(*key, "No model is loaded: choose one with --model."))
            elif isinstance(command, Generate):
                self._turns.generate(command, cancelled)
            else:
                self._turns.prepare(command, cancelled)
        except Exception:
            log.exception("turn %d of session %s", command.turn, command.session)
            if self._turns is not None:
                self._turns.live.clear()
            self._emit(Failed(*key, "The engine failed on this turn (the log has the details): send again."))
        finally:
            self._cancelled.discard(key)

    def _forget(self, command: Forget) -> None:
        """Nothing of a deleted session may reach the disk again, so its live state goes first."""
        if self._turns is not None:
            self._turns.live.forget(command.session)
        if self._store is not None and self._writer is not None and command.spans:
            self._writer.flush(GRACE_SECONDS)
            try:
                self._store.remove(
                    map(bytes.fromhex, command.spans), map(bytes.fromhex, command.keep), pinned_too=True
                )
            except (OSError, ValueError):
                log.exception("checkpoints of a deleted session stay")

    def _put_up(self, command: Expendable) -> None:
        try:
            self._expendable = [bytes.fromhex(name) for name in command.spans]
        except ValueError as error:
            log.error("not the names of checkpoints: %s", error)
            return
        if self._store is not None:
            self._store.set_expendable(self._expendable)

    def _forget_the_rest(self) -> None:
        """What was deleted right before the end is deleted all the same; other work that waits is not begun."""
        with contextlib.suppress(queue.Empty):
            while True:
                command = self.commands.get_nowait()
                if isinstance(command, Forget):
                    self._forget(command)

    def _load(self, command: Load) -> None:
        try:
            self._emit(Loading(0.0))
            self._emit(self._loaded(self._own_load(command)))
        except Ds4chatError as error:
            self._emit(LoadFailed(str(error)))
        except Exception as error:
            log.exception("loading %s", command.model_path)
            self._emit(
                LoadFailed(
                    f"The model {command.model_path} could not be loaded ({error}): choose another with --model."
                )
            )

    def _loaded(self, command: Load) -> Loaded:
        if command.kv_type not in KV_TYPES:
            raise ModelError(
                f"KV type {command.kv_type!r} is not known: --kv-type takes one of {', '.join(KV_TYPES)}."
            )
        said = 0.0

        def progress(value: float) -> bool:
            nonlocal said
            now = time.monotonic()
            if now - said > 0.1:
                said = now
                self._emit(Loading(round(value, 3)))
            return not self._stopping.is_set()

        self._look(command)
        model = Model.load(
            Path(command.model_path), command.gpu_layers, progress, extra_buffers=command.extra_buffers
        )
        model.hashes = Path(command.memo).with_name("weights.json") if command.memo else None
        model.beat = self._beat
        settings = ContextSettings(
            n_ctx=command.n_ctx or model.default_n_ctx(command.kv_type),
            kv_type=command.kv_type,
            flash_attention=command.flash_attention,
            threads=command.threads,
        )
        context = Context(model, settings)

        def beat() -> bool:
            # The first tokens bring the weights in from the disk, however long that takes.
            self._beat()
            return self._stopping.is_set()

        context.set_abort(beat)
        cost = context.warm_up()
        context.set_abort(None)
        variant = _variant(model, settings)
        can = ability(context, variant.hex(), Path(command.memo) if command.memo else None)
        context.rewinds = can.rewinds
        # Without rows a span's payload is the whole state: a chain of them would hold it again and again.
        snapshots = can.storing == "snapshots" or cost.per_token <= 0
        turn_ends_only = snapshots or cost.fixed > MAX_FIXED_IN_TOKENS * cost.per_token
        template = self._template(model)
        builder = PromptBuilder(model, template)
        policy = _policy(command.kv, model, cost)
        if command.kv.enabled and command.kv.directory and can.storing != "none":
            self._open_store(command, policy, model, settings, variant)
            self._say_if_small(policy.interval * cost.per_token + cost.fixed)
        live = LiveState(
            context,
            builder,
            self._emit,
            self._store,
            self._writer,
            read_only=command.kv.read_only,
            snapshots=snapshots,
        )
        self._turns = Turns(model, context, builder, live, policy, self._emit, turn_ends_only=turn_ends_only)
        return Loaded(
            name=model.name,
            path=str(model.path),
            architecture=model.architecture,
            n_ctx=context.n_ctx,
            n_ctx_train=model.n_ctx_train,
            memory=model.memory,
            fingerprint=model.weights_hash.hex(),
            kv_bytes_per_token=cost.per_token,
            tools=template.knows_tools(),
        )

    def _look(self, command: Load) -> None:
        """At the file, before llama.cpp does: whether it is a whole model, and whether it fits. Raises ModelError."""
        path, kv_type = Path(command.model_path), command.kv_type
        try:
            contents = read_contents(path)
        except FaultError as error:
            other = "" if error.fault.way_out.startswith("choose") else ", or choose another"
            raise ModelError(
                f"The model {path} {error.fault.what}: {error.fault.way_out}{other} with --model (in a chat: /model)."
            ) from None
        memory = free_memory()
        if memory is None or Model.offloads(command.gpu_layers):
            return
        n_ctx = command.n_ctx or default_n_ctx(trained_ctx(contents), need(contents, kv_type).per_token)
        free = memory.free + memory.swap
        too_much = refusal(contents, n_ctx, kv_type, free, flash_attention=command.flash_attention)
        if too_much:
            raise ModelError(f"The model {path.name.removesuffix('.gguf')} {too_much}")
        slow = warning(contents, n_ctx, kv_type, memory.free)
        if slow:
            self._emit(Notice(f"The model {path.name.removesuffix('.gguf')} {slow}"))

    def _template(self, model: Model) -> ChatTemplate:
        """The model's own, once tried out; else ChatML, and a word about it."""

        def text(token: int | None) -> str:
            return "" if token is None else model.token_text(token)

        tokens = {"control_texts": model.control_texts, "bos": text(model.bos), "eos": text(model.eos)}
        try:
            template = ChatTemplate(model.chat_template, **tokens)  # type: ignore[arg-type]
            # One that refuses some roles says so in their turn.
            with contextlib.suppress(TemplateError):
                try:
                    template.render([("user", "Hello")], reply_follows=True)
                except TemplateLimitError as error:
                    self._say_stand_in(model, str(error))
            return template
        except TemplateError as error:
            fault = str(error) if isinstance(error, TemplateLimitError) else f"cannot be read ({error})"
            self._say_stand_in(model, fault)
            return ChatTemplate("", **tokens)  # type: ignore[arg-type]

    def _say_stand_in(self, model: Model, fault: str) -> None:
        log.error("the model's chat template is not used, ChatML stands in: %s", fault)
        self._emit(
            Notice(
                f"The chat template of {model.name} {fault}: ds4chat's own (ChatML) stands in for it. Where its "
                "replies make no sense, choose another model with --model (in a chat: /model)."
            )
        )

    def _open_store(
        self, command: Load, policy: Policy, model: Model, settings: ContextSettings, variant: bytes
    ) -> None:
        kv, names = command.kv, _variant_names(settings)
        self._store = Store.open(
            Path(kv.directory),
            Identity(
                model.family,
                variant,
                model.weights_hash,
                model.quant_bits,
                PAYLOAD_ABI,
                loose=model.loose_variant(**names),
                about={"model": model.name, "build": BUILD, **{k: str(v) for k, v in names.items()}},
            ),
            policy,
            kv.budget_mb,
            on_notice=lambda text: self._emit(Notice(text)),
            accept_different_quant=kv.accept_different_quant,
            crashed_pid=command.crashed_pid,
        )
        self._store.set_expendable(self._expendable)
        self._writer = Writer(self._store)

    def _say_if_small(self, span_bytes: int) -> None:
        """A nearly full disk: the budget follows from what is free, and nobody was told that it is too small."""
        budget = self._store.budget_bytes if self._store is not None else 0
        if 0 < budget < span_bytes:
            text = (
                f"Checkpoints may take {budget / 1e6:,.0f} MB here, and one of this model takes "
                f"{span_bytes / 1e6:,.0f} MB, so long chats are computed anew when they are opened: free some disk, "
                "or allow more with --kv-disk-space-mb."
            )
            self._emit(Notice(text))


def _variant(model: Model, settings: ContextSettings) -> bytes:
    return model.variant(**_variant_names(settings))


class _VariantNames(TypedDict):
    kv_type: str
    flash_attention: bool
    n_ctx: int
    swa_full: bool


def _variant_names(settings: ContextSettings) -> _VariantNames:
    return {
        "kv_type": settings.kv_type,
        "flash_attention": settings.flash_attention,
        "n_ctx": settings.n_ctx,
        "swa_full": settings.swa_full,
    }


def _policy(kv: KvOptions, model: Model, cost: SpanCost) -> Policy:
    policy = Policy(
        min_tokens=kv.min_tokens,
        cold_max_tokens=kv.cold_max_tokens,
        interval_tokens=kv.continued_interval_tokens,
        trim_tokens=kv.boundary_trim_tokens,
        align_tokens=kv.boundary_align_tokens,
        half_life_seconds=kv.hit_half_life_seconds,
    ).for_model(cost.fixed, cost.per_token)
    if model.memory == "sliding-window" and policy.interval > model.n_swa:
        # A longer span would leave holes in the short layers' cache, and the cells behind them are then added up in
        # another order: not the same bits.
        align = min(policy.align_tokens, model.n_swa)
        return replace(policy, interval_tokens=model.n_swa // align * align, align_tokens=align)
    return policy


def _read_commands(file: BinaryIO, engine: Engine) -> None:
    """Until the end of input or `Quit`; a line that is no command is logged and passed over."""
    for line in file:
        try:
            command = decode_command(line)
        except msgspec.DecodeError as error:
            log.error("not a command: %s", error)
            continue
        if isinstance(command, Cancel):
            engine.cancel(command)
        elif isinstance(command, Quit):
            return
        else:
            engine.commands.put(command)


def main(own_load: Callable[[Load], Load] = lambda load: load) -> None:
    """Run until told to stop. llama.cpp prints where it likes: what it takes for stdout is the log from here on.

    Args:
        own_load: for a chat on another machine, whose paths mean nothing here. May raise Ds4chatError.
    """
    proto = os.dup(1)
    os.dup2(2, 1)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )

    def terminate(_signum: int, _frame: object) -> None:
        raise _Terminated

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, terminate)
    sandbox.HARD_SECONDS = TEMPLATE_SECONDS
    constraint.HARD_SECONDS = GRAMMAR_SECONDS
    engine = Engine(Output(os.fdopen(proto, "wb")).emit, own_load)
    engine.start()
    with contextlib.suppress(_Terminated):
        _read_commands(sys.stdin.buffer, engine)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    engine.stop()
    engine.join(GRACE_SECONDS)
    logging.shutdown()
    # Not by the interpreter's own end: a thread inside of llama.cpp would be waited for without limit.
    os._exit(1 if engine.is_alive() else 0)


if __name__ == "__main__":
    main()
