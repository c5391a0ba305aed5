"""The commands on themes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ds4chat import cli
from ds4chat.ui.theme_file import COLOR_KEYS, MARKDOWN_KEYS, SYNTAX_KEYS, load_theme
from ds4chat.ui.themes import load_themes

THEMES = Path(__file__).parents[2] / "themes"
Run = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DS4CHAT_CONFIG", str(tmp_path / "conf" / "config.toml"))
    monkeypatch.setenv("DS4CHAT_LOG_DIR", str(tmp_path / "log"))
    return tmp_path / "conf" / "themes"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Run:
    code = cli.run(["themes", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list_names_kind_source_and_fault(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('name = "mine"\nprimary = "#336699"\ndark = false\n')
    (folder / "bad.toml").write_text('name = "bad"\nprimary = "nope"\n')
    code, out, _ = run(capsys)
    rows = [tuple(line.split(None, 1)) for line in out.splitlines()]
    by_name = dict(rows)
    assert code == 0
    assert by_name["harbor"].split() == ["dark", "ds4chat"]
    assert by_name["paper"].split() == ["light", "ds4chat"]
    assert by_name["terminal"].startswith("16 colours")
    assert by_name["nord"].split() == ["dark", "Textual"]
    assert by_name["mine"].split() == ["light", str(folder / "mine.toml")]
    assert by_name["bad"].startswith("broken") and "line 2: primary must be a colour" in by_name["bad"]


def test_the_list_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert rows["harbor"] == {"name": "harbor", "kind": "dark", "from": "ds4chat", "fault": ""}


@pytest.mark.parametrize(
    "source", ["harbor", "paper", "beacon", "terminal", "nord", "ansi-light", "textual-light"]
)
def test_a_new_theme_is_complete_explained_and_like_its_model(
    folder: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    code, out, _ = run(capsys, "new", "my own", "--from", source)
    path = folder / "my own.toml"
    assert (code, out.strip()) == (0, str(path))
    text = path.read_text()
    for key in (
        *COLOR_KEYS,
        *MARKDOWN_KEYS,
        *SYNTAX_KEYS,
        "dark",
        "luminosity_spread",
        "text_alpha",
        "variables",
    ):
        assert key in text
    assert text.count("# ") >= 17
    mine = load_theme(path)
    assert mine.theme.name == "my own"
    themes = load_themes([THEMES])[0]
    if source in themes:
        model = themes[source]
        assert (mine.tokens, mine.markdown, mine.contrast) == (model.tokens, model.markdown, model.contrast)
        assert mine.theme.to_color_system().generate() == model.theme.to_color_system().generate()
    # What is commented out can be used as it stands.
    path.write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    assert load_theme(path).theme.name == "my own"


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "new", "mine")[0] == 0
    before = (folder / "mine.toml").read_text()
    code, _, err = run(capsys, "new", "mine", "--from", "paper")
    assert code == 2 and "there already" in err
    (folder / "other.toml").write_text(before.replace('"mine"', '"named"'))
    code, _, err = run(capsys, "new", "named")
    assert code == 2 and "other.toml" in err
    assert (folder / "mine.toml").read_text() == before


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "x" * 61, "a\nb"])
def test_names_that_are_no_file_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, _, err = run(capsys, "new", name)
    assert code == 2 and "cannot be the name of a theme" in err
    assert not folder.exists()


def test_a_model_that_is_not_there_is_told_with_near_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "new", "mine", "--from", "harbour")
    assert code == 2 and '"harbour"' in err and "harbor" in err


def test_check_says_what_is_wrong_and_where(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nprimary = "#fff"\n\n[markdown]\nheading = "no"\n')
    code, _, err = run(capsys, "check", str(path))
    assert code == 2 and f"{path}, line 5: markdown.heading must be a colour" in err
    path.write_text('name = "x"\nprimary = "#fff"\n')
    assert run(capsys, "check", str(path)) == (0, "x: dark, nothing wrong with it\n", "")
    code, _, err = run(capsys, "check", str(tmp_path / "none.toml"))
    assert code == 2 and "cannot be read" in err
