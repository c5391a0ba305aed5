"""Settings from the environment: variables of every key, and such as look like one."""

from __future__ import annotations

import logging
import random

from benchmarks.fuzz_parts.mutate import mutate_bytes, scalar, string
from benchmarks.fuzz_parts.target import Outcome, Target, UncaughtError, check_sentence
from ds4chat import config_environment
from ds4chat.config import Config
from ds4chat.errors import UsageError
from ds4chat.paths import resolve

VALUES = (
    "4096", "0.7", "true", "false", "1", "0", "vim", "harbor", "q8_0", "~/models:/tmp", '["a", "b"]', "[]", "{}",
    "auto", "f16", "Editor", "1e400", "0x10", "1_000", " 5 ", "٣", "-0", "nan", "inf", "None", "tiny.gguf",
    "~nobody/x", "a" * 9000,
)  # fmt: skip


class Environment(Target):
    """A few variables at a time. Accepted is what no sentence is said about."""

    name = "environment"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        self.names = [*config_environment.variables()]
        self.paths = [f"DS4CHAT_{name}" for name in ("DATA_DIR", "KV_DIR", "CONFIG", "LOG_DIR")]

    def make(self, draw: random.Random) -> bytes:
        lines = []
        for _ in range(draw.choice((1, 1, 2, 5))):
            name = draw.choice(self.names if draw.random() < 0.9 else self.paths)
            if draw.random() < 0.15:
                odd = (
                    "DS4CHAT_",
                    name + "_X",
                    name[:-1],
                    name.lower(),
                    f"DS4CHAT_KV_{string(draw)}",
                    string(draw),
                )
                name = draw.choice(odd)
            text = draw.choice((*VALUES, string(draw), str(draw.choice((scalar(draw), 1)))[:9000]))
            value = text.encode("utf-8", "surrogatepass")
            if draw.random() < 0.2:
                value = mutate_bytes(draw, value)
            # Neither names nor values have a NUL, and a name has no "=".
            key = name.encode("utf-8", "surrogatepass").replace(b"\0", b"").replace(b"=", b"")
            lines.append((key or b"X") + b"=" + value.replace(b"\0", b""))
        return b"\0".join(lines)

    def feed(self, data: bytes) -> Outcome:
        pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
        # As `os.environ` has what is no UTF-8.
        env = {
            key.decode("utf-8", "surrogateescape"): text.decode("utf-8", "surrogateescape")
            for key, _, text in pairs
        }
        faults = config_environment.faults(env)
        for fault in faults:
            check_sentence(fault)
        known = [name for name in env if name in self.names and name not in _by_paths()]
        refused = False
        try:
            settings = config_environment.with_environment(Config(), env)
        except UsageError as error:
            check_sentence(str(error))
            refused = True
            if not faults:
                raise UncaughtError("a variable is refused that `faults` says nothing of") from error
        else:
            changed = config_environment.with_environment(settings, {})
            if changed != settings:
                raise UncaughtError("no variables change the settings")
            if not known and settings != Config():
                raise UncaughtError("a variable that is none changes the settings")
        try:
            resolve(config=self.folder / "config.toml", env=env)
        except UsageError as error:
            check_sentence(str(error))
            refused = True
        return "refused" if refused or faults else "accepted"


def _by_paths() -> set[str]:
    return {config_environment.variable(section, key) for section, key in config_environment.BY_PATHS}
