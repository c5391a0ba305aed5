"""A stand-in for the Hugging Face hub: a server on this machine that answers as it does, with faults to order."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import unquote, urlsplit

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"


@dataclass
class HubServer:
    """Serves `files` of the repository `name`.

    Attributes:
        token: what is needed to see the repository, "" for nothing.    gated: that token does not suffice.
        cut: how many bytes each of the next answers sends before its connection ends.
        ignore_ranges: answers with the whole file, as some proxies do.    no_sums: tells neither size nor SHA-256.
        wrong: the bytes sent are not those of the sums.
        requests: method, path, Range and Authorization of each, as they came.
        storage: the host the bytes come from, which the hub redirects to.
    """

    name: str = "org/Small-GGUF"
    files: dict[str, bytes] = field(default_factory=dict)
    token: str = ""
    gated: bool = False
    cut: list[int] = field(default_factory=list)
    ignore_ranges: bool = False
    no_sums: bool = False
    wrong: bool = False
    busy: int = 0
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self._servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def storage(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_port}"

    def asked(self, part: str) -> list[tuple[str, str, str, str]]:
        return [request for request in self.requests if part in request[1]]

    # ---- answers ----

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(handler.path).path)
        authorization = handler.headers.get("Authorization", "")
        self.requests.append((handler.command, path, handler.headers.get("Range", ""), authorization))
        if handler.server is self._servers[1]:
            self._send_file(handler, self.files[path.removeprefix("/storage/")])
        elif self.busy:
            self.busy -= 1
            self._refuse(handler, 503, "")
        elif f"/{self.name}/" not in f"{path}/" or (
            self.token and authorization != f"Bearer {self.token}" and not self.gated
        ):
            self._refuse(handler, 401, "RepoNotFound")
        elif path in (f"/api/models/{self.name}", f"/api/models/{self.name}/revision/main"):
            self._send(handler, json.dumps(self._listing()).encode())
        elif self.gated:
            self._refuse(handler, 403, "GatedRepo")
        else:
            name = path.removeprefix(f"/{self.name}/resolve/{COMMIT}/")
            data = self.files.get(name)
            if data is None:
                self._refuse(handler, 404, "EntryNotFound")
                return
            handler.send_response(302)
            handler.send_header("Location", f"{self.storage}/storage/{name}")
            handler.send_header("X-Repo-Commit", COMMIT)
            handler.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
            handler.send_header("X-Linked-Size", str(len(data)))
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    def _listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = [{"rfilename": "README.md", "size": 3, "blobId": "a"}]
        for name, data in self.files.items():
            lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            known: dict[str, object] = {} if self.no_sums else {"size": len(data), "blobId": "b", "lfs": lfs}
            siblings.append({"rfilename": name, **known})
        return {"id": self.name, "modelId": self.name, "sha": COMMIT, "private": False, "siblings": siblings}

    def _send(self, handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _refuse(self, handler: http.server.BaseHTTPRequestHandler, code: int, kind: str) -> None:
        handler.send_response(code)
        if kind:
            handler.send_header("X-Error-Code", kind)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def _send_file(self, handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        data = bytes(len(data)) if self.wrong else data
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if asked and not self.ignore_ranges:
            start = int(asked[1])
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            data = data[start:]
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: self.cut.pop(0)] if self.cut else data)
