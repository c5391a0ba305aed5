"""The kinds of input that `benchmarks/fuzz.py` and `tests/fuzz` feed."""

from __future__ import annotations

from benchmarks.fuzz_parts.checkpoints import CheckpointFile, CheckpointFolder
from benchmarks.fuzz_parts.databases import DatabaseImport
from benchmarks.fuzz_parts.environment import Environment
from benchmarks.fuzz_parts.foreign import (
    ChatGptImport,
    ClaudeImport,
    ExportZipImport,
    JsonLinesImport,
    MarkdownImport,
    OpenAiImport,
    OpenWebUiImport,
)
from benchmarks.fuzz_parts.imports import BundleImport, JsonImport, TomlImport
from benchmarks.fuzz_parts.protocol import CommandLines, EventLines
from benchmarks.fuzz_parts.settings import ConfigFile, PersonaFile, ThemeFile
from benchmarks.fuzz_parts.target import Target

TARGETS: dict[str, type[Target]] = {
    kind.name: kind
    for kind in (
        CheckpointFile,
        CheckpointFolder,
        TomlImport,
        JsonImport,
        BundleImport,
        ChatGptImport,
        ClaudeImport,
        OpenWebUiImport,
        OpenAiImport,
        JsonLinesImport,
        MarkdownImport,
        ExportZipImport,
        DatabaseImport,
        ConfigFile,
        Environment,
        PersonaFile,
        ThemeFile,
        EventLines,
        CommandLines,
    )
}
