"""Sessions as JSON and as bundles: nothing is lost, and nothing a file says is believed."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds4chat.errors import InterchangeError
from ds4chat.sessions import bundle as bundles
from ds4chat.sessions.bundle import Bundle, BundleWriter, PackedSpan, kind_of
from ds4chat.sessions.database import Database
from ds4chat.sessions.session import Message, Session
from ds4chat.sessions.session_json import MAX_SESSION_BYTES, from_json, same_messages, to_json

SPAN = PackedSpan("llama-0123", "00112233aabbccdd", "ab" * 20, 300)
STATS = {"stop_reason": "stop", "prompt_tokens": 12, "restore_ms": 1.25}


def tree() -> Session:
    """A question with two answers, one of them cut off, and a second question below the first answer."""
    session = Session("0a1b2c3d", "Rome", "Be brief.", "Smol", "/home/me/smol.gguf", 1.5, 99.25)
    session.append(Message(3, None, "user", "where?", created=2.0))
    session.append(
        Message(5, 3, "assistant", "thére", "complete", [1, 2**31 - 1], "f" * 32, "Smol", 3.0, STATS)
    )
    session.append(Message(6, 3, "assistant", "no", "stopped", [7], "f" * 32, "Smol", 4.0))
    session.append(Message(9, 5, "user", "sure?", created=5.0))
    session.window_start_id, session.cold_done, session.tokens = 3, True, 44
    session.params = {"temperature": 0.5, "name": "x", "on": True, "off": None, "n": 3}
    session.summary, session.draft, session.tags = "They spoke of Rome.", "and then", ["travel", "south"]
    session.pinned, session.archived, session.messages[6].hidden = True, True, True
    return session


def written(session: Session, *spans: PackedSpan) -> bytes:
    out = io.BytesIO()
    with BundleWriter(out, session) as writer:
        for span in spans:
            with writer.span(span) as file:
                file.write(b"x" * span.size)
    return out.getvalue()


def archive(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in entries:
            file.writestr(name, data)
    return out.getvalue()


def opened(tmp_path: Path, data: bytes) -> Bundle:
    (tmp_path / "file").write_bytes(data)
    return Bundle(tmp_path / "file")


def refused(tmp_path: Path, data: bytes) -> str:
    """The sentence a file is refused with."""
    with pytest.raises(InterchangeError) as caught:
        opened(tmp_path, data)
    sentence = str(caught.value)
    assert sentence.startswith(str(tmp_path / "file")) and sentence.endswith(".") and "\n" not in sentence
    return sentence.removeprefix(str(tmp_path / "file"))


# ---- JSON


def test_json_keeps_all_of_a_session_but_the_models_path() -> None:
    session = tree()
    read = from_json(to_json(session), "it")
    session.model_path = ""
    assert read == session
    assert b"/home/me" not in to_json(tree())


def test_json_keeps_all_of_a_session_through_the_database() -> None:
    with Database(":memory:") as database:
        session = from_json(to_json(tree()), "it")
        database.create_session(session)
        loaded = database.load_session(session.id)
    assert loaded.id == "0a1b2c3d" and same_messages(loaded, tree())
    assert [m.state for m in loaded.messages.values()] == ["complete", "complete", "stopped", "complete"]
    assert [m.text for m in loaded.path()] == ["where?", "thére", "sure?"]
    assert loaded.window_start_id == loaded.path()[0].id
    assert loaded.path()[1].stats == STATS and loaded.params == tree().params
    assert [m.hidden for m in loaded.messages.values()] == [False, False, True, False]
    assert (loaded.summary, loaded.draft, loaded.tags) == (tree().summary, tree().draft, tree().tags)
    assert loaded.pinned and loaded.archived


def test_json_of_before_there_were_tags_is_read() -> None:
    data = json.loads(to_json(tree()))
    for key in ("summary", "draft", "tags", "pinned", "archived"):
        del data[key]
    for message in data["messages"]:
        del message["hidden"]
    read = from_json(json.dumps(data).encode(), "it")
    assert (read.summary, read.draft, read.tags, read.pinned, read.archived) == ("", "", [], False, False)
    assert not any(m.hidden for m in read.messages.values())
    assert same_messages(read, tree())


def test_what_was_in_the_making_is_put_in_order() -> None:
    session = tree()
    session.messages[6].state, session.messages[9].state = "streaming", "queued"
    read = from_json(to_json(session), "it")
    assert (read.messages[6].state, read.messages[9].state) == ("cut", "complete")
    assert same_messages(read, session)


def test_an_empty_session_is_one() -> None:
    assert from_json(to_json(Session("00000001")), "it") == Session("00000001")


def test_other_texts_or_another_shape_are_other_messages() -> None:
    other, moved = tree(), tree()
    other.messages[6].text += "!"
    moved.messages[9].parent_id = 6
    renamed = tree()
    renamed.title, renamed.id, renamed.head_id = "Paris", "00000001", 3
    assert not same_messages(tree(), other) and not same_messages(tree(), moved)
    assert same_messages(tree(), renamed)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    data = json.loads(to_json(tree()))
    change(data)
    return json.dumps(data).encode()


def at(index: int, **values: object) -> Callable[[dict[str, Any]], object]:
    return lambda data: data["messages"][index].update(values)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no format": (lambda d: d.pop("format"), "no session"),
    "newer": (lambda d: d.update(version=2), "newer ds4chat"),
    "no version": (lambda d: d.update(version=0), "version"),
    "no messages": (lambda d: d.pop("messages"), '"messages" is missing'),
    "id": (lambda d: d.update(id="../../etc"), "8 hexadecimal digits"),
    "own parent": (at(1, parent=5), "not before it"),
    "cycle": (at(0, parent=5), "not before it"),
    "unknown parent": (at(1, parent=4), "names a parent that is not there"),
    "double": (at(1, id=3, parent=None, role="user"), "is there twice"),
    "first is a reply": (at(0, role="assistant"), "no user's"),
    "role": (at(0, role="system"), '"user", "assistant" or "tool"'),
    "state": (at(0, state="great"), "states"),
    "head": (lambda d: d.update(head=4), "head names message 4"),
    "huge token": (at(1, tokens=[2**31]), "token id"),
    "negative token": (at(1, tokens=[-1]), "token id"),
    "huger token": (at(1, tokens=[10**400]), "token id"),
    "broken token": (at(1, tokens=[1.5]), "token id"),
    "huge id": (at(1, id=2**64), "whole number"),
    "stats": (at(1, stats={"generated_tokens": "many"}), "generated_tokens"),
    "nested stats": (at(1, stats={"a": [1]}), "number"),
    "huge stats": (at(1, stats={"a": 10**300}), "number"),
    "time": (lambda d: d.update(created=1e300), "seconds since 1970"),
    "times of the past": (at(0, created=-1), "seconds since 1970"),
    "title": (lambda d: d.update(title=7), "title"),
    "params": (lambda d: d.update(params={"a": {}}), "params"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_session_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    change, told = HOSTILE[name]
    data = changed(change)
    assert told in refused(tmp_path, data)
    assert told in refused(tmp_path, archive([("session.json", data)]))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"format": "ds4chat-session", "version": 1, "id": "\xff"}',
        b'{"format": "ds4chat-session", "version": 1, "id": NaN}',
        b'{"a": ' * 100_000,
        to_json(tree())[:-20],
    ],
    ids=["open", "utf-8", "nan", "deep", "cut"],
)
def test_what_is_no_json_is_refused(data: bytes, tmp_path: Path) -> None:
    assert "is not valid JSON" in refused(tmp_path, data)


def test_text_is_made_valid() -> None:
    data = changed(at(0, text="a\0b\r\n\x1b[2J"))
    read = from_json(data.replace(b'"Rome"', rb'"\u001b[2JRo\nme"'), "it")
    assert read.messages[3].text == "ab\n\x1b[2J"
    assert read.title == "Ro me"
    with pytest.raises(InterchangeError):
        from_json(to_json(tree()).replace(b'"where?"', rb'"\ud800"'), "it")


def test_a_session_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ds4chat.sessions.session_json.MAX_SESSION_BYTES", 100)
    with pytest.raises(InterchangeError, match="too large"):
        to_json(tree())


# ---- bundles


def test_a_bundle_gives_back_what_went_in(tmp_path: Path) -> None:
    out = io.BytesIO()
    with BundleWriter(out, tree()) as writer:
        writer.add_note(SPAN.family, SPAN.variant, b'{"model": "Smol"}')
        writer.add_note("other", SPAN.variant, b"x" * 100_000)
        with writer.span(SPAN) as file:
            file.write(bytes(range(200)) + b"y" * 100)
    with opened(tmp_path, out.getvalue()) as bundle:
        assert same_messages(bundle.session, tree())
        assert bundle.spans == [SPAN]
        copy = io.BytesIO()
        bundle.copy(SPAN, copy)
        assert copy.getvalue() == bytes(range(200)) + b"y" * 100
        assert bundle.head(SPAN, 10) == bytes(range(10))
        assert bundle.note(SPAN.family, SPAN.variant) == b'{"model": "Smol"}'
        assert bundle.note("other", SPAN.variant) is None


def test_equal_sessions_make_equal_bundles_that_only_their_owner_may_unpack() -> None:
    assert written(tree(), SPAN) == written(tree(), SPAN)
    with zipfile.ZipFile(io.BytesIO(written(tree(), SPAN))) as file:
        assert [info.external_attr >> 16 for info in file.infolist()] == [0o100600] * 2
        assert {info.compress_type for info in file.infolist()} == {zipfile.ZIP_STORED}


def test_a_bundle_can_be_written_to_a_pipe(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        data = b""

        def writable(self) -> bool:
            return True

        def write(self, part: Any) -> int:
            self.data += bytes(part)
            return len(part)

    pipe = Pipe()
    with BundleWriter(pipe, tree()) as writer:  # type: ignore[arg-type]
        with writer.span(SPAN) as file:
            file.write(b"x" * SPAN.size)
    with opened(tmp_path, pipe.data) as bundle:
        assert bundle.spans == [SPAN] and same_messages(bundle.session, tree())
        bundle.copy(SPAN, io.BytesIO())


def test_files_are_told_apart_by_content(tmp_path: Path) -> None:
    kinds = {
        "a.toml": written(tree()),
        "b.zip": b'\xef\xbb\xbf \n{"a": 1}',
        "c.json": b'title = "x"',
        "d": b"",
    }
    for name, data in kinds.items():
        (tmp_path / name).write_bytes(data)
    found = [kind_of(tmp_path / name) for name in (*kinds, "missing", ".", "a\0b", "x" * 5000)]
    assert found == ["bundle", "json", *["other"] * 6]


GOOD = ("session.json", to_json(tree()))
KV = ("kv/llama-0123/00112233aabbccdd/" + "ab" * 20 + ".kv", b"x" * 200)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../session.json",
        "kv/../00112233aabbccdd/" + "ab" * 20 + ".kv",
        "kv/.hidden/00112233aabbccdd/" + "ab" * 20 + ".kv",
        "kv/a/b/c/" + "ab" * 20 + ".kv",
        "/kv/llama/00112233aabbccdd/" + "ab" * 20 + ".kv",
        "kv/llama/00112233aabbccdd/" + "AB" * 20 + ".kv",
        "kv/llama/00112233aabbccdd/" + "ab" * 20 + ".kv\n",
        "kv/llama/00112233aabbccdd/" + "ab" * 20 + ".kv.bad",
        "kv/llama/00112233aabbccdd/" + "ab" * 20 + ".kv\0.txt",
        "kv/llama/00112233aabbccdd/",
        "kv/llama/0011/" + "ab" * 20 + ".kv",
        "kv\\llama\\00112233aabbccdd\\" + "ab" * 20 + ".kv",
        "kv/" + "x" * 200 + "/00112233aabbccdd/" + "ab" * 20 + ".kv",
        "readme.txt",
        "session.json/../x",
    ],
)
def test_an_entry_that_belongs_in_no_bundle_is_refused(name: str, tmp_path: Path) -> None:
    data = archive([GOOD, ("n" * len(name), b"x" * 200)]).replace(b"n" * len(name), name.encode())
    assert "belongs in no bundle" in refused(tmp_path, data)


def test_entries_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = archive([GOOD, KV, KV])
    assert "twice" in refused(tmp_path, twice)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = archive([GOOD, GOOD])
    assert "twice" in refused(tmp_path, twice)


def test_a_bundle_without_a_session_is_none(tmp_path: Path) -> None:
    assert "holds no session.json" in refused(tmp_path, archive([KV]))
    assert "holds no session.json" in refused(tmp_path, archive([]))


def test_compressed_entries_are_refused_before_they_unfold(tmp_path: Path) -> None:
    bomb = ("session.json", b" " * 50_000_000)
    assert "compressed" in refused(tmp_path, archive([bomb], zipfile.ZIP_DEFLATED))
    with pytest.raises(InterchangeError, match="compressed"):
        opened(tmp_path, archive([GOOD, KV], zipfile.ZIP_LZMA))


def test_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    for mode in (0o120777, 0o040755, 0o010600):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            file.writestr(*GOOD)
            info = zipfile.ZipInfo(KV[0])
            info.external_attr = mode << 16
            file.writestr(info, b"/etc/passwd")
        assert "no plain file" in refused(tmp_path, out.getvalue())


def central(data: bytes, offset: int, value: bytes) -> bytes:
    """The archive with a field of the last entry of its list changed."""
    place = data.rindex(b"PK\x01\x02") + offset
    return data[:place] + value + data[place + len(value) :]


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    assert "no plain file" in refused(tmp_path, central(archive([GOOD, KV]), 8, struct.pack("<H", 1)))


def test_sizes_that_the_file_does_not_have_are_refused(tmp_path: Path) -> None:
    huge = struct.pack("<LL", 2**31, 2**31)
    assert "claims more bytes" in refused(tmp_path, central(archive([GOOD, KV]), 20, huge))
    unlike = struct.pack("<LL", 200, 2**31)
    assert "compressed" in refused(tmp_path, central(archive([GOOD, KV]), 20, unlike))
    # Entries that share their bytes: each would be the whole file.
    many = archive([GOOD, *((KV[0].replace("ab", f"{i:02x}"), b"x" * 5000) for i in range(20))])
    with zipfile.ZipFile(io.BytesIO(many)) as file:
        first = file.infolist()[1].header_offset
    out = many
    for _ in range(20):
        out = central(out, 42, struct.pack("<L", first))
    with opened(tmp_path, out) as bundle:
        with pytest.raises(InterchangeError, match="damaged"):
            bundle.copy(bundle.spans[-1], io.BytesIO())


def test_a_session_json_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_SESSION_BYTES", 100)
    assert "session.json of more than" in refused(tmp_path, archive([GOOD]))
    assert "is larger than" in refused(tmp_path, GOOD[1])
    assert MAX_SESSION_BYTES > 10**6


def test_a_list_of_entries_beyond_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MAX_DIRECTORY_BYTES", 100)
    assert "more entries" in refused(tmp_path, archive([GOOD, KV]))
    # The same, said by the records for large archives.
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 1000, 0)
    end += struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
    end += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 10, 0, 0)
    assert "more entries" in refused(tmp_path, b"PK\x03\x04" + b"x" * 2000 + end)


def test_a_bundle_of_many_gigabytes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(zipfile, "ZIP64_LIMIT", 100)
        data = written(tree(), SPAN)
    assert b"PK\x06\x07" in data
    with opened(tmp_path, data) as bundle:
        assert bundle.spans == [SPAN] and same_messages(bundle.session, tree())
        bundle.copy(SPAN, io.BytesIO())
    monkeypatch.setattr(bundles, "MAX_DIRECTORY_BYTES", 100)
    assert "more entries" in refused(tmp_path, data)


def test_a_cut_or_lengthened_bundle_is_damaged(tmp_path: Path) -> None:
    data = written(tree(), SPAN)
    for cut in (4, 10, 30, len(data) // 2, len(data) - 1):
        assert "is a damaged bundle" in refused(tmp_path, data[:cut])
    assert "is a damaged bundle" in refused(tmp_path, data + b"PK")


def test_damage_to_a_checkpoint_leaves_the_session_readable(tmp_path: Path) -> None:
    data = written(tree(), SPAN).replace(b"x" * 300, b"x" * 299 + b"y")
    with opened(tmp_path, data) as bundle:
        assert same_messages(bundle.session, tree())
        with pytest.raises(InterchangeError, match="damaged"):
            bundle.copy(SPAN, io.BytesIO())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_done_to_a_bundle_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    good = bytearray(written(tree(), SPAN))
    for _ in range(data.draw(st.integers(1, 4))):
        # Where the structure is: the session in front, the list of entries at the end.
        place = data.draw(
            st.one_of(st.integers(0, len(good) - 1), st.integers(len(good) - 300, len(good) - 1))
        )
        good[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(good)
    if kind_of(path) == "other":
        return
    try:
        with Bundle(path) as bundle:
            for span in bundle.spans:
                bundle.copy(span, io.BytesIO())
                bundle.note(span.family, span.variant)
    except InterchangeError as error:
        assert "\n" not in str(error)


def test_bundles_know_neither_the_database_nor_checkpoints() -> None:
    code = "import sys, ds4chat.sessions.bundle; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    unwanted = ("sqlite3", "ds4chat.sessions.database", "ds4chat.checkpoints", "ds4chat.engine")
    assert [name for name in loaded.stdout.split() if name.startswith(unwanted)] == []
