"""A desk without files, for the panels' tests: what it is asked is written down."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

from ds4chat.config import Config, allowed_values, parse_setting
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.personas import SHIPPED, Persona, check_name
from ds4chat.ui.desk import CheckpointReport, CheckpointRow, ConfigRow, ModelChoice

MB = 10**6
USED = 1_700_000_000
SMOL, QWEN = "SmolLM2-135M-Instruct.Q4_1", "Qwen3-4B-Instruct-Q4_K_M"
MODELS = [
    ModelChoice(SMOL, f"/m/{SMOL}.gguf", 98 * MB, True, "Q4_1", 8192, "starter model"),
    ModelChoice(QWEN, f"/m/{QWEN}.gguf", 2497 * MB, False, "Q4_K_M", 262144, "models folder"),
    ModelChoice("gemma3:4b", "/o/blobs/sha256-aeda25e6", 3338 * MB, False, "Q4_K_M", 131072, "Ollama"),
    ModelChoice(
        "half-[loaded]", "/m/half-[loaded].gguf", 0, False, "", 0, "models folder", "is not a GGUF file"
    ),
]


class FakeDesk:
    def __init__(self) -> None:
        self.listed = list(MODELS)
        self.own: dict[str, Persona] = {}
        self.faults: list[str] = []
        self.rows = [
            CheckpointRow("00000001", "A tide table for the harbour", 6144, 141 * MB, USED, True, "", 6144),
            CheckpointRow(
                "00000002", "Fold [b]the[/b] dough", 2048, 47 * MB, USED, False, "its model is not there"
            ),
            CheckpointRow("", "(no session)", 512, 12 * MB, 0, False, "no session stands on them"),
        ]
        self.budget = 400 * MB
        self.saved: list[tuple[str, str, str | None]] = []
        self.values: dict[tuple[str, str], str] = {}
        self.flags: dict[tuple[str, str], tuple[str, str]] = {}
        self.calls: list[object] = []
        self.refuse: Ds4chatError | None = None
        self.steps = 3
        self.gate: threading.Event | None = None

    def _ask(self, *what: object) -> None:
        assert threading.current_thread() is not threading.main_thread(), (
            "the desk may be slow: ask it in a thread"
        )
        self.calls.append(what)
        if self.refuse is not None:
            raise self.refuse

    def models(self) -> list[ModelChoice]:
        self._ask("models")
        return list(self.listed)

    def look_at_model(self, path: str) -> ModelChoice:
        self._ask("look_at_model", path)
        return ModelChoice(Path(path).stem, path, fault="is not there")

    def personas(self) -> list[Persona]:
        self._ask("personas")
        found = {persona.name: persona for persona in SHIPPED} | self.own
        return [found[name] for name in sorted(found)]

    def complaints(self) -> list[str]:
        told, self.faults = self.faults, []
        return told

    def save_persona(self, persona: Persona) -> None:
        self._ask("save_persona", persona.name)
        name = check_name(persona.name)
        self.own[name] = dataclasses.replace(persona, path=Path(f"/p/{name}.toml"))

    def delete_persona(self, name: str) -> None:
        self._ask("delete_persona", name)
        del self.own[name]

    def checkpoints(self) -> CheckpointReport:
        self._ask("checkpoints")
        return CheckpointReport(
            list(self.rows), sum(row.bytes for row in self.rows), self.budget, "/cache/ds4chat/kv"
        )

    def pin_checkpoints(self, session_id: str, on: bool) -> None:
        self._ask("pin", session_id, on)
        self.rows = [
            dataclasses.replace(r, pinned=on) if r.session_id == session_id else r for r in self.rows
        ]

    def verify_checkpoints(self, progress: Callable[[int, int], bool]) -> str:
        self._ask("verify")
        for step in range(self.steps):
            if self.gate is not None:
                self.gate.wait(5)
            if not progress((step + 1) * 50 * MB, self.steps * 50 * MB):
                return "The reading was ended. Nothing was changed."
        return "3 files (200.0 MB) read: all are whole."

    def clear_checkpoints(self, session_id: str | None) -> int:
        self._ask("clear", session_id)
        gone = [row for row in self.rows if session_id is None or row.session_id == session_id]
        self.rows = [row for row in self.rows if row not in gone]
        return sum(row.bytes for row in gone)

    def set_budget(self, megabytes: str) -> int:
        self._ask("budget", megabytes)
        value = parse_setting("kv", "space_mb", megabytes) if megabytes else 32_000
        assert isinstance(value, int)
        self.budget = value * MB
        return 0

    def config_rows(self) -> list[ConfigRow]:
        self._ask("config_rows")
        rows = []
        for section in ("model", "sampling", "chat", "kv"):
            struct = getattr(Config(), section)
            for key in struct.__struct_fields__:
                default = getattr(struct, key)
                shown = (
                    ""
                    if default is None
                    else str(default).lower()
                    if isinstance(default, bool)
                    else str(default)
                )
                in_file = (section, key) in self.values
                value, source = (
                    self.values.get((section, key), shown),
                    "config.toml" if in_file else "default",
                )
                value, source = self.flags.get((section, key), (value, source))
                rows.append(ConfigRow(section, key, value, source, allowed_values()[f"$.{section}.{key}"]))
        return rows

    def save_setting(self, section: str, key: str, text: str | None) -> None:
        self._ask("save_setting", section, key, text)
        if text is None:
            self.values.pop((section, key), None)
        else:
            if f"$.{section}.{key}" not in allowed_values():
                raise UsageError(f"There is no setting {section}.{key}.")
            parse_setting(section, key, text)
            self.values[section, key] = text
        self.saved.append((section, key, text))
