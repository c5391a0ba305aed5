"""Homes to be killed in: a model, chats with checkpoints, a bundle, a database of the first version."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ds4chat.sessions import migrations
from tests.support import tiny_models
from tests.support.program import Program

SENTENCE = "The {} ship carries {} barrels of salt and a cat, and nobody on board knows its name. "

BUNDLED = "n90003"
"""The mark of the chat that is in the bundle."""


def write_wordy_model(path: Path, source: Path, layers: int = 48) -> Path:
    """A tiny model that says letters and spaces alone, so that Markdown changes nothing of it, and that says them at
    a speed that can be watched.
    """
    vocabulary = tiny_models.cut_vocabulary(source)
    model = tiny_models._Model(path, "dense", vocabulary, np.random.default_rng(7))
    tiny_models._dense(model, n_layer=layers)
    alphabet = tiny_models._alphabet()
    plain = {c for c, byte in alphabet.items() if chr(byte).isascii() and (chr(byte).isalpha() or byte == 32)}
    weights = model.random(model.n_vocab, tiny_models.N_EMBD, gain=tiny_models.LOGIT_SPREAD)
    weights -= model.embeddings * np.float32(tiny_models.NOT_AGAIN / tiny_models.N_EMBD)
    weights[:, 0] = 0.0
    # The channel that is the same for all tokens is faint behind so many layers.
    weights[[i for i, token in enumerate(vocabulary.tokens) if not set(token) <= plain], 0] = -1e5
    model.add("output.weight", weights)
    model.finish()
    return path


@dataclass
class Template:
    """A home to copy: two chats with checkpoints, a bundle of a third one that is not there any more, and a database of
    the first version.
    """

    folder: Path
    model: Path
    slow: bool
    """Its prompts take seconds to read."""

    @property
    def bundle(self) -> Path:
        return self.folder / "third.zip"

    @property
    def old_database(self) -> Path:
        return self.folder / "old.db"


def write_home(folder: Path, model: Path) -> Program:
    """A home with settings alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(
        f'[model]\npath = "{model}"\nthreads = 1\n\n[sampling]\ntemperature = 0.8\nmax_tokens = 800\n'
    )
    return Program(folder)


def write_template(folder: Path, model: Path, *, slow: bool) -> Template:
    """Make one, which takes some seconds."""
    template = Template(folder, model, slow)
    program = write_home(folder, model)
    short = ("--max-tokens", "8")
    program.ask("n90001 " + "".join(SENTENCE.format(i, i) for i in range(8 if slow else 20)), *short)
    program.ask("n90002 Name a colour.", *short)
    third = program.ask(f"{BUNDLED} " + "".join(SENTENCE.format(i, 2 * i) for i in range(3)), *short)[
        "session"
    ]
    for command in (("export", third, "--with-checkpoints", str(template.bundle)), ("rm", "-y", third)):
        done = program.run(*command)
        assert done.returncode == 0, done.stderr
    write_old_database(template.old_database, model)
    return template


def write_old_database(path: Path, model: Path, sessions: int = 400, turns: int = 3) -> None:
    """A database as the first version left it: many chats, and short ones, because one is gone on in."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA application_id = {migrations.APPLICATION_ID}")
    db.execute(
        f"CREATE TABLE {migrations.TABLE} "
        "(number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, applied REAL NOT NULL)"
    )
    db.execute("BEGIN")
    migrations.m001_initial(db)
    db.execute(f"INSERT INTO {migrations.TABLE} VALUES (1, 'm001_initial', 1.0)")
    message = 0
    for number in range(sessions):
        name, parent = f"{number:08x}", None
        for depth in range(1, 2 * turns + 1):
            message += 1
            role = "user" if depth % 2 else "assistant"
            text = f"{role} {message}: " + SENTENCE.format(depth, number)
            values = (message, name, parent, depth, role, "complete", float(message), "", "", "{}", text, b"")
            db.execute(f"INSERT INTO messages VALUES ({', '.join('?' * 12)})", values)
            parent = message
        row = (
            *(name, f"Old {number}", "", str(model), 1.0, float(message), parent, None, 0, 0),
            *("{}", ""),
        )
        db.execute(f"INSERT INTO sessions VALUES ({', '.join('?' * 12)})", row)
    db.execute("COMMIT")
    db.close()
