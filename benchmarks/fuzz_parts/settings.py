"""What a user writes by hand: config.toml with its keys, personas, themes."""

from __future__ import annotations

import contextlib
import logging
import random
import tomllib
from pathlib import Path
from typing import Any

from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, OptionList, TextArea

from benchmarks.fuzz_parts.mutate import mutate_bytes, mutate_tree, scalar, string, toml_bytes
from benchmarks.fuzz_parts.target import Outcome, Target, UncaughtError, check_sentence
from ds4chat import config, personas
from ds4chat.config_file import save_setting
from ds4chat.errors import UsageError
from ds4chat.key_settings import load_key_settings
from ds4chat.ui.keymap import dump, resolve
from ds4chat.ui.palette import make_palette
from ds4chat.ui.theme_file import COLOR_KEYS, MARKDOWN_KEYS, SYNTAX_KEYS
from ds4chat.ui.themes import ThemeShelf

CONFIG = """# mine
[model]
path = "tiny" # of all
ctx = 4096
threads = 4
kv_type = "q8_0"

[sampling]
temperature = 0.7
top_k = 40
seed = 7

[chat]
system = "Be brief."
persona = "Editor"
theme = "harbor"
bell = true

[kv]
space_mb = 2000
hit_half_life_seconds = 3600.0

[keys]
preset = "vim"
"chat.new" = "f10"
chat.search = ["ctrl+f", "f3"]
"""

PERSONA = """name = "Reviewer"
system = \"\"\"
You review code.
\"\"\"

[params]
temperature = 0.3
ctx = 2048
"""

ROOT = Path(__file__).parents[2]


class _Text(Target):
    """A file of TOML: the bytes of an example changed, its tree changed, or made from the keys there are."""

    texts: list[bytes]

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        text = draw.choice(self.texts)
        if kind < 4:
            return mutate_bytes(draw, text, self.texts)
        if kind < 8:
            return toml_bytes(draw, mutate_tree(draw, tomllib.loads(text.decode())))
        return toml_bytes(draw, self.tree(draw))

    def tree(self, draw: random.Random) -> dict[str, Any]:
        """Keys that there are, with values of any kind."""
        raise NotImplementedError


class ConfigFile(_Text):
    """config.toml: read, its keys looked up, and one setting written into it."""

    name = "config"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        self.path = self.folder / "config.toml"
        self.texts = [CONFIG.encode(), b"[chat]\ntheme = 'harbor'\n", b"keys.preset = 'default'\n"]
        self.ids = [action.id for action in dump() if action.id]

    def tree(self, draw: random.Random) -> dict[str, Any]:
        paths = [key.split(".")[1:] for key in config.allowed_values() if key.count(".") == 2]
        tree: dict[str, Any] = {}
        for section, key in draw.sample(paths, 4):
            tree.setdefault(section, {})[key] = scalar(draw)
        names = (
            "f2",
            "ctrl+x",
            "escape",
            "a",
            "slash",
            "ctrl+i",
            "alt+shift+f12",
            string(draw),
            "a,b,c",
            ",",
            "enter",
        )
        ids = [*self.ids, "preset", string(draw)]
        tree["keys"] = {draw.choice(ids): draw.choice((draw.choice(names), scalar(draw))) for _ in range(3)}
        return tree

    def feed(self, data: bytes) -> Outcome:
        self.path.write_bytes(data)
        outcome: Outcome = "accepted"
        read: config.Config | None = None
        try:
            read = config.load_config(self.path)
        except UsageError as error:
            check_sentence(str(error))
            outcome = "refused"
        try:
            for warning in resolve(load_key_settings(self.path))[1]:
                check_sentence(warning)
        except UsageError as error:
            check_sentence(str(error))
            outcome = "refused"
        try:
            save_setting(self.path, "chat", "theme", "dusk")
            if read is not None:
                again = config.load_config(self.path)
                if again.chat.theme != "dusk" or (again.model, again.sampling, again.kv) != (
                    read.model,
                    read.sampling,
                    read.kv,
                ):
                    raise UncaughtError("saving a setting changed another")
        except UsageError as error:
            check_sentence(str(error))
        text = data.decode("utf-8", "replace")[:300]
        for parse in (config.parse_kv_options, lambda t: config.parse_setting("sampling", "seed", t)):
            try:
                parse(text)
            except UsageError as error:
                check_sentence(str(error))
        return outcome


class PersonaFile(_Text):
    """A persona beside others."""

    name = "persona"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        self.personas = self.folder / "personas"
        self.personas.mkdir()
        self.texts = [PERSONA.encode(), b'name = "A"\n']

    def tree(self, draw: random.Random) -> dict[str, Any]:
        params = {draw.choice((*config.SESSION_KEYS, string(draw))): scalar(draw) for _ in range(2)}
        return {"name": draw.choice(("x", string(draw))), "system": string(draw), "params": params}

    def feed(self, data: bytes) -> Outcome:
        path = self.personas / "mine.toml"
        path.write_bytes(data)
        found, faults = personas.load_personas(self.personas)
        for fault in faults:
            check_sentence(fault)
        mine = [persona for persona in found if persona.path is not None]
        if bool(mine) == bool(faults):
            raise UncaughtError("neither used nor told about")
        for persona in mine:
            saved = personas.save(self.personas, persona)
            again = personas.find(self.personas, saved.name)
            if (again.name, again.system, again.params) != (persona.name, persona.system, persona.params):
                raise UncaughtError("a persona that was saved reads as another")
            personas.with_persona({"temperature": 1.0}, None, persona)
        with contextlib.suppress(UsageError):
            personas.find(self.personas, data.decode("utf-8", "replace")[:80])
        return "accepted" if mine else "refused"


class ThemeFile(_Text):
    """A theme: read, resolved to colours, and its variables given to the stylesheets."""

    name = "theme"

    def prepare(self) -> None:
        logging.disable(logging.CRITICAL)
        self.themes = self.folder / "themes"
        self.themes.mkdir()
        self.texts = [path.read_bytes() for path in sorted((ROOT / "themes").glob("*.toml"))[:6]]
        self.texts.append(b'name = "least"\nprimary = "#123456"\n')
        sheets = [path.read_text() for path in sorted((ROOT / "ds4chat" / "ui").rglob("*.tcss"))]
        defaults = [kind.DEFAULT_CSS for kind in (App, Screen, Widget, Input, OptionList, TextArea)]
        self.css = "\n".join([*defaults, *sheets])
        self.fed = 0

    def tree(self, draw: random.Random) -> dict[str, Any]:
        colors = (
            "#7aa7e8",
            "red",
            "ansi_blue",
            "rgb(1,2,3)",
            "#fff",
            "transparent",
            string(draw),
            scalar(draw),
        )
        tree: dict[str, Any] = {"name": draw.choice(("x", string(draw))), "primary": "#7aa7e8"}
        tree |= {key: draw.choice(colors) for key in draw.sample(COLOR_KEYS, 3)}
        tree["markdown"] = {draw.choice(MARKDOWN_KEYS): draw.choice(colors) for _ in range(2)}
        tree["syntax"] = {draw.choice((*SYNTAX_KEYS, "style")): draw.choice(colors) for _ in range(2)}
        names = (
            *_variables(),
            string(draw),
            "border",
            "primary",
            "footer-key-style",
            "input-cursor-text-style",
            "a b",
        )
        values = (
            "$primary",
            "bold",
            "none",
            "red 50%",
            "auto 10%",
            "solid",
            "1fr",
            "$x",
            "",
            "url(a)",
            *colors,
        )
        tree["variables"] = {draw.choice(names): draw.choice(values) for _ in range(3)}
        tree |= {draw.choice(("dark", "ansi", "contrast", "text_alpha", "luminosity_spread")): scalar(draw)}
        return tree

    def feed(self, data: bytes) -> Outcome:
        path = self.themes / "mine.toml"
        path.write_bytes(data)
        shelf = ThemeShelf([self.themes])
        shelf.reload()
        for failure in shelf.failures:
            check_sentence(str(failure))
        if bool(shelf.themes) == bool(shelf.failures):
            raise UncaughtError("neither used nor told about")
        for mine in shelf.themes.values():
            theme = mine.theme
            # As `App.get_css_variables` puts them together.
            variables = theme.to_color_system().generate() | theme.variables
            make_palette(
                variables, dark=theme.dark, ansi=theme.ansi, syntax=mine.syntax, tokens=mine.tokens,
                markdown=mine.markdown, least=mine.contrast,
            )  # fmt: skip
            self.fed += 1
            if theme.variables and self.fed % 10 == 0:
                sheet = Stylesheet(variables=variables)
                sheet.add_source(self.css)
                sheet.parse()
        return "accepted" if shelf.themes else "refused"


def _variables() -> list[str]:
    from textual.theme import Theme

    return sorted(Theme("any", primary="#7aa7e8").to_color_system().generate())
