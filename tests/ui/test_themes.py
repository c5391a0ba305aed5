"""Themes: files, contrast, live reload, and the picker."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.style import Style
from textual.color import Color
from textual.geometry import Region

from ds4chat.errors import UsageError
from ds4chat.ui.app import ChatApp
from ds4chat.ui.palette import Palette, contrast, make_palette, readable
from ds4chat.ui.screens.themes import ThemeList, ThemesScreen
from ds4chat.ui.syntax import KINDS, code_theme
from ds4chat.ui.theme_file import (
    COLOR_KEYS,
    MARKDOWN_KEYS,
    SYNTAX_KEYS,
    ChatTheme,
    ThemeFileError,
    load_theme,
    parse_theme,
)
from ds4chat.ui.themes import DEFAULT_THEME, ThemeShelf, load_themes
from tests.ui.driving import THEMES, Chat, running
from tests.ui.fake_manager import FakeManager

SHIPPED = load_themes([THEMES])[0]
LINES = ("markdown.hr", "markdown.table.border")
"""Styles nothing is read in."""

MINE = 'name = "mine"\nprimary = "#336699"\nbackground = "{background}"\nforeground = "#eeeeee"\n'


def palette_of(mine: ChatTheme, *, least: float = 1) -> Palette:
    """`least` 1: the colours as the file has them, no contrast put in."""
    return make_palette(
        mine.theme.to_color_system().generate(),
        dark=mine.theme.dark,
        ansi=mine.theme.ansi,
        syntax=mine.syntax,
        tokens=mine.tokens,
        markdown=mine.markdown,
        least=least,
    )


def inks(palette: Palette) -> dict[str, tuple[Color, Color]]:
    """Every style of text with the colour and the background it has in the end."""
    found: dict[str, tuple[Color, Color]] = {}

    def put(name: str, style: Style, ground: Style) -> None:
        whole = ground + style
        assert whole.color and whole.bgcolor
        found[name] = Color.from_rich_color(whole.color), Color.from_rich_color(whole.bgcolor)

    for name in (
        "base",
        "muted",
        "faint",
        "user",
        "user_muted",
        "user_bar",
        "user_label",
        "reply_label",
        "warning",
    ):
        put(name, getattr(palette, name), palette.base)
    for name in ("error", "code", "code_label"):
        put(name, getattr(palette, name), palette.base)
    for name, style in palette.markdown.items():
        if name not in LINES:
            put(name, style, palette.base)
    code = code_theme(palette.syntax, palette.tokens, ansi=palette.ansi)
    for kind, tokens in KINDS.items():
        for token in tokens:
            put(f"syntax {kind} {token}", Style(color=code.get_style_for_token(token).color), palette.code)
    return found


class TestShipped:
    def test_there_are_enough_of_each_kind(self) -> None:
        themes, failed = load_themes([THEMES])
        assert failed == []
        full = [mine for mine in themes.values() if not mine.theme.ansi]
        assert len(themes) >= 10
        assert sum(mine.theme.dark for mine in full) >= 4 and sum(not mine.theme.dark for mine in full) >= 4
        assert {mine.theme.dark for mine in full if mine.contrast >= 7} == {True, False}
        assert sum(mine.theme.ansi for mine in themes.values()) == 1
        assert themes[DEFAULT_THEME].theme.dark
        assert all(path.stem in themes for path in THEMES.glob("*.toml")), "a file is named by its theme"

    @pytest.mark.parametrize("name", [name for name, mine in SHIPPED.items() if not mine.theme.ansi])
    def test_text_stands_out(self, name: str) -> None:
        mine = SHIPPED[name]
        for what, (ink, ground) in inks(palette_of(mine, least=mine.contrast)).items():
            assert contrast(ink, ground) >= mine.contrast - 0.01, f"{what}: {ink.hex} on {ground.hex}"
        assert mine.contrast >= 4.5
        theme = mine.theme
        for key in ("foreground", "primary", "secondary", "accent", "success", "warning", "error"):
            for ground in (theme.background, theme.surface):
                assert ground
                ink = getattr(theme, key)
                assert contrast(Color.parse(ink), Color.parse(ground)) >= mine.contrast, (
                    f"{key}: {ink} on {ground}"
                )
        muted = Color.parse(theme.variables["foreground-muted"])
        assert contrast(muted, Color.parse(theme.surface or "")) >= mine.contrast

    @pytest.mark.parametrize("name", [name for name, mine in SHIPPED.items() if not mine.theme.ansi])
    def test_what_a_file_says_is_what_is_painted(self, name: str) -> None:
        """None of the colours in the files needs to be mended."""
        mine = SHIPPED[name]
        raw, mended = inks(palette_of(mine)), inks(palette_of(mine, least=mine.contrast))
        derived = ("muted", "faint", "user_muted", "code_label", "markdown.link_url")
        assert [what for what in raw if raw[what] != mended[what] and what not in derived] == []

    @pytest.mark.parametrize("name", SHIPPED)
    def test_markdown_and_code_have_colours_of_their_own(self, name: str) -> None:
        mine = SHIPPED[name]
        assert set(mine.markdown) == set(MARKDOWN_KEYS) and set(mine.tokens) == set(SYNTAX_KEYS)
        assert all(getattr(mine.theme, key) for key in COLOR_KEYS if key != "boost")

    def test_the_terminals_theme_has_only_its_16_colours(self) -> None:
        palette = palette_of(SHIPPED["terminal"])
        assert palette.ansi
        for what, (ink, ground) in inks(palette).items():
            assert ink.ansi is not None and ground.ansi == -1, what

    async def test_the_terminals_theme_reaches_the_terminal_as_it_is(self, manager: FakeManager) -> None:
        """Textual turns the 16 colours into others in all themes but such."""
        session = manager.make("t", ["q", "# h\n\n`code`\n\n```python\nx = 1\n```"])
        async with running(manager, session_id=session.id, theme="terminal") as chat:
            await chat.until_shown("x = 1")
            lines = chat.transcript.render_lines(Region(0, 0, 60, 12))
            colours = {
                color
                for line in lines
                for segment in line
                if segment.style
                for color in (segment.style.color, segment.style.bgcolor)
                if color
            }
            assert len(colours) >= 3
            assert all(color.is_default or color.is_system_defined for color in colours)

    @pytest.mark.parametrize("theme", ["harbor", "paper", "terminal"])
    async def test_no_color_means_none_and_the_cursor_is_seen(
        self, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, theme: str
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        session = manager.make("t", ["q", "# h\n\n`code`\n\n```python\nx = 1\n```"])
        async with running(manager, session_id=session.id, theme=theme) as chat:
            await chat.until_shown("x = 1")
            await chat.pilot.press("f2")
            size = chat.app.size
            for widget in (chat.transcript, chat.screen.sessions, chat.prompt):
                lines = widget.render_lines(
                    Region(0, 0, widget.size.width, min(widget.size.height, size.height))
                )
                styles = [segment.style for line in lines for segment in line if segment.style]
                assert not [s for s in styles if (s.color and not s.color.is_default)]
                assert not [s for s in styles if (s.bgcolor and not s.bgcolor.is_default)]
            rows = chat.screen.sessions
            lines = rows.render_lines(Region(0, 0, rows.size.width, rows.size.height))
            assert any(segment.style and segment.style.reverse for line in lines for segment in line)


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "line", "word"),
        [
            ("name = ", 1, "TOML"),
            ('name = "x"\nprimary = "#fff"\nfoo = [1\n', 3, "TOML"),
            ('primary = "#fff"', 0, "name"),
            ('name = "x"\nprimary = "#ggg"', 2, "primary"),
            ('name = "x"\nprimary = "#fff"\ncolour = "red"', 3, "colour"),
            ('name = "x"\nprimary = 5', 2, "primary"),
            ('name = "x"\nprimary = "#fff"\n\nsyntax = "none-such"', 4, "syntax"),
            ('name = "x"\nprimary = "#fff"\n[syntax]\nkeyword = "no"', 4, "syntax.keyword"),
            ('name = "x"\nprimary = "#fff"\n[syntax]\nwords = "red"', 4, "words"),
            ('name = "x"\nprimary = "#fff"\n[syntax]\nstyle = "none"', 4, "syntax"),
            ('name = "x"\nprimary = "#fff"\n[markdown]\nheading = "no"', 4, "markdown.heading"),
            ('name = "x"\nprimary = "#fff"\n[markdown]\nfoo = "red"', 4, "foo"),
            ('name = "x"\nprimary = "ansi_red"', 2, "ansi = true"),
            ('name = "x"\nansi = true\nprimary = "#fff"', 3, "16 colours"),
            ('name = "x"\nprimary = "#fff"\n[variables]\nborder = "no"', 4, "variables.border"),
            ('name = "x"\nprimary = "#fff"\n[variables]\nlink-style = "loud"', 4, "variables.link-style"),
            ('name = "x"\nprimary = "#fff"\n[variables]\nmine = "red; }"', 4, "variables.mine"),
            ('name = "x"\nprimary = "#fff"\ncontrast = 50', 3, "contrast"),
        ],
    )
    def test_a_bad_file_is_skipped_with_line_and_key(
        self, tmp_path: Path, text: str, line: int, word: str
    ) -> None:
        (tmp_path / "bad.toml").write_text(text)
        (tmp_path / "good.toml").write_text('name = "good"\nprimary = "#336699"')
        themes, failed = load_themes([tmp_path, tmp_path / "missing"])
        assert list(themes) == ["good"]
        assert [(f.path.name, f.line) for f in failed] == [("bad.toml", line)]
        assert word in failed[0].reason
        assert "bad.toml" in str(failed[0]) and (not line or f"(line {line})" in str(failed[0]))

    def test_bytes_that_are_no_text_have_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "bad.toml").write_bytes(b'name = "x"\nprimary = "\xff"')
        with pytest.raises(ThemeFileError) as caught:
            load_theme(tmp_path / "bad.toml")
        assert caught.value.line == 2

    def test_a_users_theme_replaces_a_shipped_one(self, tmp_path: Path) -> None:
        (tmp_path / "mine.toml").write_text(
            f'name = "{DEFAULT_THEME}"\nprimary = "#336699"\nsyntax = "monokai"'
        )
        shelf = ThemeShelf([THEMES, tmp_path])
        shelf.load_first(DEFAULT_THEME)
        assert list(shelf.themes) == [DEFAULT_THEME]
        shelf.reload()
        assert shelf.themes[DEFAULT_THEME].path == tmp_path / "mine.toml"
        assert load_theme(tmp_path / "mine.toml").syntax == "monokai"

    def test_one_file_is_read_for_the_first_paint(self) -> None:
        shelf = ThemeShelf([THEMES])
        shelf.load_first("paper")
        assert list(shelf.themes) == ["paper"]

    def test_the_last_good_version_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text('name = "mine"\nprimary = "#336699"')
        shelf = ThemeShelf([tmp_path])
        shelf.reload()
        path.write_text('name = "mine"\nprimary = "#3366"\nprimary')
        changed, failures = shelf.reload()
        assert (changed, [f.line for f in failures]) == ([], [3])
        assert shelf.themes["mine"].theme.primary == "#336699"
        assert shelf.reload() == ([], []), "told once"
        path.write_text('name = "mine"\nprimary = "#00aa00"')
        assert shelf.reload() == (["mine"], [])
        path.unlink()
        assert shelf.reload() == (["mine"], []) and shelf.themes == {}

    def test_a_color_of_code_wins_over_the_style(self) -> None:
        mine = parse_theme('name = "x"\nprimary = "#fff"\n[syntax]\nstyle = "monokai"\nkeyword = "#123456"')
        assert (mine.syntax, mine.tokens) == ("monokai", {"keyword": "#123456"})
        code = code_theme("monokai", tuple(mine.tokens.items()))
        plain = code_theme("monokai", ())
        keyword, string = KINDS["keyword"][0], KINDS["string"][0]
        assert code.get_style_for_token(keyword).color == Color.parse("#123456").rich_color
        assert code.get_style_for_token(string) == plain.get_style_for_token(string)

    def test_text_is_moved_until_it_can_be_read(self) -> None:
        dark, light = Color.parse("#101010"), Color.parse("#f0f0f0")
        assert contrast(readable(Color.parse("#303030"), dark, 4.5), dark) >= 4.5
        assert contrast(readable(Color.parse("#d0d0d0"), light, 7), light) >= 7
        assert readable(light, dark, 4.5) == light


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "themes"
    path.mkdir()
    return path


def background(app: ChatApp) -> str:
    return app.chat.styles.background.hex.lower()


def painted(chat: Chat) -> set[str]:
    """Backgrounds in the transcript."""
    strips = [chat.transcript.render_line(y) for y in range(chat.transcript.size.height)]
    return {
        segment.style.bgcolor.get_truecolor().hex
        for strip in strips
        for segment in strip
        if segment.style and segment.style.bgcolor
    }


class TestLiveReload:
    async def test_an_edited_file_repaints_at_once_in_mid_stream(
        self, manager: FakeManager, folder: Path
    ) -> None:
        path = folder / "mine.toml"
        path.write_text(MINE.format(background="#101820"))
        session = manager.make("t", ["q", "before"])
        async with running(
            manager, session_id=session.id, theme="mine", theme_directories=[THEMES, folder]
        ) as chat:
            manager.send(session.id, "more")
            manager.begin()
            manager.stream("one\n\n")
            await chat.until(lambda: background(chat.app) == "#101820" and "#101820" in painted(chat))
            path.write_text(MINE.format(background="#202830"))
            manager.stream("two")
            await chat.until(lambda: background(chat.app) == "#202830")
            await chat.until(lambda: "#202830" in painted(chat) and "#101820" not in painted(chat))
            await chat.until_shown("before", "one", "two")

    async def test_a_bad_edit_is_told_once_and_the_good_version_stays(
        self, manager: FakeManager, folder: Path
    ) -> None:
        path = folder / "mine.toml"
        path.write_text(MINE.format(background="#101820"))
        async with running(manager, theme="mine", theme_directories=[THEMES, folder]) as chat:
            await chat.until(lambda: background(chat.app) == "#101820")
            path.write_text(MINE.format(background="nonsense"))
            await chat.until(lambda: len(chat.app._notifications) == 1)
            told = next(iter(chat.app._notifications)).message
            assert "mine.toml (line 3)" in told and "background" in told
            assert background(chat.app) == "#101820"
            path.write_text(MINE.format(background="#303840"))
            await chat.until(lambda: background(chat.app) == "#303840")
            assert len(chat.app._notifications) == 1

    async def test_a_folder_and_a_theme_that_appear_can_be_chosen(
        self, manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ds4chat.ui.theming.LOOK_SECONDS", 0.01)
        monkeypatch.setattr("ds4chat.ui.theming.LOOK_MS", 100)
        folder = tmp_path / "themes"
        async with running(manager, theme_directories=[THEMES, folder]) as chat:
            await chat.pilot.press("alt+l")
            await chat.until(lambda: isinstance(chat.app.screen, ThemesScreen))
            folder.mkdir()
            (folder / "mine.toml").write_text(MINE.format(background="#101820"))
            names = chat.app.screen.query_one(ThemeList)
            await chat.until(lambda: names.name_at(0) == "mine")
            assert names.name_at(names.cursor) == DEFAULT_THEME
            await chat.pilot.press("home")
            await chat.until(lambda: background(chat.app) == "#101820")

    async def test_a_theme_that_is_not_there_is_told_and_the_default_used(self, manager: FakeManager) -> None:
        async with running(manager, theme="nowhere") as chat:
            await chat.until(lambda: bool(chat.app._notifications))
            assert '"nowhere"' in next(iter(chat.app._notifications)).message
            assert chat.app.theme == DEFAULT_THEME


class TestPicker:
    async def test_moving_previews_and_escape_goes_back(self, manager: FakeManager) -> None:
        session = manager.make("t", ["q", "a"])
        async with running(manager, session_id=session.id) as chat:
            await chat.pilot.press(*"draft", "alt+l")
            screen = chat.app.screen
            assert isinstance(screen, ThemesScreen)
            names = screen.query_one(ThemeList)
            assert names.name_at(names.cursor) == DEFAULT_THEME
            await chat.pilot.press("down")
            await chat.until(lambda: chat.app.theme != DEFAULT_THEME)
            other = SHIPPED[chat.app.theme].theme
            await chat.until(lambda: (other.background or "") in painted(chat))
            sample = screen._sample
            shown = "\n".join(sample.render_line(y).text for y in range(sample.size.height))
            assert all(word in shown for word in ("You", "Even numbers", "def is_even", "yes", "warning"))
            await chat.pilot.press("escape")
            assert chat.app.theme == DEFAULT_THEME
            assert chat.prompt.text == "draft"

    async def test_enter_keeps_the_choice_and_saves_it(self, manager: FakeManager) -> None:
        saved: list[tuple[str, str, str | None]] = []

        class FakeDesk:
            def save_setting(self, section: str, key: str, text: str | None) -> None:
                saved.append((section, key, text))

        async with running(manager) as chat:
            chat.app.desk = FakeDesk()  # type: ignore[assignment]
            await chat.pilot.press("alt+l", "down", "enter")
            await chat.until(lambda: bool(saved))
            assert saved == [("chat", "theme", chat.app.theme)]
            assert chat.app.theme != DEFAULT_THEME and chat.app.screen is chat.screen
            await chat.until(lambda: "also from now on" in chat.status)

    async def test_what_cannot_be_saved_is_told_and_the_theme_stays(self, manager: FakeManager) -> None:
        class FakeDesk:
            def save_setting(self, section: str, key: str, text: str | None) -> None:
                raise UsageError("The configuration cannot be written.")

        async with running(manager) as chat:
            chat.app.desk = FakeDesk()  # type: ignore[assignment]
            await chat.pilot.press("alt+l", "down", "enter")
            await chat.until(lambda: bool(chat.app._notifications))
            assert chat.app.theme != DEFAULT_THEME

    async def test_the_mouse_and_every_theme_work(self, manager: FakeManager) -> None:
        """Textual's own and those of the terminal's colours too."""
        session = manager.make("t", ["q", "# h\n\n```python\nx = 1\n```\n\n`a`"])
        async with running(manager, session_id=session.id, size=(80, 24)) as chat:
            await chat.pilot.press("alt+l")
            names = chat.app.screen.query_one(ThemeList)
            # Each third: they all are one kind of thing.
            for index in range(0, len(chat.app.available_themes), 3):
                names.cursor = index
                await chat.until(lambda index=index: chat.app.theme == names.name_at(index))  # type: ignore[misc]
                await chat.pilot.pause()
                assert painted(chat)
            names.scroll_home(animate=False)
            await chat.pilot.pause()
            assert await chat.pilot.click(names, offset=(4, 2))
            await chat.until(lambda: chat.app.screen is chat.screen)
            assert chat.app.theme == names.name_at(1)

    @pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (160, 45)])
    async def test_it_fits(self, manager: FakeManager, size: tuple[int, int]) -> None:
        async with running(manager, size=size) as chat:
            await chat.pilot.press("alt+l")
            box = chat.app.screen.query_one("#themes").region
            names = chat.app.screen.query_one(ThemeList)
            assert box.width <= size[0] and box.height <= size[1]
            assert names.size.height >= 5 and names.size.width >= 25

    async def test_it_is_in_the_palette_instead_of_textuals(self, manager: FakeManager) -> None:
        async with running(manager) as chat:
            titles = [command.title for command in chat.app.get_system_commands(chat.screen)]
            assert "Themes" in titles and "Theme" not in titles
