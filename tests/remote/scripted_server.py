"""An OpenAI-compatible server that says what a test tells it to, in this process, on a free port of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def piece(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    """One event of a streamed reply."""
    delta = {"content": text} if text else {}
    data = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass
class Answer:
    """What is sent to one request. `parts` are written one by one; a callable among them is called in its turn.

    Attributes:
        whole: end the body as HTTP wants it; False breaks the connection off.
    """

    parts: list[bytes | Callable[[], object]] = field(default_factory=list)
    status: int = 200
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    whole: bool = True


def says(*texts: str, finish: str = "stop", usage: dict[str, Any] | None = None) -> Answer:
    """A whole reply."""
    last = [piece("", finish)] + ([piece(usage=usage)] if usage else [])
    return Answer([*(piece(text) for text in texts), *last, DONE])


def refuses(status: int, words: str = "", **headers: str) -> Answer:
    """An error as OpenAI words it."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": {"message": words}}).encode()
    return Answer([body], status, "application/json", names)


@dataclass
class Scripted:
    """The server's state: `replies` to chat completions in their order (the last one again and again), and all that was
    asked, as (method, path, body, headers)."""

    replies: list[Answer] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "little"}])
    paths: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Of the chat completions that were asked for."""
        return [body for _, path, body, _ in self.asked if path.endswith("/chat/completions")]


@contextmanager
def serving(script: Scripted | None = None) -> Iterator[Scripted]:
    """A server that runs as long as the block."""
    script = script or Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            body = json.loads(data) if data else None
            script.asked.append((self.command, self.path, body, dict(self.headers.items())))
            if self.path in script.paths:
                answer = script.paths[self.path]
            elif self.path == "/v1/models":
                answer = Answer([json.dumps({"data": script.models}).encode()], kind="application/json")
            elif self.path == "/v1/chat/completions" and script.replies:
                answer = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
            else:
                answer = refuses(404, "no such path")
            self.send_response(answer.status)
            if answer.kind:
                self.send_header("Content-Type", answer.kind)
            self.send_header("Transfer-Encoding", "chunked")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in answer.parts:
                    if callable(part):
                        part()
                    else:
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                        self.wfile.flush()
                if answer.whole:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True
            if not answer.whole:
                self.close_connection = True

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that hangs up is what many tests want

    server = Quiet(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
