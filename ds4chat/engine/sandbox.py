"""Where chat templates run: Jinja's immutable sandbox, with an end to the time, the memory and the text they may take.

A template is a program out of a model file, so it may loop for ever, multiply a text until nothing else has memory, or
reach for files. Promises: each of these is a `TemplateLimitError` within seconds, and the process goes on; what stays
within the limits is rendered as Jinja renders it. The clock is looked at in each round of a loop and at each call.
What takes its time inside of one C call cannot be stopped: with `HARD_SECONDS` set the process ends by SIGVTALRM.
Must not know: messages, tokens, the engine.
"""

from __future__ import annotations

import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinMethodType
from typing import Any, NoReturn, TypeVar

from jinja2 import FunctionLoader, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

T = TypeVar("T")

SECONDS = 5.0
"""Hundreds of times what the longest chat takes to render."""

HARD_SECONDS = 0.0
"""Of the process's own time, after which a template that cannot be stopped ends the process; 0: never."""

MEMORY_MB = 512
"""Beyond what the process has when a template begins, where the system can limit that (Linux)."""

LEAST_TEXT = 4_000_000
"""Characters that a template may make of nothing; `text_limit` says more for long chats."""

_GROWING = frozenset({str, list, tuple})

MAX_BITS = 20_000
MAX_WIDTH = 10_000


class TemplateError(Exception):
    """The template refused the messages (or is broken); the text is the template's own."""


class TemplateLimitError(TemplateError):
    """The template took more than it may; the text goes behind "the chat template"."""


def text_limit(contents: int) -> int:
    """How many characters may come of so many."""
    return LEAST_TEXT + 16 * contents


_ONE_AT_A_TIME = threading.Lock()
"""The memory's limit is one of the whole process."""


@contextmanager
def timed(timer: int, seconds: float) -> Iterator[None]:
    """The process ends by the timer's signal when this takes longer, be it inside of one C call; 0: it never does."""
    if seconds:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        if seconds:
            signal.setitimer(timer, 0)


@contextmanager
def _limited_process() -> Iterator[None]:
    """Limits that hold inside of one C call too: memory, where the system has such a limit, and `HARD_SECONDS`."""
    with _ONE_AT_A_TIME, timed(signal.ITIMER_VIRTUAL, HARD_SECONDS):
        data = _limit_memory()
        try:
            yield
        finally:
            if data is not None:
                resource.setrlimit(resource.RLIMIT_DATA, data)


def _limit_memory() -> tuple[int, int] | None:
    """The limits as they were before, None when nothing was changed."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, ValueError, IndexError):
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = pages * resource.getpagesize() + MEMORY_MB * 2**20
    if soft != resource.RLIM_INFINITY and soft <= most:
        return None
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    return soft, hard


def _refuse(asks: str) -> NoReturn:
    raise TemplateLimitError(f"asks for {asks}")


def _no_filler(*_args: object, **_kwargs: object) -> NoReturn:
    _refuse("filler text")


def _no_files(name: str) -> NoReturn:
    raise TemplateLimitError(f"reaches for another file ({name!r})")


class _Generator(CodeGenerator):
    def visit_Call(  # noqa: N802
        self, node: nodes.Call, frame: Frame, forward_caller: bool = False
    ) -> None:
        if isinstance(node.node, nodes.EnvironmentAttribute):
            # The sandbox's own look at the clock, which no template can write: many a loop does little else.
            self.write("environment.check_time()")
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """`a ~ b`, counted; Jinja would join the texts by a function of its own."""
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits on what one operation may make. `most`: characters of a text, things in a list."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, extensions: Sequence[Any]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=extensions,
            keep_trailing_newline=True,
            loader=FunctionLoader(_no_files),
        )
        self.most, self._deadline = LEAST_TEXT, 0.0
        self.globals["lipsum"] = _no_filler
        # Jinja's type for it is that of str.join, and this is called as that is.
        self.concat = self._concat  # type: ignore[method-assign]
        self._guard_filters()

    def limited(self, call: Callable[[], T]) -> T:
        """What `call` returns, which compiles or renders here. Raises TemplateLimitError when it takes more than a
        template may."""
        self._deadline = time.monotonic() + SECONDS
        try:
            with _limited_process():
                return call()
        except (MemoryError, OverflowError):
            raise TemplateLimitError(f"asked for more than {MEMORY_MB} MB of memory") from None
        except RecursionError:
            raise TemplateLimitError("calls itself without an end") from None
        except SecurityError as error:
            raise TemplateLimitError(f"reaches for what no template may have ({error})") from error

    def check_time(self) -> None:
        """Called by each round of a loop."""
        if time.monotonic() > self._deadline:
            raise TemplateLimitError(f"ran for more than {SECONDS:g} seconds and was stopped")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            check = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(check).set_lineno(loop.lineno, override=True))
        return tree

    def _concat(self, pieces: Iterable[str]) -> str:
        """The pieces of an output, counted as they come."""
        kept, length = [], 0
        for piece in pieces:
            if piece:
                length += len(piece)
                if length > self.most:
                    _refuse(f"more than {self.most:,} characters of output")
                kept.append(piece)
        return "".join(kept)

    def join_texts(self, values: Sequence[Any]) -> str:
        """`a ~ b`."""
        return self._concat([str(value) for value in values])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            # By far the most frequent of them: most of a template is texts put together.
            if type(left) in _GROWING and type(right) in _GROWING and len(left) + len(right) > self.most:
                self._check(len(left) + len(right))
            return left + right
        if operator == "%" and isinstance(left, str | bytes):
            _check_widths(left)
        elif operator == "*":
            for many, of in ((left, right), (right, left)):
                if isinstance(many, int) and hasattr(of, "__len__"):
                    self._check(many * len(of))
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() + right.bit_length())
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * max(right, 0))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.check_time()
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, BuiltinMethodType) and isinstance(owner, str | bytes | int):
            args = __self._checked(owner, __obj.__name__, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` with widths that are checked."""
        if super().wrap_str_format(value) is None:
            return None
        text, of_map = value.__self__, value.__name__ == "format_map"

        def formatted(*args: Any, **kwargs: Any) -> str:
            if of_map:
                (kwargs,), args = args, ()
            return str(_Formatter(self).vformat(text, args, kwargs))

        return formatted

    def _check(self, size: int) -> None:
        if size > self.most:
            _refuse(f"a text or a list of {size:,}")

    def _checked(
        self, owner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The arguments of a method of a text or a number, which may make far more than it was given."""
        if name in ("center", "ljust", "rjust", "zfill", "to_bytes"):
            self._check(max((n for n in [*args, *kwargs.values()] if isinstance(n, int)), default=0))
        elif name == "expandtabs":
            self._check(sum(n for n in [*args, *kwargs.values()] if isinstance(n, int)) * max(1, len(owner)))
        elif (
            name == "replace"
            and len(args) >= 2
            and hasattr(args[0], "__len__")
            and hasattr(args[1], "__len__")
        ):
            self._check(len(owner) + owner.count(args[0]) * len(args[1]))
        elif name == "join" and len(args) == 1:
            parts = list(args[0])
            self._check(
                len(owner) * len(parts) + sum(len(part) for part in parts if hasattr(part, "__len__"))
            )
            return (parts,)
        elif name == "translate" and args and isinstance(args[0], dict):
            longest = max((len(v) for v in args[0].values() if hasattr(v, "__len__")), default=1)
            self._check(len(owner) * longest)
        return args

    def _guard_filters(self) -> None:
        filters = self.filters

        def guard(name: str, check: Callable[..., object], at: int = 0) -> None:
            """Have a filter's value (behind `at` arguments of Jinja's own) and arguments looked at first."""
            own = filters[name]

            def guarded(*args: Any, **kwargs: Any) -> Any:
                check(*args[at:], **kwargs)
                return own(*args, **kwargs)

            guarded.__dict__.update(own.__dict__)
            filters[name] = guarded

        def numbers(_value: Any, *args: Any, **kwargs: Any) -> None:
            if any(isinstance(n, int) and abs(n) > MAX_WIDTH for n in [*args, *kwargs.values()]):
                _refuse(f"a width or a count above {MAX_WIDTH:,}")

        def indent(value: Any, width: Any = 4, *_args: Any, **_kwargs: Any) -> None:
            self._check((width if isinstance(width, int) else len(width)) * (str(value).count("\n") + 1))

        def replace(value: Any, old: Any, new: Any, *_args: Any, **_kwargs: Any) -> None:
            text = str(value)
            self._check(len(text) + text.count(str(old)) * len(str(new)))

        def wrapping(value: Any, *args: Any, **kwargs: Any) -> None:
            numbers(value, *args, **kwargs)
            joint = kwargs.get("wrapstring", args[2] if len(args) > 2 else None)
            self._check(len(str(joint or "")) * len(str(value)))

        for name in ("center", "batch", "slice", "round", "truncate"):
            guard(name, numbers)
        guard("indent", indent)
        guard("replace", replace, 1)
        guard("wordwrap", wrapping, 1)
        guard("format", lambda value, *_args, **_kwargs: _check_widths(str(value)))
        own_join = filters["join"]

        def join(eval_ctx: Any, value: Any, d: Any = "", attribute: Any = None) -> Any:
            parts = list(value)
            self._check(len(str(d)) * len(parts) + sum(len(p) for p in parts if isinstance(p, str)))
            return own_join(eval_ctx, parts, d, attribute)

        join.__dict__.update(own_join.__dict__)
        filters["join"] = join


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        _check_widths(f"%{format_spec}")
        return super().format_field(value, format_spec)


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        _refuse(f"a number of {bits:,} bits")


def _check_widths(text: str | bytes) -> None:
    """Of a printf-style text: a width or a precision that is no width of a text, or one taken from the arguments."""
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    if re.search(r"%[^a-zA-Z%]*(\*|\d{5,})", text):
        _refuse(f"a width above {MAX_WIDTH:,}")
