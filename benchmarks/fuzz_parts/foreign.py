"""Chats of other programs: exports in JSON, JSON Lines and Markdown, and archives of them."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fuzz_parts.imports import Import, change_records, zip_of
from benchmarks.fuzz_parts.mutate import json_bytes, mutate_bytes, mutate_tree, scalar, string, value

SAMPLES = Path(__file__).parents[2] / "tests" / "interchange" / "samples"

MANY = (1, 2, 3, 4, 5, 8) * 30 + (40, 40, 40, 40, 300, 300, 2000)
"""Messages of a chat that is made up."""

ROLES = ("user", "assistant", "human", "gpt", "system", "tool", "USER", "", "nobody")


class _Json(Import):
    """An export of a sample's kind: its bytes changed, its tree changed, or chats of messages hung up at random."""

    samples: tuple[str, ...]
    shown_one_in = 4
    ending = ".json"

    def examples(self) -> None:
        self.texts = [(SAMPLES / name).read_bytes() for name in self.samples]
        self.trees = [json.loads(text) for text in self.texts]

    def make(self, draw: random.Random) -> bytes:
        return self.named(draw, self.content(draw), self.ending)

    def content(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 3:
            return mutate_bytes(draw, draw.choice(self.texts), self.texts)
        if kind < 7:
            return json_bytes(draw, mutate_tree(draw, self._few(draw)))
        chats = [self.chat(draw) for _ in range(draw.choice((1, 1, 2, 5)))]
        if draw.random() < 0.2:
            # The same chat once more, as it was or as it went on.
            chats.append(mutate_tree(draw, chats[0]) if draw.random() < 0.5 else chats[0])
        tree: Any = chats if draw.random() < 0.7 else draw.choice((chats[0], {"chats": chats}, [chats]))
        return json_bytes(draw, tree)

    def _few(self, draw: random.Random) -> Any:
        """A sample, or a part of it."""
        tree = draw.choice(self.trees)
        if isinstance(tree, list) and draw.random() < 0.7:
            tree = draw.choice(([draw.choice(tree)], tree[: draw.randrange(1, len(tree) + 1)]))
        return tree

    def chat(self, draw: random.Random) -> Any:
        """One of this kind."""
        raise NotImplementedError


def _edges(draw: random.Random) -> list[tuple[str, str | None]]:
    """Keys of messages and of those above them: a line, a comb, a star, or a tangle with cycles and loose ends."""
    count, shape = draw.choice(MANY), draw.randrange(5)
    edges: list[tuple[str, str | None]] = []
    for i in range(count):
        above = {0: i - 1, 1: i - 1 - i % 2, 2: 0, 3: draw.randrange(count + 1), 4: (i + 1) % count}[shape]
        if shape < 3 and draw.random() < 0.02:
            above = draw.randrange(count + 2)
        edges.append((f"m{i if draw.random() < 0.98 else 0}", f"m{above}" if i and above >= 0 else None))
    if shape == 4 or draw.random() < 0.2:
        draw.shuffle(edges)
    return edges


def _role(draw: random.Random, i: int) -> Any:
    return draw.choice((*ROLES, scalar(draw))) if draw.random() < 0.1 else ROLES[i % 2]


def _said(draw: random.Random) -> Any:
    return value(draw) if draw.random() < 0.1 else draw.choice(("yes", "What is it?", string(draw)))


class ChatGptImport(_Json):
    """conversations.json of ChatGPT."""

    name = "import chatgpt"
    samples = ("chatgpt.json",)

    def chat(self, draw: random.Random) -> Any:
        kinds = (
            "text",
            "code",
            "thoughts",
            "multimodal_text",
            "user_editable_context",
            "execution_output",
            string(draw),
        )
        nodes: dict[str, Any] = {}
        speakers = draw.choice((("user", "assistant"), ("assistant", "assistant")))
        edges = _edges(draw)
        for i, (key, above) in enumerate(edges):
            content = {"content_type": "text", "parts": [_said(draw)]}
            if draw.random() < 0.1:
                content = {
                    "content_type": draw.choice(kinds),
                    "parts": value(draw),
                    "text": value(draw),
                    "thoughts": value(draw),
                }
            role = _role(draw, i) if draw.random() < 0.1 else speakers[i % 2]
            message: Any = {
                "id": key,
                "author": {"role": role},
                "create_time": _time(draw),
                "content": content,
            }
            if draw.random() < 0.1:
                message["metadata"] = {
                    "is_visually_hidden_from_conversation": scalar(draw),
                    "model_slug": scalar(draw),
                }
            nodes[key] = {"id": key, "parent": above, "children": [], "message": message}
            if draw.random() < 0.05:
                nodes[key]["message"] = None
        # A comb: each reply goes on, and somebody answers to it as well.
        if speakers[0] == "assistant" and draw.random() < 0.5:
            ask = {"author": {"role": "user"}, "content": {"parts": ["q"]}}
            nodes |= {f"u{k}": {"parent": k, "message": ask} for k, _ in edges}
            nodes[edges[0][0]]["message"] = ask
        return {
            "title": _said(draw),
            "create_time": _time(draw),
            "mapping": nodes,
            "current_node": draw.choice(("m0", f"m{len(nodes) - 1}", "none", scalar(draw))),
            "conversation_id": draw.choice(("c1", "c2", scalar(draw))),
        }


def _time(draw: random.Random) -> Any:
    return (
        scalar(draw)
        if draw.random() < 0.1
        else draw.choice((1.7e9, 1_717_400_000, None, "2025-02-03T10:00:00Z"))
    )


class ClaudeImport(_Json):
    """conversations.json of Claude."""

    name = "import claude"
    samples = ("claude.json",)

    def chat(self, draw: random.Random) -> Any:
        messages = []
        for i, (key, above) in enumerate(_edges(draw)):
            message = (
                {
                    "uuid": key,
                    "text": _said(draw),
                    "sender": _role(draw, i),
                    "created_at": _time(draw),
                    "parent_message_uuid": above,
                }
                if draw.random() < 0.95
                else value(draw)
            )
            if isinstance(message, dict) and draw.random() < 0.2:
                kinds = ("text", "thinking", "tool_use", string(draw))
                message["content"] = [
                    {"type": draw.choice(kinds), "text": _said(draw), "thinking": _said(draw)}
                ]
            messages.append(message)
        return {"uuid": draw.choice(("c1", scalar(draw))), "name": _said(draw), "chat_messages": messages}


class OpenWebUiImport(_Json):
    """An export of Open WebUI."""

    name = "import open-webui"
    samples = ("open-webui.json",)

    def chat(self, draw: random.Random) -> Any:
        return {"id": draw.choice(("o1", scalar(draw))), "title": _said(draw), "chat": web_chat(draw)}


def web_chat(draw: random.Random) -> Any:
    """The part of it that Open WebUI keeps in its database too."""
    messages: dict[str, Any] = {}
    for i, (key, above) in enumerate(_edges(draw)):
        messages[key] = {"id": key, "parentId": above, "role": _role(draw, i), "content": _said(draw)}
        if draw.random() < 0.1:
            messages[key] |= {"timestamp": _time(draw), "files": value(draw), "model": scalar(draw)}
        if draw.random() < 0.05:
            thought = '<details type="reasoning" done="true">\n<summary>x</summary>\n&gt; y' + string(draw)
            messages[key]["content"] = thought + draw.choice(("</details>", "", "<details>" * 300))
    chat: dict[str, Any] = {"history": {"messages": messages, "currentId": draw.choice(("m0", scalar(draw)))}}
    if draw.random() < 0.3:
        chat |= {"models": value(draw), "params": draw.choice((value(draw), {"system": scalar(draw)}))}
    if draw.random() < 0.1:
        chat["messages"], chat["history"] = list(messages.values()), value(draw)
    return chat


class OpenAiImport(_Json):
    """Messages as OpenAI's API takes them, and the lists that others make of them."""

    name = "import openai"
    samples = ("openai-chat.json", "openai-chats.json", "openai-messages.json")

    def chat(self, draw: random.Random) -> Any:
        return openai_chat(draw)


def openai_chat(draw: random.Random) -> Any:
    """A chat in any of the forms."""
    said, who = draw.choice((("content", "role"), ("value", "from")))
    messages: list[Any] = []
    for i in range(draw.choice(MANY)):
        text = _said(draw)
        if draw.random() < 0.1:
            kinds = ("text", "image_url", "input_audio", string(draw))
            text = [{"type": draw.choice(kinds), "text": _said(draw)} for _ in range(draw.randrange(4))]
        messages.append({who: _role(draw, i), said: text} if draw.random() < 0.98 else value(draw))
        if draw.random() < 0.02:
            messages[-1] = {who: "assistant", "tool_calls": value(draw), "reasoning_content": value(draw)}
    forms: tuple[Callable[[], Any], ...] = (
        lambda: {"messages": messages, "title": scalar(draw), "model": scalar(draw), "id": scalar(draw)},
        lambda: {"conversations": messages},
        lambda: messages,
        lambda: messages[0],
    )
    return draw.choice(forms)()


class JsonLinesImport(_Json):
    """A chat, or a message, in each line."""

    name = "import jsonl"
    samples = ()
    ending = ".jsonl"

    def examples(self) -> None:
        self.texts = [(SAMPLES / name).read_bytes() for name in ("fine-tuning.jsonl", "messages.jsonl")]

    def content(self, draw: random.Random) -> bytes:
        if draw.random() < 0.4:
            return mutate_bytes(draw, draw.choice(self.texts), self.texts)
        lines = [
            draw.choice((b"", b" ", b"{", b'{"messages":', b"null", b"[]", draw.randbytes(9)))
            if draw.random() < 0.1
            else json_bytes(draw, openai_chat(draw)).replace(b"\n", b"")
            for _ in range(draw.choice((1, 2, 4)))
        ]
        return draw.choice((b"\n", b"\n", b"\r\n", b"\n\n", b"\r")).join(lines) + draw.choice(
            (b"", b"\n", b"\0")
        )


class MarkdownImport(Import):
    """What somebody copied, with headings, bold names or plain ones."""

    name = "import markdown"
    shown_one_in = 4

    def examples(self) -> None:
        self.texts = [(SAMPLES / name).read_bytes() for name in ("bold.md", "headings.md", "plain.txt")]

    def make(self, draw: random.Random) -> bytes:
        content = (
            mutate_bytes(draw, draw.choice(self.texts), self.texts)
            if draw.random() < 0.5
            else self._made(draw)
        )
        return self.named(draw, content, draw.choice((".md", ".md", ".txt")))

    @staticmethod
    def _made(draw: random.Random) -> bytes:
        names = ("You", "User", "Assistant", "ChatGPT", "System", "🧑 You", string(draw))
        forms = ("## {}", "**{}:** ", "{}: ", "# {} (10:02)", "### {}", "{}", "## {}:")
        form = draw.choice(forms)
        parts: list[str] = []
        for _ in range(draw.choice((0, 1, 2, 5) * 20 + (60, 60, 3000))):
            form = draw.choice(forms) if draw.random() < 0.1 else form
            text = draw.choice(("yes", "```\n## You", "---", "~~~", "- a\n- b", string(draw)))
            parts.append(form.format(draw.choice(names)) + draw.choice(("\n", "\n\n", "")) + text)
        text = draw.choice(("\n\n", "\n", "\n---\n", "\r\n\r\n", "\r")).join(parts)
        return (draw.choice(("", "", "\ufeff", "---\na: 1\n---\n")) + text).encode("utf-8", "surrogatepass")


class ExportZipImport(Import):
    """An archive as ChatGPT and Claude send it."""

    name = "import export zip"
    shown_one_in = 4

    def examples(self) -> None:
        chats = [(SAMPLES / name).read_bytes() for name in ("chatgpt.json", "claude.json")]
        self.entries = [
            ("conversations.json", chats[0]),
            ("export/conversations-001.json", chats[1]),
            ("user.json", b"{}"),
        ]
        self.whole = zip_of(self.entries)
        self.packed = zip_of(self.entries, zipfile.ZIP_DEFLATED)

    def make(self, draw: random.Random) -> bytes:
        kind = draw.randrange(10)
        if kind < 3:
            content = mutate_bytes(draw, draw.choice((self.whole, self.packed)))
        elif kind < 5:
            content = change_records(draw, draw.choice((self.whole, self.packed)))
        else:
            content = self._built(draw)
        return self.named(draw, content, ".zip")

    def _built(self, draw: random.Random) -> bytes:
        """Entries changed, twice, empty, of one letter a million times, under names that lead elsewhere."""
        entries = [(name, data) for name, data in self.entries if draw.random() < 0.7]
        names = (
            "conversations.json", "conversations 2.json", "x/conversations.json", "../conversations.json",
            "/conversations.json", "conversations.json/", "\x1b[31m/conversations.json", "\u202e/conversations-7.json",
            f"{string(draw)}/conversations.json", f"{'a' * 3000}/conversations.json", "chat.html",
        )  # fmt: skip
        for _ in range(draw.choice((1, 1, 2, 4))):
            _, sample = draw.choice(self.entries)
            changed = (
                mutate_bytes(draw, sample) if draw.random() < 0.7 else json_bytes(draw, [openai_chat(draw)])
            )
            data = draw.choice((changed, changed, changed, b"", b"[" + b" " * 2_000_000, b"0" * 10**6))
            entries.append((draw.choice(names), data))
        draw.shuffle(entries)
        entries = [(name.encode("utf-8", "replace").decode(), data) for name, data in entries]
        made = zip_of(entries, draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED)))
        return change_records(draw, made) if draw.random() < 0.2 else made
