"""What the screen asks of config.toml, personas, models and checkpoints, answered from the files.

Implements `ds4chat.ui.desk.Desk`. Every call opens what it needs and closes it again, from whatever thread; a session
database of its own is opened for each, so that the screen's manager is never in the way. Made at the start of a chat:
nothing heavy is imported before a call needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds4chat import paths
from ds4chat.cli_setup import FLAGS, Setup
from ds4chat.config_environment import given, variable
from ds4chat.errors import Ds4chatError, ModelError, UsageError

if TYPE_CHECKING:
    from ds4chat.checkpoints.inventory import Stock
    from ds4chat.model_places import Found
    from ds4chat.personas import Persona
    from ds4chat.sessions.database import Database
    from ds4chat.ui.desk import CheckpointReport, ConfigRow, ModelChoice

MB = 10**6


class _CancelledError(Exception):
    """The reading of checkpoints is to end."""


class FileDesk:
    """The desk of one run of the program: its paths, and the flags that win over config.toml."""

    def __init__(self, setup: Setup, flags: Mapping[str, Any]) -> None:
        self._setup, self._flags = setup, dict(flags)
        self._paths = setup.paths
        self._complained: set[str] = set()
        self._pending: list[str] = []

    # ---- models ----

    def models(self) -> list[ModelChoice]:
        from ds4chat.config import load_config
        from ds4chat.models.listing import known_models

        config = load_config(self._paths.config_file)
        found, in_use = known_models(config, self._paths, self._flags.get("model"))
        choices = [self._look_at(item, str(in_use or "")) for item in found]
        return [choice for choice in choices if not choice.fault.startswith("a projector")]

    def look_at_model(self, path: str) -> ModelChoice:
        return self._look(Path(path), "", self._current_model())

    def _current_model(self) -> str:
        from ds4chat import config as configuration

        config = configuration.load_config(self._paths.config_file)
        with contextlib.suppress(ModelError):
            return str(
                configuration.choose_model(
                    self._flags.get("model"), "", config, self._paths, starter=paths.starter_model()
                )
            )
        return ""

    def _look_at(self, item: Found, current: str) -> ModelChoice:
        """A model of one file or of several."""
        choice = self._look(item.path, item.place, current, item.title)
        size = sum(part.stat().st_size for part in item.files if part.is_file())
        fault = f"lacks its part {item.missing}" if item.missing else choice.fault
        return dataclasses.replace(choice, size_bytes=size, fault=fault)

    def _look(self, path: Path, place: str, current: str, name: str = "") -> ModelChoice:
        from ds4chat.gguf_file import ENCODERS, head_fault
        from ds4chat.gguf_header import Header, quantization_in, read_header
        from ds4chat.ui.desk import ModelChoice

        size, fault, header = 0, "", Header(quantization=quantization_in(path.name))
        try:
            if path.exists() and not path.is_file():
                fault = "is not a regular file"
            else:
                size = path.stat().st_size
                with path.open("rb") as file:
                    found = head_fault(file.read(512))
                if found is None:
                    header = read_header(path)
                    fault = "a projector of pictures, not a model" if header.kind == "clip" else ""
                    fault = f"is an embedding model ({header.kind})" if header.kind in ENCODERS else fault
                else:
                    fault = found.what
        except FileNotFoundError:
            fault = "is not there"
        except ValueError:
            fault = "is not a GGUF file"
        except OSError as error:
            fault = f"cannot be read ({error.strerror or error})"
        return ModelChoice(
            name=name or path.name.removesuffix(".gguf"),
            path=str(path),
            size_bytes=size,
            current=bool(current) and os.path.realpath(path) == os.path.realpath(current),
            quantization=header.quantization,
            context=header.context,
            place=place,
            fault=fault,
        )

    # ---- personas ----

    @property
    def _personas_dir(self) -> Path:
        return self._paths.config_dir / "personas"

    def personas(self) -> list[Persona]:
        from ds4chat.personas import load_personas

        found, faults = load_personas(self._personas_dir)
        self._pending = [fault for fault in faults if fault not in self._complained]
        return found

    def complaints(self) -> list[str]:
        pending, self._pending = self._pending, []
        self._complained.update(pending)
        return pending

    def save_persona(self, persona: Persona) -> None:
        from ds4chat.personas import save

        with self._disk(f"The persona {persona.name}", "saved"):
            save(self._personas_dir, persona)

    def delete_persona(self, name: str) -> None:
        from ds4chat.personas import delete

        with self._disk(f"The persona {name}", "deleted"):
            delete(self._personas_dir, name)

    # ---- checkpoints ----

    def checkpoints(self) -> CheckpointReport:
        from ds4chat import cache_report
        from ds4chat.checkpoints.inventory import take_stock
        from ds4chat.ui.desk import CheckpointReport, CheckpointRow

        root = self._paths.kv_dir
        setup = self._now()
        with self._disk(f"The checkpoints in {root}", "read"), setup.database() as database:
            stocks = take_stock(root)
            rows = cache_report.rows(setup, self._flags.get("model"), database, stocks)
            budget = cache_report.budget(setup)
        listed = [
            CheckpointRow(
                session_id=row["session"] or "",
                title=row["title"],
                tokens=row["tokens"],
                bytes=row["bytes"],
                last_used=row["last_used"],
                pinned=row["pinned"],
                reusable="" if row["reusable"] else row["reason"],
                reusable_tokens=row["reusable_tokens"],
            )
            for row in rows
        ]
        listed.sort(key=lambda row: (-row.bytes, -row.last_used, row.session_id))
        return CheckpointReport(listed, sum(stock.nbytes for stock in stocks), budget, str(root))

    def pin_checkpoints(self, session_id: str, on: bool) -> None:
        from ds4chat.checkpoints.inventory import take_stock
        from ds4chat.checkpoints.pins import pin, unpin

        root = self._paths.kv_dir
        with self._disk(f"The checkpoints in {root}", "changed"), self._setup.database() as database:
            names = _names(database, session_id)
            if on:
                leaves = _leaves(take_stock(root), names)
                if not leaves:
                    raise UsageError("This chat has no checkpoints on disk: open it once, then pin them.")
                pin(root, leaves)
            else:
                unpin(root, names)

    def verify_checkpoints(self, progress: Callable[[int, int], bool]) -> str:
        from ds4chat.checkpoints.inventory import verify

        def go_on(done: int, total: int) -> None:
            if not progress(done, total):
                raise _CancelledError

        root = self._paths.kv_dir
        with self._disk(f"The checkpoints in {root}", "read"):
            try:
                verdict = verify(root, go_on)
            except _CancelledError:
                return "The reading was ended. Nothing was changed."
        if not verdict.files:
            return "There is nothing to read: no checkpoints are on disk."
        many = verdict.files != 1
        read = f"{verdict.files:,} file{'s' * many} ({verdict.nbytes / MB:,.1f} MB) read"
        if not verdict.faults:
            return f"{read}: {'all are' if many else 'it is'} whole."
        first = verdict.faults[0]
        return (
            f"{read}: {len(verdict.faults):,} cannot be used ({first.path.name} {first.reason}): "
            "`ds4chat cache verify --delete` removes them."
        )

    def clear_checkpoints(self, session_id: str | None) -> int:
        from ds4chat.checkpoints.directory import Directory
        from ds4chat.checkpoints.inventory import clear, take_stock
        from ds4chat.checkpoints.store import remove_spans

        root = self._paths.kv_dir
        with self._disk(f"The checkpoints in {root}", "deleted"), self._setup.database() as database:
            before = Directory(root).total_bytes()
            if session_id is None:
                clear(root)
            else:
                every = {bytes.fromhex(sha1) for sha1 in database.all_spans()}
                if session_id:
                    own = _names(database, session_id)
                    keep = every - own | _shared(database, session_id, own)
                else:
                    stocks = take_stock(root)
                    lines = {name for stock in stocks for name in stock.line(every)}
                    own = {name for stock in stocks for name in stock.spans} - lines
                    keep = every
                remove_spans(root, own, keep)
            return max(before - Directory(root).total_bytes(), 0)

    def set_budget(self, megabytes: str) -> int:
        from ds4chat import cache_report
        from ds4chat.checkpoints.inventory import prune

        self.save_setting("kv", "space_mb", megabytes.strip() or None)
        setup, root = self._now(), self._paths.kv_dir
        budget = cache_report.budget(setup)
        if not budget:
            return 0
        with self._disk(f"The checkpoints in {root}", "deleted"):
            return prune(root, budget, time.time(), setup.config.kv.hit_half_life_seconds)[1]

    # ---- config.toml ----

    def config_rows(self) -> list[ConfigRow]:
        import msgspec

        from ds4chat.config import allowed_values, read_tree
        from ds4chat.ui.desk import ConfigRow

        setup = self._now()
        _, tree = read_tree(self._paths.config_file)
        allowed = allowed_values()
        rows = []
        for section in setup.config.__struct_fields__:
            struct = getattr(setup.config, section)
            if not isinstance(struct, msgspec.Struct):
                continue
            for key, value in msgspec.structs.asdict(struct).items():
                if not isinstance(value, str | int | float | bool | tuple | None):
                    continue
                table = tree.get(section)
                in_file = isinstance(table, dict) and key in table
                source = self._winner(section, key) or ("config.toml" if in_file else "default")
                shown = self._shown(section, key, value)
                rows.append(ConfigRow(section, key, shown, source, allowed.get(f"$.{section}.{key}", "")))
        return rows

    def _shown(self, section: str, key: str, value: object) -> str:
        if (section, key) == ("kv", "dir"):
            return str(self._paths.kv_dir)
        if (section, key) == ("model", "path"):
            return str(self._flags.get("model") or given("model", "path") or value)
        if (section, key) == ("chat", "system") and self._flags.get("system") is not None:
            return str(self._flags["system"])
        if value is None:
            return ""
        if isinstance(value, tuple):
            return os.pathsep.join(map(str, value))
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def _winner(self, section: str, key: str) -> str:
        """The flag or variable that wins over the file, "" for none."""
        flags = self._flags
        name = FLAGS.get(section, {}).get(key, "")
        if name and flags.get(key) is not None:
            return name
        special = {
            ("model", "path"): ("model", "--model"),
            ("chat", "system"): ("system", "--system"),
            ("kv", "dir"): ("kv_dir", "--kv-disk-dir"),
        }
        if (section, key) in special:
            flag, name = special[section, key]
            if flags.get(flag) is not None:
                return name
        if (section, key) == ("kv", "enabled") and flags.get("no_kv"):
            return "--no-kv"
        if section == "kv" and flags.get("kv_options") is not None:
            from ds4chat.config import parse_kv_options

            if key in parse_kv_options(flags["kv_options"]):
                return "--kv-options"
        return variable(section, key) if given(section, key) else ""

    def save_setting(self, section: str, key: str, text: str | None) -> None:
        from ds4chat.config_file import save_setting

        if text is not None and (section, key) == ("chat", "persona") and text.strip():
            from ds4chat.personas import find

            text = find(self._personas_dir, text).name
        save_setting(self._paths.config_file, section, key, text)

    def _now(self) -> Setup:
        """The settings as the file has them now, with the flags over them; the folders of the start."""
        return Setup(self._paths, Setup.from_flags(self._flags).config)

    @contextlib.contextmanager
    def _disk(self, what: str, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or "another ds4chat keeps it busy"
            raise Ds4chatError(f"{what} cannot be {doing} ({reason}): see to it and try again.") from error


def _names(database: Database, session_id: str) -> set[bytes]:
    return {bytes.fromhex(span.sha1) for span in database.spans_of(session_id)}


def _leaves(stocks: list[Stock], names: set[bytes]) -> set[bytes]:
    """Those of the names that nothing of the same session continues."""
    here = [(stock, {name for name in names if name in stock.spans}) for stock in stocks]
    return {
        name for stock, present in here for name in present - {stock.spans[child].parent for child in present}
    }


def _shared(database: Database, session_id: str, own: set[bytes]) -> set[bytes]:
    """Those of a session's spans that another session stands on too."""
    shared: set[bytes] = set()
    infos = database.list_sessions(archived=None)
    for info in infos:
        if info.id != session_id:
            shared |= own & _names(database, info.id)
    return shared
